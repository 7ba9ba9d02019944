"""Sessions on a DSP by the interface farcall_dsp: the DSP is emulated, its calls come through a mailbox."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall._core import Channel, Mailbox
from farcall.errors import ConnectError, ConnectionLostError, ProtocolError, StatusError, UsageError
from farcall.idl import compile as compile_idl
from farcall.launch._server_build import BUDGET, build_dsp, dsp_sources
from farcall.rpc.channels import dial, parse_address
from farcall.rpc.channels._farcall_dsp import farcall_dsp
from farcall.rpc.channels._front import FrontTransport
from farcall.testing import CHANNEL_RULES, check_channel
from farcall.testing._channel import Kit
from farcall.toolchain import Machine

from ..tree import ROOT
from ..waiting import SECONDS, soon
from ..wire.conftest import compiler
from .small_server import FLAGS, FUNCTIONS, HERE, named


@functools.cache
def built(machine: Machine, folder: Path) -> Path:
    return build_dsp(machine.target, output=folder / f"dsp-{machine.name}", sources=FUNCTIONS)


@pytest.fixture(scope="module", params=["x86_64", "hexagon"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    machine = named(request.param)
    emulator = [] if machine.name == "x86_64" else machine.emulate()
    pytest.importorskip("ziglang")
    if emulator is None:
        pytest.skip(f"needs {machine.emulator}")
    return [*emulator, str(built(machine, tmp_path_factory.getbasetemp()))]


@contextlib.contextmanager
def serving(program: list[str], path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    words = [*program, *options, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"farcall-dsp: serving fastrpc:{path}\n"
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def relayed(program: list[str], folder: Path) -> Iterator[tuple[Channel, Channel]]:
    """A session's channel, and the pipes to its far end on the DSP."""
    path = folder / f"box{len(list(folder.iterdir()))}"  # of its own: the program before it was killed
    process = subprocess.Popen(
        [*program, str(path)],
        env=os.environ | {"FARCALL_TEST_RELAY": "sessions"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        theirs = Channel(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
        process.stdin.close()
        process.stdout.close()
        try:
            line = f"farcall-dsp: serving fastrpc:{path}\n".encode()
            assert Kit(time.monotonic, SECONDS, 0).receive_exactly(theirs, len(line)) == line
            with contextlib.closing(dial(f"fastrpc:{path}", soon())) as connection:
                yield connection.begin(), theirs
        finally:
            theirs.close()
            process.kill()


@pytest.mark.parametrize("rule", CHANNEL_RULES)
def test_a_session_keeps_the_contract_of_channels(program: list[str], tmp_path: Path, rule: str) -> None:
    check_channel(lambda: relayed(program, tmp_path), rules=[rule], bulk_bytes=4 << 20)


@pytest.mark.parametrize("rule", CHANNEL_RULES)
def test_a_dsp_keeps_the_contract_of_channels(program: list[str], tmp_path: Path, rule: str) -> None:
    @contextlib.contextmanager
    def swapped() -> Iterator[tuple[Channel, Channel]]:
        with relayed(program, tmp_path) as (ours, theirs):
            yield theirs, ours

    check_channel(swapped, rules=[rule], bulk_bytes=4 << 20)


def test_sessions_one_after_another(program: list[str], tmp_path: Path) -> None:
    data = np.arange(1 << 14, dtype="float32")
    with serving(program, tmp_path / "box"):
        for i in range(2):
            with fc.connect(f"fastrpc:{tmp_path}/box", timeout=SECONDS) as session:
                assert session.get_function("test.add")(i, 1) == i + 1
                there = session.tensor(data)
                session.get_function("test.twice")(there)
                np.testing.assert_array_equal(there.numpy(), 2 * data)
                with pytest.raises(TypeError, match="expected two numbers"):
                    session.get_function("test.add")("x", 1)
                assert session.get_function("test.call_back")(lambda x: x + 1) == 21


def test_the_memory_of_all_sessions_is_bounded(program: list[str], tmp_path: Path) -> None:
    with (
        serving(program, tmp_path / "box", "--memory", "8M"),
        fc.connect(f"fastrpc:{tmp_path}/box", timeout=SECONDS) as session,
    ):
        kept = session.tensor(np.ones(6 << 20, "uint8"))
        with pytest.raises(MemoryError):
            session.tensor(np.ones(6 << 20, "uint8"))
        del kept
        session.tensor(np.ones(6 << 20, "uint8"))


def test_the_chain_through_a_phone(program: list[str], tmp_path: Path) -> None:
    data = np.arange(100_000, dtype="float32")
    with (
        serving(program, tmp_path / "box"),
        fc.rpc.Server(devices={"dsp0": f"fastrpc:{tmp_path}/box"}) as phone,
    ):
        for _ in range(2):
            with fc.connect(phone.url, via=["device:dsp0"], timeout=SECONDS) as session:
                there = session.tensor(data)
                session.get_function("test.twice")(there)
                np.testing.assert_array_equal(there.numpy(), 2 * data)
                with pytest.raises(TypeError, match=r"hop 2 \(device:dsp0\).*expected two numbers"):
                    session.get_function("test.add")("x", 1)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver, which finds the skel of farcall_dsp beside it."""
    folder = tmp_path_factory.mktemp("driver")
    program = ROOT / "native/server/dsp/main.c"
    sources = [*(file for file in dsp_sources() if file != program), *FUNCTIONS, HERE / "dsp_library.c"]
    flags = [*FLAGS, "-O0", "-w", "-fPIC", "-shared", "-Wl,-Bsymbolic"]
    shared = [*compiler(), *flags, *BUDGET]
    fake = ROOT / "tests/idl/fake_cdsprpc.c"
    for words in (
        [*shared, *sources, "-o", folder / "libfarcall_dsp_skel.so"],
        [*compiler(), *flags, fake, "-ldl", "-o", folder / "libcdsprpc.so"],
    ):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_a_session_by_the_driver(driver: Path) -> None:
    """In a process of its own, where the system finds the driver by its name."""
    code = """
import numpy as np, farcall as fc
data = np.arange(1 << 16, dtype="float32")
for i in range(2):
    with fc.connect("fastrpc:cdsp", timeout=60) as session:
        there = session.tensor(data)
        session.get_function("test.twice")(there)
        assert (there.numpy() == 2 * data).all()
        print(session.get_function("test.add")(i, 1), session.get_function("test.call_back")(lambda x: x + 1))
"""
    paths = {"LD_LIBRARY_PATH": str(driver), "DSP_LIBRARY_PATH": str(driver)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | paths,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert (done.stdout, done.stderr) == ("1 21\n2 21\n", "")


def dialled(path: Path) -> FrontTransport:
    return FrontTransport(Mailbox(str(path)).meet(soon()))


def test_handles_are_checked_and_any_chunking_is_taken(program: list[str], tmp_path: Path) -> None:
    init = b"\x15\0\0\0\0\0\0\0\2\0\0\0\5\0\0\0\0\0\0\x000.8.0\0\0\0\0"  # the first packet of a session
    with serving(program, tmp_path / "box"):
        transport = dialled(tmp_path / "box")
        first, second = farcall_dsp.open(transport), farcall_dsp.open(transport)
        with pytest.raises(StatusError, match="bad parameter"):
            first.send(b"before init", 0)
        first.init(0)
        second.init(1 << 20)
        with pytest.raises(StatusError, match="bad parameter"):
            first.init(0)
        for byte in init:
            assert second.send(bytes([byte]), 0) == 1
        answer = b""
        while len(answer) < 4:
            data, written, ended = second.receive(100, 3)
            assert not ended
            answer += data[:written]
        assert first.receive(0, 100)[1:] == (0, 0)  # sessions share nothing
        second.send(b"", 1)
        while not second.receive(100, 100)[2]:
            pass
        second.close()
        for stale in (second, farcall_dsp(transport, 0), farcall_dsp(transport, 1 << 40)):
            with pytest.raises(StatusError, match="bad parameter"):
                stale.receive(0, 1)
        transport.hang_up()

        transport = dialled(tmp_path / "box")  # handles that the client left open were closed
        opened: list[farcall_dsp] = []
        until = soon()
        while len(opened) < 32 and time.monotonic() < until:
            with contextlib.suppress(StatusError):  # the thread of a closed session may not have ended yet
                opened.append(farcall_dsp.open(transport))
        with pytest.raises(StatusError, match="no memory"):
            farcall_dsp.open(transport)
        for stub in opened:
            stub.close()
        transport.hang_up()


def test_bytes_that_are_no_calls_end_the_connection_only(program: list[str], tmp_path: Path) -> None:
    with serving(program, tmp_path / "box"):
        for data in (
            b"\xff" * 64,
            b"\0\0\2\4\xff\xff\xff\xff" + bytes(8),
            b"\0\0\2\4\x10\0\0\0" + bytes(8) + b"\xff" * 16,
            b"\0\xff\1\3\0\0\0\0" + bytes(8),
        ):
            channel = Mailbox(str(tmp_path / "box")).meet(soon())
            channel.send(data)
            assert channel.receive(100, soon()) == b""
            channel.close()
        with fc.connect(f"fastrpc:{tmp_path}/box", timeout=SECONDS) as session:
            assert session.get_function("test.add")(1, 2) == 3


def test_a_dsp_that_dies_is_a_lost_connection(program: list[str], tmp_path: Path) -> None:
    with serving(program, tmp_path / "box") as process:
        session = fc.connect(f"fastrpc:{tmp_path}/box", timeout=SECONDS)
        add = session.get_function("test.add")
        process.kill()
        process.wait()
        with pytest.raises(ConnectionLostError):
            add(1, 2)
        session.close()


def test_urls() -> None:
    assert str(parse_address("fastrpc:cdsp")) == "fastrpc:cdsp"
    assert str(parse_address("fastrpc:/run/box")) == "fastrpc:/run/box"
    for wrong in ("fastrpc:", "fastrpc:xdsp", "fastrpc:box"):
        with pytest.raises(UsageError, match="expected fastrpc:DSP or fastrpc:/PATH"):
            parse_address(wrong)
    with pytest.raises(UsageError, match=r"fastrpc:cdsp: 'libcdsprpc\.so' is not a driver of FastRPC"):
        fc.connect("fastrpc:cdsp")
    with pytest.raises((UsageError, ConnectError), match="/nowhere/box"):
        fc.connect("fastrpc:/nowhere/box")
    with pytest.raises(UsageError, match="a DSP is not listened at"):
        fc.rpc.Server(urls=["fastrpc:cdsp"])


def test_an_answer_of_a_wrong_size() -> None:
    import socket

    ours, theirs = socket.socketpair()
    with theirs:
        transport = FrontTransport(fc._core.Channel(ours.detach()))
        theirs.sendall(b"\0\0\0\0\7\0\0\0")
        with pytest.raises(ProtocolError, match="a call's reply has 7 bytes, expected 8"):
            transport.open("x")


def test_the_generated_files_are_up_to_date(tmp_path: Path) -> None:
    """They differ from those of `farcall idl` in white space, and in how they name the header."""
    folder = ROOT / "native/server/dsp"
    compile_idl(folder / "farcall_dsp.idl", tmp_path, stubs=("python",))
    for name in ("farcall_dsp.h", "farcall_dsp_skel.c"):
        kept = (folder / name).read_text().replace('"server/dsp/', '"')
        assert kept.split() == (tmp_path / name).read_text().split()
    stub = (ROOT / "src/farcall/rpc/channels/_farcall_dsp.py").read_text()
    assert ast.dump(ast.parse(stub)) == ast.dump(ast.parse((tmp_path / "farcall_dsp_stub.py").read_text()))
