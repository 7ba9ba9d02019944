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
END = 60  # what the end of a tile costs, in steps of K


def dots_pay(n: int, k: int) -> bool:
    """Whether this is faster than the tiles of the blocked product, for ``n`` columns."""
    return -(-n // 4) * (k + END) < 4 * k


@cache
def dots_kernels(kind: str, itemsize: int) -> Kernels:
    """The file with ``farcall_dots_KIND``."""
    wide, less = (
        "".join(_dots(rows, columns) for columns, rows in tiles.items()) for tiles in (_TALL, _LESS_TALL)
    )
    tiles = f"{_dots(1, 1)}#if FARCALL_VECTOR == 64\n{wide}#else\n{less}#endif\n"
    text = "".join([INCLUDES, VECTORS, _fold(itemsize), _REST, tiles, _driver()])
    text = with_numbers(text.replace("@COPY", str(_COPY)), kind, itemsize)
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
    total = " + ".join(f"x[{lane}]" for lane in range(few))
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


_REST = """\
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


def _dots(rows: int, columns: int) -> str:
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
    return f"""static void farcall_dots{rows}x{columns}_KIND(int64_t k, const KIND* p, int64_t p_row,
    const KIND* q, int64_t q_row, KIND* c, int64_t c_row, int64_t c_column, const KIND* start,
    int64_t start_row, int64_t start_column) {{
  farcall_v_KIND {sums};
  int64_t i = 0;
  for (; i + farcall_lanes_KIND <= k; i += farcall_lanes_KIND) {{
    {loads}
{steps}
  }}
  farcall_short_KIND made[] = {{{totals}}};
  if (i < k) farcall_dot_rest_KIND({rows}, {columns}, made, k - i, p + i, p_row, q + i, q_row);
{stores}
}}
"""


def _driver() -> str:
    given = "(k1, x, p_row, y, y_row, z, c_row, c_column, s, first_row, first_column)"

    def calls(tiles: dict[int, int]) -> str:
        height = "".join(f"width == {columns} ? {rows} : " for columns, rows in tiles.items())
        ways = "".join(
            f"        else if (width == {columns}) farcall_dots{rows}x{columns}_KIND{given};\n"
            for columns, rows in tiles.items()
        )
        return f"""        high = {height}1;
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
      for (int64_t i = 0, high; i < rows; i += high) {{
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
