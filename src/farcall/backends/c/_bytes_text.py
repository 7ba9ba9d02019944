"""C source of matrix products of bytes, whose sums are 32-bit words that wrap around.

One operand holds unsigned bytes, the other signed ones. Four neighbouring bytes along K are multiplied and
added together: this is one instruction of x86 (VNNI), which is asked for at run time, since no level of the
psABI has it. Other x86 multiply pairs of 16-bit lanes: see ``_pairs_text``. Arm's SDOT takes two signed
operands: 128 is subtracted from the unsigned one, and 128 times the sum of the other one's bytes added to the
product. All other processors multiply 32-bit lanes.

A is rows of bytes, K padded with zeros to a multiple of 4. B has for each four of K the four bytes of column
0, of column 1, and so on; 16 columns are a vector.
"""

from __future__ import annotations

COLUMNS = 16  # of a vector
DOT = "FARCALL_DOT"  # the macro, in all code that has such products
STEP = 4  # bytes along K that are multiplied together
TALL, LOW = 12, 4  # rows of A in a tile, by VNNI and else


def bytes_source() -> str:
    """C source of ``farcall_bytes_us``: A holds unsigned bytes, B signed ones."""
    tiles = "".join(_vnni_tile(rows) for rows in (TALL, LOW, 1)) + _vnni_tile(TALL, 1)
    text = f"#if FARCALL_VNNI\n{tiles}#endif\n{plain_tiles(signed_left=False)}{_DRIVER}"
    return text.replace("TALL", str(TALL)).replace("LOW", str(LOW))


def plain_tiles(signed_left: bool) -> str:
    """C source of ``farcall_plain4_su`` or ``farcall_plain4_us``, for CPUs without VNNI.

    The latter is for variable rows, and so has a sibling for one row. On x86 only that one is here: all other
    rows are multiplied by ``farcall_pairs``.
    """
    heights = (LOW,) if signed_left else (LOW, 1)
    dots, plain = ("".join(make(rows, signed_left) for rows in heights) for make in (_dot_tile, _plain_tile))
    row = "" if signed_left else _pair_row()
    text = f"#if FARCALL_PAIRS\n{row}#elif FARCALL_DOT\n{dots}#else\n{plain}#endif\n"
    return text.replace("KIND", "su" if signed_left else "us")


# A processor for which AVX-512 code is built may lack VNNI. `cpuid` takes long in a virtual machine.
COMMON = """\
typedef uint32_t farcall_lanes __attribute__((vector_size(64)));
typedef uint32_t farcall_lanes_at __attribute__((vector_size(64), aligned(1), may_alias));
typedef int32_t farcall_signed_lanes __attribute__((vector_size(64)));
#if defined(__x86_64__) && defined(__AVX512F__)
#define FARCALL_VNNI 1
static int farcall_has_vnni(void) {
  static int known;
  int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (!found) {
    uint32_t a = 7, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    found = c >> 11 & 1 ? 1 : 2;
    __atomic_store_n(&known, found, __ATOMIC_RELAXED);
  }
  return found == 1;
}
#else
#define FARCALL_VNNI 0
#define farcall_has_vnni() 0
#endif
#if defined(__ARM_FEATURE_DOTPROD) && defined(__AARCH64EL__)
#define FARCALL_DOT 1
typedef uint32_t farcall_quad __attribute__((vector_size(16)));
typedef uint32_t farcall_quad_at __attribute__((vector_size(16), aligned(1), may_alias));
/* Adds to each lane of z the products of the four signed bytes of x and y there. */
#define FARCALL_ADD_DOT(z, x, y) __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(z) : "w"(x), "w"(y))
#else
#define FARCALL_DOT 0
#endif
#if defined(__AVX2__)
#define FARCALL_PAIRS 32
#define FARCALL_MULTIPLY_PAIRS(z, x, y) __asm__("vpmaddwd %2, %1, %0" : "=x"(z) : "x"(x), "x"(y))
#elif defined(__SSE2__)
#define FARCALL_PAIRS 16
#define FARCALL_MULTIPLY_PAIRS(z, x, y) __asm__("pmaddwd %2, %0" : "=x"(z) : "0"(x), "x"(y))
#else
#define FARCALL_PAIRS 0
#endif
#if FARCALL_PAIRS
typedef uint32_t farcall_words __attribute__((vector_size(FARCALL_PAIRS)));
typedef uint32_t farcall_words_at __attribute__((vector_size(FARCALL_PAIRS), aligned(1), may_alias));
typedef int16_t farcall_shorts __attribute__((vector_size(FARCALL_PAIRS)));
typedef uint16_t farcall_unsigned_shorts __attribute__((vector_size(FARCALL_PAIRS)));
/* The even and the odd bytes of vectors, as 16-bit lanes. */
#define FARCALL_EVEN_U(x) ((farcall_words)((farcall_unsigned_shorts)(x) & 255))
#define FARCALL_ODD_U(x) ((farcall_words)((farcall_unsigned_shorts)(x) >> 8))
#define FARCALL_EVEN_S(x) ((farcall_words)((farcall_shorts)((farcall_unsigned_shorts)(x) << 8) >> 8))
#define FARCALL_ODD_S(x) ((farcall_words)((farcall_shorts)(x) >> 8))
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define FARCALL_BYTE(word, i) ((word) << (8 * (i)))
#define FARCALL_FOUR(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))
#else
#define FARCALL_BYTE(word, i) ((word) << (24 - 8 * (i)))
#define FARCALL_FOUR(a, b, c, d) ((uint32_t)(d) << 24 | (uint32_t)(c) << 16 | (uint32_t)(b) << 8 | (a))
#endif
/* Rows without gaps, in which `flip` is toggled, padded with zeros to `width`; and the sum of each. */
static inline void farcall_bytes_rows(int64_t rows, int64_t k, int64_t width, const void* from, int flip,
    uint8_t* to, uint32_t* sums) {
  const uint8_t* a = (const uint8_t*)from;
  for (int64_t i = 0; i < rows; ++i, a += k, to += width) {
    uint32_t sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      to[j] = (uint8_t)(a[j] ^ flip);
      sum += to[j];
    }
    for (int64_t j = k; j < width; ++j) to[j] = 0;
    sums[i] = sum;
  }
}
/* Words that some columns read, `stride` apart. */
static inline void farcall_bytes_words(int64_t columns, int64_t stride, const uint32_t* from,
    uint32_t* restrict to) {
  if (stride == 1) memcpy(to, from, (size_t)columns * sizeof *to);
  else
    for (int64_t j = 0; j < columns; ++j) to[j] = from[j * stride];
}
/* The elements of four of K that some columns read, `stride` apart, with `flip` toggled. */
static inline void farcall_bytes_four(int64_t columns, int64_t stride, const uint8_t* a, const uint8_t* b,
    const uint8_t* c, const uint8_t* d, uint32_t flip, uint32_t* restrict to) {
  if (stride == 1)
    for (int64_t j = 0; j < columns; ++j) to[j] = FARCALL_FOUR(a[j], b[j], c[j], d[j]) ^ flip;
  else
    for (int64_t j = 0; j < columns; ++j, a += stride, b += stride, c += stride, d += stride)
      to[j] = FARCALL_FOUR(*a, *b, *c, *d) ^ flip;
}"""


def _vnni_tile(rows: int, vectors: int = 2) -> str:
    """Rows of A times one or two vectors of columns of B, by VNNI."""
    columns = range(vectors)
    zero = "\n".join(
        "  farcall_lanes " + ", ".join(f"r{r}_{v} = {{0}}" for v in columns) + ";" for r in range(rows)
    )
    loads = " ".join(
        f"const farcall_lanes b{v} = *(const farcall_lanes_at*){place};"
        for v, place in zip(columns, ("first", "second"), strict=False)
    )
    dot = '__asm__("vpdpbusd %2, %1, %0" : "+v"(r{r}_{v}) : "v"(x), "v"(b{v}));'
    steps = "\n".join(
        f"    {{ memcpy(&word, a + {r} * a_row, 4); const farcall_lanes x = (farcall_lanes){{0}} + word; "
        + " ".join(dot.format(r=r, v=v) for v in columns)
        + " }"
        for r in range(rows)
    )
    stores = "\n".join(
        "  " + " ".join(f"made[{2 * r + v}] = r{r}_{v};" for v in columns) for r in range(rows)
    )
    return f"""static __attribute__((noinline)) void farcall_vnni{rows}x{vectors}_us(int64_t k,
    const uint8_t* a, int64_t a_row, const uint8_t* first, const uint8_t* second, int64_t b_step,
    farcall_lanes* made) {{
{zero}
  uint32_t word;
  for (int64_t i = 0; i < k; ++i, a += 4, first += b_step, second += b_step) {{
    {loads}
{steps}
  }}
{stores}
}}
"""


def _pair_row() -> str:
    """A row of A times two vectors of columns of B, by pairs of 16-bit lanes, two registers at a time."""
    loads = "\n".join(
        f"      const farcall_words b{v} = *(const farcall_words_at*)(b + {v} * FARCALL_PAIRS);"
        for v in (0, 1)
    )
    steps = "\n".join(
        f"      FARCALL_MULTIPLY_PAIRS(z, FARCALL_{half}_U(x), FARCALL_{half}_S(b{v})); r{v} += z;"
        for half in ("EVEN", "ODD")
        for v in (0, 1)
    )
    stores = " ".join(
        f"memcpy((char*)(made + v) + part + {v} * FARCALL_PAIRS, &r{v}, FARCALL_PAIRS);" for v in (0, 1)
    )
    return f"""static __attribute__((noinline)) void farcall_plain1_KIND(int64_t k, const uint8_t* a,
    int64_t a_row, int64_t a_step, const uint8_t* first, const uint8_t* second, int64_t b_step,
    farcall_lanes* made) {{
  (void)a_row;
  for (int v = 0; v < 2; ++v)
  for (int64_t part = 0; part < 64; part += 2 * FARCALL_PAIRS) {{
    const uint8_t *at = a, *b = (v ? second : first) + part;
    uint32_t word;
    farcall_words r0 = {{0}}, r1 = {{0}}, z;
    for (int64_t i = 0; i < k; ++i, at += a_step, b += b_step) {{
      memcpy(&word, at, 4);
      const farcall_words x = (farcall_words){{0}} + word;
{loads}
{steps}
    }}
    {stores}
  }}
}}
"""


def _dot_tile(rows: int, signed_left: bool) -> str:
    """Rows of A times two vectors of columns of B, one after the other, by Arm's SDOT."""
    places = [(r, q) for r in range(rows) for q in range(4)]
    zero = ", ".join(
        f"{name} = {{0}}" for name in [*(f"r{r}_{q}" for r, q in places), *_sums(rows, signed_left)]
    )
    toggled_a, toggled_b = ("", " ^ high") if signed_left else (" ^ 0x80808080u", "")
    loads = "\n".join(
        f"      const farcall_quad b{q} = *(const farcall_quad_at*)(b + {16 * q}){toggled_b};"
        + ("" if signed_left else f" FARCALL_ADD_DOT(s{q}, b{q}, ones);")
        for q in range(4)
    )
    steps = "\n".join(
        f"      {{ memcpy(&word, at + {r} * a_row, 4);"
        f" const farcall_quad x = (farcall_quad){{0}} + (word{toggled_a});"
        + (f" FARCALL_ADD_DOT(s{r}, x, ones);" if signed_left else "")
        + "".join(f" FARCALL_ADD_DOT(r{r}_{q}, b{q}, x);" for q in range(4))
        + " }"
        for r in range(rows)
    )
    stores = "\n".join(
        f"    r{r}_{q} += s{r if signed_left else q} * 128u; "
        f"memcpy((char*)(made + {2 * r} + v) + {16 * q}, &r{r}_{q}, 16);"
        for r, q in places
    )
    toggle = "const farcall_quad high = (farcall_quad){0} + 0x80808080u;" if signed_left else ""
    return f"""static __attribute__((noinline)) void farcall_plain{rows}_KIND(int64_t k, const uint8_t* a,
    int64_t a_row, int64_t a_step, const uint8_t* first, const uint8_t* second, int64_t b_step,
    farcall_lanes* made) {{
  const farcall_quad ones = (farcall_quad){{0}} + 0x01010101u;
  {toggle}
  for (int v = 0; v < 2; ++v) {{
    const uint8_t *at = a, *b = v ? second : first;
    uint32_t word;
    farcall_quad {zero};
    for (int64_t i = 0; i < k; ++i, at += a_step, b += b_step) {{
{loads}
{steps}
    }}
{stores}
  }}
}}
"""


def _sums(rows: int, signed_left: bool) -> list[str]:
    """The sums of the bytes of the signed operand: of A's rows, or of B's columns."""
    return [f"s{i}" for i in range(rows if signed_left else 4)]


def _plain_tile(rows: int, signed_left: bool) -> str:
    """Rows of A times two vectors of columns of B, one after the other."""
    lanes = "farcall_lanes" if signed_left else "farcall_signed_lanes"
    left = "(uint32_t)(int32_t)(int8_t)" if signed_left else "(uint32_t)"
    zero = ", ".join(f"r{r} = {{0}}" for r in range(rows))
    parts = "\n".join(
        f"      const farcall_lanes b{i} = (farcall_lanes)(({lanes})FARCALL_BYTE(word, {i}) >> 24);"
        for i in range(STEP)
    )
    steps = "\n".join(
        f"      r{r} += " + " + ".join(f"b{i} * ({left}at[{r} * a_row + {i}])" for i in range(STEP)) + ";"
        for r in range(rows)
    )
    stores = " ".join(f"made[{2 * r} + v] = r{r};" for r in range(rows))
    return f"""static __attribute__((noinline)) void farcall_plain{rows}_KIND(int64_t k, const uint8_t* a,
    int64_t a_row, int64_t a_step, const uint8_t* first, const uint8_t* second, int64_t b_step,
    farcall_lanes* made) {{
  for (int v = 0; v < 2; ++v) {{
    const uint8_t *at = a, *b = v ? second : first;
    farcall_lanes {zero};
    for (int64_t i = 0; i < k; ++i, at += a_step, b += b_step) {{
      const farcall_lanes word = *(const farcall_lanes_at*)b;
{parts}
{steps}
    }}
    {stores}
  }}
}}
"""


_DRIVER = """\
static int farcall_tile_us(int64_t rows, int64_t k, const uint8_t* a, int64_t a_row, const uint8_t* first,
    const uint8_t* second, int64_t b_step, farcall_lanes* made) {
#if FARCALL_VNNI
  if (farcall_has_vnni()) {
    if (rows >= TALL) {
      if (first == second) farcall_vnniTALLx1_us(k, a, a_row, first, second, b_step, made);
      else farcall_vnniTALLx2_us(k, a, a_row, first, second, b_step, made);
      return TALL;
    }
    if (rows >= LOW) return farcall_vnniLOWx2_us(k, a, a_row, first, second, b_step, made), LOW;
    return farcall_vnni1x2_us(k, a, a_row, first, second, b_step, made), 1;
  }
#endif
#if !FARCALL_PAIRS
  if (rows >= LOW) return farcall_plainLOW_us(k, a, a_row, 4, first, second, b_step, made), LOW;
#endif
  return farcall_plain1_us(k, a, a_row, 4, first, second, b_step, made), 1;
}
/* What sums are corrected by: columns[j] times the scale, and the row's sum times zeros[j]. A pointer may be
   0; both arrays can be read up to a multiple of 16. */
typedef struct {
  uint32_t scale;
  const uint32_t *columns, *zeros;
} farcall_bytes_moves;
/* Writes some columns of a row, from column `at` on. The sums can be read up to a multiple of 16, too. */
static inline void farcall_bytes_correct(int64_t count, const void* sums, const farcall_bytes_moves* moves,
    uint32_t row_sum, int64_t at, uint32_t* to) {
  for (int64_t j = 0; j < count; j += 16) {
    farcall_lanes x = *(const farcall_lanes_at*)((const char*)sums + 4 * j);
    if (moves->columns) x -= moves->scale * *(const farcall_lanes_at*)(moves->columns + at + j);
    if (moves->zeros) x -= row_sum * *(const farcall_lanes_at*)(moves->zeros + at + j);
    if (count - j >= 16) *(farcall_lanes_at*)(to + j) = x;
    else memcpy(to + j, &x, (size_t)(count - j) * sizeof *to);
  }
}
#if FARCALL_PAIRS
static void farcall_bytes_by_pairs(int64_t m, int64_t n, int64_t k, const uint8_t* a, int64_t a_row,
    const uint8_t* b, int64_t b_step, int64_t b_panel, uint32_t* c, int64_t c_row,
    const farcall_bytes_moves* moves, const uint32_t* sums) {
  uint32_t made[farcall_pairs_rows * farcall_pairs_columns];
  for (int64_t j = 0; j < n; j += farcall_pairs_columns)
    for (int64_t i = 0; i < m; i += farcall_pairs_rows) {
      const int64_t rows = m - i < farcall_pairs_rows ? m - i : farcall_pairs_rows;
      const int64_t columns = n - j < farcall_pairs_columns ? n - j : farcall_pairs_columns;
      farcall_pairs(rows, columns, k, a + i * a_row, 0, a_row, 0, b + j / 16 * b_panel, b_panel, b_step,
          made);
      for (int64_t r = 0; r < rows; ++r)
        farcall_bytes_correct(columns, made + r * farcall_pairs_columns, moves, sums ? sums[i + r] : 0, j,
            c + (i + r) * c_row + j);
    }
}
#endif
/* C = A B - scale * columns[j] - sums[i] * zeros[j], without those whose pointer is 0. K counts
   fours of bytes. `columns` and `zeros` can be read up to a multiple of 16. */
static __attribute__((noinline)) void farcall_bytes_us(int64_t m, int64_t n, int64_t k, const void* left,
    int64_t a_row, const void* right, int64_t b_step, int64_t b_panel, uint32_t* c, int64_t c_row,
    uint32_t scale, const uint32_t* columns, const uint32_t* sums, const uint32_t* zeros) {
  const uint8_t *a = (const uint8_t*)left, *b = (const uint8_t*)right;
  const farcall_bytes_moves moves = {scale, columns, zeros};
#if FARCALL_PAIRS
  if (m >= LOW && !(FARCALL_VNNI && farcall_has_vnni())) {
    farcall_bytes_by_pairs(m, n, k, a, a_row, b, b_step, b_panel, c, c_row, &moves, sums);
    return;
  }
#endif
  for (int64_t j = 0; j < n; j += 32) {
    const uint8_t* first = b + j / 16 * b_panel;
    const uint8_t* second = n - j > 16 ? first + b_panel : first;
    farcall_lanes made[2 * TALL];
    int rows = 0;
    for (int64_t i = 0; i < m; i += rows) {
      rows = farcall_tile_us(m - i, k, a + i * a_row, a_row, first, second, b_step, made);
      for (int r = 0; r < rows; ++r)
        farcall_bytes_correct(n - j < 32 ? n - j : 32, made + 2 * r, &moves, sums ? sums[i + r] : 0, j,
            c + (i + r) * c_row + j);
    }
  }
}"""
