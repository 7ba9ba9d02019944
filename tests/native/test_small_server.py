"""Sessions with the small server, a program in C, driven by farcall's own client.

It is compiled for x86-64, aarch64, and for two whose addresses have 32 bits, armv7 and Hexagon; the others
are slow tests. Zig first compiles a C library for each machine, which takes up to two minutes, once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from farcall.rpc import Session, connect
from farcall.toolchain import MACHINES

from ..waiting import SECONDS
from ..wire.conftest import compiler
from .small_server import LONG, compile_server, small_server


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(machine, marks=[pytest.mark.slow] if machine.name in LONG else [])
        for machine in MACHINES
    ],
    ids=lambda machine: machine.name,
)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How the server is started for one session on its standard streams."""
    return [*small_server(request.param, tmp_path_factory), "--stdio"]


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    compile_server(compiler(), tmp_path / "server", "-O1")


@pytest.fixture
def session(command: list[str]) -> Iterator[Session]:
    with connect(f"pipe:{' '.join(command)}", timeout=SECONDS) as session:
        yield session


def test_calls(session: Session) -> None:
    echo = session.get_function("test.echo")
    for value in (None, True, -(2**40), 2.5, "", "short", "long " * 50, b"\1\2", b"x" * 100):
        assert echo(value) == value
    assert echo([1, 2.5, "text", ["inner", b"b"]]) == (1, 2.5, "text", ("inner", b"b"))


def test_what_it_offers(session: Session) -> None:
    assert session.features == {"promises", "callbacks", "trace"}
    assert session.server_limits["tensor_bytes"] == 1 << 28
    for name in ("ffi.ModuleLoadFromFile", "farcall.rpc.deadline", "test.missing"):
        with pytest.raises(AttributeError, match=name):
            session.get_function(name)


def test_copies_and_tensors(session: Session) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    there = session.tensor(x)
    session.get_function("test.twice")(there)
    np.testing.assert_array_equal(there.numpy(), 2 * x)
    np.testing.assert_array_equal(session.get_function("test.sizes")(x).numpy(), [2, 3])
    other = session.empty((2, 3))
    session.copy(there, other)
    np.testing.assert_array_equal(other.numpy(), 2 * x)


def test_a_large_copy(session: Session) -> None:
    x = np.random.default_rng(0).random(1 << 20, dtype="float32")
    np.testing.assert_array_equal(session.tensor(x).numpy(), x)


def test_errors(session: Session) -> None:
    with pytest.raises(TypeError, match="expected one float32 tensor"):
        session.get_function("test.twice")(7)
    assert session.get_function("test.echo")(7) == 7


def test_a_function_of_the_client(session: Session) -> None:
    assert session.get_function("test.call_back")(lambda n: n + 3) == 23


def test_a_pipeline(session: Session) -> None:
    echo = session.get_function("test.echo")
    with session.pipeline() as pipeline:
        calls = [pipeline(echo, i) for i in range(50)]
    assert [call.result() for call in calls] == list(range(50))


def test_devices(session: Session) -> None:
    cpu = session.cpu(0)
    assert cpu.exist
    assert cpu.total_global_memory > 0
    assert cpu.warp_size is None
    cpu.sync()
    assert not session.device("cuda:0").exist


def test_limits_are_kept(session: Session) -> None:
    with pytest.raises(MemoryError, match="its limit is 268435456"):
        session.empty((1 << 29,))
    assert session.get_function("test.echo")(1) == 1


def test_the_end_frees_and_is_clean(command: list[str]) -> None:
    goodbye = b"\4" + bytes(7) + b"\1\0\0\0"
    done = subprocess.run(command, input=goodbye, capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_bytes_that_are_no_packet(command: list[str]) -> None:
    done = subprocess.run(command, input=b"\xff" * 40, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert b"ProtocolError" in done.stdout
    assert done.stderr.startswith(b"farcall-server: ProtocolError: ")
