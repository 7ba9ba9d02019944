"""``farcall demo``: takes a real model from ONNX to one artifact, and runs it here and elsewhere."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farcall.cli import _show
from farcall.cli._demo_routes import DSP, Result, host, measure, obstacle, of_session, on_emulated, server
from farcall.cli._progress import Show, shown
from farcall.cli._settings import setting
from farcall.cli.build import region_rows

if TYPE_CHECKING:
    import numpy as np

    from farcall.artifact import Plan
    from farcall.backends.base import Backend

_DEVICE = "aarch64"
_ALL_DEVICES = (_DEVICE, "armv7", "riscv64", "s390x", DSP)


@click.command("demo")
@click.option(
    "--output",
    default="farcall-demo",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Folder for the files that the demo writes.",
)
@click.option("--devices", "all_", is_flag=True, help="Run on five more machines, one behind another.")
@setting("json")
def command(output: Path, all_: bool, json_: bool) -> None:
    """Cut a model between an example accelerator and the C backend; run it here, in a server, on a device.

    The model, a small CNN, classifies 360 held-out scans of handwritten digits. The demo compares its
    results with those of the ONNX reference evaluator. The device is emulated, which needs qemu-user and
    the package ziglang; without them, it is left out.

    \b
    farcall demo                     writes digits.so, a picture and a trace into farcall-demo
    farcall demo --devices           aarch64, armv7, riscv64, s390x, and Hexagon behind aarch64
    farcall demo --output elsewhere --json
    """
    model, accelerator, images, labels = _ingredients()
    _show.note("1. partition: decide which backend computes which nodes")
    with shown() as progress:
        plan = _partition(model, accelerator, output, progress)
    if not json_:
        click.echo(plan)
    _show.note("2. build: compile the regions into one file")
    artifact, trace = output / "digits.so", output / "trace.json"
    start = time.perf_counter()
    with shown() as progress:
        plan.build(progress=progress).save(artifact)
    build_seconds = time.perf_counter() - start
    _show.note(
        f"3. run {len(images)} images: in this process, in a server process, in the ONNX reference evaluator"
    )
    results = _here_and_there(artifact, images, trace)
    expected = _reference(model, images)
    names = _ALL_DEVICES if all_ else (_DEVICE,)
    skipped = {name: reason for name in names if (reason := obstacle(name))}
    if len(skipped) < len(names):
        _show.note("4. run them on emulated devices (what a machine needs is built once, in about a minute)")
    for name in names:
        if name not in skipped:
            results[name] = on_emulated(name, plan, output / f"digits.{name}.so", images)
    report: dict[str, Any] = {
        **_figures(results, labels, expected),
        "way": {route: result.way for route, result in results.items()},
        "skipped": skipped,
        "regions": region_rows(plan.regions),
        "artifact_bytes": artifact.stat().st_size,
        "build_seconds": build_seconds,
        "svg": str(output / "partition.svg"),
        "trace": str(trace),
    }
    if DSP in results:
        report["quantised"] = _quantised(output, images, labels)
    if json_:
        _show.as_json("demo", report)
    else:
        _print(report, artifact, ways=all_)


def _partition(model: Path, accelerator: Backend, output: Path, progress: Show | None) -> Plan:
    """Partition the model, and write the result as ONNX and as a picture."""
    import farcall as fc
    from farcall._files import write_beside
    from farcall.errors import UsageError

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {str(output)!r}: {error.strerror}; name another with --output"
        ) from None
    plan = fc.partition(model, backends=[accelerator, "c"], progress=progress)
    write_beside(output / "partition.svg", plan.svg().encode())
    plan.save(output / "digits.partitioned.onnx")
    return plan


def _here_and_there(artifact: Path, images: np.ndarray, trace: Path) -> dict[str, Result]:
    """Measure in this process and in a server. Also traces one call of each."""
    import farcall as fc

    here = fc.load_module(artifact)["main"]
    with server() as url, fc.connect(url) as session:
        there = of_session(session, artifact)
        results = {
            "local": measure(here, images, host()),
            "remote": measure(there, images, f"{host()} --tcp--> {host()} (farcall serve)"),
        }
        with fc.trace(trace):
            here(images[:1])
            there(images[:1])
    return results


def _quantised(output: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Measure the model of int8 weights on the DSP: by its vector unit, and by C alone.

    Sums of integers are exact, so both are compared with the C backend here.
    """
    import farcall as fc

    model = _examples() / "digits" / "digits_int8.onnx"
    plain = fc.partition(model, backends=["c"])
    plans = {"hvx": fc.partition(model, backends=[_example_backend("hvx").HvxBackend(), "c"]), "c": plain}
    results = {
        name: on_emulated(DSP, plan, output / f"digits_int8.{name}.so", images)
        for name, plan in plans.items()
    }
    return _figures(results, labels, plain.build().load()["main"](images))


def _figures(results: Mapping[str, Result], labels: np.ndarray, expected: np.ndarray) -> dict[str, Any]:
    """Accuracy, difference from the expected outputs, and latency, by route."""
    import numpy as np

    return {
        "accuracy": {k: float((r.outputs.argmax(1) == labels).mean()) for k, r in results.items()},
        "max_abs_diff": {k: float(np.abs(r.outputs - expected).max()) for k, r in results.items()},
        "latency_us": {k: {str(n): us for n, us in r.latencies.items()} for k, r in results.items()},
    }


def _table(title: str, first: str, figures: Mapping[str, Any]) -> None:
    _show.table(
        title,
        (first, "batch>", "accuracy>", "median latency>", "largest difference>"),
        [
            (
                route,
                batch,
                f"{figures['accuracy'][route]:.4f}",
                f"{us:,.1f} us",
                f"{figures['max_abs_diff'][route]:.1e}",
            )
            for route, latencies in figures["latency_us"].items()
            for batch, us in latencies.items()
        ],
    )


def _print(report: dict[str, Any], artifact: Path, *, ways: bool) -> None:
    _table("360 handwritten digits, compared with the ONNX reference", "route", report)
    for name, reason in report["skipped"].items():
        click.echo(f"{name:<9}  skipped: {reason}")
    if "quantised" in report:
        title = "The quantised model on the DSP, its vector unit (hvx) beside C, compared with C here"
        _table(title, "backend", report["quantised"])
    if ways:
        _show.table("The way to each route", ("route", "way"), report["way"].items())
    built = f"{_show.size(report['artifact_bytes'])}, built in {report['build_seconds']:.2f} s"
    click.echo(f"artifact   {artifact} ({built})")
    click.echo(f"picture    {report['svg']} (open it in a browser)")
    click.echo(f"model      {artifact.with_name('digits.partitioned.onnx')} (valid ONNX; open it in netron)")
    click.echo(f"trace      {report['trace']} (one call here, one on the server; open it in ui.perfetto.dev)")
    click.echo("\nNext:")
    click.echo(f"  farcall inspect {artifact}")
    click.echo(f"  farcall trace summary {report['trace']}")
    click.echo("  farcall serve            # and, elsewhere: farcall run ARTIFACT --on tcp://HOST:PORT ...")
    click.echo("  farcall build YOUR.onnx -o YOUR.so")


def _examples() -> Path:
    """The folder of the examples: inside the installed package, or beside ``src`` in a checkout."""
    from farcall.errors import UsageError

    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / "digits" / "digits.onnx").is_file():
            return folder
    raise UsageError(
        "the demo's files are not installed; install farcall from its wheel or run in a checkout"
    )


def _ingredients() -> tuple[Path, Backend, np.ndarray, np.ndarray]:
    """The model, the example accelerator, and the held-out images (float32 [360, 1, 8, 8]) with labels."""
    from farcall._extras import require_compile

    require_compile()
    import numpy as np

    folder = _examples()
    with np.load(folder / "digits" / "test.npz", allow_pickle=False) as data:
        images, labels = data["images"].astype(np.float32) / 16, data["labels"]
    return folder / "digits" / "digits.onnx", _example_backend("npu").NpuBackend(), images, labels


def _example_backend(name: str) -> Any:
    """The module of an example backend."""
    path = _examples() / "backends" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"farcall_example_{name}", path)
    assert spec is not None and spec.loader is not None  # noqa: S101  a .py path always has a loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _reference(model: Path, images: np.ndarray) -> np.ndarray:
    from onnx.reference import ReferenceEvaluator

    evaluator: Any = ReferenceEvaluator(str(model))
    result: np.ndarray = evaluator.run(None, {evaluator.input_names[0]: images})[0]
    return result
