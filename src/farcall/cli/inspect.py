"""``farcall inspect``: what is in an artifact."""

from __future__ import annotations

from pathlib import Path

import click

from farcall.cli import _show


@click.command("inspect", short_help="Show what is in an artifact.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--json", "json_", is_flag=True, help="Print one JSON object: the whole manifest.")
def command(artifact: Path, json_: bool) -> None:
    """Show functions, signatures, regions, constants, target and versions of ARTIFACT.

    The file is read and checked, never loaded: one that was built for another machine can be looked at too.
    """
    import msgspec

    from farcall.artifact import inspect

    manifest = inspect(artifact)
    if json_:
        _show.as_json({"artifact_bytes": artifact.stat().st_size, **msgspec.to_builtins(manifest)})
        return
    click.echo(f"{artifact}: {_show.size(artifact.stat().st_size)}")
    facts = [
        ("made by", manifest.producer),
        ("target", " ".join(filter(None, (manifest.target.triple, manifest.target.cpu)))),
        ("model", manifest.model.name),
        ("backends", ", ".join(manifest.backends)),
        ("constants", f"{manifest.constants.count}, {_show.size(manifest.constants.bytes)}"),
        ("format", manifest.format),
    ]
    _show.table("Artifact", ("what", "value"), facts)
    _show.table(
        "Functions",
        ("name", "signature"),
        [(name, function.signature) for name, function in manifest.functions.items()],
    )
    _show.table(
        "Regions",
        ("name", "backend", "nodes>", "operators"),
        [
            (r.name, r.backend, r.nodes, ", ".join(f"{k} x{n}" for k, n in r.operators.items()))
            for r in manifest.regions
        ],
    )
