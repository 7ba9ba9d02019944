"""The time to load an image of 1 MiB and to unload it, beside copying its bytes."""

from __future__ import annotations

import functools
import statistics
import subprocess
import tempfile
from pathlib import Path

from bench.harness import Row, blocks, spread
from farcall.toolchain import MACHINES, Machine, include_dir, native_dir, zig_compiler

ROUNDS, TIMES = 21, 100
EMULATED_TIMES = 10
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-DFARCALL_BUILDING_CORE", "-O2", "-fno-sanitize=undefined", "-w"]
ROOMS = ("platform", "runtime", "runtime/image", "runtime/image/posix")
# Half of it constants, half data, and 4096 relocations.
IMAGE = """
__attribute__((visibility("default"))) char constants[(1 << 20) - (1 << 17)] = {1};
__attribute__((visibility("default"))) const char fixed[1 << 16] = {1};
#define FOUR(x) x, x, x, x
#define MANY FOUR(FOUR(FOUR(FOUR(FOUR(FOUR(constants))))))
__attribute__((visibility("default"))) char* pointers[] = {MANY};
int begin(void) { return constants[0]; }
"""


def run() -> list[Row]:
    """A row for this machine with the reach, and rows for emulated ones, which are only told."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for machine in MACHINES:
            emulator = [] if machine.name == "x86_64" else machine.emulate()
            if emulator is not None:
                rows += _rows(machine, emulator, Path(folder) / machine.name)
    return rows


def _rows(machine: Machine, emulator: list[str], folder: Path) -> list[Row]:
    folder.mkdir()
    program, image = _build(machine, folder)
    here = not emulator
    times = TIMES if here else EMULATED_TIMES

    def seconds(work: str) -> float:
        command = [*emulator, str(program), str(image), work, str(times)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    works = {work: functools.partial(seconds, work) for work in ("load", "fresh", "warm")}
    measured = blocks(works, ROUNDS if here else 5)
    ours, fresh, warm = (statistics.median(measured[work]) for work in works)
    what = f"load and unload a 1 MiB image, {machine.name}{'' if here else ' (emulated)'}"
    wide = spread(measured["load"])
    reach = 2.0 if here else None
    return [
        Row(what, ours, wide, "memcpy to new memory", fresh, reach_ratio=reach),
        Row(what, ours, wide, "memcpy to warm memory", warm),
    ]


def _build(machine: Machine, folder: Path) -> tuple[Path, Path]:
    zig = zig_compiler("the bench of images")
    target = zig.target_flags(machine.target)
    native = native_dir()
    files = [file for room in ROOMS for file in (native / room).glob("*.c") if file.name != "bare.c"]
    words = [*target, *FLAGS, "-static", f"-I{native}", f"-I{include_dir()}", *map(str, files)]
    zig.run(
        [*words, str(Path(__file__).with_name("image_loads.c")), "-o", "program"], folder, "build the bench"
    )
    (folder / "image.c").write_text(IMAGE)
    shared = ["-shared", "-fPIC", "-nostdlib", "-s", "-fno-sanitize=undefined", "image.c", "-o", "image.so"]
    zig.run([*target, *shared], folder, "build an image")
    return folder / "program", folder / "image.so"
