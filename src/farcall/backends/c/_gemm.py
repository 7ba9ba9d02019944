"""The blocked matrix product that Conv, Gemm, MatMul and the recurrent operators share: operands and calls.

Constant operands are packed when the model is built, in the order in which the product reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import c_type, itemsize
from farcall.backends.c._dots_text import dots_pay
from farcall.backends.c._gemm_text import (
    BAND,
    FEW,
    GROUP_SLACK,
    PAGE,
    RANGE,
    gemm_calls,
    gemm_kernels,
    panel_width,
    room,
    shared_calls,
)
from farcall.backends.c._gemm_tile_text import GROUP
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._parallel import HELPER
from farcall.backends.c._scalar import unsigned
from farcall.backends.c._tall_text import LONGEST
from farcall.backends.c._thin_text import FLAT, Layout, thin_calls, thin_kernels
from farcall.graph.dims import Dim, product

_CACHED = 8 << 20  # bytes of B that a cache may hold, of several cores


@dataclass(frozen=True)
class Left:
    """C expressions for A: the first element, and strides in elements; a group is 6 rows."""

    pointer: str
    row: str
    column: str
    group: str


@dataclass(frozen=True)
class Right:
    """C expressions for B: the first element, and strides in elements; a panel is 64 bytes of columns."""

    pointer: str
    row: str
    panel: str
    layout: Layout


@dataclass(frozen=True)
class Start:
    """C expressions for what the product is added to: the first element, and strides in elements, often 0."""

    pointer: str
    row: str
    column: str


ZERO = Start("0", "0", "0")


def gemm_type(dtype: ir.DataType | None) -> str:
    """The C type in which products of ``dtype`` are computed."""
    kind = c_type(dtype)
    return kind if kind in ("float", "double") else unsigned(dtype)


def plain_left(pointer: str, row: str, column: str = "1") -> Left:
    """A as it is in memory."""
    return Left(pointer, row, column, f"{GROUP} * ({row})")


def plain_right(dtype: ir.DataType | None, pointer: str, row: str) -> Right:
    """B as it is in memory, whose rows are contiguous."""
    return Right(pointer, row, str(panel_width(itemsize(dtype))), Layout.PLAIN)


def turned_right(dtype: ir.DataType | None, pointer: str, column: str) -> Right:
    """A transposed B, whose columns are contiguous, as it is in memory."""
    return Right(pointer, "1", f"{panel_width(itemsize(dtype))} * ({column})", Layout.TURNED)


def packed_left(kernel: Kernel, matrices: np.ndarray, index: str = "0") -> Left:
    """Constant matrices (count, m, k) in groups of rows, of which the product takes number ``index``."""
    packed = Groups(matrices.shape, matrices.dtype)
    fill_groups(packed.data, matrices)
    return packed.left(kernel, index)


class Groups:
    """Memory for constant matrices of the shape (count, m, k), in groups of 6 rows; the last has zeros.

    ``data`` has the shape (count, groups, k, 6).
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        count, m, k = shape
        size = count * -(-m // GROUP) * k * GROUP
        self._all = np.zeros(size + GROUP_SLACK, dtype)
        self.data = self._all[:size].reshape(count, -(-m // GROUP), k, GROUP)

    def left(self, kernel: Kernel, index: str) -> Left:
        """The matrices as an operand, of which the product takes number ``index``."""
        _, groups, k, _ = self.data.shape
        table = kernel.table(self._all)
        return Left(f"{table} + ({index}) * {groups * k * GROUP}", "1", str(GROUP), str(GROUP * k))


def fill_groups(groups: np.ndarray, matrices: np.ndarray) -> None:
    """Write matrices (count, m, k, ...) into their groups of rows (count, groups, k, 6, ...)."""
    count, m, *others = matrices.shape
    whole, rest = divmod(m, GROUP)
    groups[:, :whole] = matrices[:, : m - rest].reshape(count, whole, GROUP, *others).swapaxes(2, 3)
    if rest:
        groups[:, whole, :, :rest] = matrices[:, m - rest :].swapaxes(1, 2)


def packed_right(kernel: Kernel, matrix: np.ndarray) -> Right:
    """A constant matrix (k, n) in panels of columns; a few long columns are each contiguous."""
    k, n = matrix.shape
    width = panel_width(matrix.dtype.itemsize)
    if n < width and dots_pay(n, k):
        return Right(kernel.table(np.ascontiguousarray(matrix.T)), "1", str(width * k), Layout.TURNED)
    panels = -(-n // width)
    data = np.zeros((k, panels * width), matrix.dtype)
    data[:, :n] = matrix
    data = np.ascontiguousarray(data.reshape(k, panels, width).swapaxes(0, 1))
    table = kernel.table(data)
    return Right(table, str(width), str(width * k), Layout.PANELS)


def call_gemm(
    kernel: Kernel,
    dtype: ir.DataType | None,
    sizes: Sequence[str],
    a: Left,
    b: Right,
    c: tuple[str, str],
    start: Start | None = None,
    parts: tuple[str, str] | None = None,
    rows: tuple[str, str] | None = None,
    most: int | None = None,
    is_shared: bool = False,
) -> None:
    """Write a call that computes ``c = start + a b``.

    ``sizes`` are m, n and k; ``c`` is pointer and row stride. Without ``start``, c holds it already.
    ``parts`` are the first and the end of those of :func:`open_parts` that are computed; ``rows`` are the
    first row, a multiple of 6, and the end of the rows that are computed; None: all. ``most`` is how many
    rows there are at most, if ``sizes`` do not tell. ``is_shared``: threads compute it, in a kernel that is
    not split itself.
    """
    start = start or Start(*c, "1")
    word = gemm_type(dtype)
    thin = b.layout if _may_be_thin(sizes, a, b, panel_width(itemsize(dtype))) else None
    _use_gemm(kernel, dtype, thin)
    verb = thin.value if thin else "gemm"
    left = f"(const {word}*)({a.pointer}), {a.row}, {a.column}, {a.group}"
    right = f"(const {word}*)({b.pointer}), {b.row}, {b.panel}"
    target = f"({word}*)({c[0]}), {c[1]}, (const {word}*)({start.pointer}), {start.row}, {start.column}"
    name, more = f"farcall_{verb}_{word}", list(parts or ())
    if parts:
        name = f"farcall_{verb}_parts_{word}"
    elif rows:
        name, more = f"farcall_{verb}_part_{word}", [*rows, "0", sizes[1]]
    memory = _room(kernel, dtype, sizes, a, b, most)
    more.append(f"({word}*)({memory})")
    if is_shared:
        kernel.file_scope(HELPER)
        kernel.file_scope(shared_calls(word, itemsize(dtype), verb))
        name = f"farcall_shared_{verb}_{word}"
        more.append(str(room(_rows_at_most(sizes, most)) * itemsize(dtype)) if memory != "0" else "0")
    kernel.line(f"{name}({', '.join([*sizes, left, right, target, *more])});")


def copies_rows(
    dtype: ir.DataType | None, sizes: Sequence[str], a: Left, b: Right, most: int | None = None
) -> bool:
    """Whether a product makes a copy of many rows of A: those of a transposed A, or pages apart.

    If only a call tells how many rows there are, memory would be for many: then a packed B that stays in the
    caches is rather read again for each few rows.
    """
    m, n, k = _rows_at_most(sizes, most), *(int(size) if size.isdecimal() else None for size in sizes[1:])
    few = any(size is not None and size < BAND for size in (m, n))
    apart = a.row.isdecimal() and int(a.row) * itemsize(dtype) % PAGE == 0
    is_cached = b.layout is Layout.PANELS and (n or 0) * (k or 0) * itemsize(dtype) < _CACHED
    if few or a.column == str(GROUP) or (m is None and is_cached):
        return False
    return apart or a.column != "1"


def _rows_at_most(sizes: Sequence[str], most: int | None) -> int | None:
    return int(sizes[0]) if sizes[0].isdecimal() else most


def _room(
    kernel: Kernel, dtype: ir.DataType | None, sizes: Sequence[str], a: Left, b: Right, most: int | None
) -> str:
    """Memory for the copy."""
    if not copies_rows(dtype, sizes, a, b, most):
        return "0"
    assert dtype is not None  # noqa: S101 - of a product
    return kernel.scratch(dtype, room(_rows_at_most(sizes, most)))


def _may_be_thin(sizes: Sequence[str], a: Left, b: Right, panel: int) -> bool:
    """Whether a product can have so few rows or columns that it is not computed in blocks."""
    m, n = (int(size) if size.isdecimal() else None for size in sizes[:2])
    if m is None or m <= FEW:
        return True
    if a.column == str(GROUP):  # packed
        return False
    is_flat = b.layout is Layout.PLAIN and sizes[2].isdecimal() and int(sizes[2]) <= FLAT
    low = b.layout is Layout.TURNED and m < panel
    is_short = not sizes[2].isdecimal() or int(sizes[2]) <= LONGEST
    few = n is None or n < (2 * panel if is_short else panel)
    return b.layout is not Layout.PANELS and (is_flat or low or few)


def _use_gemm(kernel: Kernel, dtype: ir.DataType | None, thin: Layout | None = None) -> None:
    word, size = gemm_type(dtype), itemsize(dtype)
    kernel.file_scope(RANGE)
    kernel.file_scope(gemm_calls(word, size))
    kernel.uses(gemm_kernels(word, size))
    if thin:
        kernel.file_scope(thin_calls(word, size, thin))
        for file in thin_kernels(word, size, thin):
            kernel.uses(file)


def open_parts(
    kernel: Kernel,
    stack: ExitStack,
    dtype: ir.DataType | None,
    shape: Sequence[Dim],
    a: Left,
    b: Right,
    batch: Sequence[tuple[str, Dim]] = (),
) -> tuple[str, str]:
    """Open the loop over the parts of products, which threads share; the kernel does nothing else.

    Args:
        kernel: The kernel.
        stack: What closes the loop.
        dtype: The dtype of the products.
        shape: m, n and k.
        a: The first operand of each product. If its rows are copied, a thread takes its share in one part.
        b: The second one.
        batch: The variables that number the products, with their counts.

    Returns:
        C of the first part, and of the end of the parts, of one product.
    """
    word = gemm_type(dtype)
    _use_gemm(kernel, dtype)
    m, n, k = sizes = [kernel.dim(dim) for dim in shape]
    counts = [count for _, count in batch]
    total = " * ".join([f"farcall_parts_{word}({m}, {n})", *map(kernel.dim, counts)])
    cost = f"farcall_part_cost_{word}({m}, {n}, {k})"
    at_once = copies_rows(dtype, sizes, a, b)
    begin, end = kernel.split(total, cost, product((*shape, *counts, 2)), at_once)
    kernel.line(f"const int64_t parts = farcall_parts_{word}({m}, {n});")
    stack.enter_context(kernel.block(f"for (int64_t part = {begin}, next; part < {end}; part = next)"))
    kernel.line("const int64_t first = part % parts;")
    kernel.line(f"next = part - first + parts < {end} ? part - first + parts : {end};")
    declare_indices(kernel, "part / parts", batch)
    return "first", "next - part + first"


def declare_indices(kernel: Kernel, place: str, counts: Sequence[tuple[str, Dim | str]]) -> None:
    """Declare the variables whose row-major place is ``place``, C that is not negative."""
    for number, (name, count) in reversed(list(enumerate(counts))):
        size = count if isinstance(count, str) else kernel.dim(count)
        kernel.line(f"const int64_t {name} = {place if number == 0 else f'({place}) % {size}'};")
        place = f"({place}) / {size}"
