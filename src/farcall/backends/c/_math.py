"""exp, log, tanh, sin, erf and their kin for a float, without calls and branches: compilers vectorize them.

The error is at most 2.5 units in the last place, of Mish 4 (tests/backends/test_math.py), but that the
sigmoid is 0 where it is below 2^-126. Infinities, zeros and NaN are right. Coefficients: minimax fits (least
squares, weighted by Lawson's rule) over the ranges named. Code for double calls libm.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

_POWER = """/* 2^n, from -126 to 127: n + 127 is in the low 9 bits, and others do not matter. */
static inline float farcall_exp2_of(uint32_t bits) {
  return farcall_float_of_bits(bits << 23);
}"""


def _rounder(plus: int) -> str:
    """1.5 * 2^23 + plus. Its sum with a float is rounded to an integer: the low bits are that + ``plus``."""
    return f"{12582912 + plus}.0f"


# Of (exp(r) - 1 - r) / r^2, the highest power first: exp(r) is off by 3e-9 of itself, or by 1.1e-7.
_CLOSE = ("0.0013814596f", "0.0083687175f", "0.04166839f", "0.16666521f", "0.49999994f")
_SHORT = ("0.0083125203f", "0.041890157f", "0.16667115f", "0.49999231f")


def _exponential(
    name: str,
    bounds: str,
    polynomial: str,
    result: str,
    plus: int = 127,
    coefficients: Sequence[str] = _CLOSE,
) -> str:
    """A function made of exp(t) = 2^n exp(r), |r| <= ln(2)/2: ``p`` is the ``polynomial`` of r.

    ``bounds`` makes ``t`` of ``x``, and ``result`` returns. The low ``bits`` are n + ``plus``. Of a NaN,
    ``p`` is one, which a product with any power keeps.
    """
    rounder = _rounder(plus)
    first, *others = coefficients
    terms = "".join(f"  p = p * r + {one};\n" for one in others)
    return f"""static inline float {name}(float x) {{
{bounds}  const float shifted = t * 1.44269504f + {rounder};
  const float n = shifted - {rounder};
  float r = t - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = {first};
{terms}  p = {polynomial};
  const uint32_t bits = farcall_bits_of_float(shifted);
{result}}}"""


def _within(low: str, high: str) -> str:
    """Bounds that compilers do not know: of known ones, gcc makes cases with constant results."""
    return f"  const float t = farcall_at_most_float(farcall_at_least_float(x, {low}f), {high}f);\n"


_WHOLE = "(p * r + 1.0f) * r + 1.0f"
_BOTH = 254  # of which each half of n has 127
_HALVES = "farcall_exp2_of(bits >> 1) * farcall_exp2_of(bits - (bits >> 1))"

# 2^n is multiplied in two halves, so that the largest and the subnormal results are right.
_EXP = _exponential(
    "farcall_expf",
    _within("-104.0", "89.0"),
    _WHOLE,
    f"  return p * {_HALVES};\n",
    _BOTH,
)

# Of x from -87.3 to 88, whose results are normal numbers, and of NaN.
_EXP_NORMAL = _exponential(
    "farcall_exp_normalf", "  const float t = x;\n", _WHOLE, "  return p * farcall_exp2_of(bits);\n"
)
_SIGMOID = f"""static inline float farcall_sigmoidf(float x) {{
{_within("-87.3", "87.3")}  const float share = 1.0f / (1.0f + farcall_exp_normalf(-t));
  return x < -87.3f ? 0.0f : share;
}}
static inline double farcall_sigmoid(double x) {{ return 1 / (1 + exp(-x)); }}"""

# 2^64 exp(x) of x <= 0: a normal number, or 0 where exp(x) is. The quotient of two has no 2^64.
DECAY_UNIT = "5.42101086242752217e-20f"
_DECAY = _exponential(
    "farcall_decayf",
    "  const float t = x;\n",
    _WHOLE,
    "  p *= farcall_exp2_of(bits);\n  return x < -103.97f ? 0.0f : p;\n",
    127 + 64,
    _SHORT,
)

# exp(x) - 1 = 2^n ((exp(r) - 1) + (1 - 2^-n)), which is exact near zero, where exp(x) is rounded to 1. Below
# -20, the result is -1. 2^-128 is no normal number, and as good as 2^-126. Callers have it in conditions: the
# call that hides a bound would keep these, and so their loops from becoming vectors.
_EXPM1 = _exponential(
    "farcall_expm1f",
    "  const float t = x > 89.0f ? 89.0f : x;\n",
    "p * (r * r) + r",
    "  p += 1.0f - farcall_exp2_of(n > 126.0f ? 1 : 381u - bits);\n"
    f"  p = p * {_HALVES};\n  return x < -20.0f ? -1.0f : p;\n",
    _BOTH,
)

# -m / (m + 2), where m = exp(-2|x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1), without cancellation near zero. Of a
# positive exponent, m + 2 would be rounded by more. The polynomial is one of u = -r / 2. From 10 on, the
# result is 1.
_TANH = f"""static inline float farcall_tanhf(float x) {{
  const float t = farcall_at_most_float(fabsf(x), 10.0f);
  const float shifted = t * -2.88539008f + {_rounder(127)};
  const float n = shifted - {_rounder(127)};
  const float u = t + n * 0.346573591f;
  float p = 0.08884792768f;
  p = p * u - 0.26773414016f;
  p = p * u + 0.6666752704f;
  p = p * u - 1.33332336f;
  p = p * u + 1.99999988f;
  p = p * (u * u) - (u + u);
  const uint32_t bits = farcall_bits_of_float(shifted);
  const float power = farcall_exp2_of(bits);
  const float m = p * power + (power - 1.0f);
  return copysignf(m / (m + 2.0f), x);
}}"""

# x P(x^2) for |x| < 1, else 1 - exp(Q(|x|)), where Q fits log(erfc) up to 4; beyond 4 the result is 1.
_ERF = """static inline float farcall_erff(float x) {
  const float t = fabsf(x), z = x * x;
  float p = 7.853854e-05f;
  p = p * z - 0.00080101914f;
  p = p * z + 0.0051883273f;
  p = p * z - 0.026853811f;
  p = p * z + 0.112835854f;
  p = p * z - 0.37612626f;
  p = p * z + 1.1283791f;
  const float u = farcall_at_most_float(t, 4.0f);
  float q = -2.168685e-05f;
  q = q * u + 0.00044133636f;
  q = q * u - 0.004204562f;
  q = q * u + 0.025208257f;
  q = q * u - 0.10841858f;
  q = q * u - 0.6332199f;
  q = q * u - 1.1295785f;
  q = q * u + 0.00018804023f;
  const float large = copysignf(1.0f - farcall_exp_normalf(q), x);
  return t < 1.0f ? x * p : large;
}"""

# log(1 + r) of r from sqrt(1/2) - 1 to sqrt(2) - 1, and log(x) = n log(2) + log(1 + r). A subnormal x is made
# normal first.
_LOG = """static inline float farcall_log_nearf(float r) {
  float p = -0.0763451171f;
  p = p * r + 0.12761597f;
  p = p * r - 0.131601862f;
  p = p * r + 0.142017556f;
  p = p * r - 0.166233567f;
  p = p * r + 0.20001227f;
  p = p * r - 0.250008211f;
  p = p * r + 0.333333317f;
  return p * r * (r * r) + (r - 0.5f * (r * r));
}
static inline float farcall_logf(float x) {
  const int tiny = x < 1.17549435e-38f;
  const float m = tiny ? x * 8388608.0f : x;
  const uint32_t bits = farcall_bits_of_float(m);
  const int32_t power = (int32_t)(bits - 0x3f3504f3u) >> 23;
  const float n = (float)(tiny ? power - 23 : power);
  const float share = farcall_float_of_bits(bits - ((uint32_t)power << 23));
  const float near = farcall_log_nearf(share - 1.0f);
  const float y = n * 0.693359375f + (near - n * 2.12194440e-4f);
  const float edge = x < 0.0f ? NAN : x == 0.0f ? -INFINITY : x;
  return x > 0.0f && x < INFINITY ? y : edge;
}"""

# log(1 + exp(x)) = max(x, 0) + log(1 + e), where e = exp(-|x|) is at most 1. Of a large e, log(1 + e) =
# log(2) + log(1 + (e - 1) / 2), whose difference is exact.
_SOFTPLUS = """static inline float farcall_softplusf(float x) {
  const float e = farcall_expf(-fabsf(x));
  const int large = e > 0.41421357f;
  const float near = farcall_log_nearf(large ? 0.5f * (e - 1.0f) : e);
  return (large ? near + 0.693147181f : near) + (x < 0.0f ? 0.0f : x);
}
static inline double farcall_softplus(double x) { return log1p(exp(-fabs(x))) + (x < 0 ? 0 : x); }"""

# x tanh(softplus(x)) = x w / (w + 2), where w = (1 + exp(x))^2 - 1. From 20 on, the quotient is 1.
_MISH = """static inline float farcall_mishf(float x) {
  const float e = farcall_expf(x), w = e * (e + 2.0f), y = x * (w / (w + 2.0f));
  return x > 20.0f ? x : y;
}
static inline double farcall_mish(double x) {
  const double e = exp(x > 20 ? 20 : x), w = e * (e + 2);
  return x * (w / (w + 2));
}"""

# atan(t) = atan(s) + atan((t - s) / (1 + s t)), where s is 0, 1 or infinity: |r| is at most 1/2, and t - s is
# exact.
_ATAN = """static inline float farcall_atanf(float x) {
  const float t = fabsf(x);
  const int large = t > 2.41421356f, middle = t > 0.5f;
  const float above = large ? -1.0f : middle ? t - 1.0f : t;
  const float r = above / (large ? t : middle ? t + 1.0f : 1.0f), z = r * r;
  float p = -0.051403303f;
  p = p * z + 0.10164795f;
  p = p * z - 0.14176029f;
  p = p * z + 0.19994313f;
  p = p * z - 0.33333236f;
  const float base = large ? 1.57079633f : middle ? 0.785398163f : 0.0f;
  return copysignf(base + (p * z * r + r), x);
}"""

# asin(t) of t up to 1/2; of a larger one, pi/2 - 2 asin(sqrt((1 - t) / 2)), where 1 - t is exact. pi has two
# parts. Beyond 1, the root is NaN.
_ASIN = """static inline float farcall_arcf(float t) {
  const float z = t > 0.5f ? 0.5f * (1.0f - t) : t * t, root = sqrtf(z), s = t > 0.5f ? root : t;
  float p = 0.04216633f;
  p = p * z + 0.024179503f;
  p = p * z + 0.04547038f;
  p = p * z + 0.074952975f;
  p = p * z + 0.16666752f;
  return p * z * s + s;
}
static inline float farcall_asinf(float x) {
  const float t = fabsf(x), p = farcall_arcf(t);
  return copysignf(t > 0.5f ? 1.57079637f - (2.0f * p + 4.37113883e-8f) : p, x);
}
static inline float farcall_acosf(float x) {
  const float t = fabsf(x), p = farcall_arcf(t), twice = 2.0f * p;
  const float far = x < 0.0f ? 3.14159274f - (twice + 8.74227766e-8f) : twice;
  return t > 0.5f ? far : 1.57079637f - (copysignf(p, x) + 4.37113883e-8f);
}"""

# The sine of x >= 0 and some quarters of a turn. x = m 2^e, a whole number m of 24 bits: of 2/pi, only bits
# from 2^(1 - e) on change the angle, and the sum of m times 96 of them is exact enough for every float. These
# bits are in four of eight words, the first of which is 0; `place` is where they begin. The product is the
# quarters modulo 4, in the first two bits of `high`, and the rest of a quarter, which the polynomials take;
# of x below pi/4, they take x.
_SINE = """static inline uint32_t farcall_high(uint32_t a, uint32_t b) {
  return (uint32_t)((uint64_t)a * b >> 32);
}
static inline float farcall_sinef(float x, uint32_t quarters) {
  const float least = x > 0.5f ? x : 0.5f;
  const uint32_t bits = farcall_bits_of_float(least);
  const uint32_t m = (bits & 0x7fffffu) | 0x800000u, place = (bits >> 23) - 120, s = place % 32;
  const int one = place / 32 & 1, two = place / 32 & 2, four = place / 32 & 4;
  const uint32_t u0 = one ? 0xa2f9836eu : 0, u1 = one ? 0x4e441529u : 0xa2f9836eu;
  const uint32_t u2 = one ? 0xfc2757d1u : 0x4e441529u, u3 = one ? 0xf534ddc0u : 0xfc2757d1u;
  const uint32_t u4 = one ? 0xdb629599u : 0xf534ddc0u, u5 = one ? 0x3c439041u : 0xdb629599u;
  const uint32_t v0 = four ? 0xf534ddc0u : two ? u2 : u0, v1 = four ? 0xdb629599u : two ? u3 : u1;
  const uint32_t v2 = four ? 0x3c439041u : two ? u4 : u2, v3 = four ? 0xfe5163abu : two ? u5 : u3;
  const uint32_t w0 = v0 << s | v1 >> 1 >> (31 - s), w1 = v1 << s | v2 >> 1 >> (31 - s);
  const uint32_t w2 = v2 << s | v3 >> 1 >> (31 - s);
  const uint32_t middle = m * w1, low = middle + farcall_high(m, w2);
  const uint32_t high = m * w0 + farcall_high(m, w1) + (low < middle);
  const uint32_t nearest = (high + 0x20000000u) >> 30;
  const int32_t rest = (int32_t)(high - (nearest << 30));
  const float large = (float)rest;
  const float small = (float)(rest - (int32_t)large) + (float)(int32_t)(low >> 1) * 4.65661287e-10f;
  const float turned = large * 1.46291812e-09f + (small * 1.46291812e-09f - large * 4.07094043e-17f);
  const int near = x < 0.785398f;
  const float r = near ? x : turned, z = r * r;
  float sine = -0.00019514958f, cosine = 2.4432784e-05f;
  sine = sine * z + 0.008332158f;
  sine = sine * z - 0.16666655f;
  sine = sine * z * r + r;
  cosine = cosine * z - 0.0013887313f;
  cosine = cosine * z + 0.041666646f;
  cosine = cosine * z * z + (1.0f - 0.5f * z);
  const uint32_t quarter = quarters + (near ? 0 : nearest);
  const float y = quarter & 1 ? cosine : sine, signed_y = quarter & 2 ? -y : y;
  return x < INFINITY ? signed_y : NAN;
}
static inline float farcall_sinf(float x) {
  const float y = farcall_sinef(fabsf(x), 0);
  return x < 0.0f ? -y : x == 0.0f ? x : y;
}
static inline float farcall_cosf(float x) { return farcall_sinef(fabsf(x), 1); }"""

OURS = (
    "exp",
    "expm1",
    "tanh",
    "erf",
    "sigmoid",
    "decay",
    "log",
    "softplus",
    "mish",
    "atan",
    "asin",
    "acos",
    "sin",
    "cos",
)
_OTHERS = {
    "decay": "exp",
    **{name: f"farcall_{name}" for name in ("sigmoid", "softplus", "mish")},
}  # of double
# A later one may call an earlier one.
FUNCTIONS = "\n".join(
    (
        _POWER,
        _EXP,
        _EXP_NORMAL,
        _SIGMOID,
        _DECAY,
        _EXPM1,
        _TANH,
        _ERF,
        _LOG,
        _SOFTPLUS,
        _MISH,
        _ATAN,
        _ASIN,
        _SINE,
    )
)


def function(dtype: ir.DataType | None, name: str) -> str:
    """The C function ``name`` for ``dtype``: of this module, or of libm (``sqrtf``, ``exp``)."""
    if dtype != ir.DataType.FLOAT:
        return _OTHERS.get(name, name)
    return f"farcall_{name}f" if name in OURS else f"{name}f"
