"""Sessions with the real Apache TVM: its client with farcall's server, and the reverse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import Server, Session, Timing, connect

from ..waiting import SECONDS
from .servers import works
from .tvm_processes import needs_tvm, seen_by

pytestmark = needs_tvm


# ---- a TVM client of our server


@pytest.fixture(scope="module")
def seen(server: Server) -> dict[str, Any]:
    """The results of the TVM client."""
    return seen_by("tvm_client.py", server.host, server.port, "k")


def test_values(seen: dict[str, Any]) -> None:
    assert seen["add"] == 42
    assert all(seen["values"])
    assert all(seen["bytes"])
    assert seen["dtype"] == "float16"
    assert seen["closure"] == 6
    assert seen["after frees"] == seen["with timeout"] == 3


def test_errors(seen: dict[str, Any], server: Server) -> None:
    assert seen["exception"].startswith("RPCError")
    assert "ValueError: reason" in seen["exception"]
    assert "test.missing" in seen["missing"]
    assert "file name '../x'" in seen["escape"]
    assert "no file 'a.bin'" in seen["removed"]
    assert "wrong" in seen["wrong key"]
    assert works(server)


def test_tensors(seen: dict[str, Any]) -> None:
    assert all(seen["tensors"].values()), seen["tensors"]
    assert seen["sum"] == 15
    assert seen["twice"] == [[0, 4, 8], [12, 16, 20]]
    assert seen["array"] == "RPCObjectRef"


def test_time_evaluator(seen: dict[str, Any]) -> None:
    """TVM's client reads our results; our client computes the same statistics from them."""
    results, statistics = seen["timing"][:4], seen["timing"][4:]
    assert all(0 < seconds < 1 for seconds in results)
    ours = Timing(tuple(results))
    assert [ours.mean, ours.median, ours.min, ours.max, ours.std] == pytest.approx(statistics)


def test_files_and_devices(seen: dict[str, Any]) -> None:
    assert (seen["download"], seen["listdir"]) == ("hello", "a.bin")
    assert seen["cuda"] is False


# ---- our client of a TVM server


def test_our_values(tvm: Session) -> None:
    assert tvm.get_function("test.add")(20, 22) == 42
    echo = tvm.get_function("test.echo")
    for value in (None, True, 7, -(2**40), 1.5, "", "short", "x" * 100, b"", b"a\0b", b"y" * 100):
        result = echo(value)
        assert result == value
        assert type(result) is type(value)
    assert echo(fc.dtype("float16")) == fc.dtype("float16")


def test_our_errors(tvm: Session) -> None:
    with pytest.raises(fc.RemoteError, match="reason"):  # TVM sends no class
        tvm.get_function("test.fail")("reason")
    with pytest.raises(AttributeError):
        tvm.get_function("test.missing")
    assert tvm.get_function("test.add")(1, 2) == 3


def test_a_wrong_key_at_their_server(tvm_url: str) -> None:
    # Without a session open: it serves one at a time, and lets the next wait.
    with pytest.raises(fc.errors.ConnectError, match="refused the key"):
        connect(tvm_url, key="wrong", timeout=SECONDS)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "uint8", "bool"])
def test_our_tensors(tvm: Session, dtype: str) -> None:
    for shape in ((), (1,), (5,), (2, 3), (70_000,)):
        x = (np.arange(np.prod(shape, dtype=int)) % 100).reshape(shape).astype(dtype)
        np.testing.assert_array_equal(tvm.tensor(x).numpy(), x)


def test_our_tensors_in_calls(tvm: Session) -> None:
    x = tvm.tensor(np.arange(6, dtype="float32").reshape(2, 3))
    assert tvm.get_function("test.sum")(x) == 15
    assert tvm.get_function("test.sum")(np.ones((3, 3), dtype="float32")) == 9
    np.testing.assert_array_equal(tvm.get_function("test.make")(4).numpy(), [0, 1, 2, 3])
    # A tensor that was an argument comes back without an owner: its own client refuses that, we do not.
    np.testing.assert_array_equal(tvm.get_function("test.echo")(x).numpy(), x.numpy())
    for _ in range(100):
        tvm.get_function("test.make")(100)  # releases travel in batches
    first, second = tvm.get_function("test.pair")(2)
    assert (first.numpy().tolist(), second.numpy().tolist()) == ([0, 1], [0, 1, 2])


def test_our_files(tvm: Session) -> None:
    tvm.upload(b"hello", "a.bin")
    assert tvm.download("a.bin") == b"hello"
    tvm.remove("a.bin")
    with pytest.raises(fc.RemoteError):
        tvm.download("a.bin")
