"""Reductions whose axes are computed at run time.

They are slower than those of :mod:`farcall.backends.c._reduction`, because they divide to split each index.
"""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c._formula import formula_of
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import int_attr, label, operand
from farcall.graph.dims import dims


def reduce_at_run_time(node: ir.Node) -> Step:
    """One kernel that reads the axes, which give the output's dims, and reduces."""
    kernel = Kernel()
    source, out = operand(node, 0), node.outputs[0]
    p, axes = kernel.read(source), kernel.read(operand(node, 1))
    rank = len(dims(source))
    kernel.line(
        f"const int64_t size[{max(rank, 1)}] = {{{', '.join(map(kernel.dim, dims(source))) or '1'}}};"
    )
    kernel.line(f"int64_t reduced[{max(rank, 1)}] = {{0}}, kept = 1, count = 1;")
    _read_axes(kernel, node, axes, rank)
    q = kernel.allocate(out, _sizes(kernel, node, rank), label(node))
    with kernel.loop("d", str(rank)):
        kernel.line("if (reduced[d]) count *= size[d];\nelse kept *= size[d];")
    _loops(kernel, node, p, q, rank)
    return kernel.step()


def _read_axes(kernel: Kernel, node: ir.Node, axes: str, rank: int) -> None:
    with kernel.loop("i", kernel.dim(dims(operand(node, 1))[0])):
        kernel.index("axis", f"{axes}[i]", str(rank), label(node), "the axes")
        kernel.line("reduced[axis] = 1;")


def _sizes(kernel: Kernel, node: ir.Node, rank: int) -> list[str]:
    """The sizes of the output's axes."""
    if int_attr(node, "keepdims", 1):
        return [f"(reduced[{axis}] ? 1 : size[{axis}])" for axis in range(rank)]
    count = len(dims(node.outputs[0]))
    kernel.line(f"int64_t left[{max(rank, 1)}] = {{0}}, number = 0;")
    with kernel.loop("d", str(rank)):
        kernel.line("if (!reduced[d]) left[number++] = size[d];")
    parts = (f"{label(node)}: its axes leave ", "number", f" axes; expected {count}")
    kernel.line(f"if (number != {count}) {kernel.fail_with('ValueError', *parts)}")
    return [f"left[{axis}]" for axis in range(count)]


def _loops(kernel: Kernel, node: ir.Node, p: str, q: str, rank: int) -> None:
    dtype = operand(node, 0).dtype
    assert dtype is not None  # noqa: S101 - checked before
    formula = formula_of(node.op_type, dtype)
    with kernel.loop("o", "kept"):
        _offset(kernel, "base", "o", "!reduced[d]", rank)
        shifted = node.op_type == "ReduceLogSumExp"
        if shifted:
            kernel.line("double m = -INFINITY;")
            with kernel.loop("r", "count"):
                _offset(kernel, "at", "r", "reduced[d]", rank)
                kernel.line(f"m = {p}[base + at] > m ? {p}[base + at] : m;")
            kernel.line("if (m == -INFINITY || m == INFINITY) m = 0;")
        kernel.line(f"{formula.kind} a = {formula.start};")
        with kernel.loop("r", "count"):
            _offset(kernel, "at", "r", "reduced[d]", rank)
            element = formula.element.format(x=f"{p}[base + at]", m="m")
            kernel.line(f"const {formula.kind} b = ({formula.kind})({element});")
            kernel.line(f"a = {formula.combine.format(a='a', b='b')};")
        result = formula.finish.format(a="a", n="count", m="m")
        kernel.line(f"{q}[o] = ({c_type(node.outputs[0].dtype)})({result});")


def _offset(kernel: Kernel, name: str, index: str, which: str, rank: int) -> None:
    """Declare ``name``: the offset of element ``index`` over the axes for which ``which`` holds."""
    kernel.line(f"int64_t {name} = 0;")
    with kernel.block(f"for (int64_t d = {rank - 1}, rest = {index}, step = 1; d >= 0; step *= size[d--])"):
        kernel.line(f"if ({which}) {name} += rest % size[d] * step, rest /= size[d];")
