"""The small server, compiled for this machine and for others."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import farcall as fc
from farcall.launch import build_server
from farcall.launch._server_build import BUDGET, server_sources
from farcall.toolchain import MACHINES, Machine

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
FUNCTIONS = [HERE / "functions.c", HERE / "mailbox_relay.c"]
LONG = {"riscv64", "s390x"}  # machines of the slow tests


def named(name: str) -> Machine:
    """The machine of that name."""
    return next(machine for machine in MACHINES if machine.name == name)


def compile_server(command: list[str], output: Path, *flags: str) -> Path:
    """Compile the server with the functions of the tests. Warnings and missing symbols are errors."""
    things = [*server_sources(), *FUNCTIONS, *BUDGET]
    built = subprocess.run(
        [*command, *FLAGS, *flags, *things, "-lm", "-o", output],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return output


@functools.cache
def _built(machine: Machine, shared: Path) -> Path:
    """The server with the functions of the tests, built once by the workers that share a folder."""
    with (shared / f"small-server-{machine.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = shared / f"small-server-{machine.name}"
        if not program.exists():
            build_server(machine.target, output=program, sources=FUNCTIONS)
        return program


def small_server(machine: Machine, factory: pytest.TempPathFactory) -> list[str]:
    """The words that start the server for a machine, here. Skips the test if the tools are missing.

    With the variable SANITIZED_SERVER, this machine's server is that program: see scripts/sanitize.sh.
    """
    if machine.name == "x86_64" and (sanitized := os.environ.get("SANITIZED_SERVER")):
        return [sanitized]
    emulator = [] if machine.name == "x86_64" else machine.emulate()
    if emulator is None or importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs {machine.emulator} and the ziglang package")
    base = factory.getbasetemp()
    worker = base.name.startswith("popen-")  # a worker's folder is inside that of the run
    return [*emulator, str(_built(machine, base.parent if worker else base))]


@contextlib.contextmanager
def running(
    program: list[str], *options: str, listen: str = "tcp://127.0.0.1:0"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that listens, and its URL."""
    process = subprocess.Popen(
        [*program, "--listen", listen, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().removeprefix("farcall-server: listening on ").strip()
        finally:
            process.terminate()


def build_kernel(folder: Path, text: str, target: str = "hexagon-linux-musl") -> str:
    """The library of a kernel in C."""
    (folder / "kernel.c").write_text(f"#include <farcall/c_api.h>\n{text}")
    return fc.cpp.build(
        "kernel", sources=[folder / "kernel.c"], target=target, build_directory=folder / "build"
    )


class Place(NamedTuple):
    """Where a server listens, for tests.rpc.peers.Peer."""

    host: str
    port: int


def place(url: str) -> Place:
    """Of a server on TCP."""
    host, _, port = url.removeprefix("tcp://").partition(":")
    return Place(host, int(port))


def sanitized_server(output: Path) -> Path:
    """The server with AddressSanitizer and UndefinedBehaviorSanitizer, by gcc."""
    flags = [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
        "-g",
        "-O1",
    ]
    return compile_server(["gcc"], output, *flags)
