"""exp, exp - 1, tanh and erf of a float without calls and branches, so that compilers vectorize them.

The error is at most 2.5 units in the last place (tests/backends/test_math.py); infinities, zeros and NaN are
right. Coefficients: minimax fits (least squares, weighted by Lawson's rule) over the ranges named. Code for
double calls libm.
"""

from __future__ import annotations

import onnx_ir as ir

_SCALE = """static inline float farcall_scale(int32_t n) {
  const uint32_t bits = (uint32_t)(n + 127) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return power;
}"""


def _exponential(name: str, low: str, polynomial: str, result: str) -> str:
    """A function made of exp(x) = 2^n exp(r), |r| <= ln(2)/2: ``k`` is n, and ``p`` the ``polynomial`` of r.

    Adding 1.5 * 2^23 rounds to an integer, which is in the low bits. The result is 2^n p, after the lines of
    ``result``. 2^n is multiplied in two halves, so that the largest and the subnormal results are right.
    """
    return f"""static inline float {name}(float x) {{
  float t = x < {low} ? {low} : x;
  t = t > 89.0f ? 89.0f : t;
  const float shifted = t * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  float r = t - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 0.0013814596f;
  p = p * r + 0.0083687175f;
  p = p * r + 0.04166839f;
  p = p * r + 0.16666521f;
  p = p * r + 0.49999994f;
  p = {polynomial};
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  const int32_t k = (int32_t)(bits - 0x4b400000u), half = k >> 1;
{result}  return p * farcall_scale(half) * farcall_scale(k - half);
}}"""


_EXP = _exponential("farcall_expf", "-104.0f", "p * (r * r) + r + 1.0f", "")

# exp(x) - 1 = 2^n ((exp(r) - 1) + (1 - 2^-n)), which is exact near zero, where exp(x) is rounded to 1. Below
# -20, the result is -1. 2^-128 is no normal number, and as good as 2^-126.
_EXPM1 = _exponential(
    "farcall_expm1f", "-20.0f", "p * (r * r) + r", "  p += 1.0f - farcall_scale(k > 126 ? -126 : -k);\n"
)

# -m / (m + 2), where m = exp(-2|x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1), without cancellation near zero. Of a
# positive exponent, m + 2 would be rounded by more. From 10 on, the result is 1.
_TANH = """static inline float farcall_tanhf(float x) {
  float t = fabsf(x);
  t = t > 10.0f ? 10.0f : t;
  const float shifted = t * -2.88539008f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = t * -2.0f - n * 0.693147182f;
  float p = 0.00138824887f;
  p = p * r + 0.00836669188f;
  p = p * r + 0.0416672044f;
  p = p * r + 0.16666542f;
  p = p * r + 0.49999997f;
  p = p * (r * r) + r;
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  const float power = farcall_scale((int32_t)(bits - 0x4b400000u));
  return copysignf((p * power + (power - 1.0f)) / (p * power + (power + 1.0f)), x);
}"""

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
  const float u = t > 4.0f ? 4.0f : t;
  float q = -2.168685e-05f;
  q = q * u + 0.00044133636f;
  q = q * u - 0.004204562f;
  q = q * u + 0.025208257f;
  q = q * u - 0.10841858f;
  q = q * u - 0.6332199f;
  q = q * u - 1.1295785f;
  q = q * u + 0.00018804023f;
  const float large = copysignf(1.0f - farcall_expf(q), x);
  return t < 1.0f ? x * p : large;
}"""

_OURS = ("exp", "expm1", "tanh", "erf")
FUNCTIONS = f"{_SCALE}\n{_EXP}\n{_EXPM1}\n{_TANH}\n{_ERF}"  # a later one may call an earlier one


def function(dtype: ir.DataType | None, name: str) -> str:
    """The C function ``name`` for ``dtype``: of this module, or of libm (``sqrtf``, ``exp``)."""
    if dtype != ir.DataType.FLOAT:
        return name
    return f"farcall_{name}f" if name in _OURS else f"{name}f"
