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
TIMEOUT = 60  # seconds, of one program
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
    """This machine only: an emulator's times would tell about the emulator, and take minutes."""
    machine = next(machine for machine in MACHINES if machine.name == "x86_64")
    with tempfile.TemporaryDirectory() as folder:
        return _rows(machine, Path(folder))


def _rows(machine: Machine, folder: Path) -> list[Row]:
    program, image = _build(machine, folder)

    def seconds(work: str) -> float:
        command = [str(program), str(image), work, str(TIMES)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
        return float(done.stdout)

    works = {work: functools.partial(seconds, work) for work in ("load", "fresh", "warm")}
    measured = blocks(works, ROUNDS)
    ours, fresh, warm = (statistics.median(measured[work]) for work in works)
    what = "load and unload a 1 MiB image"
    wide = spread(measured["load"])
    return [
        Row(what, ours, wide, "memcpy to new memory", fresh, reach_ratio=2.0),
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
