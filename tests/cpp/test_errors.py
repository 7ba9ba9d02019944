"""The messages for arguments that do not fit, and exceptions across the boundary."""

from __future__ import annotations

import re
import signal
import traceback
from typing import Any

import numpy as np
import pytest

from farcall.cpp import load_inline
from farcall.ffi import Module

BUILT_IN = (
    *(ValueError, TypeError, IndexError, KeyError, RuntimeError, NotImplementedError, OverflowError),
    *(AttributeError, AssertionError, MemoryError, ZeroDivisionError, TimeoutError, StopIteration),
)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "add",
            (1, "hello"),
            'argument 2 `b` of `add(a: int, b: int = 10) -> int`: expected int, got str "hello"',
        ),
        ("add", (1.5, 2), "argument 1 `a` of `add(a: int, b: int = 10) -> int`: expected int, got float 1.5"),
        ("add", (), "`add(a: int, b: int = 10) -> int`"),  # said by the caller or by the kernel
        ("add", (1, 2, 3), "`add(a: int, b: int = 10) -> int` takes 1 to 2 arguments, got 3"),
        ("flip", (None,), "argument 1 `arg1` of `flip(arg1: bool) -> bool`: expected bool, got None"),
        ("length", ("a", "b"), 'expected bytes, got str "b"'),
        ("join", (b"a", "b", "c"), "expected str, got bytes of length 1"),
        ("join", ("a", "b", "x" * 100 + "y"), None),
        ("half", ("x",), 'expected Optional[int], got str "x"'),
        ("pointer", (1,), "expected void*, got int 1"),
        ("doubled", (3,), "argument 1 `x` of `doubled(x: Tensor) -> Tensor`: expected Tensor, got int 3"),
        ("doubled", (np.zeros(2, np.int16),), "expected a tensor of float32, got int16"),
        ("apply", (1, 2), "expected Callable, got int 1"),
        ("sum", ([1, "x"],), 'expected list[float], got a list whose item 2 is str "x"'),
        ("nested", ([[1], [2, "q"]],), 'got a list whose item 2 is a list whose item 2 is str "q"'),
        ("swap", ((1,),), "expected tuple[int, str], got list of 1"),
        ("sizes", ([np.zeros(2, np.float32), 1],), "got a list whose item 2 is int 1"),
        ("kinds", ("nope", "cpu"), 'expected dtype, got str "nope"'),
        ("kinds", ("int8", "toaster:1"), 'expected Device, got str "toaster:1"'),
    ],
)
def test_a_type_error_names_all(
    kernels: Module, name: str, args: tuple[Any, ...], message: str | None
) -> None:
    if message is None:
        assert kernels[name](*args).endswith("y")
        return
    with pytest.raises(TypeError) as caught:
        kernels[name](*args)
    assert message in str(caught.value)


def test_a_long_text_is_cut_in_messages(kernels: Module) -> None:
    with pytest.raises(TypeError) as caught:
        kernels["add"](1, "x" * 1000)
    assert str(caught.value).endswith('got str "' + "x" * 40 + '"...')


@pytest.mark.parametrize("cls", BUILT_IN)
def test_the_kind_is_the_class(kernels: Module, cls: type[Exception]) -> None:
    with pytest.raises(cls, match="it broke") as caught:
        kernels["fail"](cls.__name__, "it broke")
    assert type(caught.value) is cls


def test_an_unknown_kind_keeps_its_name(kernels: Module) -> None:
    with pytest.raises(RuntimeError, match="MyError: it broke"):
        kernels["fail"]("MyError", "it broke")


@pytest.mark.parametrize(
    ("what", "cls"),
    [
        ("invalid_argument", ValueError),
        ("out_of_range", IndexError),
        ("bad_alloc", MemoryError),
        ("overflow_error", OverflowError),
        ("runtime_error", RuntimeError),
        ("not a std::exception", RuntimeError),
    ],
)
def test_standard_exceptions(kernels: Module, what: str, cls: type[Exception]) -> None:
    with pytest.raises(cls) as caught:
        kernels["fail_std"](what)
    assert type(caught.value) is cls


def test_a_python_error_comes_back_as_itself(kernels: Module) -> None:
    original = LookupError("mine")

    def fail() -> None:
        raise original

    with pytest.raises(LookupError) as caught:
        kernels["apply"](lambda *_: fail(), 1)
    assert caught.value is original
    assert "in fail" in "".join(traceback.format_tb(caught.value.__traceback__))


def test_cpp_catches_a_python_error(kernels: Module) -> None:
    def fail() -> None:
        raise IndexError("from Python")

    assert kernels["catches"](fail) == "IndexError: from Python"
    assert kernels["catches"](lambda: None) == "fine"


def test_a_cause_is_kept(kernels: Module) -> None:
    with pytest.raises(ValueError, match="outer") as caught:
        kernels["fail_with_cause"]()
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.args == ("inner",)


def test_an_exception_as_an_argument(kernels: Module) -> None:
    assert kernels["error_value"](ValueError("v")) == "ValueError|v"


def test_the_place_of_the_throw_is_in_the_traceback(kernels: Module) -> None:
    with pytest.raises(ValueError, match="here") as caught:
        kernels["fail"]("ValueError", "here")
    assert any("kernels.cpp" in line for line in traceback.format_tb(caught.value.__traceback__))


@pytest.mark.parametrize("released", [True, False])
def test_what_a_signal_handler_raises_ends_the_kernel(kernels: Module, released: bool) -> None:
    class StopError(Exception):
        pass

    def handler(*_: object) -> None:
        raise StopError("enough")

    loop = kernels["until_a_signal"]
    loop.release_gil = released
    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(StopError, match="enough"):
            loop()
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert kernels["catches"](loop) == "StopError: enough"
    finally:
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("text", ["a\0b", "a long text, which is an object\0b"])
def test_a_text_that_would_be_cut_is_refused(kernels: Module, text: str) -> None:
    assert kernels["join"](text, text, "c") == text + text + "c"
    with pytest.raises(ValueError, match="contains a NUL"):
        kernels["join"]("a", "b", text)


INSIDE = """
using namespace farcall;
void doubled(int n, TensorView x) { x.data_ptr<float>()[0] *= static_cast<float>(n); }
void owned(Tensor x) { x.data_ptr<float>()[0] *= 2; }
void made() {
  Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {1}, {kDLInt, 8, 1}, {kDLCPU, 0}).data_ptr<float>();
}
int typed(int x, TypedFunction<int(int)> f) { return f(x); }
int untyped(Function f) { return f(1).cast<int>(); }
int packed(PackedArgs args) { return args[0].cast<int>() + args[1].cast<int>(); }
Function nameless() { return make_function([](int x) { return x; }, ""); }
"""


@pytest.fixture(scope="module")
def inside() -> Module:
    names = ["doubled", "owned", "made", "typed", "untyped", "packed", "nameless"]
    return load_inline("inside", cpp_sources=INSIDE, functions=names)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "doubled",
            (2, np.ones(3)),
            "argument 2 `x` of `doubled(n: int, x: Tensor) -> None`: expected a tensor of float32, got "
            'float64[3]; convert it, for example with x.astype("float32")',
        ),
        (
            "owned",
            (np.ones(3),),
            "argument 1 `x` of `owned(x: Tensor) -> None`: expected a tensor of float32, got",
        ),
        ("made", (), "`made() -> None`: expected a tensor of float32, got int8[1]"),
        (
            "typed",
            (1, lambda x: "s"),
            "argument 2 `f` of `typed(x: int, f: Callable[[int], int]) -> int`: its result: "
            'expected int, got str "s"; let it return int',
        ),
        ("untyped", (lambda x: "s",), "`untyped(f: Callable) -> int`: expected int, got str"),
        ("packed", (1, "x"), 'argument 2 of `packed(...) -> int`: expected int, got str "x"; pass int'),
        ("packed", ("x", "x"), "argument 1 of `packed(...) -> int`: expected int, got"),
        ("packed", (1,), "`packed(...) -> int`: argument 2 is missing: got 1 argument"),
    ],
)
def test_what_is_found_wrong_inside_names_function_and_argument(
    inside: Module, name: str, args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(TypeError, match="^" + re.escape(message)):
        inside[name](*args)


def test_a_function_without_a_name_has_one_in_messages(inside: Module) -> None:
    with pytest.raises(TypeError, match=r"argument 1 `arg1` of `function\(arg1: int\) -> int`"):
        inside["nameless"]()("x")
