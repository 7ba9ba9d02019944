"""The small server, compiled for this machine and for others."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "native"
FLAGS = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-DFARCALL_BUILDING_CORE",
    f"-I{NATIVE}",
    f"-I{ROOT / 'include'}",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-missing-field-initializers",
    "-Wno-format-truncation",
]
# Wire sizes have 64 bits, memory sizes here 32. Sizes that passed the check against the limits fit.
NARROW = ["-Wshorten-64-to-32"]


@dataclass(frozen=True)
class Machine:
    """An instruction set: the target for its compiler, and the emulator that runs its programs here."""

    name: str
    target: str
    emulator: str
    flags: tuple[str, ...] = ()


MACHINES = (
    Machine("armv7", "arm-linux-musleabihf", "qemu-arm"),
    Machine("hexagon", "hexagon-linux-musl", "qemu-hexagon", ("-mcpu=hexagonv67",)),
    Machine("aarch64", "aarch64-linux-musl", "qemu-aarch64"),
    Machine("riscv64", "riscv64-linux-musl", "qemu-riscv64"),
    Machine("s390x", "s390x-linux-musl", "qemu-s390x"),
)


def sources() -> list[Path]:
    """The source files of the server."""
    lines = (NATIVE / "server/sources.txt").read_text().splitlines()
    return [NATIVE / line for line in lines if not line.startswith("#")]


def compile_server(command: list[str], output: Path, *flags: str) -> Path:
    """Compile the server with the functions of the tests. A missing symbol is a link error."""
    things = [*sources(), HERE / "functions.c"]
    built = subprocess.run(
        [*command, *FLAGS, *flags, *things, "-o", output], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return output


def cross_compile(machine: Machine, folder: Path) -> list[str]:
    """The command that starts the server for another machine. Skips the test if the tools are missing."""
    emulator = shutil.which(machine.emulator) or shutil.which(f"{machine.emulator}-static")
    if not emulator or importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs {machine.emulator} and the ziglang package")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", machine.target, *machine.flags]
    flags = ["-static", "-Os", "-fno-sanitize=undefined", "-Wno-unknown-warning-option", *NARROW]
    return [emulator, str(compile_server(zig, folder / machine.name, *flags))]
