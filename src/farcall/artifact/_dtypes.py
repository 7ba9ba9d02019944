"""Converts ONNX dtypes to those of DLPack and of Signatures."""

from __future__ import annotations

import onnx_ir as ir

from farcall import _core
from farcall.backends._ctext import PACKED
from farcall.errors import ModelError
from farcall.graph.dims import Dim, dims, product

_D = ir.DataType

# The dtypes that DLPack has too. Elements of less than a byte are packed, the first in the lowest bits.
_KNOWN = frozenset(
    {
        *(_D.INT8, _D.INT16, _D.INT32, _D.INT64, _D.UINT8, _D.UINT16, _D.UINT32, _D.UINT64, _D.BOOL),
        *(_D.FLOAT16, _D.FLOAT, _D.DOUBLE, _D.BFLOAT16, _D.COMPLEX64, _D.COMPLEX128),
        *PACKED,
        *(_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ, _D.FLOAT8E8M0),
    }
)


def dlpack(value: ir.Value) -> tuple[int, int]:
    """The DLPack type code and bits of the elements of ``value``.

    Raises:
        ModelError: the dtype is not known, or DLPack has none like it (text).
    """
    if value.dtype not in _KNOWN:
        name = value.dtype.name.lower() if value.dtype is not None else "unknown"
        raise ModelError(
            f"`{value.name}` has dtype {name}, which cannot cross the border of a region; "
            f"expected one of {', '.join(sorted(d.name.lower() for d in _KNOWN))}"
        )
    element = _core.dtype(value.dtype.numpy())
    return element.code, element.bits


def is_packed(value: ir.Value) -> bool:
    """Whether several elements of ``value`` share a byte."""
    return value.dtype in PACKED


def nbytes(value: ir.Value) -> Dim:
    """The bytes of all elements of ``value``."""
    bits = dlpack(value)[1]
    count = product(dims(value))
    if bits >= 8:
        return count * (bits // 8)
    each = 8 // bits
    return (count + each - 1) // each


def itemsize(value: ir.Value) -> int:
    """The bytes between neighbouring elements of ``value``; 1 where several share a byte."""
    return max(dlpack(value)[1] // 8, 1)
