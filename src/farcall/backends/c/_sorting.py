"""A stable merge sort of indices, which kernels write inline."""

from __future__ import annotations

from farcall.backends.c._kernel import Kernel


def sort_indices(kernel: Kernel, order: str, spare: str, count: str, before: str) -> str:
    """Sort ``count`` indices in ``order``; returns the array that holds them then, ``order`` or ``spare``.

    Args:
        kernel: The kernel, in whose text the names ``sorted``, ``from`` and ``to`` get their meaning.
        order: The indices, of type int64_t.
        spare: As much memory again.
        count: A C expression.
        before: The C condition that index ``{b}`` comes before ``{a}``, which is false for equal ones.
    """
    kernel.line(f"int64_t *sorted = {order}, *other = {spare};")
    with kernel.block(f"for (int64_t width = 1; width < {count}; width *= 2)"):
        with kernel.block(f"for (int64_t low = 0; low < {count}; low += 2 * width)"):
            kernel.line(f"const int64_t mid = low + width < {count} ? low + width : {count};")
            kernel.line(f"const int64_t high = mid + width < {count} ? mid + width : {count};")
            kernel.line("int64_t a = low, b = mid;")
            condition = before.format(a="sorted[a]", b="sorted[b]")
            with kernel.block("for (int64_t k = low; k < high; ++k)"):
                kernel.line(f"const int right = b < high && (a >= mid || ({condition}));")
                kernel.line("other[k] = sorted[right ? b++ : a++];")
        kernel.line("int64_t* swapped = sorted;\nsorted = other, other = swapped;")
    return "sorted"
