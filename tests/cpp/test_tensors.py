"""Tensors: questions, allocation, DLPack, strides; of numpy, torch and farcall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.ffi import Function, Module, Tensor, empty, from_dlpack

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_a_tensor_can_be_asked(kernels: Module) -> None:
    assert kernels["asked"](X) == "2|2,3,|3,1,|6|float32|cpu:0|0|true|24"
    assert kernels["asked"](X.T) == "2|3,2,|1,3,|6|float32|cpu:0|0|false|24"
    assert kernels["asked"](X[:, :1].T) == "2|1,2,|1,3,|2|float32|cpu:0|0|false|8"
    assert kernels["asked"](np.zeros((0, 3), np.int8)).endswith("|0|int8|cpu:0|0|true|0")
    assert kernels["asked"](np.array(1.5)) == "0|||1|float64|cpu:0|0|true|8"


@pytest.mark.parametrize(("axis", "expected"), [(0, "2 3"), (1, "3 1"), (-1, "3 1"), (-2, "2 3")])
def test_negative_axes(kernels: Module, axis: int, expected: str) -> None:
    assert kernels["axis"](X, axis) == expected


@pytest.mark.parametrize("axis", [2, -3, 2**40])
def test_an_axis_out_of_range(kernels: Module, axis: int) -> None:
    with pytest.raises(IndexError, match=f"dimension {axis} is out of range: there are 2"):
        kernels["axis"](X, axis)


def test_a_tensor_without_strides_is_row_major(kernels: Module) -> None:
    assert kernels["without_strides"](X.T) == "2|3,2,|2,1,|6|float32|cpu:0|0|true|24|2"


def test_data_ptr_has_the_byte_offset(kernels: Module) -> None:
    assert kernels["offset_first"](X) == 1.0


def test_numpy_in_numpy_out(kernels: Module) -> None:
    result = kernels["doubled"](X)
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, X * 2)


def test_torch_in_torch_out(kernels: Module) -> None:
    torch = pytest.importorskip("torch")
    result = kernels["doubled"](torch.from_numpy(X))
    assert type(result) is torch.Tensor
    assert torch.equal(result, torch.from_numpy(X) * 2)


def test_farcall_in_farcall_out(kernels: Module) -> None:
    result = kernels["doubled"](from_dlpack(X))
    assert isinstance(result, Tensor)
    np.testing.assert_array_equal(result.numpy(), X * 2)


def test_what_a_kernel_writes_is_seen(kernels: Module) -> None:
    x = X.copy()
    kernels["add_one"](x)
    np.testing.assert_array_equal(x, X + 1)


def test_a_tensor_of_a_server_is_refused_instead_of_read(kernels: Module) -> None:
    """Its pointer is a number that only the server understands."""
    expected = (
        r"got float32\[2, 3\] on remote\[\d+\]/cpu:0, in the memory of a server; pass its .numpy\(\), a copy"
    )
    with fc.serve() as server, fc.connect(server.url) as session:
        there = session.tensor(X)
        with pytest.raises(ValueError, match=r"argument 1 .*the tensor is on cpu:0 of tcp://.*x\.numpy\(\)"):
            kernels["add_one"](there)
        unknown = fc.Function(lambda f: f)(kernels["add_one"])  # farcall no longer knows that it is a kernel
        with pytest.raises(ValueError, match=expected):
            unknown(there)


def test_a_const_view_takes_read_only_arrays(kernels: Module) -> None:
    x = X.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(kernels["doubled"](x), X * 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])  # bfloat16 has no buffer: it comes by DLPack
def test_an_array_of_jax_is_never_written_to(kernels: Module, dtype: str) -> None:
    """The framework relies on it: it shares the same memory with other computations."""
    x = pytest.importorskip("jax.numpy").zeros(3, dtype)
    for argument in (x, from_dlpack(x), (owned := Function(lambda y: y)(x))):
        with pytest.raises(
            ValueError, match=r"argument 1 `x` of `add_one`: .*numpy\.array\(x\).*ConstTensorView"
        ):
            kernels["add_one"](argument)
    assert x.tolist() == [0, 0, 0]
    assert owned.tolist() == [0, 0, 0]


def test_an_array_of_jax_is_read(kernels: Module) -> None:
    x = pytest.importorskip("jax.numpy").asarray(X)
    np.testing.assert_array_equal(kernels["doubled"](x), X * 2)
    assert not from_dlpack(x).numpy().flags.writeable


def test_a_tensor_of_a_read_only_array_is_not_written_to(kernels: Module) -> None:
    x = X.copy()
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernels["add_one"](from_dlpack(x))
    np.testing.assert_array_equal(x, X)


def test_an_optional_tensor(kernels: Module) -> None:
    assert kernels["maybe"](None) == -1
    assert kernels["maybe"](X) == 6


def test_a_strided_result(kernels: Module) -> None:
    result = kernels["columns"](2, 3)
    assert (result.shape, result.strides) == ((2, 3), (1, 2))
    np.testing.assert_array_equal(result.numpy(), [[0, 2, 4], [1, 3, 5]])


def test_strides_before_the_first_element_are_refused(kernels: Module) -> None:
    with pytest.raises(ValueError, match="stride -1 of dimension 0"):
        kernels["strided"](-1)
    with pytest.raises(MemoryError):
        kernels["strided"](2**62)


def test_an_allocator_of_the_kernel(kernels: Module) -> None:
    before = kernels["live"]()
    result = kernels["filled"]((2, 3), 4.0)
    view = result.numpy()
    assert kernels["live"]() == before + 1
    del result
    assert kernels["live"]() == before + 1  # numpy still looks at it
    np.testing.assert_array_equal(view, np.full((2, 3), 4, np.float32))
    del view
    assert kernels["live"]() == before


def test_an_allocator_that_fails_leaves_nothing(kernels: Module) -> None:
    before = kernels["live"]()
    with pytest.raises(MemoryError, match="at most 1000 elements"):
        kernels["filled"]((100, 100), 1.0)
    with pytest.raises(ValueError, match="dimension is -1"):
        kernels["filled"]((-1,), 1.0)
    assert kernels["live"]() == before


def test_what_the_callers_framework_cannot_allocate(kernels: Module) -> None:
    torch = pytest.importorskip("torch")
    for x, message in (
        (X, "does not fit in 64 bits"),
        (torch.ones(1), "did not allocate the tensor: .* size"),
    ):
        with pytest.raises(MemoryError, match=message) as caught:
            kernels["of_shape"](x, (2**40, 2**30))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("versioned", [True, False])
def test_through_dlpack_and_back(kernels: Module, versioned: bool) -> None:
    x = from_dlpack(X.copy())
    y = kernels["through_dlpack"](x, versioned, 4, True)
    assert y.data_ptr() == x.data_ptr()
    address = x.data_ptr()
    del x
    assert y.data_ptr() == address
    np.testing.assert_array_equal(y.numpy(), X)


@pytest.mark.parametrize("versioned", [True, False])
def test_alignment_and_contiguity_are_asked_for(kernels: Module, versioned: bool) -> None:
    aligned = empty((64,), "uint8")  # farcall's own memory begins at a multiple of 64
    kernels["through_dlpack"](aligned, versioned, 64, True)
    odd = from_dlpack(aligned.numpy()[1:])
    with pytest.raises(RuntimeError, match="not aligned to 64"):
        kernels["through_dlpack"](odd, versioned, 64, False)
    with pytest.raises(RuntimeError, match="not contiguous"):
        kernels["through_dlpack"](from_dlpack(X.T), versioned, 0, True)


@pytest.mark.parametrize("versioned", [True, False])
def test_alignment_and_contiguity_are_promised(kernels: Module, versioned: bool) -> None:
    aligned = empty((64,), "uint8")
    kernels["through_dlpack"](aligned, versioned, 64, True, checked_by_receiver=False)
    odd = from_dlpack(aligned.numpy()[1:])
    with pytest.raises(RuntimeError, match="not at a multiple of 64 bytes"):
        kernels["through_dlpack"](odd, versioned, 64, False, checked_by_receiver=False)
    with pytest.raises(RuntimeError, match="has gaps"):
        kernels["through_dlpack"](from_dlpack(X.T), versioned, 0, True, checked_by_receiver=False)


def test_flags_and_versions_are_honoured(kernels: Module) -> None:
    x = from_dlpack(X.copy())
    assert kernels["bad_dlpack"](x, 1, 1) == 1  # read-only stays read-only
    with pytest.raises(RuntimeError, match="DLPack 2"):
        kernels["bad_dlpack"](x, 2, 0)
    with pytest.raises(RuntimeError, match="sub-byte"):
        kernels["bad_dlpack"](x, 1, 4)


def test_as_strided_shares_and_keeps_the_memory(kernels: Module) -> None:
    x = from_dlpack(X.copy())
    y = kernels["transposed"](x)
    np.testing.assert_array_equal(y.numpy(), X.T)
    row = kernels["row"](x, 1)
    del x, y
    np.testing.assert_array_equal(row.numpy(), X[1])


@pytest.mark.parametrize("source", ["farcall", "numpy", "torch"])
def test_an_owning_parameter_keeps_the_tensor(kernels: Module, source: str) -> None:
    x: Any = X.copy()
    if source == "torch":
        x = pytest.importorskip("torch").from_numpy(x)
    elif source == "farcall":
        x = from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(kernels["keep"](x)), X)


def test_compared_with_nullptr(kernels: Module) -> None:
    assert kernels["is_nothing"](None) is True
    assert kernels["is_nothing"](X) is False
