"""``farcall run``: runs a model or an artifact on files, here or on another machine."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from farcall.cli import _show
from farcall.cli._access import Access, Place, access_options
from farcall.cli._backends import backend_options, chosen
from farcall.cli._printed import output_option, output_shown
from farcall.cli._progress import Show, shown
from farcall.cli._settings import setting

if TYPE_CHECKING:
    import numpy as np

    from farcall.abi import Signature
    from farcall.rpc import Profile, ProfiledRegion, ProfiledStep, Session
    from farcall.toolchain import Target

_CALLS, _SECONDS = 11, 0.25  # a quick call is repeated, up to so many times and seconds


@click.command("run")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy",
    help="One input; repeat it for each. A nested input has a path (tokens.ids.1=FILE.npy), and a number may "
    "replace the file (scale=0.5).",
)
@setting(
    "on",
    metavar="URL",
    help="Run on the server at this address, or on a device, such as "
    "emulator:aarch64, where a server is started.",
)
@access_options
@setting("backends")
@backend_options
@click.option("--output", type=click.Path(path_type=Path), help="Folder for the results, as NAME.npy files.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Write a trace of the call, with every hop, for Perfetto or chrome://tracing.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Also measure each region by itself, and each operator, if MODEL is ONNX or was built by "
    "farcall build --profile. With it, --trace shows these times.",
)
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    help="Draw the model into this SVG file, in the colours of its regions' times. Means --profile.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="On how many threads to compute in this process (default: all CPUs).",
)
@output_option
@setting("json")
def command(
    model: Path,
    inputs: tuple[str, ...],
    url: str | None,
    access: Access,
    backends: str,
    backend_options: tuple[str, ...],
    output: Path | None,
    trace: Path | None,
    profile: bool,
    svg: Path | None,
    threads: int | None,
    show_output: bool,
    json_: bool,
) -> None:
    """Run MODEL (an ONNX model or an artifact) on .npy files.

    \b
    farcall run model.so --input x=x.npy --output results
    farcall run model.onnx --input x=x.npy --on tcp://127.0.0.1:9090
    farcall run model.onnx --input x=x.npy --on emulator:aarch64
    farcall run model.so --input x=x.npy --on tls://board:9090 --trace trace.json \\
        --ca ca.pem --cert me.pem --cert-key me.key
    farcall run model.onnx --input x=x.npy --profile --svg times.svg
    """
    import farcall as fc
    from farcall._files import check_folder
    from farcall.artifact import inspect
    from farcall.cli._arguments import read_inputs, result_arrays

    profile = profile or svg is not None
    for file in filter(None, (svg, trace)):
        check_folder(file)
    if threads is not None and url:
        raise click.UsageError(
            "--threads counts in this process: a server computes on as many threads as FARCALL_THREADS says "
            "in its environment"
        )
    recorded = trace if not profile else None
    with ExitStack() as stack:
        stack.enter_context(fc.use_threads(threads))
        if recorded is not None:
            stack.enter_context(fc.trace(recorded))
        progress = stack.enter_context(shown())
        place = stack.enter_context(access.server(url)) if url else None
        there = place.target if place else None
        artifact = _artifact(model, backends, backend_options, there, progress, stack, profile=profile)
        signature = inspect(artifact).functions["main"].signature
        values = read_inputs(signature, inputs)
        session = stack.enter_context(_session(access, place, show_output)) if place else None
        timed = _call(artifact, signature, values, session, progress, once=recorded is not None)
        result = timed.result
        results = result_arrays(signature, result)
        found = _profile(artifact, signature, values, place, access) if profile else None
    if found:
        _write_profile(found, svg, trace)
    rows = [_row(name, array) for name, array in results.items()]
    if output is not None:
        for row, array in zip(rows, results.values(), strict=True):
            row["file"] = str(_save(output, str(row["name"]), array))
    if json_:
        _show.as_json("run", {"on": url or "this process", **timed.facts(), "outputs": rows, **_facts(found)})
        return
    columns = ("name", "dtype", "shape", "min>", "mean>", "max>", *(("file",) if output else ()))
    _show.table(
        f"main {f'on {url}' if url else 'in this process'}: {timed}",
        columns,
        [[_cell(row.get(column.rstrip(">"), "")) for column in columns] for row in rows],
    )
    if found:
        _show_profile(found)


def _profile(
    artifact: Path, signature: Signature, values: dict[int, Any], place: Place | None, access: Access
) -> Profile:
    """Measure each region, and its operators."""
    import farcall as fc
    from farcall.cli._arguments import call_arguments

    args, kwargs = call_arguments(signature, values)
    with access.session(place) if place else nullcontext() as session:
        return fc.profile(artifact, *args, on=session, **kwargs)


def _write_profile(profile: Profile, svg: Path | None, trace: Path | None) -> None:
    """Draw the model in the colours of the times, and write them as a trace."""
    from farcall._files import write_beside

    if svg is not None:
        write_beside(svg, profile.svg().encode())
    if trace is not None:
        write_beside(trace, profile.trace())


def _show_profile(profile: Profile) -> None:
    from farcall.rpc.client._profile import STEP_COLUMNS

    _show.table(profile.title, _to_the_right(profile.columns, 2), profile.cells())
    if profile.steps:
        _show.table(profile.step_title, _to_the_right(STEP_COLUMNS, 3), profile.step_cells())


def _to_the_right(columns: Sequence[str], texts: int) -> list[str]:
    """The columns after the first ``texts`` ones are of numbers."""
    return [*columns[:texts], *(f"{name}>" for name in columns[texts:])]


def _facts(profile: Profile | None) -> dict[str, object]:
    """The regions and their steps for ``--json``."""
    if profile is None:
        return {}
    regions = [
        {"name": r.name, "backend": r.backend, "nodes": r.nodes, "seconds": r.seconds, "share": r.share}
        for r in profile.rows
    ]
    if not profile.steps:
        return {"regions": regions}
    for region, row in zip(regions, profile.rows, strict=True):
        region.update(_work(profile, row))
    steps = [
        {
            "operator": step.operator, "nodes": list(step.nodes), "region": step.region,
            "seconds": step.seconds, "share": step.share, **_work(profile, step),
        }
        for step in profile.steps
    ]  # fmt: skip
    roof = profile.roof
    peak = None if roof is None else {"operations": roof.operations, "bytes": roof.bandwidth}
    return {"regions": regions, "steps": steps, "roof": peak}


def _work(profile: Profile, one: ProfiledRegion | ProfiledStep) -> dict[str, object]:
    return {"operations": one.operations, "bytes": one.traffic, "roof_share": profile.roof_share(one)}


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _artifact(
    model: Path,
    backends: str,
    options: Sequence[str],
    target: Target | None,
    progress: Show | None,
    stack: ExitStack,
    *,
    profile: bool,
) -> Path:
    """``model`` itself if it is an artifact. An ONNX model is built for the target, into a temporary one."""
    if model.suffix != ".onnx":
        return model
    import farcall as fc
    from farcall.toolchain._room import room_to

    plan = fc.partition(model, backends=chosen(backends, options), progress=progress)
    with room_to(f"build {str(model)!r}"):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="farcall-")))
        artifact = plan.build(target=target, profile=profile, progress=progress)
        return artifact.save(folder / f"{model.stem}.so")


@contextmanager
def _session(access: Access, place: Place, show_output: bool) -> Iterator[Session]:
    with access.session(place) as session, output_shown(session, show_output):
        yield session


def _call(
    artifact: Path,
    signature: Signature,
    values: dict[int, Any],
    session: Session | None,
    progress: Show | None,
    *,
    once: bool,
) -> _Timed:
    """Call ``main``, several times if it is quick, so that the time is not that of a cold first call."""
    import farcall as fc
    from farcall.cli._arguments import call_arguments

    main: Any
    if session is None:
        main = fc.load_module(artifact)["main"]
    else:
        main = session.load_module(artifact, progress=progress)["main"]
        values = {
            index: session.tensor(value, progress=progress) if hasattr(value, "dtype") else value
            for index, value in values.items()
        }
    args, kwargs = call_arguments(signature, values)
    once = once or any(getattr(leaf, "access", "in") != "in" for leaf in signature.inputs)
    seconds: list[float] = []
    while not seconds or (not once and len(seconds) < _CALLS and sum(seconds) < _SECONDS):
        start = time.perf_counter()
        result = main(*args, **kwargs)
        seconds.append(time.perf_counter() - start)
    return _Timed(result, seconds)


class _Timed(NamedTuple):
    """A result, and the seconds of each call."""

    result: Any
    seconds: list[float]

    def facts(self) -> dict[str, object]:
        """The times for ``--json``."""
        first, *warm = self.seconds
        return {
            "seconds": statistics.median(warm) if warm else first,
            "first_call_seconds": first,
            "calls": len(self.seconds),
        }

    def __str__(self) -> str:
        first, *warm = self.seconds
        if not warm:
            return f"{_show.duration(first)} (one call)"
        return (
            f"{_show.duration(statistics.median(warm))} (median of {len(warm)} calls; "
            f"the first took {_show.duration(first)})"
        )


def _row(name: str, array: np.ndarray) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "biufc":
        numbers = array.astype("float64")
        row |= {k: float(getattr(numbers, k)()) for k in ("min", "mean", "max")}
    return row


def _save(folder: Path, name: str, array: np.ndarray) -> Path:
    """Write one result. Characters of its name that a file name may not have become ``_``."""
    import io

    import numpy as np

    from farcall._files import write_beside
    from farcall.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None
    path = folder / ("".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".npy")
    buffer = io.BytesIO()
    np.save(buffer, array)
    write_beside(path, buffer.getvalue())
    return path
