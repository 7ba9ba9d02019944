"""C source of convolutions of bytes whose channels lie together, as matrix products.

A pixel's window is a row of bytes, weights are columns, as in the products of ``_bytes_text``. The sums
become bytes while they are in registers.
"""

from __future__ import annotations

from farcall.backends.c._bytes_text import LOW, TALL


def product_source() -> str:
    """C source of ``farcall_bytes_last``, after the functions that it calls; see ``_channels_last_conv``."""
    tiles = "".join(map(_tile, (TALL, LOW, 1)))
    text = f"{_FINISH}#if FARCALL_VNNI\n{tiles}{_VNNI_DRIVER}#endif\n{_DRIVER}"
    for name, value in {"TALL": TALL, "LOW": LOW}.items():
        text = text.replace(f"@{name}", str(value))
    return text


WINDOWS = """\
/* The windows of a plane: sizes, taps, strides and dilations of its two axes, and the padding before them. */
struct farcall_windows {
  int64_t channels, height, width, out_height, out_width, taps_y, taps_x, stride_y, stride_x;
  int64_t dilation_y, dilation_x, top, left;
};
/* Bytes, by copies that may overlap each other: a call of memcpy takes longer for most windows. */
static inline __attribute__((always_inline)) void farcall_copy_bytes(uint8_t* to, const uint8_t* from,
    int64_t count) {
  const int64_t size = count >= 64 ? 64 : count >= 16 ? 16 : count >= 4 ? 4 : 1;
  for (int64_t i = 0; i + size < count; i += size) memcpy(to + i, from + i, (size_t)size);
  if (count) memcpy(to + count - size, from + count - size, (size_t)size);
}
/* One row of a window, whose first tap is at `x`; what is outside of the plane is `around`. */
static inline __attribute__((always_inline)) void farcall_window_row(const struct farcall_windows* w,
    const uint8_t* line, int64_t x, int around, uint8_t* to) {
  const int64_t c = w->channels;
  if (w->dilation_x == 1 && x >= 0 && x + w->taps_x <= w->width) {
    farcall_copy_bytes(to, line + x * c, w->taps_x * c);
    return;
  }
  for (int64_t i = 0; i < w->taps_x; ++i, x += w->dilation_x, to += c) {
    if (x < 0 || x >= w->width) memset(to, around, (size_t)c);
    else farcall_copy_bytes(to, line + x * c, c);
  }
}
/* The windows of `count` pixels of the output, from `first` on: a row of `size` bytes for each, in which
   `flip` is toggled. */
static inline __attribute__((always_inline)) void farcall_window_rows(const struct farcall_windows* w,
    const uint8_t* planes, int64_t first, int64_t count, int around, int flip, int64_t size, uint8_t* to) {
  const int64_t line = w->width * w->channels, used = w->taps_y * w->taps_x * w->channels;
  int64_t x = first % w->out_width, y = first / w->out_width % w->out_height;
  const uint8_t* plane = planes + first / w->out_width / w->out_height * w->height * line;
  for (int64_t i = 0; i < count; ++i, to += size) {
    for (int64_t k = 0; k < w->taps_y; ++k) {
      const int64_t row = y * w->stride_y - w->top + k * w->dilation_y;
      uint8_t* const part = to + k * w->taps_x * w->channels;
      if (row < 0 || row >= w->height) memset(part, around, (size_t)(w->taps_x * w->channels));
      else farcall_window_row(w, plane + row * line, x * w->stride_x - w->left, around, part);
    }
    for (int64_t j = 0; flip && j < used; ++j) to[j] ^= (uint8_t)flip;
    for (int64_t j = used; j < size; ++j) to[j] = 0;
    if (++x == w->out_width) x = 0, ++y;
    if (y == w->out_height) y = 0, plane += w->height * line;
  }
}
"""


def _tile(rows: int) -> str:
    """Rows of bytes times two vectors of columns, by VNNI."""
    places = [(r, v) for r in range(rows) for v in (0, 1)]
    starts = ", ".join(f"r{r}_{v} = start{v}" for r, v in places)
    steps = "\n".join(
        f"    {{ memcpy(&word, a + {r} * a_row, 4); const farcall_lanes x = (farcall_lanes){{0}} + word; "
        f"FARCALL_DOT_VNNI(r{r}_0, x, b0); FARCALL_DOT_VNNI(r{r}_1, x, b1); }}"
        for r in range(rows)
    )
    stores = "\n".join(
        f"    FARCALL_QUANTIZE(bytes, r{r}_{v}, factor{v}, least, most, zero, farcall_floats, farcall_lanes) "
        f"*(farcall_sixteen_at*)(c + {r} * c_row + {16 * v}) = bytes;"
        for r, v in places
    )
    moves = "\n".join(f"    r{r}_{v} -= zero{v} * row_sums[{r}];" for r, v in places)
    return f"""static __attribute__((noinline)) void farcall_last{rows}(int64_t k, const uint8_t* a,
    int64_t a_row, const uint8_t* first, const uint8_t* second, const uint32_t* start,
    const uint32_t* zeros, const uint32_t* row_sums, const float* factors, const farcall_bytes_scale* scale,
    uint8_t* c, int64_t c_row) {{
  const farcall_lanes start0 = *(const farcall_lanes_at*)start;
  const farcall_lanes start1 = *(const farcall_lanes_at*)(start + 16);
  farcall_lanes {starts};
  if (zeros) {{
    const farcall_lanes zero0 = *(const farcall_lanes_at*)zeros;
    const farcall_lanes zero1 = *(const farcall_lanes_at*)(zeros + 16);
{moves}
  }}
  uint32_t word;
  for (int64_t i = 0; i < k; ++i, a += 4, first += 64, second += 64) {{
    const farcall_lanes b0 = *(const farcall_lanes_at*)first, b1 = *(const farcall_lanes_at*)second;
{steps}
  }}
  const farcall_floats least = (farcall_floats){{0}} + scale->low;
  const farcall_floats most = (farcall_floats){{0}} + scale->high;
  const farcall_lanes zero = (farcall_lanes){{0}} + (uint32_t)scale->zero;
  farcall_floats factor0, factor1;
  memcpy(&factor0, factors, sizeof factor0);
  memcpy(&factor1, factors + 16, sizeof factor1);
  farcall_sixteen bytes;
{stores}
}}
"""


_VNNI_DRIVER = """\
static void farcall_last_vnni(int64_t m, int64_t n, int64_t k, const uint8_t* a, int64_t a_row,
    const uint8_t* b, const uint32_t* start, const uint32_t* zeros, const uint32_t* row_sums,
    const farcall_bytes_scale* scale, uint8_t* c, int64_t c_row) {
  uint8_t some[@TALL * 32]; /* the results of a tile that is not full */
  const float* factors = scale->factors;
  for (int64_t j = 0; j < n; j += 32, start += 32, factors += 32, b += 128 * k) {
    const uint8_t* const second = n - j > 16 ? b + 64 * k : b;
    const int full = n - j >= 32;
    for (int64_t i = 0, rows; i < m; i += rows) {
      const uint8_t* const p = a + i * a_row;
      uint8_t *const own = c + i * c_row + j, *const to = full ? own : some;
      const int64_t step = full ? c_row : 32;
      const uint32_t *const z = zeros ? zeros + j : 0, *const s = zeros ? row_sums + i : 0;
      rows = m - i >= @TALL ? @TALL : m - i >= @LOW ? @LOW : 1;
      if (rows == @TALL)
        farcall_last@TALL(k, p, a_row, b, second, start, z, s, factors, scale, to, step);
      else if (rows == @LOW)
        farcall_last@LOW(k, p, a_row, b, second, start, z, s, factors, scale, to, step);
      else
        farcall_last1(k, p, a_row, b, second, start, z, s, factors, scale, to, step);
      for (int64_t r = 0; !full && r < rows; ++r) memcpy(own + r * c_row, to + r * 32, (size_t)(n - j));
    }
  }
}
"""

_FINISH = """\
/* The sum of the bytes of each row. */
static __attribute__((noinline)) void farcall_row_sums(int64_t rows, int64_t size, const uint8_t* a,
    uint32_t* sums) {
  for (int64_t i = 0; i < rows; ++i, a += size) {
    uint32_t sum = 0;
    for (int64_t j = 0; j < size; ++j) sum += a[j];
    sums[i] = sum;
  }
}
/* Some bytes of a row of sums, each of its own channel: see farcall_bytes_finish. */
static inline void farcall_last_finish(int64_t columns, const uint32_t* restrict sums,
    const uint32_t* restrict start, const uint32_t* restrict zeros, uint32_t row_sum,
    const float* restrict factors, const farcall_bytes_scale* restrict scale, uint8_t* restrict to) {
  const float low = scale->low, high = scale->high;
  const int32_t zero = scale->zero;
  for (int64_t j = 0; j < columns; ++j) {
    const uint32_t sum = sums[j] + start[j] - zeros[j] * row_sum;
    to[j] = farcall_byte_of((float)(int32_t)sum * factors[j], low, high, zero);
  }
}
"""

_DRIVER = """\
/* C = A B + start[j] - row_sums[i] * zeros[j], without the latter if `zeros` is 0, as bytes. A has rows of K
   words of four bytes, B is panels of 16 columns. `start`, `zeros` and the scale's factors, of which each
   column has its own, can be read up to a multiple of 32. */
static __attribute__((noinline)) void farcall_bytes_last(int64_t m, int64_t n, int64_t k, const void* left,
    int64_t a_row, const void* right, const uint32_t* start, const uint32_t* zeros, const uint32_t* row_sums,
    const farcall_bytes_scale* scale, void* target, int64_t c_row) {
  const uint8_t *a = (const uint8_t*)left, *b = (const uint8_t*)right;
  uint8_t* const c = (uint8_t*)target;
#if FARCALL_VNNI
  if (farcall_has_vnni()) {
    farcall_last_vnni(m, n, k, a, a_row, b, start, zeros, row_sums, scale, c, c_row);
    return;
  }
#endif
#if FARCALL_PAIRS
  enum { high = farcall_pairs_rows, wide = farcall_pairs_columns };
#else
  enum { high = @LOW, wide = 32 };
#endif
  static const uint32_t none[wide];
  uint32_t sums[high * wide];
  for (int64_t j = 0; j < n; j += wide)
    for (int64_t i = 0; i < m; i += high) {
      const int64_t rows = m - i < high ? m - i : high, columns = n - j < wide ? n - j : wide;
      const uint8_t *const p = a + i * a_row, *const q = b + j / 16 * 64 * k;
#if FARCALL_PAIRS
      farcall_pairs(rows, columns, k, p, 0, a_row, 0, q, 64 * k, 64, sums);
#else
      farcall_bytes_us(rows, columns, k, p, a_row, q, 64, 64 * k, sums, wide, 0, 0, 0, 0);
#endif
      for (int64_t r = 0; r < rows; ++r)
        farcall_last_finish(columns, sums + r * wide, start + j, zeros ? zeros + j : none,
            zeros ? row_sums[i + r] : 0, scale->factors + j, scale, c + (i + r) * c_row + j);
    }
}
"""
