"""``farcall build``: builds an ONNX model into one artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from farcall.cli import _show


@click.command("build", short_help="Build an ONNX model into one file.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Path of the artifact.")
@click.option(
    "--backends", default="c", show_default=True, help="Names of backends, in order of priority: a,b,c."
)
@click.option(
    "--target",
    default=None,
    help="Machine to compile for, such as aarch64-linux-musl. [default: this machine]",
)
@click.option("--svg", type=click.Path(path_type=Path), help="Also draw the partition into this SVG file.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(
    model: Path, output: Path, backends: str, target: str | None, svg: Path | None, json_: bool
) -> None:
    """Build MODEL (ONNX) into one file that holds code, constants and Signatures.

    \b
    farcall build model.onnx -o model.so
    farcall build model.onnx -o model.so --backends npu,c --svg partition.svg
    """
    import farcall as fc
    from farcall._files import check_folder, write_beside

    for file in filter(None, (output, svg)):
        check_folder(file)
    plan = fc.partition(model, backends=[name.strip() for name in backends.split(",") if name.strip()])
    artifact = plan.build(target=target)
    artifact.save(output)
    if svg:
        write_beside(svg, plan.svg().encode())
    report: dict[str, Any] = {
        "artifact": str(output),
        "artifact_bytes": output.stat().st_size,
        "signature": str(plan.signature),
        "regions": region_rows(plan.regions),
    }
    if json_:
        _show.as_json(report)
        return
    _show.note(str(plan))
    _show.note(f"main{plan.signature}")
    click.echo(f"{output}: {_show.size(report['artifact_bytes'])}")


def region_rows(regions: Any) -> list[dict[str, Any]]:
    """One row for each region of a plan: name, backend, number of nodes, operators in order of first use."""
    return [
        {
            "name": region.name,
            "backend": region.backend,
            "nodes": len(region.nodes),
            "operators": list(dict.fromkeys(node.op_type for node in region.nodes)),
        }
        for region in regions
    ]
