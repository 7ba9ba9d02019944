"""A call either gets exactly the values given, or raises one error that names every wrong leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farcall import ffi
from farcall.abi import FunctionAbi, ListSpec, RefSpec, ScalarSpec, Signature
from farcall.errors import ArgumentError

from .calls import Call, calls


def plain(value: Any) -> Any:
    """A packed or given value in a form that can be compared: Tensors as arrays, complex numbers as such."""
    if isinstance(value, ffi.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.astype(object).tolist())
    if isinstance(value, list | tuple) and not isinstance(value, ffi.Shape):
        return [plain(item) for item in value]
    return value


def given_values(call: Call, values: list[Any]) -> list[Any]:
    """What each raw input should be: lists of any length together, the others one by one."""
    found, at = [], 0
    for leaf in call.signature.inputs:
        if isinstance(leaf, ListSpec):
            prefix = f"{leaf.name}["
            count = sum(spot.path.startswith(prefix) for spot in call.spots[at:])
            found.append(values[at : at + count])
        else:
            count = 1
            found.append(values[at])
        at += count
    return found


def same(leaf: Any, packed: Any, value: Any) -> bool:
    if isinstance(leaf, ListSpec):
        return len(packed) == len(value) and all(map(lambda a, b: same(leaf.items[0], a, b), packed, value))
    if isinstance(leaf, RefSpec) and leaf.kind == "function" and value is not None:
        return isinstance(packed, ffi.Function) and packed() == "called"
    if isinstance(value, np.ndarray):
        return plain(packed) == plain(value)
    if isinstance(packed, ffi.Tensor):
        return complex(packed.numpy()) == complex(np.complex64(value))
    if getattr(leaf, "dtype", "") == "uint64" and value is not None and value >= 2**63:
        return packed == int(value) - 2**64
    return packed == value and isinstance(packed, bool) == isinstance(value, bool | np.bool_)


def test_an_unsigned_number_of_64_bits_that_may_be_missing() -> None:
    abi = FunctionAbi(Signature((ScalarSpec("x", "uint64", optional=True),), ()))
    assert [list(abi.pack_inputs(x)) for x in (2**63, 7, None)] == [[-(2**63)], [7], [None]]


@settings(deadline=None, max_examples=300)
@given(calls())
def test_right_values_arrive(call: Call) -> None:
    values = [spot.value for spot in call.spots]
    args, kwargs = call.arguments(values)
    abi = FunctionAbi(call.signature)
    expected = given_values(call, values)
    for packed in (abi.pack_inputs(*args, **kwargs), abi._resolve(args, kwargs, None)):
        assert len(packed) == abi.raw_input_arity
        for leaf, one, value in zip(call.signature.inputs, packed, expected, strict=True):
            assert same(leaf, one, value), (leaf, one, value)


@settings(deadline=None, max_examples=300)
@given(calls(), st.data())
def test_every_wrong_leaf_is_named(call: Call, data: st.DataObject) -> None:
    wrong = [data.draw(st.booleans()) for _ in call.spots]
    values = [spot.wrong if bad else spot.value for spot, bad in zip(call.spots, wrong, strict=True)]
    args, kwargs = call.arguments(values)
    abi = FunctionAbi(call.signature)
    paths = [spot.path for spot, bad in zip(call.spots, wrong, strict=True) if bad]
    if not paths:
        abi.pack_inputs(*args, **kwargs)
        return
    with pytest.raises(ArgumentError) as caught:
        abi.pack_inputs(*args, **kwargs)
    named = [problem.removeprefix("argument ").split(": ")[0] for problem in caught.value.problems]
    assert sorted(named) == sorted(paths)
    assert abi.copies == 0  # nothing was converted


@settings(deadline=None, max_examples=200)
@given(calls(), st.data())
def test_memory_is_shared_unless_a_copy_is_counted(call: Call, data: st.DataObject) -> None:
    values = [spot.value for spot in call.spots]
    args, kwargs = call.arguments(values)
    abi = FunctionAbi(call.signature)
    packed = abi.pack_inputs(*args, **kwargs)
    flat = [item for one in packed for item in (one if isinstance(one, list | tuple) else [one])]
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.size]
    tensors = [one for one in flat if isinstance(one, ffi.Tensor) and one.numel()]
    addresses = {tensor.data_ptr() for tensor in tensors}
    assert sum(array.ctypes.data not in addresses for array in arrays) <= abi.copies
