"""C source of a convolution's product: packed signed weights times unsigned bytes, to words or to bytes.

Sums become bytes while they are in registers, which saves a second pass over them. The last columns of a
plane, if they are few, are multiplied with output channels as lanes, in the same pass over the weights.
"""

from __future__ import annotations

from farcall.backends.c._bytes_text import plain_tiles

HEIGHT = 8  # rows of packed weights whose bytes lie together, four of each
_WIDTHS = (3, 2, 1)  # vectors of columns in a tile
_LAST = {1: 4, 4: 2}  # columns behind the last vector, and how many of K are summed apart


def conv_source() -> str:
    """C source of ``farcall_bytes_conv``."""
    tiles = "".join(map(_tile, _WIDTHS)) + "".join(_last(*item) for item in _LAST.items())
    vnni = f"#if FARCALL_VNNI\n{tiles}{_VNNI_DRIVER}#endif\n"
    return f"{_FINISH}{vnni}{plain_tiles(signed_left=True)}{_DRIVER}"


# How sums become bytes, before the functions that make them.
SCALE = """\
/* How sums become bytes: each times the factor of its output channel (`step` is 0 if all have one), rounded
   to the nearest, ties to even, between two bounds, plus the zero point. */
typedef struct {
  const float* factors;
  int64_t step;
  float low, high;
  int32_t zero;
} farcall_bytes_scale;
/* Rounds by adding and subtracting 1.5 * 2^23, in whose neighbourhood floats are integers, since old x86 has
   no instruction for it. */
static inline uint8_t farcall_byte_of(float x, float low, float high, int32_t zero) {
  x = x > low ? x : low;
  x = x < high ? x : high;
  return (uint8_t)((int32_t)(x + 12582912.0f - 12582912.0f) + zero);
}
#if FARCALL_VNNI
typedef uint32_t farcall_eight __attribute__((vector_size(32)));
typedef uint32_t farcall_eight_at __attribute__((vector_size(32), aligned(1), may_alias));
typedef float farcall_floats __attribute__((vector_size(64)));
typedef float farcall_eight_floats __attribute__((vector_size(32)));
typedef uint8_t farcall_sixteen __attribute__((vector_size(16)));
typedef uint8_t farcall_sixteen_at __attribute__((vector_size(16), aligned(1), may_alias));
#define FARCALL_DOT_VNNI(sum, u, s) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s))
/* The low bytes of `to` become those of vectors of sums, 8 or 16, times their factors. */
#define FARCALL_QUANTIZE(to, sums, factor, least, most, zero, floats, words) \\
  { \\
    floats scaled; \\
    words rounded; \\
    __asm__("vcvtdq2ps %1, %0" : "=v"(scaled) : "v"(sums)); \\
    scaled *= factor; \\
    __asm__("vmaxps %2, %1, %0" : "=v"(scaled) : "v"(scaled), "v"(least)); \\
    __asm__("vminps %2, %1, %0" : "=v"(scaled) : "v"(scaled), "v"(most)); \\
    __asm__("vcvtps2dq %1, %0" : "=v"(rounded) : "v"(scaled)); \\
    rounded += zero; \\
    __asm__("vpmovdb %1, %0" : "=v"(to) : "v"(rounded)); \\
  }
#endif"""


_FINISH = """\
/* Some columns of a row, from sums and what they start with. The bounds are in memory: of known ones,
   compilers make slow conditions. */
static __attribute__((noinline)) void farcall_bytes_finish(int64_t columns, const uint32_t* restrict sums,
    uint32_t start, const farcall_bytes_scale* restrict scale, int64_t channel, char* restrict to) {
  if (!scale) {
    for (int64_t j = 0; j < columns; ++j) {
      const uint32_t sum = sums[j] + start;
      memcpy(to + 4 * j, &sum, sizeof sum);
    }
    return;
  }
  const float factor = scale->factors[channel], low = scale->low, high = scale->high;
  const int32_t zero = scale->zero;
  for (int64_t j = 0; j < columns; ++j)
    ((uint8_t*)to)[j] = farcall_byte_of((float)(int32_t)(sums[j] + start) * factor, low, high, zero);
}
"""


def _tile(vectors: int) -> str:
    """Eight rows times vectors of columns."""
    columns = range(vectors)
    start = "\n".join(
        "  farcall_lanes " + ", ".join(f"r{r}_{v} = {{0}}" for v in columns) + ";" for r in range(HEIGHT)
    )
    loads = " ".join(f"const farcall_lanes b{v} = *(const farcall_lanes_at*)(b + {64 * v});" for v in columns)
    steps = "\n".join(
        f"    {{ memcpy(&word, a + {4 * r}, 4); const farcall_lanes x = (farcall_lanes){{0}} + word; "
        + " ".join(f"FARCALL_DOT_VNNI(r{r}_{v}, b{v}, x);" for v in columns)
        + " }"
        for r in range(HEIGHT)
    )
    added = "\n".join(
        f"  {{ const farcall_lanes x = (farcall_lanes){{0}} + row[{r}]; "
        + " ".join(f"r{r}_{v} += x;" for v in columns)
        + " }"
        for r in range(HEIGHT)
    )
    words = "\n".join(
        "    " + " ".join(f"*(farcall_lanes_at*)(c + {r} * c_row + {64 * v}) = r{r}_{v};" for v in columns)
        for r in range(HEIGHT)
    )
    given = "factor, least, most, zero, farcall_floats, farcall_lanes"
    quantized = "\n".join(
        f"  factor = (farcall_floats){{0}} + factors[{r} * scale->step];\n"
        + "\n".join(
            f"  FARCALL_QUANTIZE(bytes, r{r}_{v}, {given}) "
            f"*(farcall_sixteen_at*)(c + {r} * c_row + {16 * v}) = bytes;"
            for v in columns
        )
        for r in range(HEIGHT)
    )
    return f"""static __attribute__((noinline)) void farcall_conv{HEIGHT}x{vectors}(int64_t k,
    const uint8_t* a, const uint8_t* b, int64_t b_step, const uint32_t* row,
    const farcall_bytes_scale* scale, int64_t first, char* c, int64_t c_row) {{
{start}
  uint32_t word;
  for (int64_t i = 0; i < k; ++i, a += {4 * HEIGHT}, b += b_step) {{
    {loads}
{steps}
  }}
{added}
  if (!scale) {{
{words}
    return;
  }}
  const farcall_floats least = (farcall_floats){{0}} + scale->low, most = (farcall_floats){{0}} + scale->high;
  const farcall_lanes zero = (farcall_lanes){{0}} + (uint32_t)scale->zero;
  const float* const factors = scale->factors + first;
  farcall_floats factor;
  farcall_sixteen bytes;
{quantized}
}}
"""


def _last(columns: int, apart: int) -> str:
    """Eight rows, as lanes, times up to so many columns; ``apart`` sums of each hide what a product takes."""
    places = [(j, u) for u in range(apart) for j in range(columns)]
    sums = ", ".join(f"s{j}_{u} = {{0}}" for j, u in places)

    def step(u: int) -> str:
        dots = " ".join(
            f"memcpy(&word, b + {u} * b_step + {4 * j}, 4); y = (farcall_eight){{0}} + word; "
            f"FARCALL_DOT_VNNI(s{j}_{u}, y, x);"
            for j in range(columns)
        )
        return f"    x = *(const farcall_eight_at*)(a + {4 * HEIGHT * u}); {dots}"

    steps = "\n".join(map(step, range(apart)))
    totals = ", ".join(" + ".join(f"s{j}_{u}" for u in range(apart)) for j in range(columns))
    return f"""static __attribute__((noinline)) void farcall_conv{HEIGHT}_last{columns}(int64_t k,
    const uint8_t* a, const uint8_t* b, int64_t b_step, const uint32_t* row, int64_t rows, int64_t columns,
    const farcall_bytes_scale* scale, int64_t first, char* c, int64_t c_row) {{
  farcall_eight {sums}, x, y;
  uint32_t word;
  int64_t i = 0;
  for (; i + {apart} <= k; i += {apart}, a += {4 * HEIGHT * apart}, b += {apart} * b_step) {{
{steps}
  }}
  for (; i < k; ++i, a += {4 * HEIGHT}, b += b_step) {{
{step(0)}
  }}
  const farcall_eight totals[] = {{{totals}}};
  const farcall_eight start = *(const farcall_eight_at*)row;
  for (int64_t j = 0; j < columns; ++j) {{
    farcall_eight total = totals[j] + start;
    if (!scale) {{
      for (int64_t r = 0; r < rows; ++r) memcpy(c + r * c_row + 4 * j, (const char*)&total + 4 * r, 4);
      continue;
    }}
    const float* const factors = scale->factors + first;
    farcall_eight_floats factor = (farcall_eight_floats){{0}} + *factors;
    if (scale->step) memcpy(&factor, factors, sizeof factor);
    const farcall_eight_floats least = (farcall_eight_floats){{0}} + scale->low;
    const farcall_eight_floats most = (farcall_eight_floats){{0}} + scale->high;
    const farcall_eight zero = (farcall_eight){{0}} + (uint32_t)scale->zero;
    farcall_sixteen bytes;
    FARCALL_QUANTIZE(bytes, total, factor, least, most, zero, farcall_eight_floats, farcall_eight)
    for (int64_t r = 0; r < rows; ++r) memcpy(c + r * c_row + j, (const char*)&bytes + r, 1);
  }}
}}
"""


_VNNI_DRIVER = """\
static void farcall_conv_vnni(int64_t m, int64_t n, int64_t k, const uint8_t* a, const uint8_t* b,
    int64_t b_step, const uint32_t* row, const farcall_bytes_scale* scale, int64_t first, char* c,
    int64_t c_row) {
  const int64_t size = scale ? 1 : 4;
  char some[8 * 48 * 4];  /* the results of a tile that is not full */
  for (int64_t j = 0, width; j < n; j += width, b += 4 * width, c += size * width) {
    width = n - j <= 48 + 4 ? n - j : 48;
    const int64_t last = width % 16 <= 4 ? width % 16 : 0, whole = width - last;
    const uint8_t* p = a;
    for (int64_t i = 0; i < m; i += 8, p += 32 * k) {
      const int64_t rows = m - i < 8 ? m - i : 8, at = first + i * (scale ? scale->step : 0);
      const int full = rows == 8 && whole % 16 == 0;
      char *const own = c + i * c_row, *const to = full ? own : some;
      const int64_t step = full ? c_row : 48 * size;
      if (whole > 32) farcall_conv8x3(k, p, b, b_step, row + i, scale, at, to, step);
      else if (whole > 16) farcall_conv8x2(k, p, b, b_step, row + i, scale, at, to, step);
      else if (whole) farcall_conv8x1(k, p, b, b_step, row + i, scale, at, to, step);
      for (int64_t r = 0; !full && r < rows; ++r)
        memcpy(own + r * c_row, to + r * step, (size_t)(size * whole));
      if (!last) continue;
      const uint8_t* const q = b + 4 * whole;
      char* const end = own + size * whole;
      if (last == 1) farcall_conv8_last1(k, p, q, b_step, row + i, rows, last, scale, at, end, c_row);
      else farcall_conv8_last4(k, p, q, b_step, row + i, rows, last, scale, at, end, c_row);
    }
  }
}
"""

_DRIVER = """\
/* C = A B + row[i], as bytes if there is a scale. A has for each eight rows and each four of K the four bytes
   of each row, K counts fours. `row`, `b` and the scale's factors can be read up to multiples of 8 and 16.
   The factor of the first row is `first`. `c_row` counts bytes. */
static __attribute__((noinline)) void farcall_bytes_conv(int64_t m, int64_t n, int64_t k, const void* left,
    const void* right, int64_t b_step, const uint32_t* row, const farcall_bytes_scale* scale, int64_t first,
    void* target, int64_t c_row) {
  const uint8_t *a = (const uint8_t*)left, *b = (const uint8_t*)right;
  char* const c = (char*)target;
#if FARCALL_VNNI
  if (farcall_has_vnni()) {
    farcall_conv_vnni(m, n, k, a, b, b_step, row, scale, first, c, c_row);
    return;
  }
#endif
#if FARCALL_PAIRS
  uint32_t sums[farcall_pairs_rows * farcall_pairs_columns];
  for (int64_t j = 0; j < n; j += farcall_pairs_columns)
    for (int64_t i = 0; i < m; i += farcall_pairs_rows) {
      const int64_t rows = m - i < farcall_pairs_rows ? m - i : farcall_pairs_rows;
      const int64_t columns = n - j < farcall_pairs_columns ? n - j : farcall_pairs_columns;
      farcall_pairs(rows, columns, k, a + i * 4 * k, 32 * k, 0, 1, b + 4 * j, 64, b_step, sums);
      for (int64_t r = 0; r < rows; ++r)
        farcall_bytes_finish(columns, sums + r * farcall_pairs_columns, row[i + r], scale,
            first + (i + r) * (scale ? scale->step : 0), c + (i + r) * c_row + j * (scale ? 1 : 4));
    }
#else
  for (int64_t j = 0; j < n; j += 32) {
    const int64_t columns = n - j < 32 ? n - j : 32;
    const uint8_t *p = b + 4 * j, *q = columns > 16 ? p + 64 : p;
    for (int64_t i = 0; i < m; i += 4) {
      farcall_lanes made[8];
      farcall_plain4_su(k, a + i / 8 * 32 * k + i % 8 * 4, 4, 32, p, q, b_step, made);
      for (int64_t r = 0; r < 4 && i + r < m; ++r)
        farcall_bytes_finish(columns, (const uint32_t*)(made + 2 * r), row[i + r], scale,
            first + (i + r) * (scale ? scale->step : 0), c + (i + r) * c_row + j * (scale ? 1 : 4));
    }
  }
#endif
}"""
