"""``farcall explain``: says which backend gets which node of a model, and why."""

from __future__ import annotations

from pathlib import Path

import click

from farcall.cli import _show
from farcall.cli._backends import backend_options, chosen
from farcall.cli._models import source
from farcall.cli._progress import shown
from farcall.cli._rules import rule_options, rules
from farcall.cli._settings import setting


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

    MODEL is ONNX, or a program of torch.export (.pt2).

    NODE is a name or a pattern of names.

    \b
    farcall explain model.onnx --backends npu,c
    farcall explain model.onnx /layer1/conv --backends npu,c
    farcall explain model.onnx '/layer1/*' --backends npu,c --exclude 'npu=/layer1/*'
    """
    from dataclasses import asdict

    import farcall as fc
    from farcall.graph._rules import matching

    with shown() as progress:
        plan = fc.partition(
            source(model),
            backends=chosen(backends, backend_options),
            **rules(pin, exclude, min_nodes),
            progress=progress,
        )
    whys = plan.partition.whys
    found = matching(node, {why.node: why for why in whys}) if node else list(whys)
    if json_:
        _show.as_json("explain", {"model": plan.model.name, "nodes": [asdict(why) for why in found]})
    elif node:
        click.echo("\n\n".join(map(str, found)))
    else:
        rows = [(why.node, why.operator, why.region, why.reason) for why in found]
        _show.table("Nodes", ("node", "operator", "region", "taken"), rows)
        counts = {one.backend: 0 for why in found for one in why.verdicts}
        _show.note(str(plan).splitlines()[0] + f"; asked: {', '.join(counts)}")
        _show.note(f"next: farcall explain {model} NODE")
