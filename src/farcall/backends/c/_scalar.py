"""C of one element: arithmetic without undefined behaviour, with the meaning that ONNX and numpy give it."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, SIGNED, UNSIGNED, c_type, itemsize
from farcall.backends.c import _math
from farcall.backends.c._math import function

__all__ = [
    "convert",
    "divide",
    "function",
    "helpers_of",
    "highest",
    "larger",
    "lowest",
    "smaller",
    "wrapping",
]

_D = ir.DataType


def unsigned(dtype: ir.DataType | None) -> str:
    """The type in which integers of ``dtype`` add and multiply without overflow: at least 32 bits."""
    return "uint64_t" if itemsize(dtype) == 8 else "uint32_t"


def wrapping(dtype: ir.DataType | None, a: str, op: str, b: str) -> str:
    """``a op b`` for ``+ - *``; integers wrap around."""
    if dtype in FLOATS:
        return f"{a} {op} {b}"
    word = unsigned(dtype)
    return f"({c_type(dtype)})(({word}){a} {op} ({word}){b})"


def larger(dtype: ir.DataType | None, a: str, b: str) -> str:
    """The maximum; NaN where one of the two is NaN. ``a`` and ``b`` are names or literals."""
    return f"({a} > {b} || {a} != {a}) ? {a} : {b}" if dtype in FLOATS else f"{a} > {b} ? {a} : {b}"


def smaller(dtype: ir.DataType | None, a: str, b: str) -> str:
    """The minimum; NaN where one of the two is NaN."""
    return f"({a} < {b} || {a} != {a}) ? {a} : {b}" if dtype in FLOATS else f"{a} < {b} ? {a} : {b}"


def divide(dtype: ir.DataType | None, a: str, b: str) -> str:
    """``a / b``; integers truncate, by zero it is 0, and the smallest by -1 wraps around."""
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
    """The smallest value of ``dtype``: the maximum of nothing."""
    if dtype in FLOATS:
        return "-INFINITY"
    return f"INT{8 * itemsize(dtype)}_MIN" if dtype in SIGNED else "0"


def highest(dtype: ir.DataType | None) -> str:
    """The largest value of ``dtype``: the minimum of nothing."""
    if dtype in FLOATS:
        return "INFINITY"
    if dtype == _D.BOOL:
        return "1"
    return f"{'INT' if dtype in SIGNED else 'UINT'}{8 * itemsize(dtype)}_MAX"


def _division(bits: int) -> str:
    return f"""static inline int{bits}_t farcall_div{bits}(int{bits}_t a, int{bits}_t b) {{
  if (b == 0) return 0;
  return b == -1 ? (int{bits}_t)(0 - (uint{bits}_t)a) : a / b;
}}"""


def _truncation(bits: int, kind: str, suffix: str) -> str:
    bound = f"0x1p{bits - 1}{suffix}"
    return f"""static inline int{bits}_t farcall_f2i{bits}{suffix}({kind} x) {{
  return x >= -{bound} && x < {bound} ? (int{bits}_t)x : INT{bits}_MIN;
}}"""


def _floored(kind: str, suffix: str) -> str:
    """The rest with the sign of the divisor, as Python has it."""
    libm = "fmodf" if suffix == "f" else "fmod"
    return f"""static inline {kind} farcall_mod{suffix}({kind} a, {kind} b) {{
  const {kind} rest = {libm}(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}}"""


# Where the name occurs in a kernel, the text goes before it.
HELPERS = {
    **_math.HELPERS,
    "farcall_div32(": _division(32),
    "farcall_div64(": _division(64),
    "farcall_f2i32(": _truncation(32, "double", ""),
    "farcall_f2i32f(": _truncation(32, "float", "f"),
    "farcall_f2i64(": _truncation(64, "double", ""),
    "farcall_f2i64f(": _truncation(64, "float", "f"),
    "farcall_f2u64(": """static inline uint64_t farcall_f2u64(double x) {
  if (x >= 0x1p63 && x < 0x1p64) return (uint64_t)x;
  return x >= -0x1p63 && x < 0x1p63 ? (uint64_t)(int64_t)x : (uint64_t)1 << 63;
}""",
    "farcall_fmod(": """static inline int64_t farcall_fmod(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}""",
    "farcall_modf(": _floored("float", "f"),
    "farcall_modd(": _floored("double", "d"),
    "farcall_mod(": """static inline int64_t farcall_mod(int64_t a, int64_t b) {
  const int64_t rest = b == 0 || b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}""",
    "farcall_ipow(": """static inline uint64_t farcall_ipow(uint64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == UINT64_MAX ? (exponent & 1 ? base : 1) : 0;
  uint64_t power = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) power *= base;
  return power;
}""",
}


def helpers_of(text: str) -> list[str]:
    """The functions that ``text`` calls, and those that they call, in an order that C takes."""
    found: set[str] = set()
    fresh = {name for name in HELPERS if name in text}
    while fresh:
        found |= fresh
        fresh = {name for name in HELPERS for user in fresh if name in HELPERS[user]} - found
    return [body for name, body in HELPERS.items() if name in found]
