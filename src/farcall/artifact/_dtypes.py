"""Converts ONNX dtypes to those of DLPack and of Signatures."""

from __future__ import annotations

import onnx_ir as ir

from farcall import _core
from farcall.errors import ModelError

_D = ir.DataType

# The dtypes that DLPack has too and whose elements are whole bytes.
_KNOWN = frozenset(
    {
        *(_D.INT8, _D.INT16, _D.INT32, _D.INT64, _D.UINT8, _D.UINT16, _D.UINT32, _D.UINT64, _D.BOOL),
        *(_D.FLOAT16, _D.FLOAT, _D.DOUBLE, _D.BFLOAT16, _D.COMPLEX64, _D.COMPLEX128),
        *(_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ, _D.FLOAT8E8M0),
    }
)


def dlpack(value: ir.Value) -> tuple[int, int]:
    """The DLPack type code and bits of the elements of ``value``.

    Raises:
        ModelError: the dtype is not known, or its elements are not whole bytes (text, 4-bit integers).
    """
    if value.dtype not in _KNOWN:
        name = value.dtype.name.lower() if value.dtype is not None else "unknown"
        raise ModelError(
            f"`{value.name}` has dtype {name}, which cannot cross the border of a region; "
            f"expected one of {', '.join(sorted(d.name.lower() for d in _KNOWN))}"
        )
    element = _core.dtype(value.dtype.numpy())
    return element.code, element.bits


def itemsize(value: ir.Value) -> int:
    """The size of one element of ``value``, in bytes."""
    return dlpack(value)[1] // 8
