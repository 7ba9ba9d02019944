"""The blocked matrix product that Conv, Gemm, MatMul and the recurrent operators share: operands and calls.

Constant operands are packed when the model is built, in the order in which the product reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import c_type, itemsize
from farcall.backends.c._gemm_text import GROUP, gemm_source, panel_width, vector_source
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._scalar import unsigned


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
    return Right(pointer, row, str(panel_width(itemsize(dtype))))


def packed_left(kernel: Kernel, matrices: np.ndarray, index: str = "0") -> Left:
    """Constant matrices (count, m, k) in groups of rows, of which the product takes number ``index``."""
    count, m, k = matrices.shape
    groups = -(-m // GROUP)
    data = np.zeros((count, groups * GROUP, k), matrices.dtype)
    data[:, :m] = matrices
    data = np.ascontiguousarray(data.reshape(count, groups, GROUP, k).swapaxes(2, 3))
    table = kernel.table(data)
    return Left(f"{table} + ({index}) * {groups * GROUP * k}", "1", str(GROUP), str(GROUP * k))


def packed_right(kernel: Kernel, matrix: np.ndarray) -> Right:
    """A constant matrix (k, n) in panels of columns."""
    k, n = matrix.shape
    width = panel_width(matrix.dtype.itemsize)
    panels = -(-n // width)
    data = np.zeros((k, panels * width), matrix.dtype)
    data[:, :n] = matrix
    data = np.ascontiguousarray(data.reshape(k, panels, width).swapaxes(0, 1))
    table = kernel.table(data)
    return Right(table, str(width), str(width * k))


def call_gemm(
    kernel: Kernel,
    dtype: ir.DataType | None,
    sizes: Sequence[str],
    a: Left,
    b: Right,
    c: tuple[str, str],
    start: Start | None = None,
    parts: tuple[str, str] | None = None,
) -> None:
    """Write a call that computes ``c = start + a b``.

    ``sizes`` are m, n and k; ``c`` is pointer and row stride. Without ``start``, c holds it already.
    ``parts`` are the first and the end of those of :func:`count_parts` that are computed; None: all.
    """
    start = start or Start(*c, "1")
    word = gemm_type(dtype)
    kernel.file_scope(vector_source(word, itemsize(dtype)))
    kernel.file_scope(gemm_source(word, itemsize(dtype)))
    left = f"(const {word}*)({a.pointer}), {a.row}, {a.column}, {a.group}"
    right = f"(const {word}*)({b.pointer}), {b.row}, {b.panel}"
    target = f"({word}*)({c[0]}), {c[1]}, (const {word}*)({start.pointer}), {start.row}, {start.column}"
    name = f"farcall_gemm_parts_{word}" if parts else f"farcall_gemm_{word}"
    kernel.line(f"{name}({', '.join([*sizes, left, right, target, *(parts or ())])});")


def count_parts(dtype: ir.DataType | None, sizes: Sequence[str]) -> str:
    """C: how many parts a product of these sizes (m, n, k) has, which threads may compute."""
    return f"farcall_parts_{gemm_type(dtype)}({sizes[0]}, {sizes[1]})"


def cost_of_part(dtype: ir.DataType | None, sizes: Sequence[str]) -> str:
    """C: what one of these parts costs."""
    return f"farcall_part_cost_{gemm_type(dtype)}({', '.join(sizes)})"
