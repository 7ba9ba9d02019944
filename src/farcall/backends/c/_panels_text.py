"""C source of products of few rows by packed panels, which are read once, in order."""

from __future__ import annotations

from functools import cache

from farcall.backends._kernels import Kernels
from farcall.backends.c._gemm_text import COMPILE_FLAGS, FEW, INCLUDES, VECTORS, with_numbers
from farcall.backends.c._gemm_tile_text import RIM

_ROWS = range(1, FEW + 1)
_VECTORS = 4  # of columns: the memory gives more when several panels are read at once


@cache
def panels_kernels(kind: str, itemsize: int) -> Kernels:
    """The file with ``farcall_few_panels_KIND``."""
    text = "".join([INCLUDES, VECTORS, RIM, *map(_tile, _ROWS), _driver()])
    name = f"farcall_few_panels_{kind}"
    return Kernels(
        f"farcall_panels_{kind}", with_numbers(text, kind, itemsize), (name,), COMPILE_FLAGS, vectors=True
    )


def _tile(rows: int) -> str:
    """Rows of A times vectors of packed panels: the memory gives more when several are read at once."""
    steps = max(1, 2 // rows)
    columns = range(_VECTORS)
    names = [(r, u, v) for r in range(rows) for u in range(steps) for v in columns]
    sums = ", ".join(f"r{r}_{u}_{v} = {{0}}" for r, u, v in names)

    def step(u: int) -> str:
        factors = " ".join(f"const KIND x{r} = a[{r} * a_row + {u} * a_column];" for r in range(rows))
        lines = "\n".join(
            f"      {{ const farcall_v_KIND y = *(const farcall_u_KIND*)(b{v} + {u} * PANEL);"
            + "".join(f" r{r}_{u}_{v} += x{r} * y;" for r in range(rows))
            + " }"
            for v in columns
        )
        return f"    {{ {factors}\n{lines} }}\n"

    def loop(count: int) -> str:
        moves = "".join(f", b{v} += {count} * PANEL" for v in columns)
        head = f"  for (; i + {count} <= k; i += {count}, a += {count} * a_column{moves}) {{\n"
        return head + "".join(map(step, range(count))) + "  }\n"

    places = "\n".join(
        f"  const int64_t p{v} = {v} * farcall_lanes_KIND / PANEL;\n"
        f"  const KIND* b{v} = b + (p{v} < last ? p{v} : last) * b_panel + {v} * farcall_lanes_KIND % PANEL;"
        for v in columns
    )
    totals = "\n".join(
        f"  *(farcall_u_KIND*)(c + {r} * 4 * farcall_lanes_KIND + {v} * farcall_lanes_KIND) = "
        + " + ".join(f"r{r}_{u}_{v}" for u in range(steps))
        + ";"
        for r in range(rows)
        for v in columns
    )
    return f"""static void farcall_panels{rows}_KIND(int64_t k, const KIND* a, int64_t a_row,
    int64_t a_column, const KIND* b, int64_t b_panel, int64_t last, KIND* c) {{
  farcall_v_KIND {sums};
{places}
  int64_t i = 0;
  (void)a_row;
{loop(steps)}{loop(1) if steps > 1 else ""}{totals}
}}
"""


def _driver() -> str:
    given = "(k, a, a_row, a_column, from, b_panel, last, rim)"
    ways = [f"if (m == {rows}) farcall_panels{rows}_KIND{given};" for rows in _ROWS]
    calls = "\n    else ".join(ways)
    return f"""HIDDEN void farcall_few_panels_KIND(int64_t m, int64_t n, int64_t k, const KIND* a,
    int64_t a_row, int64_t a_column, const KIND* b, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column) {{
  enum {{ most = 4 * farcall_lanes_KIND }};
  KIND rim[FEW * most];
  for (int64_t j = 0; j < n; j += most) {{
    const int64_t n1 = n - j < most ? n - j : most, last = (n1 - 1) / PANEL;
    const KIND* const from = b + j / PANEL * b_panel;
    {calls}
    for (int64_t i = 0; i < m; ++i) {{
      KIND* const to = c + i * c_row + j;
      for (int64_t t = 0; t < n1 && start && !start_column; ++t) to[t] = start[i * start_row];
      farcall_rim_KIND(1, n1, rim + i * most, to, c_row,
          start && start_column ? start + i * start_row + j : start ? to : 0, 0);
    }}
  }}
}}
"""
