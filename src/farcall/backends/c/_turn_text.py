"""C source that transposes: a panel of an operand of the blocked matrix product, and tiles of a tensor.

Where the compiler can, squares whose sides are 16 bytes turn in registers.
"""

from __future__ import annotations

from functools import cache

SHUFFLES = """\
#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define FARCALL_SHUFFLES 1
#endif
#endif
"""


def _square(itemsize: int, vector: str, load: str, store: str) -> str:
    """C that turns a square: ``load`` is C of row ``{0}``, ``store`` of where column ``{0}`` goes."""
    few = 16 // itemsize
    stages, rows = [], [f"x{i}" for i in range(few)]
    half = few // 2
    for stage in range(few.bit_length() - 1):  # each interleaves rows that lie half of them apart
        made = []
        for i in range(half):
            low = ", ".join(f"{t}, {t + few}" for t in range(half))
            high = ", ".join(f"{t + half}, {t + half + few}" for t in range(half))
            for part, order in (("low", low), ("high", high)):
                name = f"{part}{stage}_{i}"
                pair = f"{rows[i]}, {rows[i + half]}"
                stages.append(f"      const {vector} {name} = __builtin_shufflevector({pair}, {order});")
                made.append(name)
        rows = made
    loads = [f"      const {vector} x{i} = {load.format(i)};" for i in range(few)]
    stores = [f"      {store.format(i)} = {row};" for i, row in enumerate(rows)]
    return "\n".join([*loads, *stages, *stores])


def turn_source(itemsize: int) -> str:
    """C source of ``farcall_turn_KIND``, which copies a panel."""
    few = 16 // itemsize
    body = _square(
        itemsize,
        "farcall_short_KIND",
        "*(const farcall_short_at_KIND*)(from + {0} * b_column + t)",
        "*(farcall_short_at_KIND*)(to + (t + {0}) * farcall_wide_KIND)",
    )
    return f"""/* Likewise of a transposed B, whose columns are contiguous. */
static inline void farcall_turn_KIND(int64_t k, int64_t n, const KIND* b, int64_t b_column, KIND* panel) {{
  for (int64_t j = 0; j < farcall_wide_KIND; j += {few}) {{
    const KIND* const from = b + j * b_column;
    KIND* const to = panel + j;
    int64_t t = 0;
#ifdef FARCALL_SHUFFLES
    for (; j + {few} <= n && t + {few} <= k; t += {few}) {{
{body}
    }}
#endif
    for (; t < k; ++t)
      for (int64_t i = 0; i < {few}; ++i)
        to[t * farcall_wide_KIND + i] = j + i < n ? from[i * b_column + t] : 0;
  }}
}}

"""


@cache
def tile_source(kind: str, itemsize: int) -> str:
    """C source of ``farcall_transpose_KIND``, which transposes a few elements of 1 to 8 bytes."""
    few = 16 // itemsize
    body = _square(
        itemsize,
        f"farcall_square_{kind}",
        f"*(const farcall_square_{kind}*)(from + i + (j + {{0}}) * from_row)",
        f"*(farcall_square_{kind}*)(to + (i + {{0}}) * to_row + j)",
    )
    return f"""{SHUFFLES}
typedef {kind} farcall_square_{kind} __attribute__((vector_size(16), aligned(1), may_alias));
static __attribute__((noinline)) void farcall_transpose_{kind}(int64_t rows, int64_t columns,
    {kind}* restrict to, int64_t to_row, const {kind}* restrict from, int64_t from_row) {{
  int64_t i = 0;
#ifdef FARCALL_SHUFFLES
  for (; i + {few} <= rows; i += {few}) {{
    int64_t j = 0;
    for (; j + {few} <= columns; j += {few}) {{
{body}
    }}
    for (; j < columns; ++j)
      for (int64_t t = i; t < i + {few}; ++t) to[t * to_row + j] = from[t + j * from_row];
  }}
#endif
  for (; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * to_row + j] = from[i + j * from_row];
}}"""
