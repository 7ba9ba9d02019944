"""How the dtypes of ONNX are written in DLPack and in a Signature."""

from __future__ import annotations

import onnx_ir as ir

from farcall.errors import ModelError

_D = ir.DataType

# code and bits of DLPack 1.3 (include/farcall/c_api.h); one lane each
_DLPACK: dict[ir.DataType, tuple[int, int]] = {
    _D.INT8: (0, 8),
    _D.INT16: (0, 16),
    _D.INT32: (0, 32),
    _D.INT64: (0, 64),
    _D.UINT8: (1, 8),
    _D.UINT16: (1, 16),
    _D.UINT32: (1, 32),
    _D.UINT64: (1, 64),
    _D.FLOAT16: (2, 16),
    _D.FLOAT: (2, 32),
    _D.DOUBLE: (2, 64),
    _D.BFLOAT16: (4, 16),
    _D.COMPLEX64: (5, 64),
    _D.COMPLEX128: (5, 128),
    _D.BOOL: (6, 8),
    _D.FLOAT8E4M3FN: (10, 8),
    _D.FLOAT8E4M3FNUZ: (11, 8),
    _D.FLOAT8E5M2: (12, 8),
    _D.FLOAT8E5M2FNUZ: (13, 8),
}


def dlpack(value: ir.Value) -> tuple[int, int]:
    """DLPack's code and bits of the elements of ``value``.

    Raises:
        ModelError: its dtype is not known, or has no whole number of bytes (text, 4-bit integers).
    """
    if value.dtype not in _DLPACK:
        name = value.dtype.name.lower() if value.dtype is not None else "unknown"
        raise ModelError(
            f"`{value.name}` has dtype {name}, which cannot cross the border of a region; "
            f"expected one of {', '.join(sorted(d.name.lower() for d in _DLPACK))}"
        )
    return _DLPACK[value.dtype]


def itemsize(value: ir.Value) -> int:
    """The bytes of one element of ``value``."""
    return dlpack(value)[1] // 8
