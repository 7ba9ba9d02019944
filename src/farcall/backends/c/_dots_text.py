"""C source of products of which an element is a sum of vectors along K: of few rows, or of few columns.

Both operands are contiguous along K, or the one of which there is little is copied to be so.
"""

from __future__ import annotations

from functools import cache

from farcall.backends._kernels import Kernels
from farcall.backends.c._gemm_text import COMPILE_FLAGS, INCLUDES, VECTORS, with_numbers

_TALL = {1: 8, 2: 8, 4: 4}  # columns of a tile, and its rows, with 32 registers
_LESS_TALL = {1: 8, 2: 4}  # with 16
_COPY = 4096  # elements of columns that are copied to be contiguous: 16 KB of float
_SHORT = 32  # steps of K that are summed in vectors of 16 bytes
_MOST = 3  # columns of such a tile
LONE = 2  # columns for which nothing else is faster
END = 60  # what the end of a tile costs, in steps of K


def dots_pay(n: int, k: int) -> bool:
    """Whether this is faster than the tiles of the blocked product, for ``n`` columns."""
    return n <= LONE or -(-n // 4) * (k + END) < 4 * k


@cache
def dots_kernels(kind: str, itemsize: int) -> Kernels:
    """The file with ``farcall_dots_KIND``."""
    few = 16 // itemsize
    wide, less = (
        "".join(_dots(rows, columns, few) for columns, rows in tiles.items()) for tiles in (_TALL, _LESS_TALL)
    )
    tiles = f"{_dots(1, 1, few)}#if FARCALL_VECTOR == 64\n{wide}#else\n{less}#endif\n"
    short = "".join(_short(columns, few) for columns in range(1, _MOST + 1))
    text = "".join([INCLUDES, VECTORS, _fold(itemsize), _across(few), _REST, tiles, short, _driver()])
    for name, value in {
        "COPY": _COPY,
        "SHORT": _SHORT,
        "MOST": _MOST,
        "BITS": f"int{8 * itemsize}_t",
    }.items():
        text = text.replace(f"@{name}", str(value))
    text = with_numbers(text, kind, itemsize)
    return Kernels(f"farcall_dots_{kind}", text, (f"farcall_dots_{kind}",), COMPILE_FLAGS, vectors=True)


def _fold(itemsize: int) -> str:
    """The sums of a vector's parts of 16 bytes. Through memory, where the compiler has no name for parts."""
    few = 16 // itemsize

    def part(name: str, first: int, count: int) -> str:
        return f"__builtin_shufflevector({name}, {name}, {', '.join(map(str, range(first, first + count)))})"

    def halves(count: int, name: str) -> list[str]:
        if count == few:
            return [f"  return {name};"]
        half = count // 2
        kind = f"KIND y{half} __attribute__((vector_size({half * itemsize})))"
        line = f"  const {kind} = {part(name, 0, half)} + {part(name, half, half)};"
        return [line, *halves(half, f"y{half}")]

    bodies = "".join(
        f"#{word} FARCALL_VECTOR == {size}\n" + "\n".join(halves(size // itemsize, "x")) + "\n"
        for word, size in (("if", 64), ("elif", 32), ("elif", 16))
    )
    total = "(x[0] + x[2]) + (x[1] + x[3])" if few == 4 else "x[0] + x[1]"
    return f"""static inline farcall_short_KIND farcall_fold_KIND(farcall_v_KIND x) {{
#ifdef FARCALL_SHUFFLES
{bodies}#endif
#else
  farcall_short_KIND parts[FARCALL_VECTOR / 16], sum = {{0}};
  memcpy(parts, &x, sizeof x);
  for (int i = 0; i < FARCALL_VECTOR / 16; ++i) sum += parts[i];
  return sum;
#endif
}}
static inline KIND farcall_lanes_sum_KIND(farcall_short_KIND x) {{ return {total}; }}
"""


def _across(few: int) -> str:
    """As many sums of vectors of 16 bytes as one has elements, each in the order of ``farcall_lanes_sum``."""
    names = "abcd"[:few]

    if few == 2:
        body = "  return __builtin_shufflevector(a, b, 0, 2) + __builtin_shufflevector(a, b, 1, 3);"
    else:
        body = "\n".join(
            [
                *(
                    f"  const farcall_short_KIND {name} = __builtin_shufflevector({one}, {other}, 0, 4, 1, 5)"
                    f" + __builtin_shufflevector({one}, {other}, 2, 6, 3, 7);"
                    for name, one, other in (("x", "a", "b"), ("y", "c", "d"))
                ),
                "  return __builtin_shufflevector(x, y, 0, 1, 4, 5)"
                " + __builtin_shufflevector(x, y, 2, 3, 6, 7);",
            ]
        )
    given = ", ".join(f"farcall_short_KIND {name}" for name in names)
    sums = ", ".join(f"farcall_lanes_sum_KIND({name})" for name in names)
    return f"""static inline farcall_short_KIND farcall_across_KIND({given}) {{
#ifdef FARCALL_SHUFFLES
{body}
#else
  return (farcall_short_KIND){{{sums}}};
#endif
}}
"""


_REST = """\
typedef @BITS farcall_bits_KIND __attribute__((vector_size(16)));
/* The first elements of a vector of 16 bytes, fewer than it has; zeros follow. `is_inside`: all of it may be
 * read. */
static inline farcall_short_KIND farcall_some_KIND(const KIND* x, int64_t count, farcall_bits_KIND mask,
    int is_inside) {
  farcall_short_KIND some = {0};
  if (is_inside) return (farcall_short_KIND)((farcall_bits_KIND)*(const farcall_short_at_KIND*)x & mask);
  for (int64_t t = 0; t < count; ++t) some[t] = x[t];
  return some;
}
static inline farcall_bits_KIND farcall_mask_KIND(int64_t count) {
  farcall_bits_KIND mask = {0};
  for (int64_t t = 0; t < count; ++t) mask[t] = -1;
  return mask;
}
/* Adds what is left of K to the sums of a tile. */
static __attribute__((noinline)) void farcall_dot_rest_KIND(int64_t rows, int64_t columns,
    farcall_short_KIND* made, int64_t k, const KIND* p, int64_t p_row, const KIND* q, int64_t q_row) {
  const int64_t few = 16 / sizeof(KIND);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j, ++made) {
      const KIND *x = p + i * p_row, *y = q + j * q_row;
      int64_t t = 0;
      for (; t + few <= k; t += few)
        *made += *(const farcall_short_at_KIND*)(x + t) * *(const farcall_short_at_KIND*)(y + t);
      for (; t < k; ++t) (*made)[0] += x[t] * y[t];
    }
}
"""


def _dots(rows: int, columns: int, few: int) -> str:
    """Rows times columns, both contiguous along K."""
    places = [(r, v) for r in range(rows) for v in range(columns)]
    sums = ", ".join(f"r{r}_{v} = {{0}}" for r, v in places)
    loads = " ".join(
        f"const farcall_v_KIND y{v} = *(const farcall_u_KIND*)(q + {v} * q_row + i);" for v in range(columns)
    )
    steps = "\n".join(
        f"    {{ const farcall_v_KIND x = *(const farcall_u_KIND*)(p + {r} * p_row + i);"
        + "".join(f" r{r}_{v} += x * y{v};" for v in range(columns))
        + " }"
        for r in range(rows)
    )
    totals = ", ".join(f"farcall_fold_KIND(r{r}_{v})" for r, v in places)
    stores = "\n".join(
        f"  c[{r} * c_row + {v} * c_column] = "
        f"start[{r} * start_row + {v} * start_column] + farcall_lanes_sum_KIND(made[{number}]);"
        for number, (r, v) in enumerate(places)
    )
    end = f"""  farcall_short_KIND made[] = {{{totals}}};
  if (i < k) farcall_dot_rest_KIND({rows}, {columns}, made, k - i, p + i, p_row, q + i, q_row);
{stores}
"""
    is_column = columns == 1 and rows > 1
    return f"""static void farcall_dots{rows}x{columns}_KIND(int64_t k, const KIND* p, int64_t p_row,
    const KIND* q, int64_t q_row, KIND* c, int64_t c_row, int64_t c_column, const KIND* start,
    int64_t start_row, int64_t start_column{", int is_inside" if is_column else ""}) {{
  farcall_v_KIND {sums};
  int64_t i = 0;
  for (; i + farcall_lanes_KIND <= k; i += farcall_lanes_KIND) {{
    {loads}
{steps}
  }}
{_column(rows, few) if is_column else end}}}
"""


def _column(rows: int, few: int) -> str:
    """The rest of K of a column, and its sums."""
    each = range(rows)
    sums = ", ".join(f"m{r} = farcall_fold_KIND(r{r}_0)" for r in each)
    steps = "\n".join(f"    m{r} += *(const farcall_short_at_KIND*)(p + {r} * p_row + i) * y;" for r in each)
    rest = "\n".join(
        f"    m{r} += farcall_some_KIND(p + {r} * p_row + i, k - i, mask, is_inside) * y;" for r in each
    )
    groups = range(0, rows, few)
    totals = ", ".join(f"farcall_across_KIND({', '.join(f'm{r + i}' for i in range(few))})" for r in groups)
    stores = " ".join(
        f"*(farcall_short_at_KIND*)(c + {r}) = made[{number}] + *start;" for number, r in enumerate(groups)
    )
    return f"""  farcall_short_KIND {sums};
  (void)q_row, (void)c_column, (void)start_column;
  for (; i + {few} <= k; i += {few}) {{
    const farcall_short_KIND y = *(const farcall_short_at_KIND*)(q + i);
{steps}
  }}
  if (i < k) {{
    const farcall_bits_KIND mask = farcall_mask_KIND(k - i);
    const farcall_short_KIND y = farcall_some_KIND(q + i, k - i, mask, 0);
{rest}
  }}
  const farcall_short_KIND made[] = {{{totals}}};
  if (c_row == 1 && start_row == 0) {{
    {stores}
  }} else
    for (int64_t r = 0; r < {rows}; ++r) c[r * c_row] = start[r * start_row] + made[r / {few}][r % {few}];
"""


def _short(columns: int, few: int) -> str:
    """Few columns of short rows. The rows of a tile that there are not are others once more."""
    rows, each = range(few), range(columns)
    moves = ", ".join(f"o{r} = {r} * p_row" for r in rows[1:])
    fewer = " ".join(f"o{r} = (last < {r} ? last : {r}) * p_row;" for r in rows[1:])
    places = "".join(f", *x{r} = x0 + o{r}" for r in rows[1:])
    sums = ", ".join(f"r{r}_{v} = {{0}}" for r in rows for v in each)
    loads = " ".join(
        f"const farcall_short_KIND y{v} = *(const farcall_short_at_KIND*)(q + {v} * q_row + t);" for v in each
    )
    steps = "\n".join(
        f"      {{ const farcall_short_KIND x = *(const farcall_short_at_KIND*)(x{r} + t);"
        + "".join(f" r{r}_{v} += x * y{v};" for v in each)
        + " }"
        for r in rows
    )
    totals = ", ".join(f"s{v} = farcall_across_KIND({', '.join(f'r{r}_{v}' for r in rows)})" for v in each)
    rest = "\n".join(
        f"      {{ const farcall_short_KIND x = farcall_some_KIND(x{r} + t, k - t, mask, is_inside);"
        + "".join(f" r{r}_{v} += x * z{v};" for v in each)
        + " }"
        for r in rows
    )
    ends = " ".join(
        f"const farcall_short_KIND z{v} = farcall_some_KIND(q + {v} * q_row + whole, k - whole, mask, 0);"
        for v in each
    )
    whole = " ".join(
        f"*(farcall_short_at_KIND*)(c + i + {v} * c_column) = s{v} + start[{v} * start_column];" for v in each
    )
    single = " ".join(
        f"c[(i + r) * c_row + {v} * c_column] = start[(i + r) * start_row + {v} * start_column] + s{v}[r];"
        for v in each
    )
    return f"""static void farcall_short_dots{columns}_KIND(int64_t rows, int64_t k, const KIND* p,
    int64_t p_row, const KIND* q, int64_t q_row, KIND* c, int64_t c_row, int64_t c_column, const KIND* start,
    int64_t start_row, int64_t start_column) {{
  const int64_t whole = k / {few} * {few};
  const farcall_bits_KIND mask = farcall_mask_KIND(k - whole);
  {ends}
  (void)q_row, (void)c_column, (void)start_column;
  int64_t {moves};
  for (int64_t i = 0; i < rows; i += {few}) {{
    const int64_t last = rows - 1 - i;
    if (last < {few - 1}) {{ {fewer} }}
    const KIND *x0 = p + i * p_row{places};
    farcall_short_KIND {sums};
    int64_t t = 0;
    for (; t + {few} <= k; t += {few}) {{
      {loads}
{steps}
    }}
    if (t < k) {{
      const int is_inside = last >= {2 * few - 2};
{rest}
    }}
    const farcall_short_KIND {totals};
    if (last >= {few - 1} && c_row == 1 && start_row == 0) {{
      {whole}
    }}{_pairs(few) if columns == 2 else ""} else
      for (int64_t r = 0; r < {few} && r <= last; ++r) {{
        {single}
      }}
  }}
}}
"""


def _pairs(few: int) -> str:
    """Where two columns are all that there is of C."""
    stores = "\n".join(
        f"      *(farcall_short_at_KIND*)(c + 2 * i + {few * half}) = __builtin_shufflevector(z0, z1, "
        + ", ".join(f"{half * few // 2 + lane}, {few + half * few // 2 + lane}" for lane in range(few // 2))
        + ");"
        for half in (0, 1)
    )
    return f"""
#ifdef FARCALL_SHUFFLES
    else if (last >= {few - 1} && c_row == 2 && c_column == 1 && start_row == 0) {{
      const farcall_short_KIND z0 = s0 + *start, z1 = s1 + start[start_column];
{stores}
    }}
#endif
    """


def _driver() -> str:
    given = "(k1, x, p_row, y, y_row, z, c_row, c_column, s, first_row, first_column)"

    def calls(tiles: dict[int, int]) -> str:
        height = "".join(f"width == {columns} ? {rows} : " for columns, rows in tiles.items())
        ways = "".join(
            f"        else if (width == {columns}) farcall_dots{rows}x{columns}_KIND{given};\n".replace(
                "first_column)", "first_column, is_inside)" if columns == 1 else "first_column)"
            )
            for columns, rows in tiles.items()
        )
        return f"""        high = {height}1;
        const int is_inside = rows - i >= high + 16 / (int64_t)sizeof(KIND) - 1;
        if (rows - i < high) high = 1;
        if (high == 1)
          for (int64_t v = 0; v < width; ++v)
            farcall_dots1x1_KIND(k1, x, p_row, y + v * y_row, y_row, z + v * c_column, c_row, c_column,
                s + v * first_column, first_row, first_column);
{ways}"""

    return f"""/* Columns that are not contiguous are copied, as many of K at once as stay in the L1 cache. */
HIDDEN void farcall_dots_KIND(int64_t rows, int64_t columns, int64_t k, const KIND* p, int64_t p_row,
    const KIND* q, int64_t q_row, int64_t q_step, KIND* c, int64_t c_row, int64_t c_column,
    const KIND* start, int64_t start_row, int64_t start_column) {{
  KIND copy[@COPY];
  const KIND none = 0;
  if (!start) start = &none, start_row = start_column = 0;
  for (int64_t j = 0, width; j < columns; j += width) {{
    width = columns - j >= 4 && FARCALL_VECTOR == 64 ? 4 : columns - j >= 2 ? 2 : 1;
    if (k <= @SHORT) width = columns - j < @MOST ? columns - j : @MOST;
    const int64_t block = @COPY / width;
    const KIND* first = start + j * start_column;
    int64_t first_row = start_row, first_column = start_column;
    for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += block) {{
      const int64_t k1 = k - k0 < block ? k - k0 : block;
      const KIND* y = q + j * q_row + k0 * q_step;
      int64_t y_row = q_row;
      if (q_step != 1) {{
        for (int64_t t = 0; t < k1; ++t)
          for (int64_t v = 0; v < width; ++v) copy[v * block + t] = y[v * q_row + t * q_step];
        y = copy, y_row = block;
      }}
      KIND* const to = c + j * c_column;
      if (k <= @SHORT)
        (width == 3 ? farcall_short_dots3_KIND : width == 2 ? farcall_short_dots2_KIND
            : farcall_short_dots1_KIND)(rows, k, p, p_row, y, y_row, to, c_row, c_column, first, first_row,
            first_column);
      for (int64_t i = k <= @SHORT ? rows : 0, high; i < rows; i += high) {{
        const KIND* const x = p + i * p_row + k0;
        KIND* const z = to + i * c_row;
        const KIND* const s = first + i * first_row;
#if FARCALL_VECTOR == 64
{calls(_TALL)}#else
{calls(_LESS_TALL)}#endif
      }}
      first = to, first_row = c_row, first_column = c_column;
    }}
  }}
}}
"""
