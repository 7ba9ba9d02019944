"""GatherElements and ScatterElements: an index for each single element. Scatter is the older name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, INTEGERS
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import (
    Unsupported,
    int_attr,
    label,
    normalize_axis,
    operand,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, product, same

INDICES = {ir.DataType.INT64, ir.DataType.INT32}
_REDUCTIONS = ("none", "add", "mul", "max", "min")


def check_reduction(node: ir.Node) -> None:
    """Refuse a scatter whose attribute ``reduction`` is unknown."""
    if (name := str_attr(node, "reduction", "none")) not in _REDUCTIONS:
        raise Unsupported(f"reduction `{name}`")


def reduced(node: ir.Node, old: str, new: str) -> str:
    """The element that a scatter stores in place of ``old``; a NaN stays one."""
    dtype, name = operand(node, 0).dtype, str_attr(node, "reduction", "none")
    if name == "none":
        return new
    if dtype not in FLOATS | INTEGERS:  # bool
        return f"{old} {'|' if name in ('add', 'max') else '&'} {new}"
    if name in ("add", "mul"):
        return scalar.wrapping(dtype, old, "+" if name == "add" else "*", new)
    assert dtype is not None  # noqa: S101 - checked before
    return f"farcall_{'larger' if name == 'max' else 'smaller'}_{dtype.name.lower()}({old}, {new})"


def want_same(what: str, given: Sequence[Dim], wanted: Sequence[Dim]) -> None:
    """Refuse a node whose dims differ for all sizes. :func:`verify_same` finds the other differences."""
    numbers = zip(given, wanted, strict=False)
    if len(given) != len(wanted) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in numbers
    ):
        raise Unsupported(f"the dims of {what} are {_text(given)} instead of {_text(wanted)}")


def verify_same(
    kernel: Kernel, node: ir.Node, what: str, given: Sequence[Dim], wanted: Sequence[Dim]
) -> None:
    """Check at run time that dims are equal, unless that is certain."""
    for axis, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if not same(a, b):
            got, size = kernel.dim(a), kernel.dim(b)
            parts = (f"{label(node)}: dim {axis} of {what} is ", got, " instead of ", size, "")
            kernel.line(f"if ({got} != {size}) {kernel.fail_with('ValueError', *parts)}")


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _axis(node: ir.Node) -> int:
    return normalize_axis(int_attr(node, "axis", 0), rank(operand(node, 0)))


def _check_elements(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, INDICES, 1)
    data, indices = dims(operand(node, 0)), dims(operand(node, 1))
    if not data:
        raise Unsupported("a scalar has no axis")
    if len(data) != len(indices):
        raise Unsupported(f"ranks {len(data)} and {len(indices)}")
    along = _axis(node)
    for axis, (size, reach) in enumerate(zip(data, indices, strict=True)):
        if isinstance(size, int) and isinstance(reach, int) and reach > size and axis != along:
            raise Unsupported(f"indices for {reach} of the {size} elements of axis {axis}")


@loops("GatherElements", check=_check_elements)
def _gather_elements(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    p, q = kernel.read(operand(node, 0)), kernel.write(node.outputs[0])
    nest = _nest(node)
    _verify_reach(kernel, node)
    with ExitStack() as stack:
        here, there = nest.open(kernel, node, stack, share=True)
        kernel.line(f"{q}[{here}] = {p}[{there}];")
    yield kernel.step()


def _check_scatter(node: ir.Node) -> None:
    _check_elements(node)
    check_reduction(node)
    want_same("the updates", dims(operand(node, 2)), dims(operand(node, 1)))


@loops("ScatterElements", "Scatter", check=_check_scatter)
def _scatter_elements(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    indices, updates = operand(node, 1), operand(node, 2)
    copy_all(kernel, node)
    u, q = kernel.read(updates), kernel.write(node.outputs[0])
    nest = _nest(node)
    _verify_reach(kernel, node)
    verify_same(kernel, node, "the updates", dims(updates), dims(indices))
    with ExitStack() as stack:
        here, there = nest.open(kernel, node, stack)
        kernel.line(f"const int64_t to = {there};")
        kernel.line(f"{q}[to] = {reduced(node, f'{q}[to]', f'{u}[{here}]')};")
    yield kernel.step()


def copy_all(kernel: Kernel, node: ir.Node) -> None:
    """Copy the first operand, before parts of it are replaced."""
    x, out = operand(node, 0), node.outputs[0]
    p, q = kernel.read(x), kernel.write(out)
    total = kernel.dim(product(dims(x)))
    kernel.line(f"if ({total}) memcpy({q}, {p}, (size_t){total} * sizeof *{q});")


def _verify_reach(kernel: Kernel, node: ir.Node) -> None:
    """Check at run time that the indices reach no further than the data, along the other axes."""
    data, indices = dims(operand(node, 0)), dims(operand(node, 1))
    for axis, (size, reach) in enumerate(zip(data, indices, strict=True)):
        known = same(size, reach) or (isinstance(size, int) and isinstance(reach, int))
        if axis == _axis(node) or known:
            continue
        given, limit = kernel.dim(reach), kernel.dim(size)
        parts = (f"{label(node)}: indices for ", given, " of the ", limit, f" elements of axis {axis}")
        kernel.line(f"if ({given} > {limit}) {kernel.fail_with('ValueError', *parts)}")


@dataclass(frozen=True)
class _Nest:
    """Loops over the indices; axes along which the indices cover all data are one with the axis before."""

    lengths: list[Dim]
    strides: list[Dim | None]  # in the data; None: the axis that the indices choose
    axis: int

    def open(
        self, kernel: Kernel, node: ir.Node, stack: ExitStack, *, share: bool = False
    ) -> tuple[str, str]:
        """Write the loops, which threads may ``share``.

        Returns:
            The places of an index and of the element that it chooses.
        """
        data, indices = operand(node, 0), operand(node, 1)
        loops = [(f"i{number}", length, 1) for number, length in enumerate(self.lengths)]
        if share:
            stack.enter_context(shared(kernel, loops[:-1], product((ELEMENT, self.lengths[-1]))))
        for name, length, _ in loops[-1:] if share else loops:
            stack.enter_context(kernel.loop(name, length))
        here = " + ".join(
            f"i{number} * {kernel.dim(product(self.lengths[number + 1 :]))}"
            for number in range(len(self.lengths))
        )
        size, pitch = kernel.dim(dims(data)[self.axis]), product(dims(data)[self.axis + 1 :])
        kernel.line(f"const int64_t at = {here};")
        kernel.index("row", f"{kernel.read(indices)}[at]", size, label(node), f"axis {self.axis}")
        fixed = [
            f"i{number} * {kernel.dim(step)}" for number, step in enumerate(self.strides) if step is not None
        ]
        return "at", " + ".join([*fixed, f"row * {kernel.dim(pitch)}"])


def _nest(node: ir.Node) -> _Nest:
    data, indices, chosen = dims(operand(node, 0)), dims(operand(node, 1)), _axis(node)
    lengths: list[Dim] = []
    strides: list[Dim | None] = []
    for axis, length in enumerate(indices):
        stride = None if axis == chosen else product(data[axis + 1 :])
        if axis not in (0, chosen, chosen + 1) and same(length, data[axis]):
            lengths[-1], strides[-1] = product((lengths[-1], length)), stride
        else:
            lengths.append(length)
            strides.append(stride)
    return _Nest(lengths, strides, chosen)
