"""``farcall run``: runs a model or an artifact on files, here or on another machine."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from farcall.cli import _show
from farcall.cli._access import Access, access_options
from farcall.cli._progress import Show, shown
from farcall.cli._settings import setting

if TYPE_CHECKING:
    import numpy as np

    from farcall.abi import Signature

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
@setting("on", metavar="URL", help="Run on the server at this address.")
@access_options
@setting("backends")
@click.option("--output", type=click.Path(path_type=Path), help="Folder for the results, as NAME.npy files.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Write a trace of the call, with every hop, for Perfetto or chrome://tracing.",
)
@setting("json")
def command(
    model: Path,
    inputs: tuple[str, ...],
    url: str | None,
    access: Access,
    backends: str,
    output: Path | None,
    trace: Path | None,
    json_: bool,
) -> None:
    """Run MODEL (an ONNX model or an artifact) on .npy files.

    \b
    farcall run model.so --input x=x.npy --output results
    farcall run model.onnx --input x=x.npy --on tcp://127.0.0.1:9090
    farcall run model.so --input x=x.npy --on tls://board:9090 --trace trace.json \\
        --ca ca.pem --cert me.pem --cert-key me.key
    """
    import farcall as fc
    from farcall.artifact import inspect
    from farcall.cli._arguments import read_inputs, result_arrays

    with ExitStack() as stack:
        if trace is not None:
            stack.enter_context(fc.trace(trace))
        progress = stack.enter_context(shown())
        artifact = _artifact(model, backends, progress, stack)
        signature = inspect(artifact).functions["main"].signature
        values = read_inputs(signature, inputs)
        timed = _call(artifact, signature, values, url, access, progress, stack, once=trace is not None)
        result = timed.result
        results = result_arrays(signature, result)
    rows = [_row(name, array) for name, array in results.items()]
    if output is not None:
        for row, array in zip(rows, results.values(), strict=True):
            row["file"] = str(_save(output, str(row["name"]), array))
    if json_:
        _show.as_json("run", {"on": url or "this process", **timed.facts(), "outputs": rows})
        return
    columns = ("name", "dtype", "shape", "min>", "mean>", "max>", *(("file",) if output else ()))
    _show.table(
        f"main on {url or 'this process'}: {timed}",
        columns,
        [[_cell(row.get(column.rstrip(">"), "")) for column in columns] for row in rows],
    )


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _artifact(model: Path, backends: str, progress: Show | None, stack: ExitStack) -> Path:
    """``model`` itself if it is an artifact. An ONNX model is built into a temporary artifact."""
    if model.suffix != ".onnx":
        return model
    import farcall as fc
    from farcall.toolchain._room import room_to

    names = [name.strip() for name in backends.split(",") if name.strip()]
    plan = fc.partition(model, backends=names, progress=progress)
    with room_to(f"build {str(model)!r}"):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="farcall-")))
        return plan.build(progress=progress).save(folder / f"{model.stem}.so")


def _call(
    artifact: Path,
    signature: Signature,
    values: dict[int, Any],
    url: str | None,
    access: Access,
    progress: Show | None,
    stack: ExitStack,
    *,
    once: bool,
) -> _Timed:
    """Call ``main``, several times if it is quick, so that the time is not that of a cold first call."""
    import farcall as fc
    from farcall.cli._arguments import call_arguments

    main: Any
    if url is None:
        main = fc.load_module(artifact)["main"]
    else:
        session = stack.enter_context(access.connect(url))
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
            return f"{first * 1e3:.3f} ms (one call)"
        return (
            f"{statistics.median(warm) * 1e3:.3f} ms (median of {len(warm)} calls; "
            f"the first took {first * 1e3:.3f} ms)"
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
