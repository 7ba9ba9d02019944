"""NonMaxSuppression: the boxes of each class with the best scores that do not overlap one another much."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import Unsupported, has_input, int_attr, label, operand, rank, want_dtypes
from farcall.backends.c._registry import allocating, always
from farcall.backends.c._sorting import sort_indices
from farcall.graph.dims import dims, product

_FLOAT = {ir.DataType.FLOAT}
_INT64 = ir.DataType.INT64

# Each box as its least and largest coordinates. Corners may be any two that are diagonal to each other.
_CORNERS = """static void farcall_box(const float* b, double* box) {
  for (int d = 0; d < 2; ++d) {
    box[d] = b[d] < b[d + 2] ? b[d] : b[d + 2];
    box[d + 2] = b[d] < b[d + 2] ? b[d + 2] : b[d];
  }
}"""
_CENTERS = """static void farcall_centered_box(const float* b, double* box) {
  for (int d = 0; d < 2; ++d) {
    box[d] = b[d] - (double)b[d + 2] / 2;
    box[d + 2] = b[d] + (double)b[d + 2] / 2;
  }
}"""
_OVERLAP = """static int farcall_overlap(const double* a, const double* b, float most) {
  double common = 1, one = 1, other = 1;
  for (int d = 0; d < 2; ++d) {
    const double low = a[d] > b[d] ? a[d] : b[d], high = a[d + 2] < b[d + 2] ? a[d + 2] : b[d + 2];
    if (!(high > low)) return 0;
    common *= high - low, one *= a[d + 2] - a[d], other *= b[d + 2] - b[d];
  }
  const double all = one + other - common;
  return all > 0 && common / all > most;
}"""


def _check(node: ir.Node) -> None:
    want_dtypes(node, _FLOAT, 0, 1, 3, 4)
    want_dtypes(node, {_INT64}, 2)
    boxes, scores = dims(operand(node, 0)), dims(operand(node, 1))
    if len(boxes) != 3 or len(scores) != 3 or boxes[2] != 4:
        raise Unsupported(f"boxes of rank {len(boxes)}, scores of rank {rank(operand(node, 1))}")
    if int_attr(node, "center_point_box", 0) not in (0, 1):
        raise Unsupported(f"center_point_box={int_attr(node, 'center_point_box', 0)}")


def _option(kernel: Kernel, node: ir.Node, index: int, default: str) -> str:
    return f"{kernel.read(operand(node, index))}[0]" if has_input(node, index) else default


@allocating("NonMaxSuppression", check=_check, when=always)
def _non_max_suppression(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    batches, boxes, _ = dims(operand(node, 0))
    classes = dims(operand(node, 1))[1]
    n = kernel.dim_parameter(boxes)
    _verify(kernel, node)
    kernel.line(f"int64_t most = {_option(kernel, node, 2, '0')}, count = 0;")
    kernel.line(f"most = most < 0 ? 0 : most > {n} ? {n} : most;")
    kernel.line(f"const float limit = {_option(kernel, node, 3, '0')};")
    order, spare = kernel.scratch(_INT64, boxes), kernel.scratch(_INT64, boxes)
    chosen = kernel.scratch(_INT64, product((batches, classes, boxes)))
    counts = kernel.scratch(_INT64, product((batches, classes)))
    corners = kernel.scratch(ir.DataType.DOUBLE, product((boxes, 4)))
    with kernel.loop("b", batches):
        _read_boxes(kernel, node, n, corners)
        with kernel.loop("c", classes):
            kernel.line(f"const int64_t at = b * {kernel.dim(classes)} + c;")
            _choose(kernel, node, n, (order, spare), corners, f"({chosen} + at * {n})")
            kernel.line(f"{counts}[at] = kept;\ncount += kept;")
    q = kernel.allocate(node.outputs[0], ["count", "3"], label(node))
    kernel.line("int64_t to = 0;")
    with kernel.loop("b", batches), kernel.loop("c", classes):
        kernel.line(f"const int64_t at = b * {kernel.dim(classes)} + c;")
        with kernel.loop("k", f"{counts}[at]"):
            kernel.line(f"{q}[to] = b, {q}[to + 1] = c, {q}[to + 2] = {chosen}[at * {n} + k];\nto += 3;")
    yield kernel.step()


def _verify(kernel: Kernel, node: ir.Node) -> None:
    """Check that boxes and scores have equal batches and lengths."""
    boxes, scores = dims(operand(node, 0)), dims(operand(node, 1))
    for what, a, b in (("batches", scores[0], boxes[0]), ("boxes", scores[2], boxes[1])):
        if a != b:
            one, other = kernel.dim(a), kernel.dim(b)
            parts = (f"{label(node)}: scores of ", one, f" {what}; expected ", other)
            kernel.line(f"if ({one} != {other}) {kernel.fail_with('ValueError', *parts)}")


def _read_boxes(kernel: Kernel, node: ir.Node, n: str, corners: str) -> None:
    centered = int_attr(node, "center_point_box", 0)
    kernel.file_scope(_CENTERS if centered else _CORNERS)
    function = "farcall_centered_box" if centered else "farcall_box"
    with kernel.loop("i", n):
        kernel.line(f"{function}({kernel.read(operand(node, 0))} + (b * {n} + i) * 4, {corners} + i * 4);")


def _choose(
    kernel: Kernel, node: ir.Node, n: str, memory: tuple[str, str], corners: str, chosen: str
) -> None:
    """Take boxes by falling score, of equal ones the first, unless one that was taken overlaps."""
    kernel.file_scope(_OVERLAP)
    order, spare = memory
    kernel.line(f"const float* scores = {kernel.read(operand(node, 1))} + at * {n};")
    kernel.line("int64_t candidates = 0, kept = 0;")
    with kernel.loop("i", n):
        enough = f"scores[i] > {kernel.read(operand(node, 4))}[0]" if has_input(node, 4) else "1"
        kernel.line(f"if ({enough}) {order}[candidates++] = i;")
    better = "scores[{b}] > scores[{a}] || (scores[{a}] != scores[{a}] && scores[{b}] == scores[{b}])"
    found = sort_indices(kernel, order, spare, "candidates", better)
    with kernel.block("for (int64_t i = 0; i < candidates && kept < most; ++i)"):
        kernel.line(f"const double* box = {corners} + {found}[i] * 4;\nint64_t k = 0;")
        overlap = f"farcall_overlap(box, {corners} + {chosen}[k] * 4, limit)"
        kernel.line(f"while (k < kept && !{overlap}) ++k;")
        kernel.line(f"if (k == kept) {chosen}[kept++] = {found}[i];")
