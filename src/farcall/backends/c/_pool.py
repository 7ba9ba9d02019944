"""MaxPool, AveragePool, LpPool, GlobalLpPool and LRN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    float_attr,
    int_attr,
    ints_attr,
    operand,
    output_used,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT, FUNCTION
from farcall.backends.c._pool_text import Join, largest, power_sum, total
from farcall.backends.c._registry import loops
from farcall.backends.c._window import Axis, axes_of, position, rows_of_windows
from farcall.graph.dims import Dim, ceildiv, dims, floordiv, product

_D = ir.DataType
_TILE = 64
_LARGEST_POWER = 64  # of LpPool: no float but 1 has a larger one that is a float
_MOST_TAPS = 1 << 16  # of the last axis, each of which is an address in the text
_ROWS = 8  # most rows that are joined at once
_SHORT = 16  # elements of a row, of which several are joined as one
_BLOCK = 1024  # elements of such rows together
_PLANE = 8192  # most elements of the joined rows of a plane


def _check(node: ir.Node) -> None:
    extra = {_D.INT8, _D.UINT8} if node.op_type == "MaxPool" else set()
    want_dtypes(node, FLOATS | extra)
    if rank(operand(node, 0)) < 3:
        raise Unsupported(f"rank {rank(operand(node, 0))}; a batch, channels and spatial axes are needed")
    taps = axes_of(node, ints_attr(node, "kernel_shape", []))[-1].taps
    if taps > _MOST_TAPS:
        raise Unsupported(f"windows of {taps} elements in a row; at most {_MOST_TAPS} are compiled")


class _Pool:
    """The loops of a pool: over planes, and over rows of windows in each plane."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.kernel = Kernel()
        x = operand(node, 0)
        assert x.dtype is not None  # noqa: S101 - checked before
        self.dtype = x.dtype
        self.kind = c_type(x.dtype)
        self.axes = axes_of(node, ints_attr(node, "kernel_shape", []))
        self.p, self.q = self.kernel.read(x), self.kernel.write(node.outputs[0])
        self.plane = self.kernel.dim(product(axis.size for axis in self.axes))
        self.out_plane = self.kernel.dim(product(axis.out for axis in self.axes))
        self.width = self.kernel.dim(self.axes[-1].out)

    def rows(self, stack: ExitStack) -> None:
        """Open the loops; ``in`` is the input plane, ``line`` the output row."""
        stack.enter_context(self.kernel.parallel("n", product(dims(operand(self.node, 0))[:2]), self._cost))
        self._declare_in()
        stack.enter_context(self._rows_of_plane())
        self.kernel.line(f"{self.kind}* restrict line = {self.q} + at;")

    @property
    def _cost(self) -> Dim:
        """Of a plane."""
        taps = prod(axis.taps for axis in self.axes)
        return product((ELEMENT + taps, *(axis.out for axis in self.axes)))

    def _declare_in(self) -> None:
        """Declare ``in``, which is plane ``n`` of the input."""
        self.kernel.line(f"const {self.kind}* const in = {self.p} + n * {self.plane};")

    @contextmanager
    def _rows_of_plane(self) -> Iterator[None]:
        """Open the loop over rows of outputs of plane ``n``, which begin ``at``."""
        with rows_of_windows(self.kernel, self.axes) as row:
            self.kernel.line(f"const int64_t at = n * {self.out_plane} + {row};")
            yield

    def join(self, join: Join, finish: str = "") -> Step:
        """All loops. ``finish`` is C that changes the outputs ``line[o]`` of a row, ``o0, o1, ...``.

        The rows of a window are joined first, into a line with the padding of the last axis at its ends. With
        a stride, its elements are put together that are equal modulo the stride. In such a phase, each tap
        of a window is at a fixed distance, so that the windows of a row are joined as rows, too.
        """
        kernel, last = self.kernel, self.axes[-1]
        kernel.file_scope(join.source())
        if planes := self._at_once():
            return self._join_planes(join, planes, finish)
        span = (last.out - 1) * last.stride + (last.taps - 1) * last.dilation + 1
        if self._is_small(span):
            return self._join_plane(join, span, finish)
        line = kernel.scratch(self.dtype, span)
        self._pad_line(line, kernel.dim(span), join.start)
        with ExitStack() as stack:
            self.rows(stack)
            self._join_rows(join, f"{line} + left")
            if last.stride > 1:
                phases = self._phases(line, span, kernel.dim(floordiv(span, last.stride)))
                self._end_phases(line, span, phases)
                line = phases
            self._join_taps(join, line, ceildiv(span, last.stride), self.width, "line")
            kernel.line(finish)
        return kernel.step()

    def _at_once(self) -> int:
        """How many planes are one block, whose rows are joined as one; 0: each row by itself.

        This pays for short rows, if no window is outside of a row.
        """
        last, outs = self.axes[-1], product(axis.out for axis in self.axes)
        if not all(isinstance(number, int) for number in (last.size, last.out, last.begin, outs)):
            return 0
        overlap = (last.taps - 1) * last.dilation >= last.stride
        if last.stride == 1 or overlap or last.begin != 0 or outs == 0:
            return 0
        fits = int(last.out) * last.stride <= min(int(last.size), _SHORT)
        planes = _BLOCK // (int(outs) * last.stride)
        return planes if fits and planes > 1 else 0

    def _join_planes(self, join: Join, planes: int, finish: str) -> Step:
        """All loops, over blocks of so many planes."""
        kernel, stride = self.kernel, self.axes[-1].stride
        span = product(axis.out for axis in self.axes) * stride * planes
        line = kernel.scratch(self.dtype, span)
        kernel.line(f"const int64_t left = 0, width = {self.width} * {stride};")
        count = product(dims(operand(self.node, 0))[:2])
        with kernel.parallel("n0", count, self._cost * planes, step=planes):
            kernel.line(f"const int64_t n1 = n0_end - n0 < {planes} ? n0_end : n0 + {planes};")
            with kernel.loop("n", "n1", start="n0"):
                self._declare_in()
                with self._rows_of_plane():
                    kernel.line(f"{self.kind}* const row = {line} + (at - n0 * {self.out_plane}) * {stride};")
                    self._join_rows(join, "row")
            outs = f"(n1 - n0) * {self.out_plane}"
            phases = self._phases(line, span, outs)
            self._join_taps(join, phases, floordiv(span, stride), outs, f"{self.q} + n0 * {self.out_plane}")
            if finish:
                with kernel.loop("n", "n1", start="n0"), self._rows_of_plane():
                    kernel.line(f"{self.kind}* restrict line = {self.q} + at;\n{finish}")
        return kernel.step()

    def _is_small(self, span: Dim) -> bool:
        """Whether a plane has several rows, whose joined ones, of ``span`` elements, stay in the cache."""
        rows, last = product(axis.out for axis in self.axes[:-1]), self.axes[-1]
        if not (isinstance(rows, int) and isinstance(span, int) and isinstance(last.size, int)):
            return False
        size = rows * ceildiv(span, last.stride) * last.stride
        return rows > 1 and last.out != 0 and size <= _PLANE

    def _join_plane(self, join: Join, span: Dim, finish: str) -> Step:
        """All loops, over planes, in steps: a vector waits if parts of it were written just before."""
        kernel, stride = self.kernel, self.axes[-1].stride
        room = ceildiv(span, stride)  # of a row in a phase
        size = product(axis.out for axis in self.axes[:-1]) * room
        line = kernel.scratch(self.dtype, size * stride)
        self._find_row(kernel.dim(span))
        with kernel.loop("x", kernel.dim(size * stride)):
            kernel.line(f"{line}[x] = {join.start};")
        row = f"(at - n * {self.out_plane}) / {self.width} * {kernel.dim(room)}"
        with kernel.parallel("n", product(dims(operand(self.node, 0))[:2]), self._cost):
            self._declare_in()
            with self._rows_of_plane():
                kernel.line(f"{self.kind}* const row = {line} + {row} * {stride};")
                self._join_rows(join, "row + left")
            phases = self._phases(line, size * stride, kernel.dim(size)) if stride > 1 else line
            with self._rows_of_plane():
                self._join_taps(join, f"{phases} + {row}", size, self.width, f"{self.q} + at")
            if finish:
                with self._rows_of_plane():
                    kernel.line(f"{self.kind}* restrict line = {self.q} + at;\n{finish}")
        return kernel.step()

    def _pad_line(self, line: str, length: str, start: str) -> None:
        """Find the part of a line that a row of the input fills, and pad the rest."""
        self._find_row(length)
        for first, end in (("0", "left"), ("left + width", length)):
            with self.kernel.loop("x", end, start=first):
                self.kernel.line(f"{line}[x] = {start};")

    def _find_row(self, length: str) -> None:
        """Declare ``left`` and ``width``, the part of a line that a row of the input fills."""
        kernel, last = self.kernel, self.axes[-1]
        begin, size = kernel.dim(last.begin), kernel.dim(last.size)
        kernel.line(f"const int64_t left = {begin} < 0 ? 0 : {begin} < {length} ? {begin} : {length};")
        kernel.line(f"const int64_t right = {size} + {begin} < {length} ? {size} + {begin} : {length};")
        kernel.line("const int64_t width = right > left ? right - left : 0;")

    def _join_rows(self, join: Join, target: str) -> None:
        """Join the rows that the windows of an output row have on the other axes."""
        kernel, last = self.kernel, self.axes[-1]
        name, most = f"farcall_join_{join.name}", prod(axis.taps for axis in self.axes[:-1])
        call = f"{name}(rows, count, loaded, width, {target})"
        kernel.line(f"const {self.kind}* rows[{min(most, _ROWS)}];\nint64_t count = 0, loaded = 0;")
        with ExitStack() as stack:
            place = "0"
            for i, axis in enumerate(self.axes[:-1]):
                stack.enter_context(kernel.loop(f"k{i}", str(axis.taps)))
                kernel.line(f"const int64_t y{i} = {position(kernel, axis, f'o{i}', f'k{i}')};")
                kernel.line(f"if (y{i} < 0 || y{i} >= {kernel.dim(axis.size)}) continue;")
                place = f"({place}) * {kernel.dim(axis.size)} + y{i}"
            row = f"({place}) * {kernel.dim(last.size)} + left - {kernel.dim(last.begin)}"
            kernel.line(f"rows[count++] = in + {row};")
            if most > _ROWS:
                again = f"{call}, rows[0] = {target}, count = loaded = 1"
                kernel.line(f"if (count == {_ROWS}) {again};")
        if most <= _ROWS:  # a call of its own for the number of rows that most windows have
            kernel.line(f"if (count == {most}) {name}(rows, {most}, 0, width, {target});\nelse")
        kernel.line(f"if (count > loaded) {call};")
        with kernel.block("if (!count)"), kernel.loop("x", "width"):
            kernel.line(f"({target})[x] = {join.start};")

    @property
    def _places(self) -> list[tuple[int, int]]:
        """Of each tap on the last axis: the number of its phase among those used, and its place there."""
        last = self.axes[-1]
        moves = [divmod(k * last.dilation, last.stride) for k in range(last.taps)]
        return [(self._used.index(phase), move) for move, phase in moves]

    @property
    def _used(self) -> list[int]:
        """The phases that the taps on the last axis use."""
        last = self.axes[-1]
        return sorted({k * last.dilation % last.stride for k in range(last.taps)})

    def _phases(self, line: str, span: Dim, whole: str) -> str:
        """Put elements of a line together that are equal modulo the stride: ``whole`` of each phase."""
        kernel, stride = self.kernel, self.axes[-1].stride
        room = ceildiv(span, stride)
        phases = kernel.scratch(self.dtype, room * len(self._used))
        with kernel.loop("x", whole):
            for place, phase in enumerate(self._used):
                at = f"{phases}[x + {place} * {kernel.dim(room)}]"
                kernel.line(f"{at} = {line}[x * {stride} + {phase}];")
        return phases

    def _end_phases(self, line: str, span: Dim, phases: str) -> None:
        """The elements behind the last whole stride."""
        kernel, stride = self.kernel, self.axes[-1].stride
        whole, size = kernel.dim(floordiv(span, stride)), kernel.dim(ceildiv(span, stride))
        for place, phase in enumerate(self._used):
            at = f"{whole} * {stride} + {phase}"
            kernel.line(
                f"if ({at} < {kernel.dim(span)}) {phases}[{whole} + {place} * {size}] = {line}[{at}];"
            )

    def _join_taps(self, join: Join, line: str, room: Dim, outs: str, target: str) -> None:
        """Join the taps of windows on the last axis, whose phases have ``room`` elements each."""
        size, taps = self.kernel.dim(room), self.axes[-1].taps
        places = (f"{line} + {number} * {size} + {move}" for number, move in self._places)
        self.kernel.line(f"const {self.kind}* const taps[] = {{{', '.join(places)}}};")
        self.kernel.line(f"farcall_join_{join.name}(taps, {taps}, {taps}, {outs}, {target});")


@loops("MaxPool", check=_check)
def _max_pool(node: ir.Node) -> Iterator[Step]:
    if output_used(node, 1):
        yield _max_pool_with_indices(node)
        return
    pool = _Pool(node)
    yield pool.join(largest(pool.dtype))


def _max_pool_with_indices(node: ir.Node) -> Step:
    """One window at a time. Indices count the elements of the whole input, in row- or column-major order."""
    pool = _Pool(node)
    kernel, axes, last = pool.kernel, pool.axes, len(pool.axes) - 1
    indices = kernel.write(node.outputs[1])
    with ExitStack() as stack:
        pool.rows(stack)
        stack.enter_context(kernel.loop(f"o{last}", pool.width))
        kernel.line(f"{pool.kind} best = {scalar.lowest(operand(node, 0).dtype)};\nint64_t where = 0;")
        with ExitStack() as taps:
            for i, axis in enumerate(axes):
                taps.enter_context(kernel.loop(f"k{i}", str(axis.taps)))
                kernel.line(f"const int64_t y{i} = {position(kernel, axis, f'o{i}', f'k{i}')};")
                kernel.line(f"if (y{i} < 0 || y{i} >= {kernel.dim(axis.size)}) continue;")
            kernel.line(f"const {pool.kind} x = in[{_flat(kernel, axes, range(last + 1))}];")
            order = range(last, -1, -1) if int_attr(node, "storage_order", 0) else range(last + 1)
            kernel.line(f"if (x > best || x != x) best = x, where = {_flat(kernel, axes, order)};")
        kernel.line(f"line[o{last}] = best;")
        kernel.line(f"{indices}[line - {pool.q} + o{last}] = n * {pool.plane} + where;")
    return kernel.step()


def _flat(kernel: Kernel, axes: list[Axis], order: range) -> str:
    text = ""
    for i in order:
        text = f"({text}) * {kernel.dim(axes[i].size)} + y{i}" if text else f"y{i}"
    return text


@loops("AveragePool", check=_check)
def _average_pool(node: ir.Node) -> Iterator[Step]:
    pool = _Pool(node)
    kernel, axes = pool.kernel, pool.axes
    padded = bool(int_attr(node, "count_include_pad", 0))
    kernel.file_scope(_COUNT)
    counts = kernel.scratch(pool.dtype, axes[-1].out)  # by how many elements each window of a row has
    count = _count(kernel, axes[-1], "o", padded)
    with kernel.loop("o", pool.width):
        kernel.line(f"{counts}[o] = ({pool.kind})farcall_max({count}, 1);")
    rows = " * ".join(_count(kernel, axis, f"o{i}", padded) for i, axis in enumerate(axes[:-1])) or "1"
    finish = f"""const {pool.kind} most = ({pool.kind})farcall_max({rows}, 1);
for (int64_t o = 0; o < {pool.width}; ++o) line[o] /= most * {counts}[o];"""
    yield pool.join(total(pool.dtype), finish)


# The number of taps of a window that begins at `start` whose position is in low .. high - 1.
_COUNT = """static inline int64_t farcall_taps(int64_t start, int64_t low, int64_t high, int64_t taps,
    int64_t dilation) {
  const int64_t first = start < low ? (low - start + dilation - 1) / dilation : 0;
  const int64_t beyond = start < high ? (high - start + dilation - 1) / dilation : 0;
  const int64_t end = beyond < taps ? beyond : taps;
  return end > first ? end - first : 0;
}"""


def _count(kernel: Kernel, axis: Axis, out: str, padded: bool) -> str:
    size, begin, end = (kernel.dim(dim) for dim in (axis.size, axis.begin, axis.end))
    start = f"{out} * {axis.stride} - {begin}"
    low, high = (f"-{begin}", f"{size} + {end}") if padded else ("0", size)
    return f"farcall_taps({start}, {low}, {high}, {axis.taps}, {axis.dilation})"


def _power(node: ir.Node) -> int:
    p = int_attr(node, "p", 2)
    if not 0 < p <= _LARGEST_POWER:
        raise Unsupported(f"p={p}; powers from 1 to {_LARGEST_POWER} are computed")
    return p


def _root(dtype: ir.DataType | None, p: int, x: str) -> str:
    if p <= 2:
        return f"{scalar.function(dtype, 'sqrt')}({x})" if p == 2 else x
    return f"{scalar.function(dtype, 'pow')}({x}, {c_literal(1 / p, dtype)})"


def _check_lp(node: ir.Node) -> None:
    _check(node)
    _power(node)


@loops("LpPool", check=_check_lp)
def _lp_pool(node: ir.Node) -> Iterator[Step]:
    pool, p = _Pool(node), _power(node)
    root = f"for (int64_t o = 0; o < {pool.width}; ++o) line[o] = {_root(pool.dtype, p, 'line[o]')};"
    yield pool.join(power_sum(pool.dtype, p), root)


def _check_global_lp(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    _power(node)
    if rank(operand(node, 0)) < 2:
        raise Unsupported("rank below 2")


@loops("GlobalLpPool", check=_check_global_lp)
def _global_lp_pool(node: ir.Node) -> Iterator[Step]:
    x, kernel, p = operand(node, 0), Kernel(), _power(node)
    join = power_sum(x.dtype, p)
    kernel.file_scope(join.source())
    source, target = kernel.read(x), kernel.write(node.outputs[0])
    plane = kernel.dim(product(dims(x)[2:]))
    with kernel.parallel("n", product(dims(x)[:2]), product((ELEMENT, *dims(x)[2:]))):
        kernel.line(f"{c_type(x.dtype)} sum = 0;")
        with kernel.loop("i", plane):
            kernel.line(f"sum += farcall_load_{join.name}_1({source}[n * {plane} + i]);")
        kernel.line(f"{target}[n] = {_root(x.dtype, p, 'sum')};")
    yield kernel.step()


def _check_lrn(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    if rank(operand(node, 0)) < 2:
        raise Unsupported("rank below 2")


@loops("LRN", check=_check_lrn)
def _lrn(node: ir.Node) -> Iterator[Step]:
    """Divide by a power of the sum of squares over neighbouring channels."""
    x = operand(node, 0)
    dtype, kind, size = x.dtype, c_type(x.dtype), int_attr(node, "size", 1)
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    channels, inner = kernel.dim(dims(x)[1]), kernel.dim(product(dims(x)[2:]))
    alpha, beta, bias = (
        c_literal(value, dtype)
        for value in (
            float_attr(node, "alpha", 1e-4) / size,
            float_attr(node, "beta", 0.75),
            float_attr(node, "bias", 1.0),
        )
    )
    cost = product((ELEMENT + size + FUNCTION, *dims(x)[2:]))
    with kernel.parallel("place", product(dims(x)[:2]), cost), kernel.loop("s", inner, step=_TILE):
        kernel.line(f"const int64_t n = place / {channels}, c = place % {channels};")
        kernel.line(f"const int64_t tile = {inner} - s < {_TILE} ? {inner} - s : {_TILE};")
        kernel.line(f"int64_t c0 = c - {(size - 1) // 2}, c1 = c + {size // 2};")
        kernel.line(f"if (c0 < 0) c0 = 0;\nif (c1 > {channels} - 1) c1 = {channels} - 1;")
        kernel.line(f"{kind} total[{_TILE}] = {{0}};")
        with kernel.block("for (int64_t d = c0; d <= c1; ++d)"), kernel.loop("t", "tile"):
            kernel.line(f"const {kind} v = {p}[(n * {channels} + d) * {inner} + s + t];\ntotal[t] += v * v;")
        with kernel.loop("t", "tile"):
            kernel.line(f"const int64_t at = (n * {channels} + c) * {inner} + s + t;")
            power = f"{scalar.function(dtype, 'pow')}({bias} + {alpha} * total[t], {beta})"
            kernel.line(f"{q}[at] = {p}[at] / {power};")
    yield kernel.step()
