"""HannWindow, HammingWindow, BlackmanWindow and MelWeightMatrix: tables for the analysis of signals."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import Unsupported, int_attr, known_dims, label, operand, want_dtypes
from farcall.backends.c._registry import allocating, always

_INTEGERS = {ir.DataType.INT32, ir.DataType.INT64}

# The cosines of one turn and of two, by which a window is made.
_COSINES = {
    "HannWindow": "0.5 - 0.5 * cos(x)",
    "HammingWindow": "25.0 / 46 - 21.0 / 46 * cos(x)",
    "BlackmanWindow": "0.42 - 0.5 * cos(x) + 0.08 * cos(2 * x)",
}


def _want_numbers(node: ir.Node, count: int) -> None:
    """Check that operands are one number each, and what the result holds."""
    for index in range(count):
        if known_dims(operand(node, index)) not in ((), (1,)):
            raise Unsupported(
                f"input {index} has the dims {known_dims(operand(node, index))}; expected a scalar"
            )
    dtype = node.outputs[0].dtype
    if dtype not in FLOATS | INTEGERS:
        raise Unsupported(f"output_datatype={dtype.name if dtype else 'unknown'}")


def _check_window(node: ir.Node) -> None:
    want_dtypes(node, _INTEGERS, 0)
    _want_numbers(node, 1)


@allocating(*_COSINES, check=_check_window, when=always)
def _window(node: ir.Node) -> Iterator[Step]:
    """A symmetric window of one element is 1, as in PyTorch; ONNX's formula divides zero by zero."""
    out = node.outputs[0]
    kernel = Kernel()
    kernel.line(f"const int64_t size = (int64_t){kernel.read(operand(node, 0))}[0];")
    negative = kernel.fail_with("ValueError", f"{label(node)}: its size is ", "size", "; expected at least 0")
    kernel.line(f"if (size < 0) {negative}")
    q = kernel.allocate(out, ["size"], label(node))
    period = "size" if int_attr(node, "periodic", 1) else "size - 1"
    kernel.line(f"const double step = 6.283185307179586476925 / (double)({period});")
    with kernel.loop("i", "size"):
        kernel.line("const double x = step * (double)i;")
        kernel.line(f"const double y = {period} ? {_COSINES[node.op_type]} : 1;")
        kernel.line(f"{q}[i] = {scalar.convert(ir.DataType.DOUBLE, out.dtype, 'y')};")
    yield kernel.step()


def _check_mel(node: ir.Node) -> None:
    want_dtypes(node, _INTEGERS, 0, 1, 2)
    want_dtypes(node, FLOATS, 3, 4)
    _want_numbers(node, 5)


# The first element of a band: equal steps on the mel scale, from `low` to `high`.
_MEL_EDGE = """static inline double farcall_mel_edge(
    double low, double high, int64_t i, int64_t bands, int64_t length, int64_t rate) {
  const double first = 2595 * log1p(low / 700), last = 2595 * log1p(high / 700);
  const double mel = (double)i * ((last - first) / (double)(bands + 2)) + first;
  return floor((((double)length + 1) * (700 * expm1(mel / 2595))) / (double)rate);
}"""


@allocating("MelWeightMatrix", check=_check_mel, when=always)
def _mel_weight_matrix(node: ir.Node) -> Iterator[Step]:
    """Triangles, of which each begins in the middle of the one before."""
    out = node.outputs[0]
    kernel = Kernel()
    kernel.file_scope(_MEL_EDGE)
    for index, name in enumerate(("bands", "length", "rate")):
        kernel.line(f"const int64_t {name} = (int64_t){kernel.read(operand(node, index))}[0];")
    for index, name in enumerate(("low", "high"), start=3):
        kernel.line(f"const double {name} = (double){kernel.read(operand(node, index))}[0];")
    parts = (
        f"{label(node)}: num_mel_bins=",
        "bands",
        ", dft_length=",
        "length",
        ", sample_rate=",
        "rate",
        _POSITIVE,
    )
    kernel.line(f"if (bands < 0 || length < 0 || rate < 1) {kernel.fail_with('ValueError', *parts)}")
    kernel.line("const int64_t rows = length / 2 + 1;")
    q = kernel.allocate(out, ["rows", "bands"], label(node))
    kernel.line(f"memset({q}, 0, (size_t)(rows * bands) * sizeof *{q});")
    with kernel.loop("i", "bands"):
        for name, number in (("from", "i"), ("middle", "i + 1"), ("to", "i + 2")):
            kernel.line(f"const double {name} = farcall_mel_edge(low, high, {number}, bands, length, rate);")
        band = (
            f"{label(node)}: band ",
            "i",
            " reaches beyond the ",
            "rows",
            " frequencies; lower upper_edge_hertz",
        )
        inside = "from >= 0 && from < rows && middle >= 0 && middle < rows && to >= 0 && to <= rows"
        kernel.line(f"if (!({inside})) {kernel.fail_with('ValueError', *band)}")
        kernel.line("const int64_t first = (int64_t)from, center = (int64_t)middle, last = (int64_t)to;")
        with kernel.loop("j", "center", start="first"):
            kernel.line("const double y = (double)(j - first) / (double)(center - first);")
            kernel.line(f"{q}[j * bands + i] = {scalar.convert(ir.DataType.DOUBLE, out.dtype, 'y')};")
        kernel.line(f"{q}[center * bands + i] = 1;")
        with kernel.loop("j", "last", start="center"):
            kernel.line("const double y = (double)(last - j) / (double)(last - center);")
            kernel.line(f"{q}[j * bands + i] = {scalar.convert(ir.DataType.DOUBLE, out.dtype, 'y')};")
    yield kernel.step()


_POSITIVE = "; expected no negative number, and a positive rate"
