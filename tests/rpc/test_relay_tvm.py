"""Chains with the real Apache TVM at either end, and in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from farcall.rpc import Server, connect

from .conftest import SECONDS
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
