"""The C text of discrete Fourier transforms in double, of any length n in O(n log n) steps.

A length whose prime factors are small is transformed by mixed radices (Stockham's method: each pass also
sorts, and there is no reversal of digits). Any other length becomes a convolution of a power of two
(Bluestein's method). The relative error, by the norm, is below 1e-14 (tests/backends/test_fourier.py).
"""

from __future__ import annotations

__all__ = ["LARGEST_FACTOR", "TRANSFORM", "memory"]

LARGEST_FACTOR = 61  # one pass takes that many multiplications for each element; Bluestein's, some hundred

# w[j] = exp(-2 pi i j / n). The first 64 roots and every 64th are computed; the others are products of these.
_ROOTS = """static void farcall_roots(double* w, int64_t n) {
  const double turn = -6.283185307179586476925;
  for (int64_t first = 0; first < n; first += 64) {
    const double c = cos(turn * ((double)first / (double)n)), s = sin(turn * ((double)first / (double)n));
    const int64_t count = n - first < 64 ? n - first : 64;
    for (int64_t j = 0; j < count; ++j) {
      double* const to = w + 2 * (first + j);
      if (first) {
        to[0] = c * w[2 * j] - s * w[2 * j + 1], to[1] = c * w[2 * j + 1] + s * w[2 * j];
      } else {
        to[0] = cos(turn * ((double)j / (double)n)), to[1] = sin(turn * ((double)j / (double)n));
      }
    }
  }
}"""

# One pass: `left` is the length of the transforms that are to be done, `s` the number of them.
_PASSES = f"""static void farcall_pass4(
    int64_t left, int64_t s, const double* restrict x, double* restrict y, const double* w) {{
  const int64_t m = left / 4;
  for (int64_t k = 0; k < m; ++k) {{
    const double *const w1 = w + 2 * k * s, *const w2 = w + 4 * k * s, *const w3 = w + 6 * k * s;
    for (int64_t q = 0; q < s; ++q) {{
      const double* const a = x + 2 * (q + s * k);
      const double *const b = a + 2 * s * m, *const c = b + 2 * s * m, *const d = c + 2 * s * m;
      double* const to = y + 2 * (q + 4 * s * k);
      const double er = a[0] + c[0], ei = a[1] + c[1], fr = a[0] - c[0], fi = a[1] - c[1];
      const double gr = b[0] + d[0], gi = b[1] + d[1], hr = d[1] - b[1], hi = b[0] - d[0];
      const double r1 = fr - hr, i1 = fi - hi, r2 = er - gr, i2 = ei - gi, r3 = fr + hr, i3 = fi + hi;
      to[0] = er + gr, to[1] = ei + gi;
      to[2 * s] = r1 * w1[0] - i1 * w1[1], to[2 * s + 1] = r1 * w1[1] + i1 * w1[0];
      to[4 * s] = r2 * w2[0] - i2 * w2[1], to[4 * s + 1] = r2 * w2[1] + i2 * w2[0];
      to[6 * s] = r3 * w3[0] - i3 * w3[1], to[6 * s + 1] = r3 * w3[1] + i3 * w3[0];
    }}
  }}
}}
static void farcall_pass(
    int64_t p, int64_t left, int64_t s, const double* restrict x, double* restrict y, const double* w) {{
  const int64_t m = left / p, apart = left * s / p;
  double t[{2 * LARGEST_FACTOR}];
  for (int64_t k = 0; k < m; ++k)
    for (int64_t q = 0; q < s; ++q) {{
      for (int64_t r = 0; r < p; ++r)
        t[2 * r] = x[2 * (q + s * (k + r * m))], t[2 * r + 1] = x[2 * (q + s * (k + r * m)) + 1];
      for (int64_t o = 0; o < p; ++o) {{
        double re = t[0], im = t[1];
        for (int64_t r = 1, turns = o; r < p; ++r, turns += turns + o < p ? o : o - p) {{
          const double* const root = w + 2 * turns * apart;
          re += t[2 * r] * root[0] - t[2 * r + 1] * root[1];
          im += t[2 * r] * root[1] + t[2 * r + 1] * root[0];
        }}
        const double* const twist = w + 2 * k * o * s;
        double* const to = y + 2 * (q + s * (p * k + o));
        to[0] = re * twist[0] - im * twist[1], to[1] = re * twist[1] + im * twist[0];
      }}
    }}
}}
static double* farcall_mixed(int64_t n, double* x, double* y, const double* w) {{
  int64_t p = 2;
  for (int64_t left = n, s = 1; left > 1;) {{
    const int64_t radix = left % 4 ? p : 4;
    if (left % radix) {{
      ++p;
      continue;
    }}
    if (radix == 4) farcall_pass4(left, s, x, y, w);
    else farcall_pass(radix, left, s, x, y, w);
    double* const done = y;
    y = x, x = done, left /= radix, s *= radix;
  }}
  return x;
}}"""

# The memory `w` holds, for a length with small factors, two lines and the roots. For another length it holds
# two lines of the power of two, its roots, the transform of the chirp, and the chirp: exp(-pi i j^2 / n).
_PLAN = f"""static int farcall_has_small_factors(int64_t n) {{
  for (int64_t p = 2; p <= {LARGEST_FACTOR}; ++p)
    while (n > 1 && n % p == 0) n /= p;
  return n <= 1;
}}
static int64_t farcall_power(int64_t n) {{
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  return m;
}}
static void farcall_plan_dft(int64_t n, double* w) {{
  if (farcall_has_small_factors(n)) {{
    farcall_roots(w + 4 * n, n);
    return;
  }}
  const int64_t m = farcall_power(n);
  double *const chirp = w + 8 * m, *const found = w + 6 * m;
  farcall_roots(w + 4 * m, m);
  memset(w, 0, (size_t)m * 2 * sizeof(double));
  for (int64_t j = 0, square = 0; j < n; ++j) {{
    const double angle = -3.141592653589793238463 * ((double)square / (double)n);
    chirp[2 * j] = cos(angle), chirp[2 * j + 1] = sin(angle);
    const int64_t other = j ? m - j : 0;
    w[2 * j] = w[2 * other] = chirp[2 * j], w[2 * j + 1] = w[2 * other + 1] = -chirp[2 * j + 1];
    square = (square + 2 * j + 1) % (2 * n);
  }}
  const double* const done = farcall_mixed(m, w, w + 2 * m, w + 4 * m);
  for (int64_t j = 0; j < 2 * m; ++j) found[j] = done[j] / (double)m;
}}"""

_RUN = """static const double* farcall_dft(int64_t n, double* w) {
  if (farcall_has_small_factors(n)) return farcall_mixed(n, w, w + 2 * n, w + 4 * n);
  const int64_t m = farcall_power(n);
  const double *const chirp = w + 8 * m, *const factors = w + 6 * m;
  for (int64_t j = 0; j < n; ++j) {
    const double re = w[2 * j], im = w[2 * j + 1], c = chirp[2 * j], s = chirp[2 * j + 1];
    w[2 * j] = re * c - im * s, w[2 * j + 1] = re * s + im * c;
  }
  memset(w + 2 * n, 0, (size_t)(m - n) * 2 * sizeof(double));
  double* const x = farcall_mixed(m, w, w + 2 * m, w + 4 * m);
  for (int64_t j = 0; j < m; ++j) {  // conjugated, which makes the next transform an inverse one
    const double re = x[2 * j], im = x[2 * j + 1], c = factors[2 * j], s = factors[2 * j + 1];
    x[2 * j] = re * c - im * s, x[2 * j + 1] = -(re * s + im * c);
  }
  double* const y = farcall_mixed(m, x, x == w ? w + 2 * m : w, w + 4 * m);
  for (int64_t j = 0; j < n; ++j) {
    const double re = y[2 * j], im = -y[2 * j + 1], c = chirp[2 * j], s = chirp[2 * j + 1];
    y[2 * j] = re * c - im * s, y[2 * j + 1] = re * s + im * c;
  }
  return y;
}"""

TRANSFORM = "\n".join((_ROOTS, _PASSES, _PLAN, _RUN))


def memory(length: int) -> int:
    """The number of doubles that ``farcall_dft`` needs for transforms of ``length`` elements."""
    rest = length
    for factor in range(2, LARGEST_FACTOR + 1):
        while rest > 1 and rest % factor == 0:
            rest //= factor
    if rest <= 1:
        return 6 * length
    return 8 * (1 << (2 * length - 2).bit_length()) + 2 * length
