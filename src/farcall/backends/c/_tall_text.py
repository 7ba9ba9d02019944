"""C source of products of many short rows by a few columns, of which a row of the result is a vector or two.

The matrix is copied with its rows padded to 16, 32, 64 or 128 bytes: the fewer columns, the shorter.
"""

from __future__ import annotations

from functools import cache

from farcall.backends._kernels import Kernels
from farcall.backends.c._gemm_text import COMPILE_FLAGS, INCLUDES, PANEL_BYTES, VECTORS, with_numbers

LONGEST = 64  # steps of K: the copy has 4 KB, or 8 KB
_ROWS = 8  # of A in a tile, of one vector
_WIDTHS = (16, 32, PANEL_BYTES, 2 * PANEL_BYTES)  # bytes of a padded row


@cache
def tall_kernels(kind: str, itemsize: int) -> Kernels:
    """The file with ``farcall_tall_KIND``."""
    tiles = "".join(
        f"#{word} FARCALL_VECTOR == {vector}\n" + "".join(_tile(width, vector) for width in _WIDTHS)
        for word, vector in (("if", 64), ("elif", 32), ("elif", 16))
    )
    text = f"{INCLUDES}{VECTORS}{_TYPES}{tiles}#endif\n{_driver(itemsize)}"
    text = with_numbers(text, kind, itemsize)
    return Kernels(f"farcall_tall_{kind}", text, (f"farcall_tall_{kind}",), COMPILE_FLAGS, vectors=True)


_TYPES = "".join(
    f"typedef KIND farcall_t{width}_KIND __attribute__((vector_size({width})));\n"
    f"typedef KIND farcall_t{width}_at_KIND __attribute__((vector_size({width}), aligned(1), may_alias));\n"
    for width in _WIDTHS
)


def _tile(width: int, vector: int) -> str:
    """Rows of A times padded rows of so many bytes, in registers of ``vector`` bytes."""
    unit = min(width, vector)
    count = width // unit
    rows, columns = range(max(_ROWS // count, 1)), range(count)
    sums = ", ".join(f"r{r}_{v} = {{0}}" for r in rows for v in columns)
    loads = " ".join(
        f"const farcall_t{unit}_KIND y{v} = *(const farcall_t{unit}_at_KIND*)((const char*)b + {unit * v});"
        for v in columns
    )
    steps = "\n".join(
        f"    {{ const KIND x = a[{r} * a_row + t]; "
        + " ".join(f"r{r}_{v} += x * y{v};" for v in columns)
        + " }"
        for r in rows
    )
    stores = "\n".join(
        f"  *(farcall_t{unit}_at_KIND*)((char*)(c + {r} * c_row) + {unit * v}) = r{r}_{v} + s{v};"
        for r in rows
        for v in columns
    )
    kind = f"farcall_t{unit}"
    starts = " ".join(
        f"const {kind}_KIND s{v} = *(const {kind}_at_KIND*)((const char*)start + {unit * v});"
        for v in columns
    )
    return f"""enum {{ farcall_tall{width}_rows_KIND = {len(rows)} }};
static void farcall_tall{width}_KIND(int64_t k, const KIND* a, int64_t a_row, const KIND* b, KIND* c,
    int64_t c_row, const KIND* start) {{
  farcall_t{unit}_KIND {sums};
  for (int64_t t = 0; t < k; ++t, b = (const KIND*)((const char*)b + {width})) {{
    {loads}
{steps}
  }}
  {starts}
{stores}
}}
"""


def _by_width(itemsize: int, form: str) -> str:
    """A C expression of ``n``, with a form for the narrowest padded row that holds so many columns."""
    forms = [form.format(width=width, lanes=width // itemsize) for width in _WIDTHS]
    tests = [f"n <= {width // itemsize} ? " for width in _WIDTHS[:-1]]
    return " : ".join(map("".join, zip([*tests, ""], forms, strict=True)))


def _driver(itemsize: int) -> str:
    ways = "\n    else ".join(
        f"if (lanes == {width // itemsize}) farcall_tall{width}_KIND(k, from, a_row, panel, to, step, first);"
        for width in _WIDTHS
    )
    lanes, high = _by_width(itemsize, "{lanes}"), _by_width(itemsize, "farcall_tall{width}_rows_KIND")
    return f"""/* Lanes behind the last column are the next row's, which is written later. Where there is
 * no such row, or each row has a start of its own, results go to `some` first. */
HIDDEN void farcall_tall_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row, const KIND* b,
    int64_t b_row, int64_t b_column, KIND* c, int64_t c_row, const KIND* start, int64_t start_row,
    int64_t start_column) {{
  const int64_t lanes = {lanes};
  const int64_t high = {high};
  KIND panel[{2 * LONGEST} * PANEL], some[{_ROWS} * PANEL], last[{_ROWS} * {LONGEST}];
  KIND first[2 * PANEL] = {{0}};
  const int plain = c_row == n && (!start || (start != c && !start_row));
  for (int64_t t = 0; t < k; ++t)
    for (int64_t j = 0; j < lanes; ++j) panel[t * lanes + j] = j < n ? b[t * b_row + j * b_column] : 0;
  for (int64_t j = 0; j < n && start && plain; ++j) first[j] = start[j * start_column];
  for (int64_t i = 0; i < m; i += high) {{
    const int64_t rows = m - i < high ? m - i : high;
    const KIND* from = a + i * a_row;
    if (rows < high) {{
      for (int64_t r = 0; r < high; ++r)
        memcpy(last + r * k, from + (r < rows ? r : 0) * a_row, (size_t)k * sizeof *a);
      from = last, a_row = k;
    }}
    const int direct = plain && (m - i - high) * n >= lanes - n;
    KIND* const to = direct ? c + i * c_row : some;
    const int64_t step = direct ? c_row : lanes;
    {ways}
    for (int64_t r = 0; !direct && r < rows; ++r)
      for (int64_t j = 0; j < n; ++j) {{
        KIND* const target = c + (i + r) * c_row + j;
        *target = some[r * lanes + j] + (start && !plain ? start[(i + r) * start_row + j * start_column] : 0);
      }}
  }}
}}
"""
