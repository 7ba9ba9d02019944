"""One engine with one model, in a process of its own, in which no other engine has threads or memory.

``bench_models`` starts it and reads lines of JSON from its output.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 0.02  # seconds of calls that are measured at once
SETTLE = 0.05  # seconds of calls before them, in which threads wake up


class Engine:
    """A model in an engine, farcall or a rival, as the commands below see it.

    The times of one thread are those of the CPU, so that other programs do not count.
    """

    def __init__(self, folder: Path, name: str, engine: str, threads: int):
        from bench.kernels import ALL
        from bench.rivals import RIVALS

        self.folder, self.engine, self.case = folder, engine, ALL[name]
        self.run: Callable[..., Any]
        if engine == "farcall":
            import farcall as fc

            self.run = fc.load_module(folder / "model.so")["main"]
        else:
            self.run = RIVALS[engine](folder / "model.onnx", name, threads)
        self.clock, self.settle = (time.process_time, 0.0) if threads == 1 else (time.perf_counter, SETTLE)
        self.call: Callable[[], Any] = self.run
        self.count = 1

    def prepare(self, size: str) -> float:
        """Make the inputs of ``size``, and check the results against onnxruntime's; seconds of a call."""
        from bench.harness import loops, once

        inputs = self.case.inputs[size]()
        self.call = partial(self.run, *inputs)
        found, expected = _arrays(self.call()), self.folder / f"expected {size}.npz"
        if self.engine == "onnxruntime":
            np.savez(expected, *found)
        with np.load(expected) as file:
            _check(found, list(file.values()), self.case.tolerance)
        self.count = loops(self.call, BLOCK, self.clock)
        return once(self.call)

    def measure(self) -> float:
        """Seconds of a call, in a block of them."""
        settled = time.perf_counter() + self.settle
        while time.perf_counter() < settled:
            self.call()
        start = self.clock()
        for _ in range(self.count):
            self.call()
        return (self.clock() - start) / self.count

    @staticmethod
    def peak() -> float:
        """The most operations that a core does in a second, measured now."""
        import farcall as fc
        from farcall.rpc.client._roof import _library
        from farcall.toolchain import Target

        with tempfile.TemporaryDirectory() as folder:
            library = fc.load_module(_library(Target.host().triple, Path(folder)))
            return float(library["operations_per_second"]())


def first_result(folder: Path, name: str, engine: str) -> dict[str, Any]:
    """Seconds from the call that loads the model to its first result, and the peak memory of the process."""
    from bench.networks import CASES

    inputs = next(iter(CASES[name].inputs.values()))()
    load = _loader(folder, engine)
    before = _peak_memory()
    start = time.perf_counter()
    result = load()(*inputs)
    seconds = time.perf_counter() - start
    assert np.isfinite(_arrays(result)[0]).all()
    return {"seconds": seconds, "bytes": _peak_memory() - before}


def _loader(folder: Path, engine: str) -> Callable[[], Callable[..., Any]]:
    """The loader, with all that it needs imported: the time of an import is not the model's."""
    if engine == "farcall":
        import farcall as fc

        load = fc.load_module  # imported here: the package imports its parts when they are first used
        return lambda: load(folder / "model.so")["main"]
    import onnxruntime  # noqa: F401

    from bench.rivals import RIVALS

    return lambda: RIVALS[engine](folder / "model.onnx", "", 1)


def _peak_memory() -> int:
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


def serve(folder: Path, name: str, engine: str, threads: int) -> None:
    """Answer each command and its arguments, a line of the input: ``{"is": ...}`` or ``{"absent": ...}``."""
    with os.fdopen(os.dup(1), "w", buffering=1) as replies:
        os.dup2(2, 1)  # what an engine prints is no reply
        served = None
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            try:
                served = served or Engine(folder, name, engine, threads)
                reply = {"is": getattr(served, command)(*arguments)}
            except Exception as error:
                if engine == "farcall":
                    raise
                reply = {"absent": str(error).strip().splitlines()[0][:200]}
            replies.write(json.dumps(reply) + "\n")


def main() -> None:
    task, folder, name, engine, *rest = sys.argv[1:]
    if task == "serve":
        serve(Path(folder), name, engine, int(rest[0]))
    else:
        print("\n" + json.dumps(first_result(Path(folder), name, engine)))


if __name__ == "__main__":
    main()
