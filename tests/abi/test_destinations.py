"""Functions that write their results into tensors that a call makes for them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import msgspec
import numpy as np
import pytest

import farcall.ffi as ffi
from farcall.abi import FunctionAbi, Signature
from farcall.errors import ArgumentError, ResultError

X = np.arange(6, dtype="f4").reshape(2, 3)


def add_into(a: ffi.Tensor, b: ffi.Tensor, out: ffi.Tensor) -> None:
    np.add(a.numpy(), b.numpy(), out=out.numpy())


def signed(function: Any, signature: Signature) -> ffi.Function:
    made = ffi.Function(function)
    made.signature = signature
    return made


ADD = Signature.of({"a": "float32[n, m]", "b": "float32[n, m]"}, {"sum": "float32[n, m]"}, destinations=True)


def test_results_are_made_and_returned() -> None:
    add = signed(add_into, ADD)
    result = add(X, b=X)
    assert isinstance(result["sum"], np.ndarray)
    np.testing.assert_array_equal(result["sum"], 2 * X)
    second = add(X, X)["sum"]
    assert second.ctypes.data != result["sum"].ctypes.data
    np.testing.assert_array_equal(FunctionAbi(ADD).invoke(add_into, X, X)["sum"], 2 * X)


def test_results_are_of_the_framework_of_the_arguments() -> None:
    torch = pytest.importorskip("torch")
    result = signed(add_into, ADD)(torch.from_numpy(X), torch.from_numpy(X))
    assert isinstance(result["sum"], torch.Tensor)
    assert result["sum"].tolist() == (2 * X).tolist()


def test_a_kernel_of_a_library() -> None:
    from farcall import cpp

    source = """
    void twice(farcall::ConstTensorView x, farcall::TensorView out) {
      for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    }
    """
    twice = cpp.load_inline("twice_into", cpp_sources=source, functions="twice")["twice"]
    twice.signature = Signature.of({"x": "float32[n, m]"}, "float32[n, m]", destinations=True)
    np.testing.assert_array_equal(twice(X), 2 * X)
    np.testing.assert_array_equal(twice(x=X.T), 2 * X.T)


def test_dims_by_expressions_and_by_a_shape_function() -> None:
    def fill(x: ffi.Tensor, double: ffi.Tensor, rest: ffi.Tensor) -> None:
        double.numpy()[:] = 1
        rest.numpy()[:] = 2

    signature = Signature.of({"x": "float32[n]"}, ("int8[2*n]", "int8[?]"), destinations=True)
    function = ffi.Function(fill)
    function.abi = FunctionAbi(signature, shape_function=lambda x: [None, (5,)])
    ones, twos = function(np.zeros(3, "f4"))
    assert ones.tolist() == [1] * 6
    assert twos.tolist() == [2] * 5


def test_the_function_allocates_what_nobody_knows() -> None:
    seen: list[Any] = []

    def some(x: ffi.Tensor, out: ffi.Tensor | None) -> Any:
        seen.append(out)
        return x.numpy()[x.numpy() > 2]

    function = signed(some, Signature.of({"x": "float32[n]"}, "float32[?]", destinations=True))
    assert function(np.arange(5, dtype="f4")).tolist() == [3, 4]
    assert seen == [None]


def test_a_result_that_nobody_made() -> None:
    function = signed(lambda x, out: None, Signature.of({"x": "float32[n]"}, "float32[?]", destinations=True))
    with pytest.raises(ResultError, match=r"expected float32\[\?\], got None"):
        function(np.zeros(3, "f4"))


def test_nothing_is_made_for_a_wrong_call() -> None:
    calls: list[Any] = []
    function = signed(lambda *args: calls.append(args), ADD)
    with pytest.raises(ArgumentError):
        function(X, X.T)
    assert not calls


def test_sizes_that_cannot_be() -> None:
    signature = Signature.of({"x": "float32[n]"}, "float32[n - 5]", destinations=True)
    with pytest.raises(ValueError, match="evaluates to -2"):
        signed(lambda x, out: None, signature)(np.zeros(3, "f4"))
    huge = Signature.of({}, f"float64[{2**40}, {2**40}]", destinations=True)
    with pytest.raises((ValueError, MemoryError)):
        signed(lambda out: None, huge)()


def test_errors_and_many_results() -> None:
    def fail(*args: Any) -> None:
        raise KeyError("as it was asked to")

    names = [f"r{i}" for i in range(20)]
    signature = Signature.of({"x": "float32[n]"}, dict.fromkeys(names, "float32[n]"), destinations=True)
    with pytest.raises(KeyError, match="as it was asked to"):
        signed(fail, signature)(np.zeros(3, "f4"))

    def number(x: ffi.Tensor, *outs: ffi.Tensor) -> None:
        for i, out in enumerate(outs):
            out.numpy()[:] = i

    result = signed(number, signature)(np.zeros(2, "f4"))
    assert [result[name].tolist() for name in names] == [[i, i] for i in range(20)]


def test_memory_lives_as_long_as_the_result() -> None:
    kept: list[Any] = []

    def keep(a: ffi.Tensor, b: ffi.Tensor, out: ffi.Tensor) -> None:
        kept.append(out)
        out.numpy()[:] = 7

    result = signed(keep, ADD)(X, X)["sum"]
    assert result.ctypes.data == kept[0].data_ptr()
    alive = weakref.ref(kept[0])
    kept.clear()
    gc.collect()
    assert alive() is None
    assert result.tolist() == np.full((2, 3), 7.0).tolist()


def test_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ADD), type=Signature) == ADD
    assert b"destinations" not in msgspec.json.encode(Signature.of({"x": "int8"}))
