"""``farcall build``: builds an ONNX model into one artifact."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from farcall.cli import _show
from farcall.cli._access import Access, access_options
from farcall.cli._backends import backend_options, chosen, device_option
from farcall.cli._models import source
from farcall.cli._progress import shown
from farcall.cli._rules import rule_options, rules
from farcall.cli._settings import setting

if TYPE_CHECKING:
    from farcall import Plan


@click.command("build")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Path of the artifact. [default: the model's name with .so (static: .a), in this folder]",
)
@setting("backends")
@backend_options
@rule_options
@device_option
@setting("target")
@click.option(
    "--link",
    type=click.Choice(["shared", "static"]),
    default="shared",
    show_default=True,
    help="static: a library (.a) and a C header for a program of your own.",
)
@click.option("--name", help="Name of a static library, with which its C names begin. [default: the model's]")
@click.option("--svg", type=click.Path(path_type=Path), help="Also draw the partition into this SVG file.")
@click.option(
    "--emit", type=click.Path(path_type=Path), help="Also write the code of each region to this folder."
)
@click.option(
    "--profile", is_flag=True, help="Put clocks around operators, whose times farcall run --profile tells."
)
@click.option(
    "--tune",
    is_flag=True,
    help="Measure in which way each operator is the fastest, and take that one.",
)
@click.option(
    "--budget-s",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="With --tune: the seconds after which nothing more is measured.",
)
@setting(
    "on",
    metavar="URL",
    help="With --tune: measure on the server at this address, or on a device, such as emulator:aarch64; "
    "its target is the default one.",
)
@access_options
@click.option("--dry-run", is_flag=True, help="Only say what each part would run on, and what would be slow.")
@setting("json")
def command(
    model: Path,
    output: Path | None,
    backends: str,
    backend_options: tuple[str, ...],
    pin: tuple[str, ...],
    exclude: tuple[str, ...],
    min_nodes: tuple[str, ...],
    devices: dict[str, str],
    target: str | None,
    link: Literal["shared", "static"],
    name: str | None,
    svg: Path | None,
    emit: Path | None,
    profile: bool,
    tune: bool,
    budget_s: float,
    url: str | None,
    access: Access,
    dry_run: bool,
    json_: bool,
) -> None:
    """Build MODEL into one file that holds code, constants and Signatures.

    MODEL is ONNX, or a program of torch.export (.pt2; only of people you trust).

    \b
    farcall build model.onnx                               writes model.so
    farcall build model.onnx -o model.so --backends c,acme_npu:NpuBackend --svg partition.svg
    farcall build model.onnx --target aarch64-linux-musl --device dsp0=hexagon-linux-musl \\
        --backend-option dsp0.operators=Conv,Relu
    farcall build model.onnx --link static -o model.a       writes model.a and model.h
    farcall build model.onnx --tune --on emulator:aarch64   builds for the device the ways that are fast there
    farcall build model.onnx --dry-run                      builds nothing: who would compute what, sizes
    """
    import farcall as fc
    from farcall._files import check_folder, write_beside
    from farcall.toolchain import Target

    for text in (target, *filter(None, devices.values())):
        Target.parse(text)  # a misspelled target is known before the work
    output = output or Path(f"{model.stem}.{'a' if link == 'static' else 'so'}")
    for file in filter(None, (output, svg)):
        check_folder(file)
    with ExitStack() as stack:
        progress = stack.enter_context(shown())
        plan = fc.partition(
            source(model),
            backends=chosen(backends, backend_options, devices),
            **rules(pin, exclude, min_nodes),
            progress=progress,
        )
        if dry_run:
            show_forecast(plan, target, json_)
            return
        there = {device: text for device, text in devices.items() if text}
        place = stack.enter_context(access.server(url)) if tune and url else None
        session = stack.enter_context(access.session(place)) if place else None
        target = target or (str(place.target) if place and place.target else None)
        artifact = plan.build(
            target=target, link=link, name=name, devices=there, profile=profile, progress=progress,
            tune=tune, on=session, budget_s=budget_s,
        )  # fmt: skip
    artifact.save(output)
    if svg:
        write_beside(svg, plan.svg().encode())
    if emit:
        plan.emit(emit, target)
    report: dict[str, Any] = {
        "artifact": str(output),
        "artifact_bytes": output.stat().st_size,
        "signature": str(plan.signature),
        "regions": region_rows(plan.regions),
    }
    if json_:
        _show.as_json("build", report)
        return
    _show.note(str(plan))
    _show.note(f"main{plan.signature}")
    click.echo(f"{output}: {_show.size(report['artifact_bytes'])}")


def show_forecast(plan: Plan, target: str | None, json_: bool) -> None:
    """Print what the build would make."""
    regions = plan.forecast(target)
    if json_:
        rows = [asdict(region) for region in regions]
        _show.as_json("build dry-run", {"signature": str(plan.signature), "regions": rows})
        return
    columns = (
        "name",
        "backend",
        "nodes>",
        "operators",
        "constants>",
        "bytes in and out>",
        "multiply-adds>",
        "notes",
    )
    _show.table("Regions", columns, [region.row for region in regions])
    _show.note(f"main{plan.signature}")
    _show.note(str(plan).splitlines()[0] + "; nothing was built")


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
