"""Softmax and LogSoftmax, over one axis (opset 13) or over all from one axis on (before)."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import int_attr, normalize_axis, operand, opset, rank, want_dtypes
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, product

_TILE = 64  # neighbours that are reduced side by side, when the axis is not the last


def _extents(node: ir.Node) -> tuple[Dim, Dim, Dim]:
    """Elements before the axis, along it, and behind it."""
    shape = dims(operand(node, 0))
    if opset(node) >= 13:
        axis = normalize_axis(int_attr(node, "axis", -1), len(shape))
        return product(shape[:axis]), product(shape[axis : axis + 1]), product(shape[axis + 1 :])
    axis = _flattened_axis(node)
    return product(shape[:axis]), product(shape[axis:]), 1


def _flattened_axis(node: ir.Node) -> int:
    """Before opset 13 the axis may be the rank itself: each element is then a row of its own."""
    count = rank(operand(node, 0))
    axis = int_attr(node, "axis", 1)
    return axis if axis == count else normalize_axis(axis, count)


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    _extents(node)


@loops("Softmax", "LogSoftmax", check=_check)
def _softmax(node: ir.Node) -> Iterator[Step]:
    outer, length, inner = _extents(node)
    kernel = Kernel()
    p, q = kernel.read(operand(node, 0)), kernel.write(node.outputs[0])
    rows, count = kernel.dim(outer), kernel.dim(length)
    with kernel.loop("i", rows):
        if inner == 1:
            kernel.line(f"const int64_t at = i * {count};")
            _contiguous(kernel, node, p, q, count)
        else:
            _tiled(kernel, node, p, q, count, kernel.dim(inner))
    yield kernel.step()


def _contiguous(kernel: Kernel, node: ir.Node, p: str, q: str, count: str) -> None:
    dtype = node.outputs[0].dtype
    kind, exp = c_type(dtype), scalar.function(dtype, "exp")
    kernel.line(f"{kind} top = -INFINITY, total = 0;")
    with kernel.loop("k", count):
        kernel.line(f"top = {p}[at + k] > top ? {p}[at + k] : top;")
    if node.op_type == "Softmax":
        with kernel.loop("k", count):
            kernel.line(f"total += {q}[at + k] = {exp}({p}[at + k] - top);")
        with kernel.loop("k", count):
            kernel.line(f"{q}[at + k] /= total;")
        return
    with kernel.loop("k", count):
        kernel.line(f"total += {exp}({p}[at + k] - top);")
    kernel.line(f"const {kind} shift = {scalar.function(dtype, 'log')}(total);")
    with kernel.loop("k", count):
        kernel.line(f"{q}[at + k] = {p}[at + k] - top - shift;")


def _tiled(kernel: Kernel, node: ir.Node, p: str, q: str, count: str, inner: str) -> None:
    """Rows of neighbours side by side: memory is read in its order."""
    dtype = node.outputs[0].dtype
    kind, exp = c_type(dtype), scalar.function(dtype, "exp")
    with kernel.loop("j", inner, step=_TILE):
        kernel.line(f"const int64_t width = {inner} - j < {_TILE} ? {inner} - j : {_TILE};")
        kernel.line(f"{kind} top[{_TILE}], total[{_TILE}];")
        with kernel.loop("t", "width"):
            kernel.line("top[t] = -INFINITY, total[t] = 0;")
        at = f"(i * {count} + k) * {inner} + j + t"
        with kernel.loop("k", count), kernel.loop("t", "width"):
            kernel.line(f"const {kind} x = {p}[{at}];\ntop[t] = x > top[t] ? x : top[t];")
        if node.op_type == "Softmax":
            with kernel.loop("k", count), kernel.loop("t", "width"):
                kernel.line(f"total[t] += {q}[{at}] = {exp}({p}[{at}] - top[t]);")
            with kernel.loop("k", count), kernel.loop("t", "width"):
                kernel.line(f"{q}[{at}] /= total[t];")
            return
        with kernel.loop("k", count), kernel.loop("t", "width"):
            kernel.line(f"total[t] += {exp}({p}[{at}] - top[t]);")
        with kernel.loop("t", "width"):
            kernel.line(f"top[t] += {scalar.function(dtype, 'log')}(total[t]);")
        with kernel.loop("k", count), kernel.loop("t", "width"):
            kernel.line(f"{q}[{at}] = {p}[{at}] - top[t];")
