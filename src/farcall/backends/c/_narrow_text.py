"""C source that reads and rounds floats of 16, 8 and 4 bits, which are stored as integers.

They become floats exactly. A float is rounded to the nearest, ties to even. What exceeds the largest value
becomes infinity in float16, bfloat16 and float8_e5m2, the largest value in float4, and NaN in the others;
if a Cast saturates, the largest value (ONNX operator set 19, Cast).
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

_D = ir.DataType


@dataclass(frozen=True)
class _Float8:
    """Bits of the mantissa, bias of the exponent, and codes without the sign."""

    mantissa: int
    bias: int
    most: int  # the largest finite value
    beyond: int  # what a larger one becomes
    nan: int  # the first code that is NaN; with one zero only, the code of -0
    one_zero: bool


_FLOAT8 = {
    _D.FLOAT8E4M3FN: _Float8(3, 7, 0x7E, 0x7F, 0x7F, False),
    _D.FLOAT8E4M3FNUZ: _Float8(3, 8, 0x7F, 0x80, 0x80, True),
    _D.FLOAT8E5M2: _Float8(2, 15, 0x7B, 0x7C, 0x7D, False),
    _D.FLOAT8E5M2FNUZ: _Float8(2, 16, 0x7F, 0x80, 0x80, True),
}
_HALVES = frozenset({_D.FLOAT16, _D.BFLOAT16})
SATURATING = frozenset({*_FLOAT8, _D.FLOAT8E8M0})
NARROW_FLOATS = _HALVES | SATURATING
_ROUND_MODES = {"down": 0, "up": 1, "nearest": 2}


def widen(dtype: ir.DataType, x: str) -> str:
    """The float that the code ``x`` of a narrow type stands for."""
    if dtype not in _FLOAT8:
        return f"farcall_of_{dtype.name.lower()}({x})"
    kind = _FLOAT8[dtype]
    return f"farcall_of_float8({x}, {kind.mantissa}, {kind.bias}, {kind.nan}, {int(kind.one_zero)})"


def narrow(dtype: ir.DataType, x: str, saturate: bool = True, round_mode: str = "up") -> str:
    """The code of the float ``x`` in a narrow type."""
    if dtype in _HALVES or dtype == _D.FLOAT4E2M1:
        return f"farcall_to_{dtype.name.lower()}({x})"
    if dtype == _D.FLOAT8E8M0:
        return f"farcall_to_float8e8m0({x}, {int(saturate)}, {_ROUND_MODES[round_mode]})"
    kind = _FLOAT8[dtype]
    beyond = kind.most if saturate else kind.beyond
    numbers = (kind.mantissa, kind.bias, kind.most, beyond, kind.nan, int(kind.one_zero))
    return f"farcall_to_float8({x}, {', '.join(map(str, numbers))})"


# A float with the exponent and mantissa of a narrow one is too small by a power of two. Multiplying is exact,
# also where the narrow one is subnormal. Adding 0.5 to a small float rounds it to a multiple of 2^-24, the
# smallest float16. `farcall_odd` makes a second rounding right: its last bit says whether anything was lost.
# Clang uses the CPU's conversions of many elements, where there are any. GCC 12 uses those of one element,
# which take longer than vectors of the integer code. A NaN stays one, with bits that differ between the two.
FUNCTIONS = """#if defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
static inline float farcall_of_float16(uint16_t x) {
  _Float16 half;
  memcpy(&half, &x, sizeof half);
  return (float)half;
}
static inline uint16_t farcall_to_float16(float x) {
  const _Float16 half = (_Float16)x;
  uint16_t code;
  memcpy(&code, &half, sizeof code);
  return code;
}
#else
static inline float farcall_of_float16(uint16_t x) {
  const uint32_t rest = (uint32_t)(x & 0x7fff) << 13;
  const uint32_t finite = farcall_bits_of_float(farcall_float_of_bits(rest) * 0x1p112f);
  const uint32_t bits = (x & 0x7c00) == 0x7c00 ? rest | 0x7f800000 : finite;
  return farcall_float_of_bits(bits | (uint32_t)(x & 0x8000) << 16);
}
static inline uint16_t farcall_to_float16(float x) {
  const uint32_t bits = farcall_bits_of_float(x), rest = bits & 0x7fffffff;
  const uint32_t small = farcall_bits_of_float(farcall_float_of_bits(rest) + 0.5f) - 0x3f000000;
  const uint32_t usual = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  const uint32_t finite = rest < 0x38800000 ? small : usual;
  const uint32_t code = rest > 0x7f800000 ? 0x7e00 : rest >= 0x477ff000 ? 0x7c00 : finite;
  return (uint16_t)(code | (bits >> 16 & 0x8000));
}
#endif
static inline float farcall_of_bfloat16(uint16_t x) { return farcall_float_of_bits((uint32_t)x << 16); }
static inline uint16_t farcall_to_bfloat16(float x) {
  const uint32_t bits = farcall_bits_of_float(x), rest = bits & 0x7fffffff;
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(rest > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}
static inline float farcall_odd(double x) {
  const float y = (float)x;
  const uint32_t bits = farcall_bits_of_float(y);
  if ((double)y == x || x != x) return y;
  return farcall_float_of_bits((bits - (fabs((double)y) > fabs(x))) | 1);
}
static inline float farcall_of_float8(uint8_t x, int mantissa, int bias, int nan, int one_zero) {
  const uint32_t code = x & 0x7f, bits = code << (23 - mantissa);
  if (one_zero ? x == nan : code >= (uint32_t)nan) return NAN;
  float y = farcall_float_of_bits(bits) * farcall_float_of_bits((uint32_t)(254 - bias) << 23);
  if (!one_zero && mantissa == 2 && code == 0x7c) y = INFINITY;
  return x & 0x80 ? -y : y;
}
static inline uint8_t farcall_to_float8(float x, int mantissa, int bias, int most, int beyond, int nan,
    int one_zero) {
  const uint32_t bits = farcall_bits_of_float(x), rest = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  const int shift = 23 - mantissa;
  if (rest > 0x7f800000) return (uint8_t)((uint32_t)nan | sign);
  const float scale = farcall_float_of_bits((uint32_t)(126 + bias + mantissa) << 23);
  uint32_t code;
  if (rest < (uint32_t)(128 - bias) << 23) {
    code = (uint32_t)rintf(farcall_float_of_bits(rest) * scale);
  } else {
    const uint32_t rounded = rest + ((1u << (shift - 1)) - 1) + (rest >> shift & 1);
    code = (rounded >> shift) - ((uint32_t)(127 - bias) << mantissa);
  }
  if (code > (uint32_t)most) code = (uint32_t)beyond;
  return (uint8_t)(one_zero && code == 0 ? 0 : code | sign);
}
static inline float farcall_of_float4e2m1(uint8_t x) {
  return farcall_of_float8((uint8_t)((x & 7) | (x & 8) << 4), 1, 1, 0x80, 0);
}
static inline uint8_t farcall_to_float4e2m1(float x) {
  const uint8_t code = farcall_to_float8(x, 1, 1, 7, 7, 0x80, 0);
  return (uint8_t)((code & 7) | (code >> 4 & 8));
}
static inline float farcall_of_float8e8m0(uint8_t x) {
  return x == 255 ? NAN : farcall_float_of_bits(x == 0 ? 0x400000 : (uint32_t)x << 23);
}
static inline uint8_t farcall_to_float8e8m0(float x, int saturate, int mode) {
  const uint32_t bits = farcall_bits_of_float(x), exponent = bits >> 23 & 0xff, rest = bits & 0x7fffff;
  if (exponent == 255) return 255;
  const int half = rest > 0x400000 || (rest == 0x400000 && exponent > 0);
  const int up = mode == 1 ? rest > 0 : mode == 2 && half;
  return (uint8_t)(exponent + (up && !(saturate && exponent == 254)));
}"""
