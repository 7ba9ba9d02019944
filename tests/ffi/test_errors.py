"""Errors across the boundary, both ways."""

from __future__ import annotations

import builtins
import gc
import os
import re
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable

import pytest

from farcall import _core, ffi

NOT_FROM_TEXT = {"UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError", "ExceptionGroup"}
KINDS = sorted(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception) and name not in NOT_FROM_TEXT
)


@pytest.mark.parametrize("kind", KINDS)
def test_kernel_errors_are_pythons_own(kernels: ffi.Module, kind: str) -> None:
    with pytest.raises(getattr(builtins, kind)) as caught:
        kernels["raise"](kind, "what happened: ümlaut")
    assert caught.value.args[0] == "what happened: ümlaut"
    assert type(caught.value) is getattr(builtins, kind)


@pytest.mark.parametrize(
    "kind", ["InternalError", "my.Error", "UnicodeDecodeError", "SystemExit", "print", ""]
)
def test_another_kind_keeps_its_name(kernels: ffi.Module, kind: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        kernels["raise"](kind, "text")
    assert str(caught.value) == (f"{kind}: text" if kind else "text")


def test_registered_kind(kernels: ffi.Module) -> None:
    class DeviceLostError(Exception):
        pass

    assert ffi.register_error("DeviceLostError", DeviceLostError) is DeviceLostError
    with pytest.raises(DeviceLostError, match=r"^gone$"):
        kernels["raise"]("DeviceLostError", "gone")
    with pytest.raises(TypeError, match="expected an exception class"):
        ffi.register_error("X", 3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="expected a kind"):
        ffi.register_error(3)  # type: ignore[call-overload]


def test_registering_by_a_decorator(kernels: ffi.Module) -> None:
    @ffi.register_error
    class LinkDownError(ConnectionError):
        pass

    @ffi.register_error("QueueFull")
    class QueueFullError(Exception):
        pass

    for kind, cls in (("LinkDownError", LinkDownError), ("QueueFull", QueueFullError)):
        with pytest.raises(cls, match="no answer"):
            kernels["raise"](kind, "no answer")


def test_make_error() -> None:
    assert repr(_core.make_error("KeyError", "k")) == "KeyError('k')"
    assert repr(_core.make_error("Odd", "k")) == "RuntimeError('Odd: k')"


def test_message_in_parts(kernels: ffi.Module) -> None:
    with pytest.raises(KeyError, match="one two"):
        kernels["raise_parts"]()


def test_by_the_librarys_table(kernels: ffi.Module) -> None:
    with pytest.raises(IndexError, match="by the table"):
        kernels["raise_through_runtime"]()


def test_failure_without_an_error(kernels: ffi.Module) -> None:
    with pytest.raises(RuntimeError, match="`raise_nothing` returned -1 without setting an error"):
        kernels["raise_nothing"]()


def test_borrowed_result_is_refused(kernels: ffi.Module) -> None:
    with pytest.raises(ValueError, match="returned a `const char\\*`, which is borrowed"):
        kernels["return_borrowed"]("a long enough text")


@pytest.mark.parametrize("through", ["call", "call_and_reraise"])
def test_python_exception_comes_back_as_itself(kernels: ffi.Module, through: str) -> None:
    class MineError(ValueError):
        pass

    error = MineError("text", 2)

    def fail() -> None:
        raise error

    with pytest.raises(MineError) as caught:
        kernels[through](fail)
    assert caught.value is error
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "fail"


def test_native_code_sees_the_kind(kernels: ffi.Module) -> None:
    def fail() -> None:
        raise NotImplementedError

    assert kernels["call_or_kind"](fail) == "NotImplementedError"
    assert kernels["call_or_kind"](lambda: 3) == 3


def test_chain_of_causes_survives(kernels: ffi.Module) -> None:
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    with pytest.raises(ValueError, match="outer") as caught:
        kernels["call"](fail)
    assert isinstance(caught.value.__cause__, KeyError)


def test_exception_is_released(kernels: ffi.Module) -> None:
    class MineError(Exception):
        pass

    def fail() -> None:
        raise MineError

    def run() -> weakref.ref[MineError]:
        try:
            kernels["call"](fail)
        except MineError as error:
            return weakref.ref(error)
        raise AssertionError

    alive = run()
    gc.collect()
    assert alive() is None


def test_errors_stay_in_their_thread(kernels: ffi.Module) -> None:
    caught: list[str] = []

    def run(name: str) -> None:
        for _ in range(200):
            try:
                kernels["raise"]("ValueError", name)
            except ValueError as error:
                caught.append(name if str(error) == name else "wrong")

    threads = [threading.Thread(target=run, args=(f"thread {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(caught) == sorted(f"thread {i}" for i in range(8) for _ in range(200))


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def test_long_kernel_can_be_interrupted(kernels: ffi.Module) -> None:
    class StopError(Exception):
        pass

    def handler(*_: object) -> None:
        raise StopError

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(StopError):
            kernels["wait_for_signal"]()
    finally:
        signal.signal(signal.SIGUSR1, old)


def frames_of(error: BaseException) -> list[tuple[str, int | None, str]]:
    stack = traceback.extract_tb(error.__traceback__)
    return [(frame.filename, frame.lineno, frame.name) for frame in stack if frame.filename.endswith(".cc")]


def test_native_causes_and_frames(kernels: ffi.Module) -> None:
    with pytest.raises(ValueError, match="outer") as caught:
        kernels["raise_chain"]()
    middle = caught.value.__cause__
    assert isinstance(middle, IndexError)
    assert isinstance(middle.__cause__, KeyError)
    assert middle.__cause__.__cause__ is None
    assert frames_of(caught.value) == [("top.cc", 4, "top"), ("deep.cc", 30, "deep")]


def test_one_traceback_through_python_native_and_python(kernels: ffi.Module) -> None:
    def inner() -> None:
        raise KeyError("x")

    def outer() -> None:
        kernels["call_with_frame"](inner)

    with pytest.raises(KeyError) as caught:
        kernels["call_with_frame"](outer)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-4:] == ["between", "outer", "between", "inner"]


def test_native_code_sees_the_causes(kernels: ffi.Module) -> None:
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise NotImplementedError from error

    assert kernels["call_or_kinds"](fail) == "NotImplementedError KeyError "


def test_causes_in_a_circle(kernels: ffi.Module) -> None:
    def fail() -> None:
        one, two = ValueError(1), ValueError(2)
        one.__cause__, two.__cause__ = two, one
        raise one

    assert kernels["call_or_kinds"](fail).startswith("ValueError ValueError ")


def test_exception_as_an_argument(kernels: ffi.Module) -> None:
    error = OverflowError("x")
    assert kernels["echo"](error) is error


def test_no_message_has_an_empty_name() -> None:
    """Whether a function, a module or the class of an error has none."""

    def nameless(x: object) -> object:
        return {x}

    nameless.__qualname__ = ""
    module = ffi.new_module("", {"": nameless, "f": nameless})
    ffi.register_global_func("", nameless)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: ffi.Function(nameless)(object()), "argument 1 of `function`: "),
        (lambda: ffi.Function(nameless)(1), "the result of `function`: "),
        (lambda: module[""](object()), "argument 1 of `<function>`: "),
        (lambda: ffi.get_global_func("")(object()), "argument 1 of `<function>`: "),
        (lambda: module["g"], "the module has no function `g`; "),
    ]
    for call, begin in calls:
        with pytest.raises((TypeError, AttributeError), match=f"^{re.escape(begin)}") as caught:
            call()
        assert caught.value.__context__ is None
    ffi.remove_global_func("")
    assert str(_core.make_error("", "text")) == "text"
