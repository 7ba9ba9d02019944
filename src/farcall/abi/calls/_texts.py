"""Writes raw values as text, in the form of IREE's tools: ``2x2xf32=[1 2][3 4]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from farcall.abi._leaves import Leaf, ScalarSpec
from farcall.abi._signature import Signature
from farcall.abi.calls._values import describe, share, tensor_info

if TYPE_CHECKING:
    import numpy as np

_FLOATS = {"bfloat16": "bf16", "bool": "i1"}
_PREFIXES = {"int": "i", "uint": "u", "float": "f", "complex": "c"}


def serialize(signature: Signature, values: Sequence[Any]) -> list[str]:
    """See :meth:`FunctionAbi.serialize`."""
    return [_text(value, leaf) for value, leaf in zip(values, _leaves(signature, values), strict=True)]


def _leaves(signature: Signature, values: Sequence[Any]) -> Sequence[Leaf | None]:
    """The leaves of the values: the results, unless only the number of arguments matches."""
    for leaves in (signature.outputs, signature.inputs):
        if len(leaves) == len(values):
            return leaves
    return [None] * len(values)


def _text(value: Any, leaf: Leaf | None) -> str:
    if isinstance(value, bool | int | float):
        dtype = leaf.dtype if isinstance(leaf, ScalarSpec) else _dtype_of(value)
        return f"{type_name(dtype)}={_number(value)}"
    info = tensor_info(value)
    if info is None or not info.device.startswith("cpu:"):
        raise ValueError(f"serialize: expected numbers and tensors on the CPU, got {describe(value)}")
    dims = "".join(f"{dim}x" for dim in info.shape)
    return f"{dims}{type_name(info.dtype)}={_elements(share(value).numpy())}"


def type_name(dtype: str) -> str:
    """The name of a dtype in IREE's tools: ``f32``, ``i8``, ``u16``, ``bf16``, ``i1``, ``f8e4m3fn``."""
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    letters = dtype.rstrip("0123456789")
    if letters in _PREFIXES:
        return _PREFIXES[letters] + dtype[len(letters) :]
    return dtype.replace("float", "f").replace("_", "")


def _dtype_of(value: bool | int | float) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float64"


def _elements(array: np.ndarray) -> str:
    if array.ndim < 2:
        return " ".join(map(_number, array.ravel().tolist()))
    if array.ndim == 2:
        return "".join(f"[{_elements(row)}]" for row in array)
    return "".join(f"[{_elements(part)}]" for part in array)


def _number(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(int(value))
    if isinstance(value, complex):
        return f"{value.real:G}{value.imag:+G}j"
    return f"{float(value):G}"
