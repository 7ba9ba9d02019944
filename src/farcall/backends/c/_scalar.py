"""C expressions for one element: arithmetic as in ONNX and numpy, without undefined behaviour."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, SIGNED, UNSIGNED, c_type, itemsize
from farcall.backends.c._math import function

__all__ = [
    "convert",
    "divide",
    "function",
    "highest",
    "larger",
    "lowest",
    "smaller",
    "wrapping",
]

_D = ir.DataType


def unsigned(dtype: ir.DataType | None) -> str:
    """The unsigned C type in which integers of ``dtype`` add and multiply; it has at least 32 bits."""
    return "uint64_t" if itemsize(dtype) == 8 else "uint32_t"


def wrapping(dtype: ir.DataType | None, a: str, op: str, b: str) -> str:
    """``a op b`` for ``+ - *``; integers wrap around."""
    if dtype in FLOATS:
        return f"{a} {op} {b}"
    word = unsigned(dtype)
    return f"({c_type(dtype)})(({word}){a} {op} ({word}){b})"


def larger(dtype: ir.DataType | None, a: str, b: str) -> str:
    """The maximum; NaN if either is NaN. ``a`` and ``b`` are names or literals."""
    return f"({a} > {b} || {a} != {a}) ? {a} : {b}" if dtype in FLOATS else f"{a} > {b} ? {a} : {b}"


def smaller(dtype: ir.DataType | None, a: str, b: str) -> str:
    """The minimum; NaN if either is NaN."""
    return f"({a} < {b} || {a} != {a}) ? {a} : {b}" if dtype in FLOATS else f"{a} < {b} ? {a} : {b}"


def divide(dtype: ir.DataType | None, a: str, b: str) -> str:
    """``a / b``. Integers truncate; division by zero gives 0, and the smallest integer by -1 wraps around."""
    if dtype in FLOATS:
        return f"{a} / {b}"
    if dtype in UNSIGNED:
        return f"({c_type(dtype)})({b} == 0 ? 0 : {a} / {b})"
    return f"({c_type(dtype)})farcall_div{8 * max(itemsize(dtype), 4)}({a}, {b})"


def convert(source: ir.DataType | None, target: ir.DataType | None, x: str) -> str:
    """``x`` cast as numpy does on x86-64; beyond the range of the target the result is arbitrary."""
    if source == target:
        return x
    if target == _D.BOOL:
        return f"(uint8_t)({x} != 0)"
    kind = c_type(target)
    if source not in FLOATS or target in FLOATS:
        return f"({kind}){x}"
    if target == _D.UINT64:
        return f"farcall_f2u64({x})"
    wide = 64 if target in (_D.INT64, _D.UINT32) else 32
    return f"({kind})farcall_f2i{wide}{'f' if source == _D.FLOAT else ''}({x})"


def lowest(dtype: ir.DataType | None) -> str:
    """The smallest value of ``dtype``: the maximum of no elements."""
    if dtype in FLOATS:
        return "-INFINITY"
    return f"INT{8 * itemsize(dtype)}_MIN" if dtype in SIGNED else "0"


def highest(dtype: ir.DataType | None) -> str:
    """The largest value of ``dtype``: the minimum of no elements."""
    if dtype in FLOATS:
        return "INFINITY"
    if dtype == _D.BOOL:
        return "1"
    return f"{'INT' if dtype in SIGNED else 'UINT'}{8 * itemsize(dtype)}_MAX"
