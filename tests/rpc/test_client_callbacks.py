"""Callables of this process that the server calls while a call is open."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import RemoteObject, Session


def call(session: Session) -> Callable[..., Any]:
    return session.get_function("test.call")


@pytest.mark.parametrize(
    "value", [None, True, 7, -(2**62), 0.5, "", "text", "t" * 1000, b"", b"b\0", b"x" * 1000], ids=repr
)
def test_values_of_a_callback(session: Session, value: object) -> None:
    seen: list[object] = []

    def callback(x: object) -> object:
        seen.append(x)
        return x

    result = call(session)(callback, value)
    assert (result, type(result)) == (value, type(value))
    assert seen == [value]


def test_tensors_of_a_callback(session: Session) -> None:
    x = session.tensor(np.arange(4, dtype="float32"))

    def callback(there: Any) -> Any:
        assert isinstance(there, fc.Tensor)
        return there.numpy() * 2  # of this process: it is copied there

    np.testing.assert_array_equal(call(session)(callback, x).numpy(), [0, 2, 4, 6])
    np.testing.assert_array_equal(call(session)(lambda there: there, x).numpy(), x.numpy())


def test_calls_that_nest_too_deep_are_a_recursion_error(session: Session) -> None:
    """Even at a depth where no exception can be created."""
    apply = call(session)

    def deeper(n: int) -> Any:
        return apply(deeper, n + 1)

    with pytest.raises(RecursionError, match="maximum recursion depth"):
        deeper(0)
    assert apply(lambda n: n + 1, 41) == 42


def test_a_callback_uses_the_session(session: Session) -> None:
    add, apply = session.get_function("test.add"), call(session)

    def deep(n: int) -> int:
        return 1 if n == 0 else int(add(apply(deep, n - 1), 1))

    assert apply(deep, 10) == 11
    assert add(1, 1) == 2


def test_functions_and_objects_in_a_callback(session: Session) -> None:
    adder, made = session.get_function("test.adder"), session.get_function("test.object")
    assert call(session)(lambda f: f(1), adder(5)) == 6
    assert call(session)(lambda x: adder(x + 1), 2)(4) == 7
    there = call(session)(lambda n: made() if n else None, 1)
    assert isinstance(there, RemoteObject)
    assert session.get_function("test.length")(there) == 1


class CustomError(Exception):
    pass


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError])
def test_exceptions_travel_back(session: Session, kind: type[Exception]) -> None:
    def callback(x: int) -> None:
        raise kind(f"reason {x}")

    with pytest.raises(kind, match="reason 3"):
        call(session)(callback, 3)
    assert session.get_function("test.add")(1, 1) == 2


def test_other_exceptions_and_results_that_cannot_travel(session: Session) -> None:
    def callback(x: int) -> None:
        raise CustomError("own")

    with pytest.raises(Exception, match="CustomError: own"):
        call(session)(callback, 3)
    with pytest.raises(TypeError, match="cannot travel"):
        call(session)(lambda x: {1: CustomError("own")}, 3)
    assert session.get_function("test.add")(1, 1) == 2


def test_a_callback_is_released_with_its_call(session: Session) -> None:
    def callback(x: int) -> int:
        return x

    gone = weakref.ref(callback)
    call(session)(callback, 1)
    del callback
    gc.collect()
    assert gone() is None


def test_a_callback_that_is_kept_is_refused_later(session: Session) -> None:
    session.get_function("test.hold")(lambda x: x)
    with pytest.raises(fc.errors.InvalidHandleError, match="while the call"):
        session.get_function("test.call_held")(1)


def test_callbacks_in_many_threads(session: Session) -> None:
    results: dict[int, Any] = {}

    def work(n: int) -> None:
        results[n] = [call(session)(lambda x: x * n, i) for i in range(20)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [i * n for i in range(20)] for n in range(8)}
