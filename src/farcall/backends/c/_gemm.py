"""The blocked matrix product that Conv, Gemm and MatMul share, as C source for one element type.

``C += A B`` with contiguous rows of B. A tile of C, up to 6 rows by two vectors, stays in registers during a
block of K: 12 accumulators, two vectors of B and one of A fit into 16 vector registers. Panels of B are
copied to the stack, where they stay in the L1 cache for all rows of A. Vector types are an extension of gcc
and clang, which lower them to the instructions of the target.
"""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c._scalar import unsigned

VECTOR_BYTES = 32
_DEPTH = 256  # rows of B in a block of K: a panel of 256 x 16 floats is 16 KB
_ROWS = (6, 4, 2, 1)


def gemm_type(dtype: ir.DataType | None) -> str:
    """The C type in which products of ``dtype`` are computed."""
    kind = c_type(dtype)
    return kind if kind in ("float", "double") else unsigned(dtype)


def gemm_name(dtype: ir.DataType | None) -> str:
    """The function's name, for :func:`gemm_text`."""
    return f"farcall_gemm_{gemm_type(dtype)}"


def gemm_text(dtype: ir.DataType | None) -> str:
    """C source of ``name(m, n, k, a, a_row, a_column, b, b_row, c, c_row)``; strides are in elements."""
    kind = gemm_type(dtype)
    width = 2 * VECTOR_BYTES // (8 if kind in ("double", "uint64_t") else 4)
    parts = [_types(kind), *(_tile(kind, width, rows) for rows in _ROWS), _driver(kind, width)]
    return "\n".join(parts)


def _types(kind: str) -> str:
    return f"""typedef {kind} farcall_v_{kind} __attribute__((vector_size({VECTOR_BYTES})));
typedef {kind} farcall_u_{kind} __attribute__((vector_size({VECTOR_BYTES}), aligned(1), may_alias));"""


def _tile(kind: str, width: int, rows: int) -> str:
    half = width // 2
    names = [f"r{row}{column}" for row in range(rows) for column in "ab"]
    zero = "\n".join(f"  farcall_v_{kind} {name} = {{0}};" for name in names)
    steps = "\n".join(
        f"    {{ const {kind} x = a[{row} * a_row]; r{row}a += x * b0; r{row}b += x * b1; }}"
        for row in range(rows)
    )
    stores = "\n".join(
        f"  *(farcall_u_{kind}*)(c + {row} * c_row) += r{row}a;\n"
        f"  *(farcall_u_{kind}*)(c + {row} * c_row + {half}) += r{row}b;"
        for row in range(rows)
    )
    return f"""static void farcall_tile{rows}_{kind}(int64_t k, const {kind}* a, int64_t a_row,
    int64_t a_column, const {kind}* b, int64_t b_row, {kind}* c, int64_t c_row) {{
{zero}
  (void)a_row;
  (void)c_row;
  for (int64_t i = 0; i < k; ++i, a += a_column, b += b_row) {{
    const farcall_v_{kind} b0 = *(const farcall_u_{kind}*)b, b1 = *(const farcall_u_{kind}*)(b + {half});
{steps}
  }}
{stores}
}}"""


def _driver(kind: str, width: int) -> str:
    args = "k1, a0 + i * a_row, a_row, a_column, panel, panel_row, target + i * target_row, target_row"
    bands = "\n".join(
        f"      for (; i + {rows} <= m; i += {rows}) farcall_tile{rows}_{kind}({args});" for rows in _ROWS
    )
    # A variable, since gcc warns of overflow in (i + r) * c_row where a known m leaves a band empty.
    edge = "\n".join(
        f"        for (; i + {rows} <= m; i += {rows}) {{\n"
        f"          {kind}* corner = c + i * c_row + j0;\n"
        f"          memset(rim, 0, sizeof rim);\n"
        f"          farcall_tile{rows}_{kind}(k1, a0 + i * a_row, a_row, a_column,\n"
        f"              packed, {width}, rim, {width});\n"
        f"          for (int64_t r = 0; r < {rows}; ++r)\n"
        f"            for (int64_t j = 0; j < n1; ++j) corner[r * c_row + j] += rim[r * {width} + j];\n"
        f"        }}"
        for rows in _ROWS
    )
    return f"""static __attribute__((noinline)) void farcall_gemm_{kind}(int64_t m, int64_t n, int64_t k,
    const {kind}* a, int64_t a_row, int64_t a_column, const {kind}* b, int64_t b_row,
    {kind}* c, int64_t c_row) {{
  {kind} packed[{_DEPTH} * {width}], rim[{max(_ROWS)} * {width}];
  for (int64_t k0 = 0; k0 < k; k0 += {_DEPTH}) {{
    const int64_t k1 = k - k0 < {_DEPTH} ? k - k0 : {_DEPTH};
    const {kind}* a0 = a + k0 * a_column;
    for (int64_t j0 = 0; j0 < n; j0 += {width}) {{
      const int64_t n1 = n - j0 < {width} ? n - j0 : {width};
      const {kind}* source = b + k0 * b_row + j0;
      int64_t i = 0;
      if (n1 < {width}) {{
        memset(packed, 0, (size_t)(k1 * {width}) * sizeof packed[0]);
        for (int64_t r = 0; r < k1; ++r)
          for (int64_t j = 0; j < n1; ++j) packed[r * {width} + j] = source[r * b_row + j];
{edge}
        continue;
      }}
      const {kind}* panel = source;
      int64_t panel_row = b_row;
      if (m >= {2 * max(_ROWS)} && b_row != {width}) {{
        for (int64_t r = 0; r < k1; ++r)
          memcpy(packed + r * {width}, source + r * b_row, {width} * sizeof({kind}));
        panel = packed;
        panel_row = {width};
      }}
      {kind}* target = c + j0;
      const int64_t target_row = c_row;
{bands}
    }}
  }}
}}"""
