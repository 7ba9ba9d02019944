"""``farcall explain``: says which backend gets which node of a model, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farcall._texts import count
from farcall.cli import _show
from farcall.cli._backends import backend_options, chosen
from farcall.cli._models import source
from farcall.cli._progress import shown
from farcall.cli._rules import rule_options, rules
from farcall.cli._settings import setting
from farcall.errors import UsageError

if TYPE_CHECKING:
    from farcall.library._why import Why


@click.command("explain")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("node", required=False)
@setting("backends")
@backend_options
@rule_options
@setting("json")
def command(
    model: Path,
    node: str | None,
    backends: str,
    backend_options: tuple[str, ...],
    pin: tuple[str, ...],
    exclude: tuple[str, ...],
    min_nodes: tuple[str, ...],
    json_: bool,
) -> None:
    """Say which backend gets each node of MODEL, and why; of NODE, what every backend said.

    MODEL is ONNX, a program of torch.export (.pt2), or an artifact for any machine, which tells what was
    said when it was built.

    NODE is a name or a pattern of names.

    \b
    farcall explain model.onnx --backends npu,c
    farcall explain model.onnx /layer1/conv --backends npu,c
    farcall explain model.onnx '/layer1/*' --backends npu,c --exclude 'npu=/layer1/*'
    farcall explain model.so /layer1/conv
    """
    from dataclasses import asdict

    from farcall.library._why import matching

    if _is_library(model):
        if given := [*backend_options, *pin, *exclude, *min_nodes]:
            raise UsageError(
                f"{model} is an artifact, which was cut when it was built: {given[0]!r} is for models"
            )
        name, whys, about = _of_artifact(model)
    else:
        more = rules(pin, exclude, min_nodes)
        name, whys, about = _of_model(model, node, backends, backend_options, more)
    found = matching(node, {why.node: why for why in whys}) if node else list(whys)
    if json_:
        _show.as_json("explain", {"model": name, "nodes": [asdict(why) for why in found]})
    elif node:
        click.echo("\n\n".join(map(str, found)))
    else:
        rows = [(why.node, why.operator, why.region, why.reason) for why in found]
        _show.table("Nodes", ("node", "operator", "region", "taken"), rows)
        asked = dict.fromkeys(one.backend for why in found for one in why.verdicts)
        _show.note(f"{about}; asked: {', '.join(asked)}")
        _show.note(f"next: farcall explain {model} NODE")


def _is_library(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(8).startswith((b"\x7fELF", b"!<arch>\n"))
    except OSError:
        return False  # who reads the model says what is wrong


def _of_artifact(path: Path) -> tuple[str, Sequence[Why], str]:
    """The model's name, the answers about its nodes, and what the artifact is, in a line."""
    from farcall.library import inspect

    manifest = inspect(path)
    counts = ", ".join(f"{one.name}: {count(one.nodes, 'node')}" for one in manifest.regions[:5])
    more = ", ..." * (len(manifest.regions) > 5)
    about = (
        f"{manifest.model.name} for {manifest.target.triple}, built by {manifest.producer} ({counts}{more})"
    )
    return manifest.model.name, manifest.whys, about


def _of_model(
    path: Path, node: str | None, backends: str, backend_options: Sequence[str], more: Mapping[str, Any]
) -> tuple[str, Sequence[Why], str]:
    import farcall as fc

    with shown() as progress:
        plan = fc.partition(
            source(path), backends=chosen(backends, backend_options), **more, progress=progress
        )
    if node:
        plan.why(node)  # says why a node is in no region
    return plan.model.name, plan.partition.whys, str(plan).splitlines()[0]
