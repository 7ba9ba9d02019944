"""C source of matrix products of bytes for x86 without VNNI: by pairs of 16-bit lanes, which is exact.

One instruction multiplies the two 16-bit lanes of each word of two vectors, and adds the two products. Parts
of both operands are first copied, and their bytes made such lanes: of a word of four bytes along K, the even
ones and the odd ones. A copy of A serves all columns of a part, one of B all of its rows.
"""

from __future__ import annotations

_ROWS, _COLUMNS = 32, 128  # of a part
_DEPTH = 64  # words along K that are copied at once: 16 KB of A, 8 KB of B
GROUP = 8  # rows of A that lie together
_TALL = GROUP // 2  # rows of a tile of two vectors of columns; a tile of one has a group


def pairs_source() -> str:
    """C source of ``farcall_pairs``, after ``_bytes_text.COMMON``."""
    tiles = "".join(_tile(*size, apart) for apart in (False, True) for size in ((_TALL, 2), (GROUP, 1)))
    text = f"#if FARCALL_PAIRS\n{_WIDEN}{tiles}{_PART}#endif\n"
    for name, value in {"ROWS": _ROWS, "COLUMNS": _COLUMNS, "DEPTH": _DEPTH, "TALL": _TALL}.items():
        text = text.replace(f"@{name}", str(value))
    return text


_WIDEN = """\
enum { farcall_pairs_rows = @ROWS, farcall_pairs_columns = @COLUMNS };
/* The bytes of a vector of words become 16-bit lanes: the even ones, and the odd ones. */
static inline void farcall_widen(const void* from, int is_signed, void* even, void* odd) {
  const farcall_words x = *(const farcall_words_at*)from;
  *(farcall_words_at*)even = is_signed ? FARCALL_EVEN_S(x) : FARCALL_EVEN_U(x);
  *(farcall_words_at*)odd = is_signed ? FARCALL_ODD_S(x) : FARCALL_ODD_U(x);
}
"""


_AVX2 = (
    "vmovdqu {at}, {to}",
    "vpbroadcastd {at}, {to}",
    "vpmaddwd {y}, {x}, {z}; vpaddd {z}, {sum}, {sum}",
)
_SSE2 = (
    "movdqu {at}, {to}",
    "movd {at}, {to}; pshufd $0, {to}, {to}",
    "movdqa {x}, {z}; pmaddwd {y}, {z}; paddd {z}, {sum}",
)


def _tile(rows: int, vectors: int, apart: bool) -> str:
    """Rows of a group of A times vectors of columns of a panel of B, written or added to C.

    A step along K is one piece of assembly: compilers that see its parts keep more numbers than there are
    registers. The rows of the copy of A are ``apart``, or the words of a group's rows lie together.
    """
    places = [(r, v) for r in range(rows) for v in range(vectors)]
    row, half_row, move = (8 * _DEPTH, 4 * _DEPTH, 4) if apart else (4, 4 * GROUP, 8 * GROUP)
    name = f"farcall_pairs{rows}x{vectors}{'_apart' if apart else ''}"

    def step(instructions: tuple[str, str, str], size: int) -> str:
        load, spread, add = instructions
        lines = []
        for half in (0, 1):
            lines += [load.format(at=f"{(2 * half + v) * size}(%[b])", to=f"%[b{v}]") for v in range(vectors)]
            for r in range(rows):
                lines.append(spread.format(at=f"{half * half_row + r * row}(%[a])", to="%[x]"))
                lines += [
                    add.format(x="%[x]", y=f"%[b{v}]", z="%[z]", sum=f"%[r{r}_{v}]") for v in range(vectors)
                ]
        return "\n".join(f'        "{line}\\n"' for line in lines)

    sums = ", ".join(f"r{r}_{v} = {{0}}" for r, v in places)
    inner = [*(f"b{v}" for v in range(vectors)), "x", "z"]
    results = ", ".join(f'[r{r}_{v}] "+x"(r{r}_{v})' for r, v in places)
    others = ", ".join(f'[{name}] "=&x"({name})' for name in inner)
    stores = "\n".join(
        f"  {{ farcall_words_at* to = (farcall_words_at*)(c + {r} * @COLUMNS) + {v}; "
        f"if (add) *to += r{r}_{v}; else *to = r{r}_{v}; }}"
        for r, v in places
    )
    return f"""/* {rows} rows times {vectors} vectors of columns. */
static __attribute__((noinline)) void {name}(int64_t k, const char* a, const char* b, uint32_t* c,
    int add) {{
  farcall_words {sums}, {", ".join(inner)};
  for (int64_t i = 0; i < k; ++i, a += {move}, b += 4 * FARCALL_PAIRS)
    __asm__ volatile(
#if FARCALL_PAIRS == 32
{step(_AVX2, 32)}
#else
{step(_SSE2, 16)}
#endif
        : {results}, {others}
        : [a] "r"(a), [b] "r"(b)
        : "memory");
{stores}
}}
"""


_PART = """\
/* Copies of a group of A: of rows without gaps, each by itself, and of words that lie together. */
static inline void farcall_widen_rows(int64_t rows, int64_t k, const uint8_t* a, int64_t a_row, int is_signed,
    char* to) {
  for (int64_t r = 0; r < 8; ++r, to += 8 * @DEPTH) {
    const uint8_t* const row = a + (r < rows ? r : 0) * a_row;
    for (int64_t t = 0; t < k; t += FARCALL_PAIRS / 4) {
      uint8_t copy[FARCALL_PAIRS] = {0};
      const int is_whole = k - t >= FARCALL_PAIRS / 4;
      if (!is_whole) memcpy(copy, row + 4 * t, (size_t)(4 * (k - t)));
      farcall_widen(is_whole ? row + 4 * t : copy, is_signed, to + 4 * t, to + 4 * @DEPTH + 4 * t);
    }
  }
}
static inline void farcall_widen_group(int64_t k, const uint8_t* a, int is_signed, char* to) {
  for (int64_t t = 0; t < k; ++t, a += 32, to += 64)
    for (int64_t part = 0; part < 32; part += FARCALL_PAIRS)
      farcall_widen(a + part, is_signed, to + part, to + 32 + part);
}
/* The sums of a part, of at most @ROWS rows and @COLUMNS columns, whose rows are @COLUMNS apart. K counts
   words of four bytes. Rows of A are without gaps, `a_row` apart; if that is 0, the words of a group lie
   together, and groups are `a_group` apart. Word i of column j of B is at j / 16 * b_panel + j % 16 * 4 +
   i * b_step: whole vectors of 16 columns can be read. */
static inline void farcall_pairs(int64_t rows, int64_t columns, int64_t k, const uint8_t* a, int64_t a_group,
    int64_t a_row, int a_signed, const uint8_t* b, int64_t b_panel, int64_t b_step, uint32_t* sums) {
  enum { wide = FARCALL_PAIRS / 2 };  /* columns of a panel of two vectors */
  char left[@ROWS * @DEPTH * 8], right[@DEPTH * 4 * FARCALL_PAIRS];
  for (int64_t k0 = 0, depth; k0 < k; k0 += depth, a += depth * (a_row ? 4 : 32), b += depth * b_step) {
    depth = k - k0 < @DEPTH ? k - k0 : @DEPTH;
    for (int64_t i = 0; i < rows; i += 8) {
      char* const to = left + i * @DEPTH * 8;
      if (a_row) farcall_widen_rows(rows - i, depth, a + i * a_row, a_row, a_signed, to);
      else farcall_widen_group(depth, a + i / 8 * a_group, a_signed, to);
    }
    for (int64_t j = 0; j < columns; j += wide) {
      const uint8_t* q = b + j / 16 * b_panel + j % 16 * 4;
      char* to = right;
      for (int64_t t = 0; t < depth; ++t, q += b_step, to += 4 * FARCALL_PAIRS)
        for (int64_t part = 0; part < 2 * FARCALL_PAIRS; part += FARCALL_PAIRS)
          farcall_widen(q + part, !a_signed, to + part, to + 2 * FARCALL_PAIRS + part);
      const int is_narrow = columns - j <= wide / 2;
      for (int64_t i = 0; i < rows; i += is_narrow ? 8 : @TALL) {
        const char* const p = left + i / 8 * @DEPTH * 64 + i % 8 * (a_row ? 8 * @DEPTH : 4);
        uint32_t* const c = sums + i * @COLUMNS + j;
        if (is_narrow && a_row) farcall_pairs8x1_apart(depth, p, right, c, k0 > 0);
        else if (is_narrow) farcall_pairs8x1(depth, p, right, c, k0 > 0);
        else if (a_row) farcall_pairs@TALLx2_apart(depth, p, right, c, k0 > 0);
        else farcall_pairs@TALLx2(depth, p, right, c, k0 > 0);
      }
    }
  }
}
"""
