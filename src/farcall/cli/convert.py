"""``farcall convert``: writes a model in another opset."""

from __future__ import annotations

from pathlib import Path

import click

from farcall.cli import _show
from farcall.cli._models import source


@click.command("convert")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--opset", type=int, required=True, help="The opset to write, newer or older than the model's.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Path of the new model. [default: MODEL-opsetN.onnx, in this folder]",
)
def command(model: Path, opset: int, output: Path | None) -> None:
    """Write MODEL in another opset. It computes the same, or the command fails and names the node.

    MODEL is ONNX, or a program of torch.export (.pt2; only of people you trust). Models of any opset can be
    built as they are; this is for other tools.

    \b
    farcall convert model.onnx --opset 13                  writes model-opset13.onnx
    farcall convert old.onnx --opset 22 -o new.onnx
    """
    from farcall._files import check_folder
    from farcall.graph import convert_opset, save_model

    output = output or Path(f"{model.stem}-opset{opset}.onnx")
    check_folder(output)
    converted = convert_opset(source(model), opset)
    save_model(converted, output)
    _show.note(f"opset {opset}, {len(converted.graph)} nodes")
    click.echo(f"{output}: {_show.size(output.stat().st_size)}")
