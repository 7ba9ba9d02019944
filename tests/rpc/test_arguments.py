"""Arguments of remote functions: every kind of result, and lists and dicts by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import farcall as fc
from farcall.errors import ProtocolError
from farcall.rpc import Limits, RemoteMap, RemoteModule, RemoteObject, Server, Session, connect
from farcall.rpc.client._remote import Remote

from ..waiting import SECONDS
from .servers import INIT

ITEMS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
        st.binary(max_size=12),
    ),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
here = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.lists(ITEMS, max_size=5).map(tuple))
@here
def test_lists_travel_by_value(session: Session, value: tuple[Any, ...]) -> None:
    echo = session.get_function("test.echo")
    assert echo(value) == value
    assert echo(list(value)) == value


@given(st.dictionaries(KEYS, ITEMS, min_size=1, max_size=5))
@here
def test_dicts_travel_by_value(session: Session, value: dict[str, Any]) -> None:
    there = session.get_function("test.echo")(value)
    assert there.type_name == "ffi.Map"
    assert session.get_function("test.length")(there) == len(value)
    assert session.get_function("test.get")(value, next(reversed(value))) == next(reversed(value.values()))


def kinds(session: Session) -> dict[str, Any]:
    """A result of every kind."""
    echo = session.get_function("test.echo")
    return {
        "none": echo(None),
        "bool": echo(True),
        "least": echo(-(2**63)),
        "most": echo(2**63 - 1),
        "float": echo(0.5),
        "text": echo("grün"),
        "long": echo("x" * 70_000),
        "bytes": echo(b"\0\xff"),
        "dtype": echo(fc.dtype("bfloat16x2")),
        "device": echo(session.cpu().device),
        "tensor": session.get_function("test.range")(3),
        "function": session.get_function("test.adder")(5),
        "module": session.get_function("test.module")(),
        "object": session.get_function("test.object")(),
        "shape": echo(fc.ffi.Shape((2, 3))),
        "list": session.get_function("test.several")(session.tensor(np.ones(2))),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, fc.Tensor):
        return bool((a.numpy() == b.numpy()).all())
    if isinstance(a, fc.ffi.Function):
        return bool(a(1) == b(1))
    if isinstance(a, RemoteModule):
        return bool(a["answer"]() == b["answer"]())
    if isinstance(a, RemoteObject):
        return bool(a.type_name == b.type_name)
    return bool(a == b and type(a) is type(b))


def test_every_result_can_be_passed_back(session: Session) -> None:
    echo = session.get_function("test.echo")
    made = kinds(session)
    local = fc.ffi.Function(lambda x: x)
    for name, value in made.items():
        assert same(echo(value), value), name
        assert same(echo(local(value)), value), name
        assert same(echo([value, (value,)]), (value, (value,))), name
        assert same(session.get_function("test.call")(local, value), value), name
    assert same(echo(tuple(made.values())), tuple(made.values()))


@given(
    st.recursive(
        ITEMS, lambda items: st.lists(items, max_size=3).map(tuple) | st.dictionaries(KEYS, items, max_size=4)
    )
)
@here
def test_dicts_in_results_are_read_like_dicts(session: Session, value: Any) -> None:
    result = session.get_function("test.echo")({"value": value})
    assert isinstance(result, RemoteMap)
    assert result.to_python() == {"value": value}
    assert list(result) == ["value"] and len(result) == 1 and "other" not in result
    with pytest.raises(KeyError, match="other"):
        result["other"]


def test_a_large_dict_arrives_in_several_replies(session: Session) -> None:
    value = {i: str(i) for i in range(1500)}
    result = session.get_function("test.echo")(value)
    assert dict(result) == result == value
    assert session.get_function("test.echo")({}).to_python() == {}


def test_a_dict_of_plain_values_takes_two_round_trips(session: Session) -> None:
    value = {f"key {i}": i / 2 if i % 2 else i for i in range(1500)} | {True: None, -(1 << 63): "\ud55c\n"}
    result = session.get_function("test.echo")(value)
    before = session.stats.round_trips
    read = result.to_python()
    assert read == value
    assert [type(one) for one in read.values()] == [type(one) for one in value.values()]
    assert session.stats.round_trips == before + 2


@pytest.mark.parametrize("value", [float("inf"), b"bytes", (1, 2), "x" * (17 << 20)])
def test_a_dict_of_other_values(session: Session, value: Any) -> None:
    result = session.get_function("test.echo")({"plain": 1, "other": value})
    assert result.to_python() == {"plain": 1, "other": value}


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[[], 1]", '[1, {"a": 2}]', "[" * 100_000])
def test_a_server_that_sends_no_items(session: Session, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    result = session.get_function("test.echo")({"a": 1})
    monkeypatch.setattr(Remote, "helper_or_none", lambda *_: lambda mapping: text)
    with pytest.raises(ProtocolError, match=r"answered `farcall.rpc.plain_items` with"):
        len(result)


def test_a_dict_with_tensors_through_another_server(server: Server) -> None:
    with (
        Server(init=INIT, key="second") as second,
        connect(second.url, "second", via=[(server.url, "k")], timeout=SECONDS) as far,
    ):
        result = far.get_function("test.echo")({"x": np.arange(3), "f": far.get_function("test.add")})
        assert result["x"].numpy().tolist() == [0, 1, 2]
        assert result["f"](1, 2) == 3


def test_lists_go_through_other_servers(server: Server) -> None:
    with (
        Server(init=INIT, key="second") as second,
        connect(second.url, "second", via=[(server.url, "k")], timeout=SECONDS) as far,
    ):
        x = far.tensor(np.arange(3))
        result = far.get_function("test.echo")([x, {"a": [x]}, "text"])
        assert result[0].numpy().tolist() == [0, 1, 2]
        assert far.get_function("test.length")(result[1]) == 1


def test_lists_in_a_pipeline(session: Session) -> None:
    echo, several, first = (session.get_function(f"test.{name}") for name in ("echo", "several", "first"))
    x = session.tensor(np.ones(2))
    with session.pipeline() as p:
        one = p(echo, [1, [2]])
        many = p(several, x)
        both = p(echo, [one, many])
        same_tensor = p(first, many)
        back = p(first, p(echo, [x]))
    assert both.result()[0] == (1, (2,))
    assert both.result()[1][1:3] == (7, "text")
    assert same_tensor.result().numpy().tolist() == back.result().numpy().tolist() == [1, 1]
    assert echo.submit({"a": 1}).result(SECONDS).type_name == "ffi.Map"


def test_a_callback_gives_lists(session: Session) -> None:
    call = session.get_function("test.call")
    result = call(lambda n: [n, (n, "text"), np.full(2, n)], 3)
    assert result[:2] == (3, (3, "text"))
    assert result[2].numpy().tolist() == [3, 3]
    assert call(lambda n: {"a": n}, 3).type_name == "ffi.Map"


def test_what_was_made_for_a_call_goes_with_it() -> None:
    with (
        Server(init=INIT, limits=Limits(handles=32)) as small,
        connect(small.url, timeout=SECONDS) as session,
    ):
        length = session.get_function("test.length")
        for _ in range(100):
            assert length([1, [2, {"a": [3]}], np.ones(100)]) == 3
        with session.pipeline() as p:
            assert p.map(length, [([i, [i]],) for i in range(100)]) == [2] * 100


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_lists_that_cannot_travel(session: Session) -> None:
    echo = session.get_function("test.echo")
    limit = session.server_limits["values"]
    for wrong, kind, words in (
        ([0, lambda: 1], TypeError, r"argument 1\[1\] of remote `test.echo`: a list cannot contain"),
        ({"a": 1, "b": [lambda: 1]}, TypeError, r"argument 1\[value 1\]\[0\] of remote"),
        (["a\0"], ValueError, r"argument 1\[0\].*NUL"),
        ({"a\0": 1}, ValueError, r"argument 1\[key 0\].*NUL"),
        (nested(40), ValueError, "nested too deeply"),
        (list(range(limit)), ValueError, f"{limit} items are too many.*pass a tensor"),
    ):
        with pytest.raises(kind, match=words):
            echo(wrong)
    assert echo(list(range(limit - 2))) == tuple(range(limit - 2))
    assert echo(nested(30)) is not None
    with pytest.raises(OverflowError, match="64 bits"):
        echo([2**63])


def test_things_of_another_session(server: Server, session: Session) -> None:
    echo = session.get_function("test.echo")
    with connect(server.url, key="k", timeout=SECONDS) as other:
        for foreign, words in (
            (other.tensor(np.ones(2)), r"another session; copy it with session\.tensor\(x\.numpy\(\)\)"),
            (other.get_function("test.object")(), "lives on another session"),
            (other.get_function("test.module")(), "lives on another session"),
        ):
            for value in (foreign, [foreign]):
                with pytest.raises(ValueError, match=words):
                    echo(value)
        call = session.get_function("test.call")
        assert call(other.get_function("test.adder")(1), 2) == 3  # as a function of this process
