"""One model in a process of its own, in which nothing else has set threads or filled the memory.

``bench_models`` starts it, once for each model and number of threads, and reads JSON from its output.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS, LONG = 31, 0.02  # a call that takes longer has fewer rounds
FEWER = 13


def compare(folder: Path, name: str, threads: int, rivals: Sequence[str]) -> dict[str, Any]:
    """The times of farcall and of the rivals by size; and why a rival does not take part.

    The times of one thread are those of the CPU, so that other programs do not count.
    """
    import farcall as fc
    from bench.harness import in_turn, once
    from bench.kernels import ALL, PEAK
    from bench.rivals import RIVALS, Absent

    case, model = ALL[name], folder / "model.onnx"
    runs: dict[str, Callable[..., Any]] = {"farcall": fc.load_module(folder / "model.so")["main"]}
    absent: dict[str, str] = {}
    for rival in rivals:
        try:
            runs[rival] = RIVALS[rival](model, name, threads)
        except Absent as error:
            absent[rival] = str(error)
    times = {}
    for size, make in case.inputs.items():
        inputs = make()
        expected = _arrays(runs["onnxruntime"](*inputs))
        contenders = {}
        for who, run in list(runs.items()):
            try:
                _check(_arrays(run(*inputs)), expected, case.tolerance)
                contenders[who] = partial(run, *inputs)
            except Exception as error:
                if who == "farcall":
                    raise
                absent[f"{who} {size}".strip()] = str(error).strip().splitlines()[0][:200]
        rounds = FEWER if once(contenders["farcall"]) > LONG else ROUNDS
        times[size] = in_turn(contenders, rounds, time.process_time if threads == 1 else time.perf_counter)
        if case.operations:
            least = case.operations / (_peak() * threads)
            times[size][PEAK] = [least] * len(times[size]["farcall"])
    return {"times": times, "absent": absent}


def _peak() -> float:
    """The most operations that a core does in a second, measured now."""
    import farcall as fc
    from farcall.rpc.client._roof import _library
    from farcall.toolchain import Target

    with tempfile.TemporaryDirectory() as folder:
        return float(fc.load_module(_library(Target.host().triple, Path(folder)))["operations_per_second"]())


def first_result(folder: Path, name: str, engine: str) -> dict[str, Any]:
    """Seconds from the call that loads the model to its first result, and the peak memory of the process."""
    from bench.networks import CASES

    inputs = next(iter(CASES[name].inputs.values()))()
    load = _loader(folder, engine)
    before = peak()
    start = time.perf_counter()
    result = load()(*inputs)
    seconds = time.perf_counter() - start
    assert np.isfinite(_arrays(result)[0]).all()
    return {"seconds": seconds, "bytes": peak() - before}


def _loader(folder: Path, engine: str) -> Callable[[], Callable[..., Any]]:
    """The loader, with all that it needs imported: the time of an import is not the model's."""
    if engine == "farcall":
        import farcall as fc

        load = fc.load_module  # imported here: the package imports its parts when they are first used
        return lambda: load(folder / "model.so")["main"]  # type: ignore[no-any-return]
    import onnxruntime  # noqa: F401

    from bench.rivals import RIVALS

    return lambda: RIVALS[engine](folder / "model.onnx", "", 1)


def peak() -> int:
    """The most memory that the process has had, in bytes. ``ru_maxrss`` would begin with the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def _arrays(results: Any) -> list[np.ndarray]:
    found = results if isinstance(results, (list, tuple)) else [results]
    return [np.from_dlpack(one) for one in found]


def _check(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            raise ValueError(f"its result is {list(one.shape)}, onnxruntime's {list(other.shape)}")
        error = float(np.abs(one - other).max() / np.abs(other).max())
        if not error <= tolerance:
            raise ValueError(f"its result differs from onnxruntime's by {error:.1e} of the largest element")


def main() -> None:
    task, folder, name, *rest = sys.argv[1:]
    if task == "compare":
        found = compare(Path(folder), name, int(rest[0]), rest[1:])
    else:
        found = first_result(Path(folder), name, rest[0])
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
