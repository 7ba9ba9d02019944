"""The C functions that expressions and reductions call. The file of each region begins with all of them.

They are static and inline: a compiler drops those that a region does not call, and parses them all in about a
millisecond.
"""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS, c_type
from farcall.backends.c import _math, _narrow_text

__all__ = ["HELPERS", "MOST_CHARACTERS", "RAISE_VALUES"]


_HIDDEN_BOUNDS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


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
    """The remainder with the sign of the divisor, as in Python."""
    libm = "fmodf" if suffix == "f" else "fmod"
    return f"""static inline {kind} farcall_mod{suffix}({kind} a, {kind} b) {{
  const {kind} rest = {libm}(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}}"""


def _larger(dtype: ir.DataType) -> str:
    """``farcall_larger_float`` etc.: functions, because a nested conditional would repeat its operands.

    NaN has a statement of its own: gcc makes no vectors of two that test it by ``||``, as a Clip has them.
    """
    kind, tag = c_type(dtype), dtype.name.lower()
    known = f"farcall_known_{kind}(bound)" if dtype in _HIDDEN_BOUNDS else "bound"
    found = "a != a ? a : found" if dtype in FLOATS else "found"
    return f"""static inline {kind} farcall_larger_{tag}({kind} a, {kind} b) {{
  const {kind} found = a > b ? a : b;
  return {found};
}}
static inline {kind} farcall_smaller_{tag}({kind} a, {kind} b) {{
  const {kind} found = a < b ? a : b;
  return {found};
}}
/* The same, for a bound that is not NaN: one instruction of a vector. */
static inline {kind} farcall_at_least_{tag}({kind} x, {kind} bound) {{
  const {kind} least = {known};
  return x < least ? least : x;
}}
static inline {kind} farcall_at_most_{tag}({kind} x, {kind} bound) {{
  const {kind} most = {known};
  return x > most ? most : x;
}}"""


def _mean(kind: str) -> str:
    return f"""static inline {kind} farcall_mean_{kind}({kind} total, int64_t count) {{
  return count == 0 ? 0 : total / ({kind})count;
}}"""


_TO_UINT64 = """static inline uint64_t farcall_f2u64(double x) {
  if (x >= 0x1p63 && x < 0x1p64) return (uint64_t)x;
  return x >= -0x1p63 && x < 0x1p63 ? (uint64_t)(int64_t)x : (uint64_t)1 << 63;
}"""

_INTEGERS = """static inline int64_t farcall_fmod(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}
static inline int64_t farcall_mod(int64_t a, int64_t b) {
  const int64_t rest = b == 0 || b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static inline uint64_t farcall_ipow(uint64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == UINT64_MAX ? (exponent & 1 ? base : 1) : 0;
  uint64_t power = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) power *= base;
  return power;
}"""

# Of known bounds, gcc makes conditions in masks, where it takes minima and maxima of others. These functions
# hide a bound; a call of one leaves the loop, since it is constant.
_KNOWN = "\n".join(
    f"static __attribute__((noinline, const)) {kind} farcall_known_{kind}({kind} x) {{ return x; }}"
    for kind in ("float", "double")
)
_QUANTIZE = """static __attribute__((noinline, const)) float farcall_bound(int32_t x) { return (float)x; }
static inline int32_t farcall_quantize(float x, int32_t zero, int32_t low, int32_t high) {
  const float least = farcall_bound(low), most = farcall_bound(high);
  float rounded = rintf(x) + (float)zero;
  rounded = rounded > least ? rounded : least;
  rounded = rounded < most ? rounded : most;
  return (int32_t)rounded;
}
/* The same without a zero point. Floats around 1.5 * 2^23 are integers: its sum with a small number is
   rounded, and has the integer in its low bits. */
static inline int32_t farcall_nearest(float x, int32_t low, int32_t high) {
  const float least = farcall_bound(low), most = farcall_bound(high);
  x = x > least ? x : least;
  x = x < most ? x : most;
  return (int32_t)farcall_bits_of_float(x + 12582912.0f) - 0x4b400000;
}
static inline int32_t farcall_qlinear_add(int32_t a, float a_scale, int32_t a_zero, int32_t b, float b_scale,
    int32_t b_zero, float scale, int32_t zero, int32_t low, int32_t high) {
  const float x = a_scale / scale, y = b_scale / scale;
  const float fixed = (float)zero - fmaf(x, (float)a_zero, y * (float)b_zero);
  return farcall_nearest(fmaf((float)a, x, fmaf((float)b, y, fixed)), low, high);
}
static inline int32_t farcall_qlinear_mul(int32_t a, float a_scale, int32_t a_zero, int32_t b, float b_scale,
    int32_t b_zero, float scale, int32_t zero, int32_t low, int32_t high) {
  const double product = (a - a_zero) * (b - b_zero);
  const float scaled = (float)(product * (a_scale * b_scale / scale));
  return farcall_nearest(scaled + (float)zero, low, high);
}"""

_BITS = "\n".join(
    f"""static inline uint{bits}_t farcall_bits_of_{kind}({kind} x) {{
  uint{bits}_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}}
static inline {kind} farcall_{kind}_of_bits(uint{bits}_t bits) {{
  {kind} x;
  memcpy(&x, &bits, sizeof x);
  return x;
}}"""
    for kind, bits in (("float", 32), ("double", 64))
)

MOST_CHARACTERS = 200  # of a text in a message: up to 800 bytes
RAISE_VALUES = """static int64_t farcall_append(char* text, int64_t at, int64_t size, const char* part) {
  for (; *part && at < size - 1; ++part) text[at++] = *part;
  text[at] = 0;
  return at;
}
static __attribute__((noinline, cold)) int farcall_raise_values(
    const char* kind, const char* const* parts, const int64_t* values, int count) {
  char text[2048];
  int64_t at = farcall_append(text, 0, sizeof text, parts[0]);
  for (int i = 0; i < count; ++i) {
    char digits[24], *first = digits + sizeof digits - 1;
    uint64_t rest = values[i] < 0 ? 0 - (uint64_t)values[i] : (uint64_t)values[i];
    *first = 0;
    do *--first = (char)('0' + rest % 10);
    while (rest /= 10);
    if (values[i] < 0) *--first = '-';
    at = farcall_append(text, at, sizeof text, first);
    at = farcall_append(text, at, sizeof text, parts[i + 1]);
  }
  return farcall_raise(kind, text);
}"""

HELPERS = "\n".join(
    [
        _BITS,
        _KNOWN,
        *map(_larger, sorted(FLOATS | INTEGERS)),
        _math.FUNCTIONS,
        _division(32),
        _division(64),
        _truncation(32, "double", ""),
        _truncation(32, "float", "f"),
        _truncation(64, "double", ""),
        _truncation(64, "float", "f"),
        _TO_UINT64,
        _INTEGERS,
        _QUANTIZE,
        _narrow_text.FUNCTIONS,
        _floored("float", "f"),
        _floored("double", "d"),
        _mean("int64_t"),
        _mean("uint64_t"),
    ]
)
