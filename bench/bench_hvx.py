"""The quantised digits model on Hexagon: the example backend for its vector unit, beside the C backend alone.

QEMU emulates the DSP, so time says how many instructions QEMU runs, and how well it translates them. The
instructions are counted by QEMU itself. A row of instructions has a nanosecond for each, so that the table
can show it.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import farcall as fc
from bench.harness import Row, rows, rows_of
from farcall.toolchain import MACHINES

ROOT = Path(__file__).resolve().parents[1]
BATCH = 8
# QEMU's Hexagon counts instructions in its control register c21, which is reserved in hardware: assemblers
# have no name for it. The word is the instruction `r0 = c21`.
COUNTER = """
#include <farcall/c_api.h>
FARCALL_KERNEL(count) {
  uint32_t n;
  __asm__ volatile(".word 0x6A15C000\\n %0 = r0" : "=r"(n) : : "r0");
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = n};
  return 0;
}
"""


def run() -> list[Row]:
    """All rows; none without the emulator."""
    hexagon = next(machine for machine in MACHINES if machine.name == "hexagon")
    if hexagon.emulate() is None:
        print(f"skipped: needs {hexagon.emulator}; run: apt install qemu-user", file=sys.stderr)
        return []
    with (
        tempfile.TemporaryDirectory() as name,
        fc.launch("emulator:hexagon") as device,
        device.connect() as session,
    ):
        folder = Path(name)
        (folder / "count.c").write_text(COUNTER)
        counter = fc.cpp.build(
            "count",
            sources=[folder / "count.c"],
            target=str(hexagon.target),
            build_directory=folder / "count",
        )
        count = session.load_module(counter)["count"]
        images = session.tensor(_images())
        calls = {
            rival: _call(session.load_module(_built(backends, folder / f"{rival}.so"))["main"], images)
            for rival, backends in {"farcall": [_hvx(), "c"], "scalar C": ["c"]}.items()
        }
        instructions = {rival: [_instructions(count, call)] * 3 for rival, call in calls.items()}
        work = f"quantised digits on Hexagon (qemu), {BATCH} images"
        reach = {"scalar C": 1 / 3}
        return [
            *rows(work, calls, rounds=11),
            *rows_of(f"{work}: instructions, 1 ns each", instructions, ratios=reach),
        ]


def _call(main: Any, images: Any) -> Callable[[], object]:
    return lambda: main(images)


def _images() -> np.ndarray:
    with np.load(ROOT / "examples/digits/test.npz", allow_pickle=False) as data:
        return np.asarray(data["images"][:BATCH], np.float32) / 16


def _hvx() -> Any:
    spec = importlib.util.spec_from_file_location("hvx", ROOT / "examples/backends/hvx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.HvxBackend()


def _built(backends: list[Any], file: Path) -> Path:
    plan = fc.partition(ROOT / "examples/digits/digits_int8.onnx", backends=backends)
    return plan.build("hexagon-linux-musl:hexagonv67").save(file)


def _instructions(count: Callable[[], int], call: Callable[[], object]) -> float:
    """The instructions of a call, without those of counting; a nanosecond each. The counter has 32 bits."""
    call()  # the first one allocates
    first, second = count(), count()
    call()
    third = count()
    return ((third - second) % 2**32 - (second - first) % 2**32) * 1e-9
