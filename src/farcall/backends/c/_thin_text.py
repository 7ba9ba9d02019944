"""C source that calls the blocked matrix product, or, for few rows or columns, what is faster there.

Such a product has no time to re-order an operand, and its tiles would be mostly empty: it reads the larger
operand once, as it is. What it needs depends on the layout of B.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from farcall.backends._kernels import Kernels
from farcall.backends.c._dots_text import END, LONE, dots_kernels
from farcall.backends.c._gemm_text import with_numbers
from farcall.backends.c._panels_text import panels_kernels
from farcall.backends.c._sums_text import STREAMS, sums_kernels
from farcall.backends.c._tall_text import LONGEST, tall_kernels

FLAT = 8  # steps of K that are too few for tiles, if rows are long
_FLATTER = 2  # likewise, of any rows
_MANY = 16  # rows of A that make copies of columns pay


class Layout(Enum):
    """Of B: contiguous rows, contiguous columns, or packed panels."""

    PLAIN = "plain"
    TURNED = "turned"
    PANELS = "panels"


def thin_kernels(kind: str, itemsize: int, layout: Layout) -> Sequence[Kernels]:
    """The files that the functions of :func:`thin_calls` need beside the blocked product."""
    if layout is Layout.PANELS:
        return [panels_kernels(kind, itemsize)]
    sums = [sums_kernels(kind, itemsize)] if layout is Layout.PLAIN else []
    return [dots_kernels(kind, itemsize), tall_kernels(kind, itemsize), *sums]


def thin_calls(kind: str, itemsize: int, layout: Layout) -> str:
    """C source of ``farcall_LAYOUT_KIND`` and of those for parts, which choose how a product is computed."""
    text = _WAYS[layout] + _CALLS
    for name, value in {
        "LAYOUT": layout.value,
        "END": END,
        "LONE": LONE,
        "MANY": _MANY,
        "FLATTER": _FLATTER,
        "FLAT": FLAT,
        "LONGEST": LONGEST,
        "STREAMS": STREAMS,
    }.items():
        text = text.replace(f"@{name}", str(value))
    return with_numbers(text, kind, itemsize)


_DOTS = """\
HIDDEN void farcall_dots_KIND(int64_t rows, int64_t columns, int64_t k, const KIND* p, int64_t p_row,
    const KIND* q, int64_t q_row, int64_t q_step, KIND* c, int64_t c_row, int64_t c_column,
    const KIND* start, int64_t start_row, int64_t start_column);
HIDDEN void farcall_tall_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row, const KIND* b,
    int64_t b_row, int64_t b_column, KIND* c, int64_t c_row, const KIND* start, int64_t start_row,
    int64_t start_column);
/* Some columns of short rows; for up to four columns, longer rows are better read by vectors. The wider copy
 * needs more rows that read it. */
static inline int farcall_@LAYOUT_tall_pays_KIND(int64_t m, int64_t n, int64_t k) {
  if (n > PANEL && m < 4 * k) return 0;
  return m >= @MANY && n > @LONE && n < 2 * PANEL && n != PANEL && k <= (n <= 4 ? @LONGEST / 2 : @LONGEST);
}
static inline int farcall_@LAYOUT_dots_pay_KIND(int64_t n, int64_t k) {
  return n <= @LONE || (n + 3) / 4 * (k + @END) < 4 * k;
}
"""

_WAY = """\
/* How a product is computed; 0: in blocks. */
static inline int farcall_@LAYOUT_way_KIND(int64_t m, int64_t n, int64_t k, int64_t a_row,
    int64_t a_column, int64_t a_group) {
  const int few = m <= FEW, is_plain = a_group == GROUP * a_row;
"""

_THIN = """\
static inline void farcall_@LAYOUT_thin_KIND(int way, int64_t m, int64_t n, int64_t k, const KIND* a,
    int64_t a_row, int64_t a_column, const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column) {
"""

_SUMS_HEAD = """(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row, int64_t a_column,
    const KIND* b, int64_t b_row, KIND* c, int64_t c_row, const KIND* start, int64_t start_row,
    int64_t start_column);
"""

_WAYS = {
    Layout.PLAIN: f"""{_DOTS}\
HIDDEN void farcall_few_rows_KIND{_SUMS_HEAD}\
HIDDEN void farcall_few_columns_KIND{_SUMS_HEAD}\
HIDDEN void farcall_flat_KIND{_SUMS_HEAD}\
{_WAY}\
  if (is_plain && a_column == 1 && farcall_@LAYOUT_tall_pays_KIND(m, n, k)) return 5;
  if (is_plain && n < PANEL) {{
    if (a_column == 1 && (few || m >= @MANY) && farcall_@LAYOUT_dots_pay_KIND(n, k)) return 1;
    if (a_row == 1 && !few) return 2;
  }}
  const int is_flat = k <= @FLATTER || (k <= @FLAT && n >= 4 * PANEL);
  return few && k >= @STREAMS ? 3 : few || (is_flat && is_plain) ? 4 : 0;
}}
{_THIN}\
  (void)b_panel;
  if (way == 1)
    farcall_dots_KIND(m, n, k, a, a_row, b, 1, b_row, c, c_row, 1, start, start_row, start_column);
  else if (way == 5)
    farcall_tall_KIND(m, n, k, a, a_row, b, b_row, 1, c, c_row, start, start_row, start_column);
  else
    (way == 2 ? farcall_few_columns_KIND : way == 3 ? farcall_few_rows_KIND : farcall_flat_KIND)(
        m, n, k, a, a_row, a_column, b, b_row, c, c_row, start, start_row, start_column);
}}
""",
    Layout.TURNED: f"""{_DOTS}{_WAY}\
  if (is_plain && a_column == 1 && farcall_@LAYOUT_tall_pays_KIND(m, n, k)) return 5;
  if (few || (is_plain && farcall_@LAYOUT_dots_pay_KIND(m, k))) return 2;
  return is_plain && a_column == 1 && n < PANEL && farcall_@LAYOUT_dots_pay_KIND(n, k);
}}
{_THIN}\
  const int64_t b_column = b_panel / PANEL;
  (void)b_row;
  if (way == 1)
    farcall_dots_KIND(m, n, k, a, a_row, b, b_column, 1, c, c_row, 1, start, start_row, start_column);
  else if (way == 5)
    farcall_tall_KIND(m, n, k, a, a_row, b, 1, b_column, c, c_row, start, start_row, start_column);
  else
    farcall_dots_KIND(n, m, k, b, b_column, a, a_row, a_column, c, 1, c_row, start, start_column, start_row);
}}
""",
    Layout.PANELS: f"""\
HIDDEN void farcall_few_panels_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_panel, KIND* c, int64_t c_row, const KIND* start,
    int64_t start_row, int64_t start_column);
{_WAY}\
  (void)n, (void)k, (void)a_column, (void)is_plain;
  return few;
}}
{_THIN}\
  (void)way, (void)b_row;
  farcall_few_panels_KIND(m, n, k, a, a_row, a_column, b, b_panel, c, c_row, start, start_row, start_column);
}}
""",
}

# As farcall_gemm_part_KIND, farcall_gemm_parts_KIND and farcall_gemm_KIND.
_CALLS = """\
/* Where the borders of a part are changes no way. */
static inline void farcall_@LAYOUT_part_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t i, int64_t i_end, int64_t j,
    int64_t j_end, KIND* room) {
  const int way = farcall_@LAYOUT_way_KIND(m, n, k, a_row, a_column, a_group);
  if (way == 0)
    farcall_gemm_part_KIND(m, n, k, a, a_row, a_column, a_group, b, b_row, b_panel, c, c_row, start,
        start_row, start_column, i, i_end, j, j_end, room);
  else
    farcall_@LAYOUT_thin_KIND(way, i_end - i, j_end - j, k, a + i / GROUP * a_group, a_row, a_column,
        b + j / PANEL * b_panel, b_row, b_panel, c + i * c_row + j, c_row,
        start ? start + i * start_row + j * start_column : 0, start_row, start_column);
}
static inline void farcall_@LAYOUT_parts_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t first, int64_t last, KIND* room) {
  struct farcall_range at;
  farcall_gemm_range_KIND(m, n, first, last, &at);
  farcall_@LAYOUT_part_KIND(m, n, k, a, a_row, a_column, a_group, b, b_row, b_panel, c, c_row, start,
      start_row, start_column, at.row, at.row_end, at.column, at.column_end, room);
}
static inline void farcall_@LAYOUT_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, KIND* room) {
  farcall_@LAYOUT_part_KIND(m, n, k, a, a_row, a_column, a_group, b, b_row, b_panel, c, c_row, start,
      start_row, start_column, 0, m, 0, n, room);
}
"""
