"""Features of the client beyond plain calls, with real TVM servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import RemoteModule, RemoteObject, Server, Session, connect

from ..waiting import SECONDS
from .tvm_processes import needs_tvm, tvm_server

pytestmark = needs_tvm
MAX_PACKET = 128


@pytest.fixture(scope="module")
def small_url() -> Iterator[str]:
    with tvm_server(MAX_PACKET=str(MAX_PACKET)) as address:
        yield address


@pytest.fixture
def small(small_url: str) -> Iterator[Session]:
    """At a server that takes packets of at most MAX_PACKET bytes."""
    with connect(small_url, key="k", timeout=SECONDS) as opened:
        yield opened


def test_it_is_a_plain_peer(tvm: Session) -> None:
    assert tvm.features == frozenset()
    assert tvm.server_limits == {}
    with pytest.raises(fc.RemoteError, match=r"farcall\.rpc\.functions"):
        tvm.function_names()
    with pytest.raises(
        TypeError, match=r"cannot call functions of this process.*pass a function of the same"
    ):
        tvm.get_function("test.call")(lambda x: x, 1)
    assert tvm.get_function("test.add")(1, 1) == 2


def acknowledging(url: str) -> dict[int, bool]:
    """For each port of this process's connections to a server, whether it acknowledges at once."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        if not entry.is_socket():
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as line:
            if line.family == socket.AF_INET and line.getpeername()[1] == int(url.rpartition(":")[2]):
                at_once = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) != 0
                found[line.getsockname()[1]] = at_once
    return found


def test_several_replies_are_not_kept_back(tvm_url: str) -> None:
    """TVM's server leaves Nagle's algorithm on: a second small reply comes when the first is acknowledged,
    which was 40 ms later."""
    before = set(acknowledging(tvm_url))
    with connect(tvm_url, key="k", timeout=SECONDS) as session:
        [ours] = set(acknowledging(tvm_url)) - before
        echo = session.get_function("test.echo")
        for _ in range(64):
            echo(1)
        assert not acknowledging(tvm_url)[ours]
        with session.pipeline() as p:
            p.map(echo, range(8))
        assert acknowledging(tvm_url)[ours]
        tensor = session.empty(4)
        for _ in range(64):
            echo(1)
        assert not acknowledging(tvm_url)[ours]
        del tensor
        echo(1)  # and a release in front of it
        assert acknowledging(tvm_url)[ours]


def test_pipelines(tvm: Session) -> None:
    add, echo = tvm.get_function("test.add"), tvm.get_function("test.echo")
    with tvm.pipeline() as p:
        first = p(add, 1, 2)
        second = p(add, first, 10)  # waits: a TVM server keeps no results
        assert p.map(echo, range(3000)) == list(range(3000))
        failed = p(add, 1, "x")
        follows = p(add, failed, 1)
    assert (first.result(), second.result()) == (3, 13)
    assert isinstance(failed.exception(), fc.RemoteError)
    assert str(follows.exception()) == str(failed.exception())
    assert add.submit(2, 2).result(timeout=SECONDS) == 4


def test_pipelines_with_both_directions_full(tvm: Session) -> None:
    block = b"y" * 100_000
    with tvm.pipeline() as p:
        assert p.map(tvm.get_function("test.echo"), [block] * 30) == [block] * 30


def test_asyncio(tvm: Session) -> None:
    add = tvm.get_function("test.add")

    async def main() -> list[int]:
        return await asyncio.gather(*(add.call_async(i, i) for i in range(10)))

    assert asyncio.run(main()) == [2 * i for i in range(10)]


def test_objects_and_functions_come_back(tvm: Session) -> None:
    there = tvm.get_function("test.map")()
    assert isinstance(there, RemoteObject)
    assert (there.type_name, tvm.get_function("test.size")(there)) == ("ffi.Map", 1)
    x = tvm.tensor(np.arange(3, dtype="float32"))
    number, text, same = tvm.get_function("test.array")(1, "a", x)
    assert (number, text, same.numpy().tolist()) == (1, "a", [0, 1, 2])
    adder = tvm.get_function("test.adder")(5)
    assert adder(1) == 6
    assert "test.adder" in adder.name


def test_lists_travel_by_value(tvm: Session) -> None:
    echo = tvm.get_function("test.echo")
    adder = tvm.get_function("test.adder")(5)
    assert echo([1, "text", b"bytes", None, 0.5, [True, [fc.dtype("int8")]]]) == (
        *(1, "text", b"bytes", None, 0.5),
        (True, (fc.dtype("int8"),)),
    )
    assert echo([adder])[0](1) == 6
    assert tvm.get_function("test.size")({"a": [1], "b": 2}) == 2
    assert echo(fc.ffi.Shape((2, 3))).type_name == "ffi.Shape"
    assert echo.submit([1, 2]).result(SECONDS) == (1, 2)
    # It would keep a pointer into the call (type 7 as an item).
    with pytest.raises(TypeError, match=r"argument 1\[1\] .*cannot keep a tensor in a list; pass it as"):
        echo([1, tvm.tensor(np.ones(2))])


def overwrite(session: Session, n: int) -> list[fc.Tensor]:
    """Released memory is reused."""
    return [session.tensor(np.full(n, 7.0)) for _ in range(20)]


def check_lent(session: Session) -> None:
    """A function that returns its argument: TVM's server keeps no reference for the client (facts A.8)."""
    echo, x = session.get_function("test.echo"), np.arange(100.0)
    far = session.tensor(x)
    with session.pipeline() as p:
        calls = [p(echo, far), p(echo, x + 1), p(echo, session.view(far, np.s_[50:]))]
        calls.append(p(echo, calls[0]))
    kept = [echo(echo(far)), echo(x + 1), *(call.result() for call in calls)]
    del far, calls, p
    _held = overwrite(session, 100)
    for there, expected in zip(kept, (x, x + 1, x, x + 1, x[50:], x), strict=True):
        np.testing.assert_array_equal(there.numpy(), expected)


def test_a_tensor_that_comes_back_as_it_went(tvm: Session) -> None:
    check_lent(tvm)


def test_a_tensor_that_comes_back_through_a_hop(tvm_url: str) -> None:
    with Server(key="hop") as hop, connect(tvm_url, "k", via=[(hop.url, "hop")], timeout=SECONDS) as session:
        check_lent(session)


def test_modules(tvm: Session) -> None:
    library = tvm.system_lib()
    assert isinstance(library, RemoteModule)
    assert library.kind == "library"
    assert not library.implements_function("nothing")


def test_devices_and_streams(tvm: Session) -> None:
    assert tvm.cpu(0).exist
    assert not tvm.device("cuda:0").exist
    tvm.cpu().sync()
    with tvm.cpu().stream() as stream, stream.use():
        stream.sync()


def check_copies(session: Session) -> None:
    """Views are right: TVM's own client writes to the wrong bytes there (facts A.10)."""
    x = np.arange(600, dtype="int32").reshape(60, 10)
    there = session.tensor(x)
    np.testing.assert_array_equal(there.numpy(), x)
    for index in (np.s_[7:12], np.s_[3], np.s_[::7, 1:9:3], np.s_[5:, ::-1]):
        np.testing.assert_array_equal(session.view(there, index).numpy(), x[index])
        session.copy(-x[index], session.view(there, index))
        x[index] *= -1
        np.testing.assert_array_equal(there.numpy(), x)
    twin = session.empty((60, 10), "int32")
    session.copy(there, twin)
    session.copy(session.view(there, np.s_[:5]), session.view(twin, np.s_[5:10]))
    x[5:10] = x[:5]
    np.testing.assert_array_equal(twin.numpy(), x)


def test_copies(tvm: Session) -> None:
    check_copies(tvm)


def test_copies_in_pieces(small: Session) -> None:
    before = small.stats.round_trips
    small.tensor(np.zeros(200, "uint8"))
    # Three pieces, as TVM's own client sends them; and the allocation, the question for the limit, its call.
    assert small.stats.round_trips - before == 3 + 3
    before = small.stats.round_trips
    small.tensor(np.zeros(76, "uint8"))
    assert small.stats.round_trips - before == 2  # the limit is asked for once
    check_copies(small)


@pytest.mark.parametrize("dtype", ["uint8", "float64", "complex64", "bool", "float16"])
@pytest.mark.parametrize("n", [0, 1, 37, 1000])
def test_dtypes_in_pieces(small: Session, dtype: str, n: int) -> None:
    x = (np.arange(n) % 2).astype(dtype)
    np.testing.assert_array_equal(small.tensor(x).numpy(), x)


def test_elements_that_fit_into_no_packet() -> None:
    with tvm_server(MAX_PACKET="53") as url, connect(url, key="k", timeout=SECONDS) as session:
        np.testing.assert_array_equal(session.tensor(np.arange(3, dtype="uint8")).numpy(), [0, 1, 2])
        with pytest.raises(ValueError, match="at most 53 bytes"):
            session.tensor(np.zeros(3, "float64"))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_64_mib(tvm: Session, dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 255, 64 << 20, dtype="uint8").view(dtype)
    back = tvm.tensor(x).numpy()
    assert back.tobytes() == x.tobytes()


def test_timing(tvm: Session) -> None:
    timing = tvm.benchmark("test.nop", number=50, repeat=3)
    assert len(timing.results) == 3
    assert timing.min > 0
    x = np.ones((4, 4), "float32")
    assert tvm.benchmark("test.sum", x, number=2).mean > 0


def test_session_timeout(tvm_url: str) -> None:
    with connect(tvm_url, key="k", timeout=SECONDS, session_timeout=1) as session:
        wait = session.get_function("test.wait")
        with pytest.raises(fc.errors.DeadlineExceededError):
            wait()


def test_trace(tvm: Session, tmp_path: Path) -> None:
    add = tvm.get_function("test.add")
    with fc.trace(tmp_path / "t.json"):
        add(1, 2)
    assert b'"wire"' in (tmp_path / "t.json").read_bytes()


def test_uploads(tvm: Session) -> None:
    data = os.urandom(2 << 20)
    for _ in range(2):
        tvm.upload(data, "a.bin")
        assert tvm.download("a.bin") == data
