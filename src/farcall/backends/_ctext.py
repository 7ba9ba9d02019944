"""C source for dtypes, dims and constants. :mod:`farcall.backends.c_backend_kit` exports the public names."""

from __future__ import annotations

import math
import re

import numpy as np
import onnx_ir as ir
import sympy

from farcall.graph.dims import Dim

_D = ir.DataType

# ONNX's bool is a byte that is 0 or 1. The C type is uint8_t: reading any other byte as _Bool is undefined.
_TYPES: dict[ir.DataType, str] = {
    _D.FLOAT: "float",
    _D.DOUBLE: "double",
    _D.INT8: "int8_t",
    _D.INT16: "int16_t",
    _D.INT32: "int32_t",
    _D.INT64: "int64_t",
    _D.UINT8: "uint8_t",
    _D.UINT16: "uint16_t",
    _D.UINT32: "uint32_t",
    _D.UINT64: "uint64_t",
    _D.BOOL: "uint8_t",
}
# Floats that C lacks, as the integers that hold their bits.
_STORED: dict[ir.DataType, str] = {
    _D.FLOAT16: "uint16_t",
    _D.BFLOAT16: "uint16_t",
    _D.FLOAT8E4M3FN: "uint8_t",
    _D.FLOAT8E4M3FNUZ: "uint8_t",
    _D.FLOAT8E5M2: "uint8_t",
    _D.FLOAT8E5M2FNUZ: "uint8_t",
    _D.FLOAT8E8M0: "uint8_t",
}

# Types of which several elements share a byte of memory.
PACKED = frozenset({_D.INT4, _D.UINT4, _D.INT2, _D.UINT2, _D.FLOAT4E2M1})
_STORED |= dict.fromkeys(PACKED, "uint8_t")

FLOATS = frozenset({_D.FLOAT, _D.DOUBLE})
SIGNED = frozenset({_D.INT8, _D.INT16, _D.INT32, _D.INT64})
UNSIGNED = frozenset({_D.UINT8, _D.UINT16, _D.UINT32, _D.UINT64})
INTEGERS = SIGNED | UNSIGNED
ALL = frozenset(_TYPES)
STORED = ALL | frozenset(_STORED)


def c_type(dtype: ir.DataType | None) -> str:
    """The C type of one element; for a float of 16 or 8 bits, an integer with its bits.

    For a type of 4 or 2 bits, it is the byte that several elements share.

    Raises:
        KeyError: The dtype has no C type (string, complex64, ...).
    """
    return _TYPES.get(dtype) or _STORED[dtype]  # type: ignore[arg-type, index]


def itemsize(dtype: ir.DataType | None) -> int:
    """The size of one element of ``dtype`` in bytes, for those that :func:`c_type` accepts."""
    return dtype.bitwidth // 8  # type: ignore[union-attr]


def c_symbol(name: str) -> str:
    """The C variable that holds the size of the symbol ``name`` (an identifier)."""
    return f"s_{name}"


def c_expr(dim: Dim) -> str:
    """A C expression that computes ``dim`` in int64 from the variables of :func:`c_symbol`.

    ``floor``, ``ceiling`` and ``Mod`` round as in Python. The expression may call ``farcall_floordiv``,
    ``farcall_min`` and ``farcall_max``, which :class:`~farcall.backends.c_backend_kit.RegionWriter` defines
    if they are used.
    """
    if isinstance(dim, int):
        return str(dim) if abs(dim) < 2**31 else f"INT64_C({dim})"
    return _expr(dim)


def _expr(e: sympy.Expr) -> str:
    if e.is_Integer:
        return c_expr(int(e))
    if e.is_Symbol:
        return c_symbol(e.name)
    if _has_fraction(e):
        return _floor(e)  # (n + 1)*n/2 is an integer, and none of its parts need be
    if e.is_Add:
        return f"({' + '.join(map(_expr, e.args))})"
    if e.is_Mul:
        return f"({' * '.join(map(_expr, e.args))})"
    if e.is_Pow and e.exp.is_Integer and e.exp > 0:
        return f"({' * '.join([_expr(e.base)] * int(e.exp))})"
    if isinstance(e, sympy.floor):
        return _floor(e.args[0])
    if isinstance(e, sympy.ceiling):
        return f"(-{_floor(-e.args[0])})"
    if isinstance(e, (sympy.Min, sympy.Max)):
        return _fold_pairs("farcall_min" if isinstance(e, sympy.Min) else "farcall_max", list(e.args))
    if isinstance(e, sympy.Mod):
        a, b = e.args
        return f"({_expr(a)} - {_expr(b)} * farcall_floordiv({_expr(a)}, {_expr(b)}))"
    raise ValueError(f"no C for the dim {e}")


def _has_fraction(e: sympy.Expr) -> bool:
    """Whether a part of a sum or product is divided."""
    if e.is_Rational:
        return not e.is_Integer
    if e.is_Pow:
        return bool(e.exp.is_negative) or _has_fraction(e.base)
    return bool(e.is_Add or e.is_Mul) and any(map(_has_fraction, e.args))


def _floor(e: sympy.Expr) -> str:
    numerator, denominator = sympy.fraction(sympy.together(e))
    if denominator == 1:
        return _expr(numerator)
    return f"farcall_floordiv({_expr(numerator)}, {_expr(denominator)})"


def _fold_pairs(function: str, args: list[sympy.Expr]) -> str:
    text = _expr(args[0])
    for arg in args[1:]:
        text = f"{function}({text}, {_expr(arg)})"
    return text


def c_literal(value: object, dtype: ir.DataType | None) -> str:
    """A C constant that is exactly ``value`` in ``dtype``, even infinities, NaN and the smallest int64.

    What is below zero has parentheses, so that a sign may stand before it.
    """
    text = _literal(value, dtype)
    return f"({text})" if text.startswith("-") else text


def _literal(value: object, dtype: ir.DataType | None) -> str:
    if dtype in FLOATS:
        return _float_literal(np.float32(value) if dtype == _D.FLOAT else np.float64(value))  # type: ignore[arg-type]
    number = int(value)  # type: ignore[call-overload]
    if dtype == _D.INT64:
        return "INT64_MIN" if number == -(2**63) else f"INT64_C({number})"
    if dtype == _D.UINT64:
        return f"UINT64_C({number})"
    if dtype == _D.UINT32:
        return f"{number}u"
    return "INT32_MIN" if number == -(2**31) else str(number)


def _float_literal(number: np.floating) -> str:
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    suffix = "f" if number.dtype == np.float32 else ""
    text = np.format_float_scientific(number, unique=True, trim="0")  # shortest text that reads back exactly
    return text + suffix if abs(number) >= 1e5 or 0 < abs(number) < 1e-4 else _plain(number) + suffix


def _plain(number: np.floating) -> str:
    return np.format_float_positional(number, unique=True, trim="0")


_PLAIN = re.compile(r"[ !#->@-\[\]-~]*")  # printable ASCII without quote, question mark and backslash


def c_string(text: str) -> str:
    """A C string literal whose bytes are the UTF-8 of ``text``."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return '"' + "".join(map(_c_char, text.encode())) + '"'


def _c_char(byte: int) -> str:
    char = chr(byte)
    if char in '"\\?':  # a question mark could begin a trigraph
        return "\\" + char
    return char if 32 <= byte < 127 else f"\\{byte:03o}"


def c_array(data: np.ndarray) -> str:
    """A C initializer for the elements of ``data``, in row-major order."""
    dtype = ir.DataType.from_numpy(data.dtype)
    if data.size == 0:
        return "{0}"
    return "{" + ", ".join(c_literal(item, dtype) for item in data.ravel()) + "}"


class Content:
    """The bytes of an array, as the key of a dict. Those at both ends are hashed; equal ones are compared.

    A digest of all bytes would take a second for each gigabyte of weights, few of which are equal.
    """

    __slots__ = ("_data", "_hash")

    def __init__(self, array: np.ndarray) -> None:
        self._data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._hash = hash((self._data.size, self._data[:4096].tobytes(), self._data[-4096:].tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Content)
            and self._hash == other._hash
            and np.array_equal(self._data, other._data)
        )


def stored(data: np.ndarray) -> np.ndarray:
    """Data in a type that C has: the bits of what C lacks, packed as in memory; else the data itself."""
    dtype = ir.DataType.from_numpy(data.dtype)
    if dtype in PACKED:
        return _packed(data.view(np.uint8).reshape(-1), dtype.bitwidth)
    return data.view(f"uint{dtype.bitwidth}") if dtype in _STORED else data


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes, one in a byte, as they share bytes: the first in the lowest bits."""
    each = 8 // bits
    rows = np.zeros((-(-codes.size // each), each), np.uint8)
    rows.reshape(-1)[: codes.size] = codes & (2**bits - 1)
    shifted: np.ndarray = rows << np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(np.bitwise_or.reduce(shifted, axis=1))
