"""C source of products with few rows, columns or steps of K that read B, or a transposed A, in order.

Rows of that operand are multiplied and added to rows of the result.
"""

from __future__ import annotations

from functools import cache

from farcall.backends._kernels import Kernels
from farcall.backends.c._gemm_text import COMPILE_FLAGS, INCLUDES, VECTORS, with_numbers

STREAMS = 8  # rows of B that are read together
_SPAN = 4096  # elements of a row of the result that stay in the L1 cache meanwhile
_PIECE = 512  # likewise, of more rows than are summed at once
_FLAT_ROWS = (1, 2, 4)  # of C that are written at once


@cache
def sums_kernels(kind: str, itemsize: int) -> Kernels:
    """The file with the functions for few rows, few columns, and few steps of K."""
    text = "".join([INCLUDES, VECTORS, *map(_sums, (1, 2, 3)), *map(_flat, _FLAT_ROWS), _SUMS])
    for name, value in {"SPAN": _SPAN, "PIECE": _PIECE, "STREAMS": STREAMS}.items():
        text = text.replace(f"@{name}", str(value))
    names = [f"farcall_{name}_{kind}" for name in ("few_rows", "few_columns", "flat")]
    return Kernels(
        f"farcall_sums_{kind}", with_numbers(text, kind, itemsize), names, COMPILE_FLAGS, vectors=True
    )


def _sums(rows: int) -> str:
    """Rows of A times rows of B, which are read in order; each element is summed in the order of K."""
    steps, each = range(STREAMS), range(rows)
    factors = "\n".join(
        "  const KIND " + ", ".join(f"x{r}_{u} = a[{r} * a_row + {u} * a_column]" for u in steps) + ";"
        for r in each
    )

    def loop(kind: str, head: str, place: str, row: str) -> str:
        sums = ", ".join(f"r{r} = {{0}}" for r in each)
        adds = " ".join(f"r{r} = *({place})(c + {r} * c_row + j);" for r in each)
        terms = "\n".join(
            f"    {{ const {kind} y = *({row})(b + {u} * b_row + j); "
            + " ".join(f"r{r} += x{r}_{u} * y;" for r in each)
            + " }"
            for u in steps
        )
        stores = " ".join(f"*({place})(c + {r} * c_row + j) = r{r};" for r in each)
        return f"  {head} {{\n    {kind} {sums};\n    if (add) {{ {adds} }}\n{terms}\n    {stores}\n  }}\n"

    whole = "for (; j + farcall_lanes_KIND <= n; j += farcall_lanes_KIND)"
    vectors = loop("farcall_v_KIND", whole, "farcall_u_KIND*", "const farcall_u_KIND*")
    scalars = loop("KIND", "for (; j < n; ++j)", "KIND*", "const KIND*")
    return f"""static void farcall_sums{STREAMS}x{rows}_KIND(int64_t n, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, int add) {{
{factors}
  int64_t j = 0;
  (void)a_row, (void)c_row;
{vectors}{scalars}}}
"""


def _flat(rows: int) -> str:
    """Rows of C, of a few steps of K."""
    each = range(rows)

    def loop(kind: str, head: str, place: str, row: str) -> str:
        sums = ", ".join(f"r{r} = {{0}}" for r in each)
        adds = " ".join(f"r{r} += *({place})(c + {r} * c_row + j);" for r in each)
        terms = " ".join(f"r{r} += x[{r} * a_row] * y;" for r in each)
        stores = " ".join(f"*({place})(c + {r} * c_row + j) = r{r};" for r in each)
        return f"""  {head} {{
    {kind} {sums};
    const KIND *x = a, *from = b + j;
    if (add) {{ {adds} }}
    for (int64_t t = 0; t < k; ++t, x += a_column, from += b_row) {{
      const {kind} y = *({row})from;
      {terms}
    }}
    {stores}
  }}
"""

    whole = "for (; j + farcall_lanes_KIND <= n; j += farcall_lanes_KIND)"
    vectors = loop("farcall_v_KIND", whole, "farcall_u_KIND*", "const farcall_u_KIND*")
    scalars = loop("KIND", "for (; j < n; ++j)", "KIND*", "const KIND*")
    return f"""static void farcall_flat{rows}_KIND(int64_t n, int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, int add) {{
  int64_t j = 0;
  (void)a_row, (void)c_row;
{vectors}{scalars}}}
"""


_SUMS = """\
/* Rows of C of a few steps of K, likewise. */
static void farcall_flat_rows_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, int add) {
  for (int64_t i = 0, high; i < m; i += high) {
    high = m - i >= 4 ? 4 : m - i >= 2 ? 2 : 1;
    (high == 4 ? farcall_flat4_KIND : high == 2 ? farcall_flat2_KIND : farcall_flat1_KIND)(
        n, k, a + i * a_row, a_row, a_column, b, b_row, c + i * c_row, c_row, add);
  }
}

/* Rows of A times rows of B, which are added to rows of C with `add`, and written there without. */
static void farcall_sums_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, int add) {
  const int64_t span = m <= 3 ? @SPAN : @PIECE;
  for (int64_t i = 0; i < k; i += @STREAMS, a += @STREAMS * a_column, b += @STREAMS * b_row, add = 1)
    for (int64_t j = 0; j < n; j += span) {
      const int64_t n1 = n - j < span ? n - j : span;
      if (i + @STREAMS > k)
        farcall_flat_rows_KIND(m, n1, k - i, a, a_row, a_column, b + j, b_row, c + j, c_row, add);
      for (int64_t r = i + @STREAMS > k ? m : 0, high; r < m; r += high) {
        const KIND* const from = a + r * a_row;
        KIND* const to = c + r * c_row + j;
        high = m - r == 3 ? 3 : m - r >= 2 ? 2 : 1;
        (high == 3 ? farcall_sums@STREAMSx3_KIND : high == 2 ? farcall_sums@STREAMSx2_KIND
            : farcall_sums@STREAMSx1_KIND)(n1, from, a_row, a_column, b + j, b_row, to, c_row, add);
      }
    }
}

HIDDEN void farcall_few_rows_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, const KIND* start,
    int64_t start_row, int64_t start_column) {
  for (int64_t j = 0; j < n; j += @SPAN) {
    const int64_t n1 = n - j < @SPAN ? n - j : @SPAN;
    for (int64_t i = 0; i < m && start && start != c; ++i)
      for (int64_t t = j; t < j + n1; ++t) c[i * c_row + t] = start[i * start_row + t * start_column];
    farcall_sums_KIND(m, n1, k, a, a_row, a_column, b + j, b_row, c + j, c_row, start != 0);
  }
}

/* A few steps of K: rows of C are written once, in order. */
HIDDEN void farcall_flat_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, const KIND* start,
    int64_t start_row, int64_t start_column) {
  for (int64_t i = 0; i < m && start && start != c; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * c_row + j] = start[i * start_row + j * start_column];
  farcall_flat_rows_KIND(m, n, k, a, a_row, a_column, b, b_row, c, c_row, start != 0);
}

/* A transposed A: its columns, which are contiguous, are added up to columns of C. */
HIDDEN void farcall_few_columns_KIND(int64_t m, int64_t n, int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, const KIND* start,
    int64_t start_row, int64_t start_column) {
  KIND made[@SPAN];
  const int64_t span = n == 1 ? @SPAN : @SPAN / PANEL;
  for (int64_t i = 0; i < m; i += span) {
    const int64_t m1 = m - i < span ? m - i : span;
    if (k == 0) memset(made, 0, sizeof made);
    farcall_sums_KIND(n, m1, k, b, 1, b_row, a + i * a_row, a_column, made, span, 0);
    for (int64_t r = 0; r < m1; ++r)
      for (int64_t j = 0; j < n; ++j)
        c[(i + r) * c_row + j] =
            made[j * span + r] + (start ? start[(i + r) * start_row + j * start_column] : 0);
  }
}
"""
