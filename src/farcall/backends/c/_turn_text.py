"""C source that copies a panel of a transposed operand, for the blocked matrix product."""

from __future__ import annotations


def turn_source(itemsize: int) -> str:
    """C source of ``farcall_turn_KIND``: where the compiler can, squares of 16 bytes turn in registers."""
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
                stages.append(
                    f"      const farcall_short_KIND {name} = __builtin_shufflevector({pair}, {order});"
                )
                made.append(name)
        rows = made
    loads = "\n".join(
        f"      const farcall_short_KIND x{i} = *(const farcall_short_at_KIND*)(from + {i} * b_column + t);"
        for i in range(few)
    )
    stores = "\n".join(
        f"      *(farcall_short_at_KIND*)(to + (t + {i}) * farcall_wide_KIND) = {row};"
        for i, row in enumerate(rows)
    )
    body = "\n".join([loads, *stages, stores])
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
