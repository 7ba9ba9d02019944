"""DFT and STFT: discrete Fourier transforms along an axis, and of the frames of a signal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c._fft_text import TRANSFORM, memory
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    has_input,
    int_attr,
    known_dims,
    label,
    normalize_axis,
    operand,
    opset,
    rank,
    want_dtypes,
)
from farcall.backends.c._registry import allocating, always
from farcall.graph.dims import Dim, dims, late, maximum, product, symbols

_LENGTHS = {ir.DataType.INT32, ir.DataType.INT64}
_MOST_DOUBLES = (
    34  # for each element of a line: eight for a power of two that is up to four times as long, and two
)
_FEW = " elements; expected at least 1"


@dataclass(frozen=True)
class _Lines:
    """Lines that are transformed, by C expressions; ``n`` is the length of each, and declared before."""

    source: str  # the pointer to the first element of the current line
    given: str  # how many elements the line has; the others are 0
    step: str  # between elements, in numbers
    parts: int  # 1: real numbers, 2: complex
    target: str
    target_step: str
    bins: str  # how many elements of the result are stored
    target_parts: int
    is_inverse: bool = False
    is_half: bool = False  # the line is the first half of a spectrum whose other half mirrors it
    window: str = ""

    def read(self, kernel: Kernel, j: str) -> None:
        """Declare ``re`` and ``im``: element ``j``. For the inverse they change places, as in the result."""
        at = "at" if self.is_half else j
        if self.is_half:
            kernel.line(f"const int64_t at = 2 * {j} > n ? n - {j} : {j};")
        inside = f"{at} < {self.given}"
        real = f"(double){self.source}[{at} * {self.step}]"
        imaginary = f"(double){self.source}[{at} * {self.step} + 1]" if self.parts == 2 else "0"
        if self.is_half and self.parts == 2:
            inside_im = f"{inside} && {at} != 0 && 2 * {at} != n"
            imaginary = f"({inside_im} ? 2 * {j} > n ? -{imaginary} : {imaginary} : 0)"
        elif self.parts == 2:
            imaginary = f"({inside} ? {imaginary} : 0)"
        weight = f" * {self.window}[{j}]" if self.window else ""
        first, second = ("im", "re") if self.is_inverse else ("re", "im")
        kernel.line(f"const double {first} = ({inside} ? {real} : 0){weight};")
        kernel.line(f"const double {second} = {imaginary}{weight};")

    def write(self, kernel: Kernel, k: str, real: str, imaginary: str, kind: str) -> None:
        """Store element ``k`` of the result."""
        if self.is_inverse:
            real, imaginary = f"{imaginary} / (double)n", f"{real} / (double)n"
        for part, value in enumerate((real, imaginary)[: self.target_parts]):
            kernel.line(f"{self.target}[{k} * {self.target_step} + {part}] = ({kind})({value});")


def _memory(kernel: Kernel, node: ir.Node, lengths: Sequence[Dim]) -> str:
    """Memory for a transform whose length is one of these; empty if only the call knows the length.

    The tables for the length, ``n``, are made.
    """
    kernel.line("if (n < 1) " + kernel.fail_with("ValueError", f"{label(node)}: a transform of ", "n", _FEW))
    if not set(late(node.outputs[0])).isdisjoint(symbols(*lengths)):
        return ""
    numbers = [length for length in lengths if isinstance(length, int)]
    is_known = len(numbers) == len(lengths)
    count = max(map(memory, numbers)) if is_known else _MOST_DOUBLES * reduce(maximum, lengths)
    place = kernel.scratch(ir.DataType.DOUBLE, count)
    kernel.file_scope(TRANSFORM)
    kernel.line(f"farcall_plan_dft(n, {place});")
    return place


def _transform(kernel: Kernel, lines: _Lines, place: str, kind: str) -> None:
    """Transform one line: quickly if there is memory for it, else each element by its definition."""
    if not place:
        _sum_up(kernel, lines, kind)
        return
    with kernel.loop("j", "n"):
        lines.read(kernel, "j")
        kernel.line(f"{place}[2 * j] = re, {place}[2 * j + 1] = im;")
    kernel.line(f"const double* const done = farcall_dft(n, {place});")
    with kernel.loop("k", lines.bins):
        lines.write(kernel, "k", "done[2 * k]", "done[2 * k + 1]", kind)


def _sum_up(kernel: Kernel, lines: _Lines, kind: str) -> None:
    """The definition. The root turns with each element, and is computed anew for every 64th."""
    kernel.line("const double turn = -6.283185307179586476925 / (double)n;")
    with kernel.loop("k", lines.bins):
        kernel.line("const double c = cos(turn * (double)k), s = sin(turn * (double)k);")
        kernel.line("double sum = 0, sum_im = 0, w = 1, w_im = 0;\nint64_t turns = 0;")
        with kernel.loop("j", "n"):
            with kernel.block("if (j % 64 == 0)"):
                kernel.line("w = cos(turn * (double)turns), w_im = sin(turn * (double)turns);")
                kernel.line("turns = (turns + k * 64) % n;")
            lines.read(kernel, "j")
            kernel.line("sum += re * w - im * w_im, sum_im += re * w_im + im * w;")
            kernel.line("const double next = w * c - w_im * s;\nw_im = w * s + w_im * c, w = next;")
        lines.write(kernel, "k", "sum", "sum_im", kind)


def _want_signal(node: ir.Node) -> None:
    """Check the first operand: numbers, or pairs of them along the last axis."""
    want_dtypes(node, FLOATS, 0)
    x = operand(node, 0)
    if rank(x) < 2 or dims(x)[-1] not in (1, 2):
        raise Unsupported(f"an input of shape {[str(dim) for dim in dims(x)]}; expected a last dim of 1 or 2")


def _want_number(node: ir.Node, index: int) -> None:
    """Check an operand that is one integer, if it is given."""
    if has_input(node, index):
        want_dtypes(node, _LENGTHS, index)
        if known_dims(operand(node, index)) not in ((), (1,)):
            raise Unsupported(
                f"input {index} has the dims {known_dims(operand(node, index))}; expected a scalar"
            )


def _axis(node: ir.Node) -> int | None:
    """The axis of a DFT; None if only the call knows it."""
    if opset(node) < 20:
        given = int_attr(node, "axis", 1)
    elif not has_input(node, 2):
        given = -2
    elif (data := constant(operand(node, 2))) is None:
        return None
    else:
        given = int(data.ravel()[0])
    axis = normalize_axis(given, rank(operand(node, 0)))
    if axis == rank(operand(node, 0)) - 1:
        raise Unsupported(f"axis {given}, along which numbers are the parts of complex ones")
    return axis


def _is_inverse(node: ir.Node) -> bool:
    return bool(int_attr(node, "inverse", 0))


def _is_half(node: ir.Node) -> bool:
    """Whether one side of the transform is half of a spectrum."""
    return bool(int_attr(node, "onesided", 1 if node.op_type == "STFT" else 0))


def _check_dft(node: ir.Node) -> None:
    _want_signal(node)
    _want_number(node, 1)
    if opset(node) >= 20:
        _want_number(node, 2)
    _axis(node)
    if rank(node.outputs[0]) != rank(operand(node, 0)):
        raise Unsupported(f"an output of rank {rank(node.outputs[0])}")


def _lengths(bins: Sequence[Dim], is_forward_half: bool) -> list[Dim]:
    """The lengths of transforms whose results have so many elements."""
    return [n for size in bins for n in ((2 * size - 2, 2 * size - 1) if is_forward_half else (size,))]


@allocating("DFT", check=_check_dft, when=always)
def _dft(node: ir.Node) -> Iterator[Step]:
    x, out, axis = operand(node, 0), node.outputs[0], _axis(node)
    is_inverse, is_half = _is_inverse(node), _is_half(node)
    kernel = Kernel()
    _declare_axis(kernel, node, axis)
    default = "2 * (given - 1)" if is_inverse and is_half else "given"
    length = f"(int64_t){kernel.read(operand(node, 1))}[0]" if has_input(node, 1) else default
    kernel.line(f"const int64_t n = {length};")
    kernel.line(f"const int64_t bins = {'n / 2 + 1' if is_half and not is_inverse else 'n'};")
    sizes = dims(out)[:-1] if axis is None else dims(out)[axis : axis + 1]
    place = _memory(kernel, node, _lengths(sizes, is_half and not is_inverse))
    parts, target_parts = int(dims(x)[-1]), 1 if is_inverse and is_half else 2
    shape = [_size(kernel, d, dim, axis) for d, dim in enumerate(dims(x)[:-1])]
    p, q = kernel.read(x), kernel.allocate(out, [*shape, str(target_parts)], label(node))
    lines = _Lines(
        source="from",
        given="given",
        step=f"inner * {parts}",
        parts=parts,
        target="to",
        target_step=f"inner * {target_parts}",
        bins="bins",
        target_parts=target_parts,
        is_inverse=is_inverse,
        is_half=is_inverse and is_half,
    )
    with kernel.loop("o", "outer"), kernel.loop("i", "inner"):
        kernel.line(f"const {c_type(x.dtype)}* const from = {p} + (o * given * inner + i) * {parts};")
        kernel.line(f"{c_type(out.dtype)}* const to = {q} + (o * bins * inner + i) * {target_parts};")
        _transform(kernel, lines, place, c_type(out.dtype))
    yield kernel.step()


def _declare_axis(kernel: Kernel, node: ir.Node, axis: int | None) -> None:
    """Declare ``given``, the size of the axis, and ``outer`` and ``inner``, the elements around it."""
    shape = dims(operand(node, 0))[:-1]
    if axis is not None:
        extents = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
        outer, given, inner = map(kernel.dim, extents)
        kernel.line(f"const int64_t outer = {outer}, given = {given}, inner = {inner};")
        return
    count = len(shape)
    kernel.index("axis", f"{kernel.read(operand(node, 2))}[0]", str(count + 1), label(node), "the axes")
    parts = (f"{label(node)}: axis ", "axis", ", along which numbers are the parts of complex ones")
    kernel.line(f"if (axis == {count}) {kernel.fail_with('ValueError', *parts)}")
    kernel.line(f"const int64_t size[] = {{{', '.join(map(kernel.dim, shape))}}};")
    kernel.line("const int64_t given = size[axis];\nint64_t outer = 1, inner = 1;")
    kernel.line("for (int64_t d = 0; d < axis; ++d) outer *= size[d];")
    kernel.line(f"for (int64_t d = axis + 1; d < {count}; ++d) inner *= size[d];")


def _size(kernel: Kernel, d: int, dim: Dim, axis: int | None) -> str:
    """The size of an axis of the result."""
    if axis is None:
        return f"(axis == {d} ? bins : {kernel.dim(dim)})"
    return "bins" if d == axis else kernel.dim(dim)


def _check_stft(node: ir.Node) -> None:
    _want_signal(node)
    _want_number(node, 1)
    _want_number(node, 3)
    x = operand(node, 0)
    if rank(x) != 3 or rank(node.outputs[0]) != 4:
        raise Unsupported(f"a signal of rank {rank(x)}, and an output of rank {rank(node.outputs[0])}")
    if has_input(node, 2) and (operand(node, 2).dtype != x.dtype or rank(operand(node, 2)) != 1):
        raise Unsupported("a window that is not of rank 1, or of another dtype than the signal")


@allocating("STFT", check=_check_stft, when=always)
def _stft(node: ir.Node) -> Iterator[Step]:
    """Transform the frames that lie in the signal as a whole, each after a product with the window."""
    x, out, is_half = operand(node, 0), node.outputs[0], _is_half(node)
    batch, length, parts = map(dims(x).__getitem__, range(3))
    kernel = Kernel()
    window = kernel.read(operand(node, 2)) if has_input(node, 2) else ""
    _declare_frames(kernel, node, length)
    kernel.line(f"const int64_t bins = {'n / 2 + 1' if is_half else 'n'};")
    place = _memory(kernel, node, _lengths(dims(out)[2:3], is_half))
    p, q = kernel.read(x), kernel.allocate(out, [kernel.dim(batch), "frames", "bins", "2"], label(node))
    lines = _Lines(
        source="from",
        given="n",
        step=str(parts),
        parts=int(parts),
        target="to",
        target_step="2",
        bins="bins",
        target_parts=2,
        window=window,
    )
    with kernel.loop("b", batch), kernel.loop("f", "frames"):
        first = f"(b * {kernel.dim(length)} + f * step) * {parts}"
        kernel.line(f"const {c_type(x.dtype)}* const from = {p} + {first};")
        kernel.line(f"{c_type(out.dtype)}* const to = {q} + (b * frames + f) * bins * 2;")
        _transform(kernel, lines, place, c_type(out.dtype))
    yield kernel.step()


def _declare_frames(kernel: Kernel, node: ir.Node, length: Dim) -> None:
    """Declare ``n``, the length of a frame, ``step`` between frames, and ``frames``, their number."""
    total = kernel.dim(length)
    frame: Dim = dims(operand(node, 2))[0] if has_input(node, 2) else length
    given = f"(int64_t){kernel.read(operand(node, 3))}[0]" if has_input(node, 3) else kernel.dim(frame)
    kernel.line(f"const int64_t n = {given}, step = (int64_t){kernel.read(operand(node, 1))}[0];")
    parts = (f"{label(node)}: frame_step is ", "step", "; expected at least 1")
    kernel.line(f"if (step < 1) {kernel.fail_with('ValueError', *parts)}")
    if has_input(node, 2) and has_input(node, 3):
        wide = (
            f"{label(node)}: frame_length is ",
            "n",
            ", and the window has ",
            kernel.dim(frame),
            " elements",
        )
        kernel.line(f"if (n != {kernel.dim(frame)}) {kernel.fail_with('ValueError', *wide)}")
    short = (f"{label(node)}: the signal has ", total, " elements; a frame has ", "n", "")
    kernel.line(f"if (n > {total}) {kernel.fail_with('ValueError', *short)}")
    kernel.line(f"const int64_t frames = ({total} - n) / step + 1;")
