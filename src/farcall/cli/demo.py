"""``farcall demo``: takes a real model from ONNX to one artifact, and runs it here and in a server."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farcall.cli import _show
from farcall.cli._progress import Show, shown
from farcall.cli._settings import setting
from farcall.cli.build import region_rows

if TYPE_CHECKING:
    import numpy as np

    from farcall.artifact import Plan
    from farcall.backends.base import Backend

BATCHES = (1, 32, 360)  # one artifact serves all of them, since its batch is symbolic
REPEATS = 30

Route = Callable[["np.ndarray"], "np.ndarray"]


@click.command("demo")
@click.option(
    "--output",
    default="farcall-demo",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Folder for the files that the demo writes.",
)
@setting("json")
def command(output: Path, json_: bool) -> None:
    """Cut a model between an example accelerator and the C backend; run it here and in a server.

    The model, a small CNN, classifies 360 held-out scans of handwritten digits. The demo compares its
    results with those of the ONNX reference evaluator.

    \b
    farcall demo                     writes digits.so, a picture and a trace into farcall-demo
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
    report: dict[str, Any] = {
        **_measured(artifact, images, labels, _reference(model, images), trace),
        "regions": region_rows(plan.regions),
        "artifact_bytes": artifact.stat().st_size,
        "build_seconds": build_seconds,
        "svg": str(output / "partition.svg"),
        "trace": str(trace),
    }
    if json_:
        _show.as_json("demo", report)
    else:
        _print(report, artifact)


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


def _measured(
    artifact: Path, images: np.ndarray, labels: np.ndarray, expected: np.ndarray, trace: Path
) -> dict[str, dict[str, Any]]:
    """Measure accuracy, difference from the reference, and latency, in this process and in a server.

    Also traces one call of each.
    """
    import numpy as np

    import farcall as fc

    here: Route = fc.load_module(artifact)["main"]
    latencies, logits = {"local": _latencies(here, images)}, {"local": here(images)}
    with _server() as url, fc.connect(url) as session:
        there = session.load_module(artifact)["main"]

        def far(batch: np.ndarray) -> np.ndarray:
            result: np.ndarray = there(session.tensor(batch)).numpy()
            return result

        latencies["remote"], logits["remote"] = _latencies(far, images), far(images)
        with fc.trace(trace):
            here(images[:1])
            far(images[:1])
    return {
        "accuracy": {k: float((v.argmax(1) == labels).mean()) for k, v in logits.items()},
        "max_abs_diff": {k: float(np.abs(v - expected).max()) for k, v in logits.items()},
        "latency_us": {k: {str(n): us for n, us in v.items()} for k, v in latencies.items()},
    }


def _print(report: dict[str, Any], artifact: Path) -> None:
    _show.table(
        "360 handwritten digits, compared with the ONNX reference",
        ("route", "batch>", "accuracy>", "median latency>", "largest difference>"),
        [
            (
                route,
                batch,
                f"{report['accuracy'][route]:.4f}",
                f"{us:,.1f} us",
                f"{report['max_abs_diff'][route]:.1e}",
            )
            for route, latencies in report["latency_us"].items()
            for batch, us in latencies.items()
        ],
    )
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
    spec = importlib.util.spec_from_file_location("farcall_example_npu", folder / "backends" / "npu.py")
    assert spec is not None and spec.loader is not None  # noqa: S101  a .py path always has a loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with np.load(folder / "digits" / "test.npz", allow_pickle=False) as data:
        images, labels = data["images"].astype(np.float32) / 16, data["labels"]
    return folder / "digits" / "digits.onnx", module.NpuBackend(), images, labels


def _reference(model: Path, images: np.ndarray) -> np.ndarray:
    from onnx.reference import ReferenceEvaluator

    evaluator: Any = ReferenceEvaluator(str(model))
    result: np.ndarray = evaluator.run(None, {evaluator.input_names[0]: images})[0]
    return result


def _latencies(route: Route, images: np.ndarray) -> dict[int, float]:
    """Median microseconds of a call, by batch. The first call allocates, so it does not count."""
    medians = {}
    for batch in BATCHES:
        x = images[:batch]
        route(x)
        samples = []
        for _ in range(REPEATS):
            start = time.perf_counter_ns()
            route(x)
            samples.append((time.perf_counter_ns() - start) / 1e3)
        medians[batch] = statistics.median(samples)
    return medians


@contextmanager
def _server() -> Iterator[str]:
    """Run ``farcall serve`` on loopback in a process of its own; yields its address."""
    from farcall.errors import ConnectError

    words = [sys.executable, "-m", "farcall", "serve", "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith("listening on "):
                raise ConnectError(
                    f"the server did not start: expected `listening on URL`, got {line!r}; "
                    "run `farcall serve` to see the reason"
                )
            yield line.removeprefix("listening on ").strip()
        finally:
            process.terminate()
