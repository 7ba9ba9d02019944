"""Normalization of rows: LayerNormalization, RMSNormalization, GroupNormalization, InstanceNormalization.

A *row* is the elements, one after another in memory, that share a mean and a variance. Its sums accumulate in
double, in several lanes. A second pass over the row, which is in the cache, computes the variance from the
differences to the mean, so that a large mean costs no digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type
from farcall.backends.c._gemm import declare_indices
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import coalesce
from farcall.backends.c._node import (
    Unsupported,
    float_attr,
    has_input,
    int_attr,
    normalize_axis,
    operand,
    output_used,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, floordiv, product

_D = ir.DataType
_LANES = 16  # partial sums of a row
_TILE = 64  # neighbouring rows that are computed together if a row is not contiguous


@dataclass(frozen=True)
class _Rows:
    """The dims outside and inside of a row, and those by which scale and bias broadcast over both."""

    outer: tuple[Dim, ...]
    inner: tuple[Dim, ...]
    factors: tuple[tuple[ir.Value, tuple[Dim, ...]], ...]  # scale, and bias if there is one


def _factors(node: ir.Node, tail: Sequence[Dim] = ()) -> tuple[tuple[ir.Value, tuple[Dim, ...]], ...]:
    given = [operand(node, index) for index in (1, 2) if has_input(node, index)]
    return tuple((value, (*dims(value), *tail)) for value in given)


def _layer_rows(node: ir.Node) -> _Rows:
    shape = dims(operand(node, 0))
    axis = normalize_axis(int_attr(node, "axis", -1), len(shape))
    return _Rows(shape[:axis], shape[axis:], _factors(node))


def _group_rows(node: ir.Node) -> _Rows:
    """Scale and bias have one element for each channel. (ONNX has withdrawn the operator of opset 18.)"""
    batch, channels, *plane = dims(operand(node, 0))
    groups = int_attr(node, "num_groups", 1)
    inner = (floordiv(channels, groups), product(plane))
    factors = tuple((value, (groups, inner[0], 1)) for value, _ in _factors(node))
    return _Rows((batch, groups), inner, factors)


def _instance_rows(node: ir.Node) -> _Rows:
    batch, channels, *plane = dims(operand(node, 0))
    return _Rows((batch, channels), (product(plane),), _factors(node, (1,)))


_ROWS = {
    "LayerNormalization": _layer_rows,
    "RMSNormalization": _layer_rows,
    "GroupNormalization": _group_rows,
    "InstanceNormalization": _instance_rows,
}


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    least = 1 if node.op_type in ("LayerNormalization", "RMSNormalization") else 2
    if rank(operand(node, 0)) < least:
        raise Unsupported(f"rank below {least}")
    if node.op_type == "GroupNormalization":
        groups, channels = int_attr(node, "num_groups", 0), dims(operand(node, 0))[1]
        if groups < 1 or not isinstance(channels, int) or channels % groups:
            raise Unsupported(f"{groups} groups of {channels} channels")
    for value, shape in _ROWS[node.op_type](node).factors:
        if len(shape) > len(_domain(node)):
            raise Unsupported(f"`{value.name}` has more dims than the input")


def _domain(node: ir.Node) -> tuple[Dim, ...]:
    rows = _ROWS[node.op_type](node)
    return (*rows.outer, *rows.inner)


@loops(*_ROWS, check=_check)
def _normalize(node: ir.Node) -> Iterator[Step]:
    yield _RowWriter(node).write()


class _RowWriter:
    """One loop over the rows. In each: sum, variance, and the loops over the nest of scale and bias."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.kernel = Kernel()
        self.rows = _ROWS[node.op_type](node)
        self.centered = node.op_type != "RMSNormalization"
        x, out = operand(node, 0), node.outputs[0]
        self.p, self.q = self.kernel.read(x), self.kernel.write(out)
        self.length = self.kernel.dim(product(self.rows.inner))
        self.kind = "double" if _D.DOUBLE in {x.dtype, out.dtype} else "float"
        split, total = len(self.rows.outer), len(self.rows.outer) + len(self.rows.inner)
        views = [(1,) * (total - len(view)) + view for _, view in self.rows.factors]
        self.outside = coalesce(self.rows.outer, [view[:split] for view in views])
        self.inside = coalesce(self.rows.inner, [view[split:] for view in views])
        self.sizes = [product(view[split:]) for view in views]  # of scale and bias inside of a row

    def write(self) -> Step:
        kernel = self.kernel
        pointers = [kernel.read(value) for value, _ in self.rows.factors]
        cost = product((3 * ELEMENT, *self.rows.inner))
        with kernel.parallel("row", product(self.rows.outer), cost):
            declare_indices(kernel, "row", [(f"i{axis}", dim) for axis, dim in enumerate(self.outside.dims)])
            self._row(pointers)
        return kernel.step()

    def _row(self, pointers: Sequence[str]) -> None:
        kernel = self.kernel
        kernel.line(f"const {c_type(operand(self.node, 0).dtype)}* in = {self.p} + row * {self.length};")
        kernel.line(f"{c_type(self.node.outputs[0].dtype)}* out = {self.q} + row * {self.length};")
        kernel.line(f"const double count = (double){self.length};")
        mean = "0"
        if self.centered:
            row_sum(kernel, "mean", "in[{0}]", self.length)
            kernel.line("mean /= count;")
            mean = "mean"
        row_sum(kernel, "square", f"(in[{{0}}] - {mean}) * (in[{{0}}] - {mean})", self.length)
        epsilon = c_literal(float_attr(self.node, "epsilon", 1e-5), _D.FLOAT)
        kernel.line(f"const double inverse = 1 / sqrt(square / count + (double){epsilon});")
        self._statistics()
        kernel.line(f"const {self.kind} shift = ({self.kind}){mean}, factor = ({self.kind})inverse;")
        for number, pointer in enumerate(pointers):
            kind = c_type(self.rows.factors[number][0].dtype)
            kernel.line(f"const {kind}* f{number} = {pointer} + {self._outer_offset(number)};")
        self._apply()

    def _statistics(self) -> None:
        """LayerNormalization's further outputs: mean, and inverse of the standard deviation."""
        for index, name in ((1, "mean"), (2, "inverse")):
            if output_used(self.node, index):
                out = self.node.outputs[index]
                self.kernel.line(f"{self.kernel.write(out)}[row] = ({c_type(out.dtype)}){name};")

    def _outer_offset(self, number: int) -> str:
        terms = []
        for axis in range(len(self.outside.dims)):
            if self.outside.moves[number][axis]:
                stride = product((self.outside.stride(number, axis), self.sizes[number]))
                terms.append(f"i{axis} * {self.kernel.dim(stride)}")
        return " + ".join(terms) or "0"

    def _apply(self) -> None:
        kernel, nest = self.kernel, self.inside
        with ExitStack() as stack:
            for axis, dim in enumerate(nest.dims):
                stack.enter_context(kernel.loop(f"j{axis}", kernel.dim(dim)))
            at = self._inner_offset([True] * len(nest.dims), self._strides(None))
            text = f"(in[{at}] - shift) * factor" if self.centered else f"in[{at}] * factor"
            for number, sign in zip(range(len(self.rows.factors)), "*+", strict=False):
                place = self._inner_offset(nest.moves[number], self._strides(number))
                text = f"{text} {sign} f{number}[{place}]"
            kernel.line(f"out[{at}] = {text};")

    def _strides(self, number: int | None) -> list[Dim]:
        """The strides inside of a row: of a factor, or of the row itself."""
        axes = range(len(self.inside.dims))
        if number is None:
            return [product(self.inside.dims[axis + 1 :]) for axis in axes]
        return [self.inside.stride(number, axis) for axis in axes]

    def _inner_offset(self, moves: Sequence[bool], strides: Sequence[Dim]) -> str:
        terms = [
            f"j{axis}" if stride == 1 else f"j{axis} * {self.kernel.dim(stride)}"
            for axis, (moved, stride) in enumerate(zip(moves, strides, strict=True))
            if moved
        ]
        return " + ".join(terms) or "0"


def row_sum(kernel: Kernel, name: str, element: str, length: str) -> None:
    """Compute ``double name``: the sum of ``element``, which has ``{0}`` for k, over k < ``length``."""
    kernel.line(f"double {name} = 0;")
    with kernel.block():
        kernel.line(f"double lane[{_LANES}] = {{0}};\nint64_t k = 0;")
        with kernel.block(f"for (; k + {_LANES} <= {length}; k += {_LANES})"):
            kernel.line(f"for (int t = 0; t < {_LANES}; ++t) lane[t] += {element.format('k + t')};")
        kernel.line(f"for (; k < {length}; ++k) lane[0] += {element.format('k')};")
        kernel.line(f"for (int t = 0; t < {_LANES}; ++t) {name} += lane[t];")


def _check_lp(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    normalize_axis(int_attr(node, "axis", -1), rank(operand(node, 0)))
    if int_attr(node, "p", 2) not in (1, 2):
        raise Unsupported(f"p={int_attr(node, 'p', 2)}; 1 and 2 are defined")


@loops("LpNormalization", check=_check_lp)
def _lp_normalization(node: ir.Node) -> Iterator[Step]:
    """Divide by the norm along an axis; where it is 0, the result is 0."""
    shape = dims(operand(node, 0))
    axis = normalize_axis(int_attr(node, "axis", -1), len(shape))
    kernel = Kernel()
    if product(shape[axis + 1 :]) == 1:
        _lp_rows(kernel, node, product(shape[:axis]), shape[axis])
    else:
        _lp_tiles(kernel, node, axis)
    yield kernel.step()


def _norm(node: ir.Node, total: str) -> str:
    """C of the norm whose sum is ``total``; see :func:`_term`."""
    return total if int_attr(node, "p", 2) == 1 else f"sqrt({total})"


def _term(node: ir.Node, element: str) -> str:
    """C of what an element, a double, adds to the sum."""
    return f"fabs({element})" if int_attr(node, "p", 2) == 1 else f"{element} * {element}"


def _lp_rows(kernel: Kernel, node: ir.Node, rows: Dim, length: Dim) -> None:
    """Elements of a norm one after another."""
    x, out = operand(node, 0), node.outputs[0]
    kind, count = c_type(out.dtype), kernel.dim(length)
    p, q = kernel.read(x), kernel.write(out)
    with kernel.parallel("i", rows, product((2 * ELEMENT, length))):
        kernel.line(f"const {kind}* in = {p} + i * {count};\n{kind}* restrict row = {q} + i * {count};")
        row_sum(kernel, "total", _term(node, "(double)in[{0}]"), count)
        kernel.line(f"const double norm = {_norm(node, 'total')};")
        if kind == "double":  # whose smallest numbers have no inverse
            made = "norm == 0 ? 0 : in[k] / norm"
        else:
            kernel.line("const double factor = norm == 0 ? 0 : 1 / norm;")
            made = f"({kind})(in[k] * factor)"
        with kernel.loop("k", count):
            kernel.line(f"row[k] = {made};")


def _lp_tiles(kernel: Kernel, node: ir.Node, axis: int) -> None:
    """Several norms at once, whose elements are one after another."""
    x, out = operand(node, 0), node.outputs[0]
    shape = dims(x)
    p, q = kernel.read(x), kernel.write(out)
    inner, length = kernel.dim(product(shape[axis + 1 :])), kernel.dim(shape[axis])
    cost = product((2 * ELEMENT, *shape[axis:]))
    with kernel.parallel("i", product(shape[:axis]), cost), kernel.loop("j", inner, step=_TILE):
        kernel.line(f"const int64_t tile = {inner} - j < {_TILE} ? {inner} - j : {_TILE};")
        kernel.line(f"const int64_t start = i * {length} * {inner} + j;")
        kernel.line(f"double norm[{_TILE}] = {{0}};")
        with kernel.loop("k", length), kernel.loop("t", "tile"):
            kernel.line(f"const double v = {p}[start + k * {inner} + t];")
            kernel.line(f"norm[t] += {_term(node, 'v')};")
        with kernel.loop("t", "tile"):
            kernel.line(f"norm[t] = {_norm(node, 'norm[t]')};")
        with kernel.loop("k", length), kernel.loop("t", "tile"):
            at = f"start + k * {inner} + t"
            kernel.line(f"{q}[{at}] = norm[t] == 0 ? 0 : ({c_type(out.dtype)})({p}[{at}] / norm[t]);")


def _check_training(node: ir.Node) -> None:
    """Check a BatchNormalization in training mode."""
    want_dtypes(node, FLOATS)
    if rank(operand(node, 0)) < 2:
        raise Unsupported("rank below 2")


@loops("BatchNormalization", check=_check_training, training=True)
def _batch_normalization(node: ir.Node) -> Iterator[Step]:
    """Normalize each channel by its own mean and variance, and update the running ones."""
    x, out = operand(node, 0), node.outputs[0]
    batch, channels, *rest = dims(x)
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(out)
    scale, bias, mean, variance = (kernel.read(operand(node, i)) for i in range(1, 5))
    plane, count = kernel.dim(product(rest)), kernel.dim(product((batch, *rest)))
    momentum = f"(double){c_literal(float_attr(node, 'momentum', 0.9), _D.FLOAT)}"
    epsilon = c_literal(float_attr(node, "epsilon", 1e-5), _D.FLOAT)
    with kernel.loop("c", kernel.dim(channels)):
        kernel.line("double total = 0, spread = 0;")
        for name, element in (("total", "in[{0}]"), ("spread", "(in[{0}] - total) * (in[{0}] - total)")):
            with kernel.loop("n", kernel.dim(batch)):
                kernel.line(
                    f"const {c_type(x.dtype)}* in = {p} + (n * {kernel.dim(channels)} + c) * {plane};"
                )
                row_sum(kernel, "part", element, plane)
                kernel.line(f"{name} += part;")
            kernel.line(f"{name} /= (double){count};")
        for index, old, new in ((1, mean, "total"), (2, variance, "spread")):
            if output_used(node, index):
                result = node.outputs[index]
                kernel.line(
                    f"{kernel.write(result)}[c] = ({c_type(result.dtype)})"
                    f"({old}[c] * {momentum} + {new} * (1 - {momentum}));"
                )
        kernel.line(f"const double factor = {scale}[c] / sqrt(spread + (double){epsilon});")
        with kernel.loop("n", kernel.dim(batch)):
            kernel.line(f"const int64_t start = (n * {kernel.dim(channels)} + c) * {plane};")
            with kernel.loop("k", plane):
                value = f"({p}[start + k] - total) * factor + {bias}[c]"
                kernel.line(f"{q}[start + k] = ({c_type(out.dtype)})({value});")
    yield kernel.step()
