"""C source of the tiles of the blocked matrix product: parts of C that stay in registers during a block of K.

See ``_gemm_text``, whose types and numbers they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

GROUP = 6  # rows of A
NARROW = 4  # columns at the end that rows of A are the vectors for
PAIRED = 9  # the same, where a vector of 64 bytes holds the rows of two groups
_SHORT = 4  # rows of a tile of the last rows; with AVX-512, such a tile may have twice as many
_AHEAD = 16  # rows of B that are asked for before they are used, while a panel is copied
_UNROLLED = 4  # steps of K in the assembly of a tile
_EACH_ROW = 16  # steps of K, at the end, for each row of C that is prefetched
_PAIRED_ITEM = 4  # bytes of an element, of which 8 rows of two groups fill 64 bytes
_PLAIN_LEAST = 96  # of rows of A that are not packed: so many pay for the sums' way through memory


def tiles_source(kind: str, itemsize: int) -> str:
    """C source of ``farcall_tiles_KIND``, and of tiles for the last columns."""
    small, large = (
        "".join(_tile(rows, vectors) for rows in heights for vectors in (1, 2))
        + _tile(heights[-1], 2, copies=True)
        for heights in ((_SHORT, GROUP), (2 * _SHORT, 2 * GROUP))
    )
    assembly = _assembly_tiles(kind, itemsize)
    return (
        f"{small}{assembly}#if defined(__AVX512F__)\n{large}#endif\n{RIM}{_tiles()}"
        f"{_narrow(1, 4)}{_narrow(NARROW, 1)}{_paired() if itemsize == _PAIRED_ITEM else ''}"
    )


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
    if copies:  # a row that is not aligned ends in a line of its own
        copy += f" __builtin_prefetch(b{vectors - 1} + {_AHEAD} * b_row + farcall_lanes_KIND - 1);"
    loop, end = _prefetching_loop(rows, vectors) if rows > GROUP else ("for (int64_t i = 0; i < k; ++i,", "")
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
  {loop} a += a_column, a2 += a_column, b0 += b_row, b1 += b_row) {{
    {loads}{copy}
    {"__builtin_prefetch(a + ahead); __builtin_prefetch(a2 + ahead);" if rows > GROUP else ""}
{steps}
  }}{end}
  if (old) {{
{added}
  }} else {{
{plain}
  }}
}}
"""


def _prefetching_loop(rows: int, vectors: int) -> tuple[str, str]:
    """The head of a tile's loop along K, up to its last moves, and its end; it prefetches the rows of C.

    A plane's rows are on pages of their own, so that the processor does not see which lines are next. Their
    prefetch before the loop would delay the lines that the loop reads, which evict them from the L1 cache.
    """
    lines = [f"line + {v} * farcall_lanes_KIND" for v in range(vectors)]
    prefetch = " ".join(f"__builtin_prefetch({line}, 1);" for line in lines)
    head = f"""for (int64_t i = 0, left = (k + {_EACH_ROW - 1}) / {_EACH_ROW}; i < k; --left) {{
    if (left <= {rows}) {{ const KIND* const line = c + (left - 1) * c_row; {prefetch} }}
    const int64_t stop = k - i < {_EACH_ROW} ? k : i + {_EACH_ROW};
    for (; i < stop; ++i,"""
    return head, "\n  }"


def _assembly_tiles(kind: str, itemsize: int) -> str:
    """Tiles of six rows by two vectors of 32 bytes of floats for x86 with FMA, called as that in C is.

    Compilers need a fifth more instructions. This counts where another thread has the same core, and takes
    half of the instructions that the core can begin.
    """
    if kind not in ("float", "double"):
        return ""
    places = [(row, v) for row in range(GROUP) for v in (0, 1)]
    start = "start[{} * start_row] - (farcall_v_KIND){{0}}"
    # The vectors of a row that is not aligned are on two lines of the cache.
    prefetch = "\n".join(
        f"  __builtin_prefetch(c + {row} * c_row, 1); __builtin_prefetch(c + {row} * c_row + {_LAST}, 1);"
        for row in range(GROUP)
    )
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
{prefetch}
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
{prefetch}
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


_LAST = "farcall_wide_KIND - 1"  # place of the last column of a tile
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


def _paired() -> str:
    """The same with one vector for both groups, and so for more columns."""
    load = "*(const farcall_rows_at_KIND*)(a{} + {} * GROUP)"
    order = ", ".join(map(str, range(16)))

    def step(u: int) -> str:
        pair = f"{load.format(0, u)}, {load.format(1, u)}"
        sums = " ".join(f"r{u}{v} += b[{u * PAIRED + v}] * x;" for v in range(PAIRED))
        return f"    {{ const farcall_v_KIND x = __builtin_shufflevector({pair}, {order}); {sums} }}"

    sums = ", ".join(f"r{u}{v} = {{0}}" for u in (0, 1) for v in range(PAIRED))
    totals = "\n".join(f"  *(farcall_u_KIND*)(made + {16 * v}) = r0{v} + r1{v};" for v in range(PAIRED))
    return f"""#if defined(__AVX512F__) && defined(FARCALL_SHUFFLES)
#define FARCALL_PAIRED_KIND PAIRED
static inline void farcall_narrowPAIRED_KIND(int64_t k, const KIND* a0, const KIND* a1, const KIND* b,
    KIND* made) {{
  farcall_v_KIND {sums};
  int64_t i = 0;
  for (; i + 2 <= k; i += 2, a0 += 2 * GROUP, a1 += 2 * GROUP, b += 2 * PAIRED) {{
{step(0)}
{step(1)}
  }}
  if (i < k)
{step(0)}
{totals}
}}
#endif
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
      else if (high > GROUP) farcall_tile8x{vectors}_KIND({arguments.format("a_group")});
      else
#endif
      if (high < GROUP) farcall_tile4x{vectors}_KIND({arguments.format("0")});
      else farcall_tile6x{vectors}_KIND({arguments.format("0")});"""
        for vectors in (1, 2)
    )
    end = "to, to_row, whole ? old : 0, old_row, kept ? first : start, kept ? 1 : start_row"
    wide = f"""#ifdef FARCALL_ASSEMBLY_TILES_KIND
      if (packed && high == GROUP)
        farcall_packed_tile_KIND(k, from, b0, b_row, {end});
      else if (!packed && high == GROUP && k >= {_PLAIN_LEAST})
        farcall_plain_tile_KIND(k, from, a_row, b0, b_row, {end});
      else
#endif
{wide}"""
    wide_copy, copy = (f"{arguments.format(group)}, copy" for group in ("a_group", "0"))
    return f"""\
/* Whether a tile of eight rows computes fewer rows twice than those of twelve and six, which end with the
 * last row: eight rows behind others may begin with one of those. */
static inline int farcall_eight_rows_KIND(int64_t rows, int before) {{
  return farcall_high_KIND > GROUP && (rows == 8 || (before && rows == 7) || (rows > 12 && rows <= 16));
}}
/* The same of a tile of four. */
static inline int farcall_four_rows_KIND(int64_t rows, int before) {{
  return (before && rows <= 4) || (farcall_high_KIND == GROUP && (rows == 7 || rows == 8));
}}

/* Tiles that are not C's alone go to a rim. Packed rows end with the lowest tile that holds them;
 * other ones end with the last rows, of which the first ones may have been written before. Each tile asks for
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
  int before = 0;
  for (int64_t high; rows > 0; rows -= high, c += high * c_row, start += high * start_row, before = 1) {{
    high = rows > (packed ? GROUP : farcall_high_KIND - 1) ? farcall_high_KIND : GROUP;
    if (packed && rows <= {_SHORT}) high = {_SHORT};
    else if (packed && high > GROUP && rows <= {2 * _SHORT}) high = {2 * _SHORT};
    else if (!packed && !copy && farcall_eight_rows_KIND(rows, before)) high = {2 * _SHORT};
    else if (!packed && !copy && farcall_four_rows_KIND(rows, before)) high = {_SHORT};
    const int64_t back = packed || rows >= high ? 0 : high - rows;
    for (int64_t t = 0; t < share; ++t, next += PANEL) __builtin_prefetch(next);
    const KIND* const from = a - back * a_row;
    const int whole = full && rows >= high;
    a += packed ? high / GROUP * a_group : high * a_row;
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
