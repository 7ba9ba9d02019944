"""C source of the blocked matrix product, for one element type.

``C = A B``, or ``C = S + A B``, where S is C, or has a value for each row or column of C. A tile of C stays
in registers during a block of K: with AVX-512, 12 rows by two vectors of 64 bytes, else 6 rows by two of 32
bytes, which leaves room for two vectors of B and one of A in 32 or 16 registers. Vector types are an
extension of gcc and clang, which lower them to what the target has; for x86 with FMA, the loop of the second
tile is assembly.

*Panels* of B are 64 bytes wide, *groups* of A are 6 rows high: both operands may be given packed in such an
order, so that a tile reads them from beginning to end. The first tile copies a panel that is not packed to
the stack, where the other rows of A meet it in the L1 cache. Up to 4 columns behind the last whole vector, as
in planes of 7x7 and 14x14, are computed by vectors of the rows of packed groups instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from farcall.backends._kernels import HIDDEN, Kernels
from farcall.backends.c._turn_text import turn_source

# Contraction: a multiply and an add become one fused operation, rounded once, if the processor has it, which
# doubles the speed of a matrix product. gcc before 14 treats ISO C's setting ("on") as off.
COMPILE_FLAGS = ("-ffp-contract=fast",)

PANEL_BYTES = 64
GROUP = 6  # rows of A
_SHORT = 4  # likewise: of the last tile, a part of a group; with AVX-512, perhaps 8 rows of two groups
_DEPTH = 512  # rows of B in a block of K with vectors of 64 bytes: 64 KB of two panels, for the L2 cache
_LESS_DEPTH = 256  # the same with others: 16 KB of two panels, which fit L1 caches, and the stacks of boards
_AHEAD = 16  # rows of B that are asked for before they are used, while a panel is copied
BAND = 96  # rows of A in a block: with a block of K, half of a small L2 cache
_BANDS = 4  # in a block, where B is copied once for all of its rows
ROOM = _BANDS * BAND * _DEPTH  # elements of rows of A that are packed in memory that a kernel has for them
PAGE = 4096  # bytes between rows that fall on the same lines of an L1 cache
FEW = 3  # with so few rows of A, B is read in order, since that is what takes the time
_PART_COLUMNS = 64  # of a part that one thread may compute: whole panels and tiles
_PART_ROWS = 4 * GROUP * 2  # likewise: whole tiles
_MANY_PARTS = 8  # of fewer, parts are halves of those, so that threads get equal shares
_UNROLLED = 4  # steps of K in the assembly of a tile
_PLAIN_LEAST = 96  # of rows of A that are not packed: so many pay for the sums' way through memory
_NARROW = 4  # columns at the end that rows of A are the vectors for
GROUP_SLACK = 2  # elements behind the last packed group, so that 8 rows can be read of one


def panel_width(itemsize: int) -> int:
    """Columns of B in a panel."""
    return PANEL_BYTES // itemsize


@cache
def gemm_kernels(kind: str, itemsize: int) -> Kernels:
    """The file with ``farcall_gemm_part_KIND``, which all products of a dtype call."""
    small, large = (
        "".join(_tile(rows, vectors) for rows in heights for vectors in (1, 2))
        + _tile(heights[-1], 2, copies=True)
        for heights in ((_SHORT, GROUP), (2 * _SHORT, 2 * GROUP))
    )
    text = (
        f"{VECTORS}{small}{_assembly_tiles(kind, itemsize)}"
        f"#if defined(__AVX512F__)\n{large}#endif\n{RIM}{_tiles()}"
        f"{_narrow(1, 4)}{_narrow(_NARROW, 1)}{_DRIVER.replace('@TURN', turn_source(itemsize))}"
    )
    text = INCLUDES + with_numbers(text, kind, itemsize)
    return Kernels(f"farcall_gemm_{kind}", text, (f"farcall_gemm_part_{kind}",), COMPILE_FLAGS, vectors=True)


@cache
def gemm_calls(kind: str, itemsize: int) -> str:
    """C source of ``farcall_gemm_KIND``, which :func:`farcall.backends.c._gemm.call_gemm` calls.

    It needs :data:`RANGE` before it.
    """
    return with_numbers(_CALLS, kind, itemsize)


def vector_source(kind: str, itemsize: int) -> str:
    """C source of the vector types of other kernels."""
    return with_numbers(VECTORS, kind, itemsize)


def with_numbers(text: str, kind: str, itemsize: int) -> str:
    numbers = {
        "HIDDEN": HIDDEN, "KIND": kind, "PANEL": panel_width(itemsize), "SLACK": GROUP_SLACK, "GROUP": GROUP,
        "LESS_DEPTH": _LESS_DEPTH, "MOST_DEPTH": _DEPTH, "BANDS": _BANDS, "BAND": BAND, "FEW": FEW,
        "PAGE": PAGE, "NARROW": _NARROW,
        "COLUMNS": _PART_COLUMNS, "ROWS": _PART_ROWS, "MANY_PARTS": _MANY_PARTS,
    }  # fmt: skip
    for name, value in numbers.items():
        text = text.replace(name, str(value))
    return text


INCLUDES = "#include <stdint.h>\n#include <string.h>\n\n"
RANGE = "struct farcall_range { int64_t row, row_end, column, column_end; };"

VECTORS = """\
#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define FARCALL_SHUFFLES 1
#endif
#endif
#if defined(__AVX512F__)
#define FARCALL_VECTOR 64
#elif defined(__SSE__) && !defined(__AVX__)
#define FARCALL_VECTOR 16
#else
#define FARCALL_VECTOR 32
#endif
typedef KIND farcall_v_KIND __attribute__((vector_size(FARCALL_VECTOR)));
typedef KIND farcall_u_KIND __attribute__((vector_size(FARCALL_VECTOR), aligned(1), may_alias));
typedef KIND farcall_short_KIND __attribute__((vector_size(16)));
typedef KIND farcall_short_at_KIND __attribute__((vector_size(16), aligned(1), may_alias));
typedef KIND farcall_rows_KIND __attribute__((vector_size(8 * sizeof(KIND))));
typedef KIND farcall_rows_at_KIND __attribute__((vector_size(8 * sizeof(KIND)), aligned(1), may_alias));
enum { farcall_lanes_KIND = FARCALL_VECTOR / sizeof(KIND), farcall_wide_KIND = 2 * farcall_lanes_KIND,
  farcall_high_KIND = FARCALL_VECTOR == 64 ? 2 * GROUP : GROUP,
  farcall_depth_KIND = FARCALL_VECTOR == 64 ? MOST_DEPTH : LESS_DEPTH };
"""


RIM = """\
/* Writes the sums of a rim to C; with `old`, they are added to that. */
static __attribute__((noinline)) void farcall_rim_KIND(int64_t rows, int64_t columns, const KIND* rim,
    KIND* c, int64_t c_row, const KIND* old, int64_t old_row) {
  for (; rows > 0; --rows, c += c_row, rim += farcall_wide_KIND) {
    const int64_t few = 16 / sizeof(KIND);
    int64_t j = 0;
    for (; j + farcall_lanes_KIND <= columns; j += farcall_lanes_KIND) {
      farcall_v_KIND x = *(const farcall_u_KIND*)(rim + j);
      if (old) x += *(const farcall_u_KIND*)(old + j);
      *(farcall_u_KIND*)(c + j) = x;
    }
    for (; j + few <= columns; j += few) {
      farcall_short_KIND x = *(const farcall_short_at_KIND*)(rim + j);
      if (old) x += *(const farcall_short_at_KIND*)(old + j);
      *(farcall_short_at_KIND*)(c + j) = x;
    }
    for (; j < columns; ++j) c[j] = old ? old[j] + rim[j] : rim[j];
    if (old) old += old_row;
  }
}

"""


def _tile(rows: int, vectors: int, copies: bool = False) -> str:
    """Rows of A, in one or two groups, times one or two vectors of columns, which it may copy to a panel."""
    places = [f"a[{row} * a_row]" if row < GROUP else f"a2[{row - GROUP} * a_row]" for row in range(rows)]
    columns = range(vectors)
    starts = "\n".join(
        "  farcall_v_KIND "
        + ", ".join(f"r{row}_{v} = start[{row} * start_row] - (farcall_v_KIND){{0}}" for v in columns)
        + ";"
        for row in range(rows)
    )
    # A plane's rows are on pages of their own, so that the processor does not see which lines are next.
    lines = [f"c + {row} * c_row + {v} * farcall_lanes_KIND" for row in range(rows) for v in columns]
    touch = " ".join(f"__builtin_prefetch({line}, 1);" for line in lines) if rows > GROUP else ""
    loads = " ".join(f"const farcall_v_KIND x{v} = *(const farcall_u_KIND*)b{v};" for v in columns)
    steps = "\n".join(
        f"    {{ const KIND x = {place}; " + " ".join(f"r{row}_{v} += x * x{v};" for v in columns) + " }"
        for row, place in enumerate(places)
    )
    plain, added = (_stores(rows, vectors, old, lambda row, v: f"r{row}_{v}") for old in ("", _OLD))
    copy = "".join(
        f"\n    *(farcall_u_KIND*)(copy + {v} * farcall_lanes_KIND) = x{v}; "
        f"__builtin_prefetch(b{v} + {_AHEAD} * b_row);"
        for v in columns
    )
    name, to, copy = (
        ("copy_", ", KIND* copy", f"{copy} copy += farcall_wide_KIND;") if copies else ("", "", "")
    )
    return f"""static inline __attribute__((always_inline)) void farcall_tile{rows}x{vectors}_{name}KIND(
    int64_t k, const KIND* a, const KIND* a2, int64_t a_row, int64_t a_column, const KIND* b0, const KIND* b1,
    int64_t b_row, KIND* c, int64_t c_row, const KIND* old, int64_t old_row, const KIND* start,
    int64_t start_row, int64_t ahead{to}) {{
{starts}
  (void)a2;
  (void)ahead;
  {touch}
  for (int64_t i = 0; i < k; ++i, a += a_column, a2 += a_column, b0 += b_row, b1 += b_row) {{
    {loads}{copy}
    {"__builtin_prefetch(a + ahead); __builtin_prefetch(a2 + ahead);" if rows > GROUP else ""}
{steps}
  }}
  if (old) {{
{added}
  }} else {{
{plain}
  }}
}}
"""


def _assembly_tiles(kind: str, itemsize: int) -> str:
    """Tiles of six rows by two vectors of 32 bytes of floats for x86 with FMA, called as that in C is.

    Compilers need a quarter more instructions. This counts where another thread has the same core: each can
    then begin three a cycle, and a step along K has twelve products.
    """
    if kind not in ("float", "double"):
        return ""
    places = [(row, v) for row in range(GROUP) for v in (0, 1)]
    start = "start[{} * start_row] - (farcall_v_KIND){{0}}"
    sums = "\n".join(f"  farcall_v_KIND r{row}_{v} = {start.format(row)};" for row, v in places)
    results = ", ".join(f'[r{row}_{v}] "+x"(r{row}_{v})' for row, v in places)
    starts = "\n".join(f"  sums[{2 * row + v}] = {start.format(row)};" for row, v in places)
    others, all_registers = (", ".join(f'"xmm{i}"' for i in range(first, 16)) for first in (12, 0))
    packed_end, plain_end = (
        f"""  if (old) {{
{_stores(GROUP, 2, _OLD, made)}
  }} else {{
{_stores(GROUP, 2, "", made)}
  }}
}}
"""
        for made in (lambda row, v: f"r{row}_{v}", lambda row, v: f"sums[{2 * row + v}]")
    )
    return f"""#if defined(__x86_64__) && defined(__FMA__) && FARCALL_VECTOR == 32
#define FARCALL_ASSEMBLY_TILES_KIND 1
static inline __attribute__((always_inline)) void farcall_packed_tile_KIND(int64_t k, const KIND* a,
    const KIND* b, int64_t b_row, KIND* c, int64_t c_row, const KIND* old, int64_t old_row,
    const KIND* start, int64_t start_row) {{
  const KIND* const last = a + (k - {_UNROLLED}) * GROUP;
  const int64_t s = b_row * (int64_t)sizeof(KIND);
{sums}
  __asm__ volatile(
{_packed_loop(itemsize)}
      : {results}, [a] "+&r"(a), [b] "+&r"(b)
      : [last] "r"(last), [s] "r"(s)
      : "memory", "cc", {others});
{packed_end}/* More operands than assembly may have: the sums are in memory before and after it. */
static inline __attribute__((always_inline)) void farcall_plain_tile_KIND(int64_t k, const KIND* a,
    int64_t a_row, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, const KIND* old, int64_t old_row,
    const KIND* start, int64_t start_row) {{
  farcall_v_KIND sums[2 * GROUP];
  const KIND *const last = a + k - {_UNROLLED}, *a3 = a + 3 * a_row;
  const int64_t r = a_row * (int64_t)sizeof(KIND), s = b_row * (int64_t)sizeof(KIND);
{starts}
  __asm__ volatile(
{_plain_loop(itemsize)}
      : [a] "+&r"(a), [a3] "+&r"(a3), [b] "+&r"(b)
      : [last] "r"(last), [r] "r"(r), [s] "r"(s), [sums] "r"(sums)
      : "memory", "cc", {all_registers});
{plain_end}#endif
"""


def _packed_loop(itemsize: int) -> str:
    """The assembly of a tile of a packed group of A."""

    def rows(u: int) -> list[str]:
        return [f"{(u * GROUP + row) * itemsize}(%[a])" for row in range(GROUP)]

    return _assembly(_loop(itemsize, rows, ("a",), GROUP * itemsize, lambda row, v: f"%[r{row}_{v}]"))


def _plain_loop(itemsize: int) -> str:
    """The assembly of a tile of contiguous rows of A."""
    places = ["(%[a])", "(%[a],%[r])", "(%[a],%[r],2)", "(%[a3])", "(%[a3],%[r])", "(%[a3],%[r],2)"]

    def rows(u: int) -> list[str]:
        return [f"{u * itemsize}{place}" for place in places]

    numbers = [f"%%ymm{i}" for i in range(2 * GROUP)]
    return _assembly(
        [
            *(f"vmovups {32 * i}(%[sums]), {name}" for i, name in enumerate(numbers)),
            *_loop(itemsize, rows, ("a", "a3"), itemsize, lambda row, v: numbers[2 * row + v]),
            *(f"vmovups {name}, {32 * i}(%[sums])" for i, name in enumerate(numbers)),
        ]
    )


def _assembly(lines: Sequence[str]) -> str:
    return "\n".join(f'        "{line}\\n"' for line in lines)


def _loop(
    itemsize: int,
    rows: Callable[[int], list[str]],
    pointers: Sequence[str],
    move: int,
    named: Callable[[int, int], str],
) -> list[str]:
    """The loop along K, of ``_UNROLLED`` steps, then of one.

    Args:
        itemsize: bytes of an element.
        rows: where the elements of A are, for a step from 0 on.
        pointers: to A. ``last`` is where the first one is when there are ``_UNROLLED`` steps left.
        move: bytes by which they go on in a step.
        named: how the sum of a row and a vector is called.
    """
    end = {4: "s", 8: "d"}[itemsize]

    def step(u: int, b: str) -> list[str]:
        lines = [f"vmovups {b}, %%ymm12", f"vmovups 32{b}, %%ymm13"]
        for row, place in enumerate(rows(u)):
            spread = f"%%ymm{14 + row % 2}"
            lines.append(f"vbroadcasts{end} {place}, {spread}")
            lines += [f"vfmadd231p{end} %%ymm{12 + v}, {spread}, {named(row, v)}" for v in (0, 1)]
        return lines

    def advance(steps: int) -> list[str]:
        return [f"add ${steps * move}, %[{pointer}]" for pointer in pointers]

    several = []
    for u in range(0, _UNROLLED, 2):
        several += [*step(u, "(%[b])"), *step(u + 1, "(%[b],%[s])"), "lea (%[b],%[s],2), %[b]"]
    one = [*step(_UNROLLED - 1, "(%[b])"), "add %[s], %[b]"]
    reached = f"cmp %[last], %[{pointers[0]}]"
    return [
        reached, "ja 2f",
        ".p2align 5", "1:", *several, *advance(_UNROLLED), reached, "jbe 1b",
        "2:", *advance(1 - _UNROLLED), reached, "ja 4f",
        "3:", *one, *advance(1), reached, "jbe 3b",
        "4:",
    ]  # fmt: skip


_OLD = "*(const farcall_u_KIND*)(old + {} * old_row + {} * farcall_lanes_KIND) + "


def _stores(rows: int, vectors: int, old: str, made: Callable[[int, int], str]) -> str:
    """What a tile writes to C: its sums, added to ``old``, if that is not empty."""
    return "\n".join(
        f"    *(farcall_u_KIND*)(c + {row} * c_row + {v} * farcall_lanes_KIND) = "
        f"{old.format(row, v)}{made(row, v)};"
        for row in range(rows)
        for v in range(vectors)
    )


def _narrow(columns: int, steps: int) -> str:
    """Two packed groups of A times a few columns, by vectors of 8 rows, of which the last 2 are not used.

    ``steps`` of K are computed at once, since each must wait for its sums.
    """

    def step(u: int) -> str:
        return "\n".join(
            f"    {{ const KIND x = b[{u * columns + v}]; "
            + " ".join(
                f"r{g}{u}{v} += x * *(const farcall_rows_at_KIND*)(a{g} + {u} * GROUP);" for g in (0, 1)
            )
            + " }"
            for v in range(columns)
        )

    def loop(count: int) -> str:
        body = "\n".join(step(u) for u in range(count))
        moves = f"i += {count}, a0 += {count} * GROUP, a1 += {count} * GROUP, b += {count * columns}"
        return f"  for (; i + {count} <= k; {moves}) {{\n{body}\n  }}\n"

    sums = ", ".join(f"r{g}{u}{v} = {{0}}" for g in (0, 1) for u in range(steps) for v in range(columns))
    totals = "\n".join(
        f"  *(farcall_rows_at_KIND*)(made + {8 * (2 * v + g)}) = "
        + " + ".join(f"r{g}{u}{v}" for u in range(steps))
        + ";"
        for v in range(columns)
        for g in (0, 1)
    )
    return f"""static inline void farcall_narrow{columns}_KIND(int64_t k, const KIND* a0, const KIND* a1,
    const KIND* b, KIND* made) {{
  farcall_rows_KIND {sums};
  int64_t i = 0;
{loop(steps)}{loop(1) if steps > 1 else ""}{totals}
}}
"""


def _tiles() -> str:
    """The rows of a block, times one or two vectors of columns."""
    arguments = (
        "k, from, from + {}, a_row, a_column, b0, b1, b_row, to, to_row, whole ? old : 0, old_row, "
        "kept ? first : start, kept ? 1 : start_row, 2 * a_group"
    )
    narrow, wide = (
        f"""#if defined(__AVX512F__)
      if (high == 2 * GROUP) farcall_tile12x{vectors}_KIND({arguments.format("a_group")});
      else if (packed && high > GROUP) farcall_tile8x{vectors}_KIND({arguments.format("a_group")});
      else
#endif
      if (packed && high < GROUP) farcall_tile4x{vectors}_KIND({arguments.format("0")});
      else farcall_tile6x{vectors}_KIND({arguments.format("0")});"""
        for vectors in (1, 2)
    )
    end = "to, to_row, whole ? old : 0, old_row, kept ? first : start, kept ? 1 : start_row"
    wide = f"""#ifdef FARCALL_ASSEMBLY_TILES_KIND
      if (packed && high == GROUP)
        farcall_packed_tile_KIND(k, from, b0, b_row, {end});
      else if (!packed && k >= {_PLAIN_LEAST})
        farcall_plain_tile_KIND(k, from, a_row, b0, b_row, {end});
      else
#endif
{wide}"""
    wide_copy, copy = (f"{arguments.format(group)}, copy" for group in ("a_group", "0"))
    return f"""\
/* Tiles that are not C's alone go to a rim. Packed rows end with the lowest tile that holds them;
 * other ones end with the last six rows, of which the first ones have been written before. Each tile asks for
 * its share of the panel that is used after this one, if any: `next`. */
static inline __attribute__((always_inline)) void farcall_tiles_KIND(int64_t rows, int64_t columns,
    int64_t k, const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b0, const KIND* b1, int64_t b_row, KIND* c, int64_t c_row,
    const KIND* old, int64_t old_row, const KIND* start, int64_t start_row, int packed, KIND* copy,
    const KIND* next) {{
  const int64_t tiles = (rows + farcall_high_KIND - 1) / farcall_high_KIND;
  const int64_t share = next ? (k + tiles - 1) / tiles : 0;
  KIND rim[farcall_high_KIND * farcall_wide_KIND], first[farcall_high_KIND];
  const int full = columns == farcall_wide_KIND || columns == farcall_lanes_KIND;
  for (int64_t high; rows > 0; rows -= high, c += high * c_row, start += high * start_row) {{
    high = rows > (packed ? GROUP : farcall_high_KIND - 1) ? farcall_high_KIND : GROUP;
    if (packed && rows <= {_SHORT}) high = {_SHORT};
    else if (packed && high > GROUP && rows <= {2 * _SHORT}) high = {2 * _SHORT};
    const int64_t back = packed || rows >= GROUP ? 0 : GROUP - rows;
    for (int64_t t = 0; t < share; ++t, next += PANEL) __builtin_prefetch(next);
    const KIND* const from = a - back * a_row;
    const int whole = full && rows >= high;
    a += high / GROUP * a_group;
    const int kept = !whole && start_row; /* there may be no start behind that of the last row */
    for (int64_t r = 0; kept && r < high; ++r)
      first[r] = r >= back && r - back < rows ? start[(r - back) * start_row] : 0;
    KIND* const to = whole ? c : rim;
    const int64_t to_row = whole ? c_row : farcall_wide_KIND;
    if (copy) {{
#if defined(__AVX512F__)
      farcall_tile12x2_copy_KIND({wide_copy});
#else
      farcall_tile6x2_copy_KIND({copy});
#endif
      b0 = copy;
      b1 = copy + farcall_lanes_KIND;
      b_row = farcall_wide_KIND;
      copy = 0;
    }} else if (columns <= farcall_lanes_KIND) {{
{narrow}
    }} else {{
{wide}
    }}
    if (!whole)
      farcall_rim_KIND(rows < high ? rows : high, columns, rim + back * farcall_wide_KIND, c, c_row,
          old, old_row);
    if (old) old += high * old_row;
  }}
}}

"""


_DRIVER = """\
/* A panel without gaps, as wide as a tile; its last columns may be zeros. */
static inline void farcall_copy_KIND(int64_t k, int64_t n, const KIND* b, int64_t b_row, KIND* panel) {
  if (n == farcall_wide_KIND)
    for (int64_t i = 0; i < k; ++i)
      memcpy(panel + i * farcall_wide_KIND, b + i * b_row, farcall_wide_KIND * sizeof(KIND));
  else
    for (int64_t i = 0; i < k; ++i, b += b_row, panel += farcall_wide_KIND) {
      const farcall_v_KIND zero = {0};
      *(farcall_u_KIND*)panel = *(farcall_u_KIND*)(panel + farcall_lanes_KIND) = zero;
      if (n >= farcall_lanes_KIND) {
        *(farcall_u_KIND*)panel = *(const farcall_u_KIND*)b;
        *(farcall_u_KIND*)(panel + n - farcall_lanes_KIND) =
            *(const farcall_u_KIND*)(b + n - farcall_lanes_KIND);
      } else {
        for (int64_t j = 0; j < n; ++j) panel[j] = b[j];
      }
    }
}

@TURN/* The last columns, fewer than a vector, of rows whose groups are packed. */
static __attribute__((noinline)) void farcall_last_columns_KIND(int64_t rows, int64_t columns, int64_t k,
    const KIND* a, int64_t a_group, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, int add,
    const KIND* start, int64_t start_row, int64_t start_column) {
  KIND few[farcall_depth_KIND * NARROW], made[16 * NARROW];
  const int64_t width = columns == 1 ? 1 : NARROW;
  for (int64_t i = 0; i < k; ++i, b += b_row) {
    few[i * width] = b[0];
    for (int64_t j = 1; j < width; ++j) few[i * NARROW + j] = b[j < columns ? j : 0];
  }
  for (int64_t i = 0; i < rows; ++i, c += c_row, start += start_row) {
    const int64_t r = i % (2 * GROUP);
    if (r == 0) {
      const KIND* a1 = i + GROUP < rows ? a + a_group : a;
      if (width == 1) farcall_narrow1_KIND(k, a, a1, few, made);
      else farcall_narrowNARROW_KIND(k, a, a1, few, made);
      a += 2 * a_group;
    }
    for (int64_t j = 0; j < columns; ++j)
      c[j] = made[16 * j + (r < GROUP ? r : 8 - GROUP + r)] + (add ? c[j] : start[j * start_column]);
  }
}

static inline __attribute__((always_inline)) void farcall_blocks_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int packed) {
  /* A value for each row is what the sums begin with; to others, or to those of the block before, they are
   * added. */
  const KIND none = 0;
  const KIND* first = start && !start_column ? start : &none;
  int64_t first_row = first == start ? start_row : 0;
  const KIND* old = start && start_column ? start : 0;
  int64_t old_row = start_row;
  KIND panels[farcall_depth_KIND * farcall_wide_KIND];
  const int turned = b_row == 1 && b_panel != PANEL;
  const int64_t b_column = turned ? b_panel / PANEL : 1;
  const int in_panels = b_panel != PANEL && !turned && farcall_wide_KIND == PANEL; /* one for each tile */
  /* A panel that is copied serves more rows; one of a transposed B costs more than to read A again. */
  const int64_t band = turned ? m : b_panel != PANEL ? BAND : BANDS * BAND;
  const int64_t rest = n % farcall_lanes_KIND, narrow = packed && !turned && rest <= NARROW ? rest : 0;
  n -= narrow;
  for (int64_t k0 = 0; k0 < k || k0 == 0;
       k0 += farcall_depth_KIND, old = c, old_row = c_row, first = &none, first_row = 0) {
    const int64_t k1 = k - k0 < farcall_depth_KIND ? k - k0 : farcall_depth_KIND;
    for (int64_t i0 = 0; i0 < m; i0 += band) {
      const int64_t rows = m - i0 < band ? m - i0 : band;
      const KIND* const from = a + k0 * a_column + i0 / GROUP * a_group;
      for (int64_t j = 0; j < n; j += farcall_wide_KIND) {
        const int64_t n1 = n - j < farcall_wide_KIND ? n - j : farcall_wide_KIND;
        const KIND* b0 = b + k0 * b_row + j / PANEL * b_panel + j % PANEL * b_column;
        const KIND* b1 = b0 + farcall_lanes_KIND;
        int64_t row = b_row;
        KIND* copy = 0;
        if (b_panel != PANEL && !turned) {
          if (farcall_lanes_KIND == PANEL) b1 = n1 > PANEL ? b0 + b_panel : b0;
        } else if (turned || (b_row != n1 && rows >= 4 * GROUP) || n1 % farcall_lanes_KIND != 0) {
          if (!turned && n1 == farcall_wide_KIND && rows >= farcall_high_KIND) {
            copy = panels;
          } else {
            if (turned) farcall_turn_KIND(k1, n1, b0, b_column, panels);
            else farcall_copy_KIND(k1, n1, b0, b_row, panels);
            b0 = panels;
            b1 = panels + farcall_lanes_KIND;
            row = farcall_wide_KIND;
          }
        }
        KIND* const to = c + i0 * c_row + j;
        farcall_tiles_KIND(rows, n1, k1, from, a_row, a_column, a_group, b0, b1, row, to, c_row,
            old ? old + i0 * old_row + j : 0, old_row,
            first + i0 * first_row, first_row, packed, copy,
            in_panels && n - j > farcall_wide_KIND ? b0 + b_panel : 0);
      }
    }
    /* Behind the tiles, which ask for the rows of A ahead of their use. In their loop, LLVM for Hexagon would
     * overwrite the loop's bound. */
    for (int64_t i0 = 0; i0 < m && narrow; i0 += band)
      farcall_last_columns_KIND(m - i0 < band ? m - i0 : band, narrow, k1,
          a + k0 * a_column + i0 / GROUP * a_group, a_group,
          b + k0 * b_row + n / PANEL * b_panel + n % PANEL, b_row, c + i0 * c_row + n, c_row, k0 != 0,
          start ? start + i0 * start_row + n * start_column : &none, start ? start_row : 0,
          start ? start_column : 0);
  }
}

/* The body of a tile takes long to compile: there are those for packed rows and for contiguous ones, whose
 * strides are constants. Other rows are packed first. */
static __attribute__((noinline)) void farcall_packed_KIND(int64_t m, int64_t n, int64_t k, const KIND* a,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column) {
  farcall_blocks_KIND(m, n, k, a, 1, GROUP, GROUP * k, b, b_row, b_panel, c, c_row, start, start_row,
      start_column, 1);
}
static __attribute__((noinline)) void farcall_plain_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column) {
  farcall_blocks_KIND(m, n, k, a, a_row, 1, GROUP * a_row, b, b_row, b_panel, c, c_row, start, start_row,
      start_column, 0);
}
/* Packs rows; what is contiguous is read in order. */
static void farcall_groups_KIND(int64_t rows, int64_t k, const KIND* a, int64_t a_row, int64_t a_column,
    KIND* groups) {
  for (int64_t r = 0; a_column == 1 && r < (rows + GROUP - 1) / GROUP * GROUP; ++r) {
    KIND* const to = groups + r / GROUP * GROUP * k + r % GROUP;
    for (int64_t i = 0; i < k; ++i) to[i * GROUP] = r < rows ? a[r * a_row + i] : 0;
  }
  for (int64_t i = 0; a_column != 1 && i < k; ++i, a += a_column) {
    KIND* to = groups + i * GROUP;
    int64_t r = 0;
    for (; a_row == 1 && r + GROUP <= rows; r += GROUP, to += k * GROUP)
      memcpy(to, a + r, GROUP * sizeof *to);
    for (; r < rows; r += GROUP, to += k * GROUP)
      for (int64_t t = 0; t < GROUP; ++t) to[t] = r + t < rows ? a[(r + t) * a_row] : 0;
  }
}
static __attribute__((noinline)) void farcall_strided_KIND(int64_t m, int64_t n, int64_t k, int64_t most,
    const KIND* a, int64_t a_row, int64_t a_column, const KIND* b, int64_t b_row, int64_t b_panel,
    KIND* c, int64_t c_row, const KIND* start, int64_t start_row, int64_t start_column, KIND* room) {
  KIND own[4 * GROUP * LESS_DEPTH + SLACK], *const groups = room ? room : own;
  /* B is copied once for `most` rows. */
  const int64_t depth = room ? farcall_depth_KIND : 4 * GROUP * LESS_DEPTH / most;
  for (int64_t i0 = 0; i0 < m; i0 += most, a += most * a_row, c += most * c_row) {
    const int64_t rows = m - i0 < most ? m - i0 : most;
    for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += depth) {
      const int64_t k1 = k - k0 < depth ? k - k0 : depth;
      farcall_groups_KIND(rows, k1, a + k0 * a_column, a_row, a_column, groups);
      if (k0 == 0)
        farcall_packed_KIND(rows, n, k1, groups, b, b_row, b_panel, c, c_row,
            start ? start + i0 * start_row : 0, start_row, start_column);
      else
        farcall_packed_KIND(rows, n, k1, groups, b + k0 * b_row, b_row, b_panel, c, c_row, c, c_row, 1);
    }
  }
}

/* Rows `i` to `i_end` and columns `j` to `j_end` of a product: a whole number of groups and panels, or up to
 * the end. Rows that are packed first have `room`, or, if that is 0, some on the stack, which is small. */
HIDDEN void farcall_gemm_part_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t i, int64_t i_end, int64_t j,
    int64_t j_end, KIND* room) {
  const int turned = b_row == 1 && b_panel != PANEL, in_panels = !turned && b_panel != PANEL;
  const int pays = m >= BAND && n >= BAND && (!turned || room);
  const int crowded = pays && a_row * (int64_t)sizeof(KIND) % PAGE == 0;
  const int64_t most = m < BAND || in_panels ? 4 * GROUP : room ? BANDS * BAND : BAND;
  m = i_end - i;
  n = j_end - j;
  a += i / GROUP * a_group;
  b += j / PANEL * b_panel;
  c += i * c_row + j;
  if (start) start += i * start_row + j * start_column;
  if (a_row == 1 && a_column == GROUP && a_group == GROUP * k && k > 1) {
    farcall_packed_KIND(m, n, k, a, b, b_row, b_panel, c, c_row, start, start_row, start_column);
  } else if (a_column == 1 && m >= GROUP && !crowded) {
    farcall_plain_KIND(m, n, k, a, a_row, b, b_row, b_panel, c, c_row, start, start_row, start_column);
  } else {
    farcall_strided_KIND(m, n, k, most, a, a_row, a_column, b, b_row, b_panel, c, c_row, start, start_row,
        start_column, room);
  }
}
"""

_CALLS = """\
/* Rows `i` to `i_end` and columns `j` to `j_end` of a product: a whole number of groups and panels, or up to
 * the end. */
HIDDEN void farcall_gemm_part_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t i, int64_t i_end, int64_t j,
    int64_t j_end, KIND* room);

/* How many parts a product has that threads can compute: blocks of columns, or of rows if these are more.
 * Where the borders are changes no result: each element is the same sum in the same order, and few rows stay
 * few rows. */
static inline int64_t farcall_part_columns_KIND(int64_t n) {
  return n >= MANY_PARTS * COLUMNS ? COLUMNS : COLUMNS / 2;
}
static inline int64_t farcall_part_rows_KIND(int64_t m) { return m >= MANY_PARTS * ROWS ? ROWS : ROWS / 2; }
static inline int64_t farcall_column_parts_KIND(int64_t n) {
  const int64_t each = farcall_part_columns_KIND(n);
  return n / each + (n % each != 0);
}
static inline int64_t farcall_row_parts_KIND(int64_t m) {
  const int64_t each = farcall_part_rows_KIND(m);
  return m <= FEW ? 0 : m / each + (m % each != 0);
}
static inline int64_t farcall_parts_KIND(int64_t m, int64_t n) {
  const int64_t columns = farcall_column_parts_KIND(n), rows = farcall_row_parts_KIND(m);
  return m == 0 || n == 0 ? 0 : columns >= rows ? columns : rows;
}
/* What a part costs; with few rows of A, reading B takes the time. */
static inline double farcall_part_cost_KIND(int64_t m, int64_t n, int64_t k) {
  const double all = (double)m * (double)n * (double)k * (m <= FEW ? 2 : 1);
  return all > 0 ? all / (double)farcall_parts_KIND(m, n) : 0;
}

/* The rows and columns of the parts from `first` to `last`, exclusive. */
static inline void farcall_gemm_range_KIND(int64_t m, int64_t n, int64_t first, int64_t last,
    struct farcall_range* range) {
  *range = (struct farcall_range){0, m, 0, n};
  const int64_t columns = farcall_part_columns_KIND(n), rows = farcall_part_rows_KIND(m);
  if (farcall_column_parts_KIND(n) >= farcall_row_parts_KIND(m))
    range->column = first * columns, range->column_end = last * columns < n ? last * columns : n;
  else
    range->row = first * rows, range->row_end = last * rows < m ? last * rows : m;
}

/* The parts from `first` to `last`, exclusive. */
static inline void farcall_gemm_parts_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t first, int64_t last, KIND* room) {
  struct farcall_range at;
  farcall_gemm_range_KIND(m, n, first, last, &at);
  farcall_gemm_part_KIND(m, n, k, a, a_row, a_column, a_group, b, b_row, b_panel, c, c_row, start, start_row,
      start_column, at.row, at.row_end, at.column, at.column_end, room);
}

static inline void farcall_gemm_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, KIND* room) {
  farcall_gemm_part_KIND(m, n, k, a, a_row, a_column, a_group, b, b_row, b_panel, c, c_row, start, start_row,
      start_column, 0, m, 0, n, room);
}
"""
