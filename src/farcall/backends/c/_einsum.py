"""Einsum: matrix products of two operands at a time, which are copied where their axes are not in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS, c_type, itemsize
from farcall.backends.c._gemm import ZERO, call_gemm, plain_left, plain_right
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import Unsupported, operand, str_attr, want_dtypes
from farcall.backends.c._registry import loops
from farcall.graph._equation import Equation, equation_of
from farcall.graph.dims import Dim, dims, product, same

_D = ir.DataType


@dataclass(frozen=True)
class _View:
    """Elements in memory; a label that repeats along an axis has stride 0."""

    pointer: str
    dtype: ir.DataType
    strides: Mapping[str, Dim]  # label -> stride, in elements


def _equation(node: ir.Node) -> Equation:
    ranks = [len(dims(operand(node, index))) for index in range(len(node.inputs))]
    try:
        return equation_of(str_attr(node, "equation", ""), ranks)
    except ValueError as error:
        raise Unsupported(str(error)) from None


def _sizes(node: ir.Node, equation: Equation) -> dict[str, Dim]:
    """Label -> the size of its axes; those of size 1 repeat."""
    sizes: dict[str, Dim] = {}
    for index, labels in enumerate(equation.operands):
        for label, dim in zip(labels, dims(operand(node, index)), strict=True):
            known = sizes.get(label, 1)
            if isinstance(known, int) and isinstance(dim, int) and known != dim and 1 not in (known, dim):
                raise Unsupported(f"label `{label}` is {known} and {dim}")
            sizes[label] = dim if known == 1 else known
    return sizes


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | INTEGERS)
    _sizes(node, _equation(node))


@loops("Einsum", check=_check)
def _einsum(node: ir.Node) -> Iterator[Step]:
    yield _Einsum(node).write()


class _Einsum:
    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.kernel = Kernel()
        self.equation = _equation(node)
        self.sizes = _sizes(node, self.equation)
        self.names = {label: f"e{number}" for number, label in enumerate(self.sizes)}
        self.out = node.outputs[0]

    def write(self) -> Step:
        waiting = [self._operand(index) for index in range(len(self.equation.operands))]
        total = waiting.pop(0)
        while waiting:
            other = next((item for item in waiting if item.strides.keys() & total.strides.keys()), waiting[0])
            waiting.remove(other)
            needed = {*self.equation.result, *(label for item in waiting for label in item.strides)}
            left, right = self._summed(total, other, needed), self._summed(other, total, needed)
            total = self._multiply(left, right, needed, is_last=not waiting)
        out = self.kernel.write(self.out)
        if total.pointer != out:
            self._copy(total, self.equation.result, out, self.out.dtype)
        return self.kernel.step()

    def _operand(self, index: int) -> _View:
        value, strides = operand(self.node, index), dict.fromkeys(self.equation.operands[index], 0)
        shape, found = dims(value), dict[str, Dim](strides)
        for axis, label in enumerate(self.equation.operands[index]):
            if shape[axis] != 1:
                found[label] = found[label] + product(shape[axis + 1 :])
        assert value.dtype is not None  # noqa: S101 - checked before
        return _View(self.kernel.read(value), value.dtype, found)

    def _summed(self, view: _View, other: _View, needed: Collection[str]) -> _View:
        """The view without the labels that nothing else has: their elements are summed."""
        kept = [label for label in view.strides if label in needed or label in other.strides]
        return view if len(kept) == len(view.strides) else self._packed(view, kept)

    def _multiply(self, a: _View, b: _View, needed: Collection[str], *, is_last: bool) -> _View:
        """A matrix product for each index of the labels that both operands and the result have."""
        batch = self._ordered(label for label in a.strides if label in b.strides and label in needed)
        inner = [label for label in a.strides if label in b.strides and label not in needed]
        rows = self._ordered(label for label in a.strides if label not in b.strides)
        columns = self._ordered(label for label in b.strides if label not in a.strides)
        if self._is_narrow(a) or None in (self._pitch(a, rows), self._pitch(a, inner)):
            a = self._packed(a, [*batch, *rows, *inner])
        contiguous = 1 if self._long(columns) else 0
        if self._is_narrow(b) or self._pitch(b, columns) != contiguous or self._pitch(b, inner) is None:
            b = self._packed(b, [*batch, *inner, *columns])
        labels = [*batch, *rows, *columns]
        result = self._fresh(a.dtype, labels, is_last and labels == [*self.equation.result])
        kernel, m, k, n = self.kernel, self._count(rows), self._count(inner), self._count(columns)
        with ExitStack() as stack:
            for label in batch:
                stack.enter_context(kernel.loop(self.names[label], self.sizes[label]))
            x, y, z = (f"{view.pointer} + {self._offset(view, batch)}" for view in (a, b, result))
            left = plain_left(x, self._step(a, rows), self._step(a, inner))
            right = plain_right(b.dtype, y, self._step(b, inner))
            call_gemm(kernel, a.dtype, [m, n, k], left, right, (z, n), ZERO)
        return result

    def _ordered(self, labels: Iterator[str] | Sequence[str]) -> list[str]:
        """Labels in the order of the result, so that it needs no copy; others behind them."""
        place = {label: number for number, label in enumerate(self.equation.result)}
        return sorted(labels, key=lambda label: place.get(label, len(place)))

    @staticmethod
    def _is_narrow(view: _View) -> bool:
        return itemsize(view.dtype) < 4

    def _long(self, labels: Sequence[str]) -> list[str]:
        return [label for label in labels if self.sizes[label] != 1]

    def _pitch(self, view: _View, labels: Sequence[str]) -> Dim | None:
        """The one stride of several axes that are like one; None if there is none. Of one element it is 0."""
        axes = self._long(labels)
        for outer, label in pairwise(axes):
            if not same(view.strides[outer], view.strides[label] * self.sizes[label]):
                return None
        return view.strides[axes[-1]] if axes else 0

    def _step(self, view: _View, labels: Sequence[str]) -> str:
        pitch = self._pitch(view, labels)
        assert pitch is not None  # noqa: S101 - the view was packed otherwise
        return self.kernel.dim(pitch)

    def _count(self, labels: Sequence[str]) -> str:
        return self.kernel.dim(product(self.sizes[label] for label in labels))

    def _fresh(self, dtype: ir.DataType, labels: Sequence[str], is_output: bool = False) -> _View:
        """Memory for one element for each index of ``labels``, in row-major order."""
        strides: dict[str, Dim] = {}
        for number, label in enumerate(labels):
            strides[label] = product(self.sizes[item] for item in labels[number + 1 :])
        if is_output and dtype == self.out.dtype:
            return _View(self.kernel.write(self.out), dtype, strides)
        size = product(self.sizes[label] for label in labels)
        return _View(self.kernel.scratch(dtype, size), dtype, strides)

    def _packed(self, view: _View, labels: Sequence[str]) -> _View:
        """A copy in the order of ``labels``, in a type of at least 32 bits, summed over all others."""
        wide = _D.UINT32 if self._is_narrow(view) else view.dtype
        copy = self._fresh(wide, labels)
        self._copy(view, labels, copy.pointer, wide)
        return copy

    def _offset(self, view: _View, labels: Sequence[str]) -> str:
        terms = (
            f"{self.names[label]} * {self.kernel.dim(view.strides[label])}"
            for label in labels
            if view.strides.get(label, 0) != 0
        )
        return " + ".join(terms) or "0"

    def _copy(self, view: _View, labels: Sequence[str], target: str, dtype: ir.DataType | None) -> None:
        """Write ``view``, summed over all other labels, to ``target`` in the order of ``labels``."""
        kernel = self.kernel
        order = {
            label: product(self.sizes[item] for item in labels[i + 1 :]) for i, label in enumerate(labels)
        }
        place = self._offset(_View(target, view.dtype, order), labels)
        added = [label for label in view.strides if label not in labels]
        kind = "double" if view.dtype in FLOATS else "uint64_t"
        with kernel.block(), ExitStack() as stack:
            for label in labels:
                stack.enter_context(kernel.loop(self.names[label], self.sizes[label]))
            element = f"{view.pointer}[{self._offset(view, [*labels, *added])}]"
            if added:
                kernel.line(f"{kind} total = 0;")
                with ExitStack() as inner:
                    for label in added:
                        inner.enter_context(kernel.loop(self.names[label], self.sizes[label]))
                    kernel.line(f"total += ({kind}){element};")
            kernel.line(f"{target}[{place}] = ({c_type(dtype)}){'total' if added else element};")
