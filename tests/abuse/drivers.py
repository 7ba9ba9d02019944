"""Starts the two servers to abuse, each in a separate process: farcall's, and the real ``tvm.rpc.server``."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from farcall.rpc import connect

ROOT = Path(__file__).resolve().parents[2]
KEY = "k"
LEASE = 1.0
_OURS = "from farcall.cli import main; main()"
_SERVE = ["serve", "--key", KEY, "--lease", str(LEASE), "--init", "tests.rpc.exports:register"]
_CLIENT = """
import sys
from farcall.rpc import connect
session = connect(sys.argv[1], key=sys.argv[2], timeout=20)
print(session.get_function("test.pid")(), flush=True)
sys.stdin.read()
"""


class Address(NamedTuple):
    """The address that a raw peer connects to."""

    host: str
    port: int


def environment() -> dict[str, str]:
    """An environment in which child processes can import the same packages, and the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def has_tvm() -> bool:
    return importlib.util.find_spec("tvm") is not None


def family(pid: int) -> set[int]:
    """The process and its descendants that still run."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def lives(pid: int) -> bool:
    """Whether a process runs (zombies do not count)."""
    return pid in family(pid)


def resident(pid: int) -> int:
    """Resident memory, in bytes."""
    return _pages(pid, 1) * os.sysconf("SC_PAGE_SIZE")


def reserved(pid: int) -> int:
    """Memory that a process has allocated, used or not, in bytes: no other work on the machine changes it."""
    return _pages(pid, 0) * os.sysconf("SC_PAGE_SIZE")


def _pages(pid: int, field: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[field])


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether a condition becomes true in time."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        select.select([], [], [], 0.01)
    return True


class Driver:
    """A running server."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip().rpartition(":")[2]
        assert port.isdigit(), f"it did not start: {command}"
        self.address = Address("127.0.0.1", int(port))
        self.url = f"tcp://127.0.0.1:{port}"
        assert self.honest(20), "it does not work"

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in sorted(self.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def pids(self) -> set[int]:
        """The processes of the server."""
        return family(self.process.pid)

    def honest(self, seconds: float = 1.0) -> bool:
        """Whether an honest client connects and calls in time."""
        try:
            with connect(self.url, key=KEY, timeout=seconds, call_timeout=seconds) as session:
                return bool(session.get_function("test.add")(20, 22) == 42)
        except Exception:
            return False

    def client(self) -> tuple[subprocess.Popen[str], int]:
        """A client in a separate process, with an open session; and the id of the process that serves it."""
        client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, self.url, KEY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert client.stdout is not None
        return client, int(client.stdout.readline())


def ours() -> Driver:
    """``farcall serve``."""
    return Driver([sys.executable, "-c", _OURS, *_SERVE])


def small() -> Driver:
    """``farcall-server``, the small server."""
    from farcall.launch import build_server

    from ..native.small_server import FUNCTIONS

    program = os.environ.get("SANITIZED_SERVER") or build_server("x86_64", sources=FUNCTIONS)
    return Driver([str(program), "--listen", "tcp://127.0.0.1:0", "--key", KEY, "--lease", str(LEASE)])


def incumbent() -> Driver:
    """``tvm.rpc.server``."""
    return Driver([sys.executable, str(ROOT / "tests" / "rpc" / "tvm_server.py")])
