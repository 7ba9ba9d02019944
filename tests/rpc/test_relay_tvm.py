"""Chains with the real Apache TVM at either end, and in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from farcall.rpc import Server, Session, connect

from ..waiting import SECONDS
from .tvm_exports import INIT as TVM_LIKE
from .tvm_processes import needs_tvm, seen_by

pytestmark = needs_tvm


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with Server(init=TVM_LIKE, key="o") as running:
        yield running


def through(first: tuple[int, str], second: tuple[int, str]) -> dict[str, Any]:
    return seen_by("tvm_chain.py", "127.0.0.1", *first, *second)


def check(seen: dict[str, Any]) -> None:
    assert (seen["add"], seen["text"], seen["large"], seen["sum"]) == (42, "hello", True, 6)
    assert (seen["made"], seen["sum of made"]) == ([0, 1, 2, 3, 4], 10)
    assert "not today" in seen["exception"]
    assert "test.missing" in seen["missing"]
    assert seen["after frees"] == 3


def test_a_tvm_client_through_our_server_to_ours(ours: Server, server: Server) -> None:
    seen = through((server.port, "k"), (ours.port, "o"))
    check(seen)
    assert f"hop 2 ({ours.url}): not today" in seen["exception"]


def test_a_tvm_client_through_our_server_to_a_tvm_server(ours: Server, tvm_url: str) -> None:
    seen = through((ours.port, "o"), (int(tvm_url.rsplit(":", 1)[1]), "k"))
    check(seen)
    assert f"hop 2 ({tvm_url}): " in seen["exception"]


@pytest.mark.parametrize("order", ["tvm, ours", "ours, tvm"])
def test_our_client_through_either(ours: Server, tvm_url: str, order: str) -> None:
    places = {"ours": (ours.url, "o"), "tvm": (tvm_url, "k")}
    first, last = (places[name] for name in order.split(", "))
    with connect(*last, via=[first], timeout=SECONDS) as session:
        assert session.get_function("test.add")(20, 22) == 42
        x = np.random.default_rng(3).integers(0, 255, 2_000_001, dtype="uint8")
        np.testing.assert_array_equal(session.tensor(x).numpy(), x)
        made = session.get_function("test.make")(5)
        assert session.get_function("test.sum")(made) == 10
        np.testing.assert_array_equal(made.numpy(), np.arange(5, dtype="float32"))
        with pytest.raises(Exception, match="not today"):
            session.get_function("test.fail")("not today")
        with pytest.raises(AttributeError):
            session.get_function("test.missing")


@pytest.fixture(params=["tvm, ours", "server, tvm, ours"])
def behind_tvm(
    request: pytest.FixtureRequest, server: Server, ours: Server, tvm_url: str
) -> Iterator[Session]:
    """A session with a farcall server behind one of TVM's."""
    places = {
        "ours": (ours.url, "o"),
        "server": (server.url, "k"),
        "tvm": (tvm_url, "k"),
    }
    *between, last = (places[name] for name in request.param.split(", "))
    with connect(*last, via=between, timeout=SECONDS) as session:
        yield session


def test_views_behind_a_tvm_server(behind_tvm: Session) -> None:
    """TVM treats the byte offset of a copy as 0, and silently copies other bytes."""
    x = np.arange(60, dtype="int32").reshape(6, 10)
    there = behind_tvm.tensor(x)
    for index in (np.s_[2:4], np.s_[3], np.s_[::2, 1:9:3], np.s_[5:, ::-1]):
        view = behind_tvm.view(there, index)
        np.testing.assert_array_equal(view.numpy(), x[index])
        behind_tvm.copy(-x[index], view)
        x[index] *= -1
        np.testing.assert_array_equal(there.numpy(), x)
    assert behind_tvm.get_function("test.sum")(behind_tvm.view(there, np.s_[2:4])) == x[2:4].sum()


def test_errors_behind_a_tvm_server(behind_tvm: Session) -> None:
    """TVM wraps errors that it forwards: class and place are still those of the server that failed."""
    hop, url = len(behind_tvm.route), behind_tvm.route[-1]
    with pytest.raises(ValueError, match=f"^hop {hop} \\({url}\\): not today$"):
        behind_tvm.get_function("test.fail")("not today")
    with pytest.raises(FileNotFoundError, match=f"^hop {hop} "):
        behind_tvm.download("missing")


def test_pipelines_behind_a_tvm_server(behind_tvm: Session) -> None:
    """TVM would take numbers that the client chooses for addresses, so promises are not used."""
    assert not behind_tvm.features & {"callbacks", "promises"}
    add = behind_tvm.get_function("test.add")
    with behind_tvm.pipeline() as p:
        call = p(add, p(add, 1, 2), 3)
        assert p.map(add, [(i, i) for i in range(100)]) == [2 * i for i in range(100)]
    assert call.result() == 6
    with pytest.raises(TypeError, match="cannot call functions of this process"):
        behind_tvm.get_function("test.echo")(print)
