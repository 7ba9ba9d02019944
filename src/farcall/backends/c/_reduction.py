"""ReduceSum and its relatives, and GlobalAveragePool, which is a ReduceMean.

Float sums accumulate in double, in several lanes: exact enough for millions of elements, and fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS, c_type
from farcall.backends.c._formula import TOTAL, Formula, formula_of
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    has_input,
    int_attr,
    ints_attr,
    normalize_axis,
    operand,
    opset,
    rank,
    want_dtypes,
)
from farcall.backends.c._reduce_late import reduce_at_run_time
from farcall.backends.c._registry import allocating, loops
from farcall.graph.dims import Dim, dims, product

_D = ir.DataType
_LANES = 32  # partial results along a contiguous row: gcc 12 makes no vectors of 16
_TILE = 64  # results that are computed together if the row is kept

_SHORT = 64  # elements of a row whose sum needs no array of lanes

_COST = 4  # of an element

# Its lanes stay in registers: gcc 12 keeps an array of them in memory, most of a short row's time.
_SUM = """\
typedef float farcall_floats_of_sum __attribute__((vector_size(16), aligned(1), may_alias));
typedef double farcall_lanes_of_sum __attribute__((vector_size(32)));
static inline farcall_lanes_of_sum farcall_part_of_sum(const float* x) {
  return __builtin_convertvector(*(const farcall_floats_of_sum*)x, farcall_lanes_of_sum);
}
static inline double farcall_sum_of_row(const float* x, int64_t n) {
  farcall_lanes_of_sum a = {0}, b = {0}, c = {0}, d = {0};
  for (; n >= 16; n -= 16, x += 16) {
    a += farcall_part_of_sum(x), b += farcall_part_of_sum(x + 4);
    c += farcall_part_of_sum(x + 8), d += farcall_part_of_sum(x + 12);
  }
  for (; n >= 4; n -= 4, x += 4) a += farcall_part_of_sum(x);
  double rest = 0;
  for (; n > 0; --n, ++x) rest += *x;
  a = (a + b) + (c + d);
  return (a[0] + a[1]) + (a[2] + a[3]) + rest;
}"""

_NAMES = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip
_FLOAT_ONLY = {"ReduceLogSum", "ReduceLogSumExp", "ReduceL2"}
_AXES_INPUT_SINCE = {"ReduceSum": 13}  # all others: 18


def reduced_axes(node: ir.Node) -> list[int] | None:
    """The axes to reduce, sorted; None if they are computed at run time."""
    count = rank(operand(node, 0))
    noop = False
    if opset(node) < _AXES_INPUT_SINCE.get(node.op_type, 18):
        axes = ints_attr(node, "axes", [])
    else:
        noop = bool(int_attr(node, "noop_with_empty_axes", 0))
        given = constant(operand(node, 1)) if has_input(node, 1) else None
        if given is None and has_input(node, 1) and dims(operand(node, 1)) != (0,):
            return None
        axes = [] if given is None else [int(axis) for axis in given.ravel()]
    every = [] if noop else list(range(count))
    return sorted({normalize_axis(axis, count) for axis in axes}) or every


def _check(node: ir.Node) -> None:
    allowed = FLOATS if node.op_type in _FLOAT_ONLY else FLOATS | INTEGERS
    if opset(node) >= 20 and node.op_type in ("ReduceMax", "ReduceMin"):
        allowed |= {_D.BOOL}
    want_dtypes(node, allowed, 0)
    if reduced_axes(node) is None and not isinstance(dims(operand(node, 1))[0], int):
        raise Unsupported("how many axes there are is known only at run time")


@allocating(*_NAMES, check=_check)
@loops(*_NAMES, check=_check)
def _reduce(node: ir.Node) -> Iterator[Step]:
    source, out = operand(node, 0), node.outputs[0]
    axes = reduced_axes(node)
    if axes is None:
        yield reduce_at_run_time(node)
    else:
        yield reduce_step(node.op_type, source, out, axes)


def reduce_step(name: str, source: ir.Value, out: ir.Value, axes: Sequence[int]) -> Step:
    """One kernel that reduces ``axes`` of ``source``."""
    assert source.dtype is not None  # noqa: S101 - checked before
    if name == "ReduceLogSumExp":
        return _LogSumExp(source, out, axes).write()
    return _Reduction(formula_of(name, source.dtype), source, out, axes).write()


class _Reduction:
    """Outer loops over kept axes, inner loops over reduced axes; adjacent axes of one kind are merged."""

    def __init__(self, formula: Formula, source: ir.Value, out: ir.Value, axes: Sequence[int]) -> None:
        self.formula = formula
        self.kernel = Kernel()
        self.out_type = c_type(out.dtype)
        self.adds_floats = source.dtype == _D.FLOAT and (formula.element, formula.combine) == ("{x}", TOTAL)
        self.lengths, self.reduced = _runs(dims(source), set(axes))
        self.p, self.q = self.kernel.read(source), self.kernel.write(out)
        self.strides = [product(self.lengths[i + 1 :]) for i in range(len(self.lengths))]
        self.count = self.kernel.dim(product(d for d, r in zip(self.lengths, self.reduced, strict=True) if r))
        self.maximum = ""

    def write(self) -> Step:
        last = len(self.lengths) - 1
        kept = [i for i in range(last + 1) if not self.reduced[i] and i != last]
        with ExitStack() as stack:
            for axis in kept:
                first = axis == kept[0]
                stack.enter_context(
                    self._parallel(axis) if first else self.kernel.loop(f"i{axis}", self.lengths[axis])
                )
            if last >= 0 and not self.reduced[last]:
                self._columns(last)
            elif self.adds_floats and last >= 0 and _is_short(self.lengths[last]):
                self._sum()
            else:
                self._row()
        return self.kernel.step()

    def _parallel(self, axis: int, step: int = 1) -> AbstractContextManager[None]:
        """The loop over an axis that is kept, which threads share."""
        others = (length for other, length in enumerate(self.lengths) if other != axis)
        name = "j" if axis == len(self.lengths) - 1 else f"i{axis}"
        return self.kernel.parallel(name, self.lengths[axis], product((_COST * step, *others)), step=step)

    def _out_offset(self) -> str:
        terms: list[str] = []
        scale: Dim = 1
        for axis in reversed(range(len(self.lengths))):
            if self.reduced[axis]:
                continue
            if axis != len(self.lengths) - 1:
                terms.append(f"i{axis} * {self.kernel.dim(scale)}")
            scale = product((scale, self.lengths[axis]))
        return " + ".join(terms) or "0"

    def _in_offset(self) -> str:
        terms = (f"i{axis} * {self.kernel.dim(self.strides[axis])}" for axis in range(len(self.lengths) - 1))
        return " + ".join(terms) or "0"

    def _middle(self, stack: ExitStack) -> None:
        for axis in range(len(self.lengths) - 1):
            if self.reduced[axis]:
                stack.enter_context(self.kernel.loop(f"i{axis}", self.kernel.dim(self.lengths[axis])))

    def _take(self, accumulator: str, at: str) -> None:
        kind = self.formula.kind
        self.kernel.line(
            f"const {kind} b = ({kind})({self.formula.element.format(x=f'{self.p}[{at}]', m=self.maximum)});"
        )
        self.kernel.line(f"{accumulator} = {self.formula.combine.format(a=accumulator, b='b')};")

    def _finish(self, accumulator: str, target: str) -> None:
        result = self.formula.finish.format(a=accumulator, n=f"(int64_t){self.count}", m=self.maximum)
        self.kernel.line(f"{self.q}[{target}] = ({self.out_type})({result});")

    def _sum(self) -> None:
        """Add up the innermost axis."""
        self.kernel.file_scope(_SUM)
        self.kernel.line("double total = 0;")
        with ExitStack() as stack:
            self._middle(stack)
            row = f"{self.p} + {self._in_offset()}, {self.kernel.dim(self.lengths[-1])}"
            self.kernel.line(f"total += farcall_sum_of_row({row});")
        self._finish("total", self._out_offset())

    def _row(self) -> None:
        self._row_of_lanes()
        self._finish("lanes[0]", self._out_offset())

    def _row_of_lanes(self) -> None:
        """Reduce the innermost axis with partial results in lanes, so that the compiler can use vectors."""
        kernel, formula = self.kernel, self.formula
        length = kernel.dim(self.lengths[-1]) if self.lengths else "1"
        kernel.line(f"{formula.kind} lanes[{_LANES}];")
        with kernel.loop("t", str(_LANES)):
            kernel.line(f"lanes[t] = {formula.start};")
        with ExitStack() as stack:
            self._middle(stack)
            kernel.line(f"const int64_t at = {self._in_offset()};")
            kernel.line("int64_t j = 0;")
            with (
                kernel.block(f"for (; j + {_LANES} <= {length}; j += {_LANES})"),
                kernel.loop("t", str(_LANES)),
            ):
                self._take("lanes[t]", "at + j + t")
            fixed = self.lengths and isinstance(self.lengths[-1], int)
            with kernel.loop("t", str(int(self.lengths[-1]) % _LANES) if fixed else f"{length} - j"):
                self._take("lanes[t]", "at + j + t")
        for half in (_LANES >> bits for bits in range(1, _LANES.bit_length())):
            with kernel.loop("t", str(half)):
                kernel.line(f"lanes[t] = {formula.combine.format(a='lanes[t]', b=f'lanes[t + {half}]')};")

    def _columns(self, last: int) -> None:
        """Keep the innermost axis: compute a tile of results together, so that memory is read in order."""
        kernel = self.kernel
        width = kernel.dim(self.lengths[last])
        outermost = all(self.reduced[:last])
        with self._parallel(last, _TILE) if outermost else kernel.loop("j", width, step=_TILE):
            kernel.line(f"const int64_t tile = {width} - j < {_TILE} ? {width} - j : {_TILE};")
            self._tile_of_lanes()
            with kernel.loop("t", "tile"):
                self._finish("lanes[t]", f"{self._out_offset()} + j + t")

    def _tile_of_lanes(self) -> None:
        kernel, formula = self.kernel, self.formula
        kernel.line(f"{formula.kind} lanes[{_TILE}];")
        with kernel.loop("t", "tile"):
            kernel.line(f"lanes[t] = {formula.start};")
        with ExitStack() as stack:
            self._middle(stack)
            kernel.line(f"const int64_t at = {self._in_offset()} + j;")
            with kernel.loop("t", "tile"):
                self._take("lanes[t]", "at + t")


class _LogSumExp(_Reduction):
    """Subtracts the maximum, so that no exponential overflows."""

    def __init__(self, source: ir.Value, out: ir.Value, axes: Sequence[int]) -> None:
        assert source.dtype is not None  # noqa: S101
        super().__init__(formula_of("ReduceLogSumExp", source.dtype), source, out, axes)
        self.largest = formula_of("ReduceMax", source.dtype)

    def _row_of_lanes(self) -> None:
        self._find_maxima(super()._row_of_lanes, "1", _LANES)
        self.maximum = "maxima[0]"
        super()._row_of_lanes()

    def _tile_of_lanes(self) -> None:
        self._find_maxima(super()._tile_of_lanes, "tile", _TILE)
        self.maximum = "maxima[t]"
        super()._tile_of_lanes()

    def _find_maxima(self, reduce: Callable[[], None], count: str, most: int) -> None:
        """Fill ``maxima``. One that is infinite is 0 there: infinity minus infinity would be NaN."""
        kernel, formula = self.kernel, self.formula
        kernel.line(f"{self.largest.kind} maxima[{most}];")
        self.formula = self.largest
        with kernel.block():
            reduce()
            with kernel.loop("t", count):
                kernel.line("maxima[t] = fabs((double)lanes[t]) == INFINITY ? 0 : lanes[t];")
        self.formula = formula


def _is_short(length: Dim) -> bool:
    return isinstance(length, int) and length <= _SHORT


def _runs(shape: Sequence[Dim], axes: set[int]) -> tuple[list[Dim], list[bool]]:
    """The dims without ones, neighbours of one kind merged, and for each whether it is reduced."""
    lengths: list[Dim] = []
    reduced: list[bool] = []
    for axis, dim in enumerate(shape):
        if dim == 1:
            continue
        if reduced and reduced[-1] == (axis in axes):
            lengths[-1] = product((lengths[-1], dim))
        else:
            lengths.append(dim)
            reduced.append(axis in axes)
    return lengths, reduced


def _check_global(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    if rank(operand(node, 0)) < 2:
        raise Unsupported("rank below 2")


@loops("GlobalAveragePool", "GlobalMaxPool", check=_check_global)
def _global_pool(node: ir.Node) -> Iterator[Step]:
    source = operand(node, 0)
    name = "ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax"
    yield reduce_step(name, source, node.outputs[0], range(2, rank(source)))
