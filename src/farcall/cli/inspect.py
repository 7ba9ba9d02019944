"""``farcall inspect``: shows the contents of an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from farcall.abi import Signature, TensorSpec
from farcall.abi._structure import slots
from farcall.cli import _show
from farcall.cli._settings import setting


@click.command("inspect")
@click.argument("artifact", type=click.Path(path_type=Path))
@setting("json", help="Print one JSON object: the whole manifest.")
def command(artifact: Path, json_: bool) -> None:
    """Show functions, Signatures, regions, constants, target and versions of ARTIFACT.

    The command reads and checks the file, but never loads it. The file may be built for another machine.

    \b
    farcall inspect model.so
    farcall inspect model.so --json | jq .functions
    """
    from farcall.artifact import inspect

    manifest = inspect(artifact)
    if json_:
        _show.as_json("inspect", {"artifact_bytes": artifact.stat().st_size, **msgspec.to_builtins(manifest)})
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
    _show.table("Artifact", ("property", "value"), facts)
    for name, function in manifest.functions.items():
        click.echo(f"{name}{function.signature}")
        _show.table(
            f"Function {name}",
            ("", "name", "type", "default", "description"),
            _leaf_rows(function.signature),
        )
    _show.table(
        "Regions",
        ("name", "backend", "nodes>", "operators"),
        [
            (r.name, r.backend, r.nodes, ", ".join(f"{k} x{n}" for k, n in r.operators.items()))
            for r in manifest.regions
        ],
    )


def _leaf_rows(signature: Signature) -> Iterator[tuple[str, ...]]:
    """One row for each leaf of the arguments and results."""
    for parameter in signature.parameters:
        default = "" if parameter.default is msgspec.UNSET else repr(parameter.default)
        leaves = list(slots(parameter.node))
        if not leaves:
            yield "argument", parameter.name, signature.parameter_type(parameter), default, parameter.doc
        for path, index in leaves:
            leaf = signature.inputs[index]
            access = leaf.access if isinstance(leaf, TensorSpec) else "in"
            kind = "argument" if access == "in" else f"argument ({access})"
            yield kind, parameter.name + path, leaf.type, default, parameter.doc
    for path, index in slots(signature.result_node):
        leaf = signature.outputs[index]
        yield "result", leaf.name or f"result{path}", leaf.type, "", ""
