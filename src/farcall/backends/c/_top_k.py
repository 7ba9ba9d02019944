"""TopK: the largest or smallest elements along an axis, and where they are."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import (
    Unsupported,
    constant,
    extents,
    has_input,
    int_attr,
    label,
    normalize_axis,
    operand,
    output_used,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import allocating, is_late, loops
from farcall.graph.dims import Dim, dims, product

_BLOCK = 16  # elements that are compared at once


def _axis(node: ir.Node) -> int:
    return normalize_axis(int_attr(node, "axis", -1), rank(operand(node, 0)))


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | INTEGERS, 0)
    if not dims(operand(node, 0)):
        raise Unsupported("a scalar has no axis")
    kept, length = dims(node.outputs[0])[_axis(node)], dims(operand(node, 0))[_axis(node)]
    if isinstance(kept, int) and isinstance(length, int) and not 0 <= kept <= length:
        raise Unsupported(f"{kept} of {length} elements")


@allocating("TopK", check=_check)
@loops("TopK", check=_check)
def _top_k(node: ir.Node) -> Iterator[Step]:
    """Each row keeps its best elements in a heap, whose worst one is at its top, and sorts it."""
    x, axis = operand(node, 0), _axis(node)
    kernel = Kernel()
    kind, name = c_type(x.dtype), _sift(kernel, node)
    outer, length, inner = extents(dims(x), axis)
    p, count, width = kernel.read(x), kernel.dim(length), kernel.dim(inner)
    _allocate(kernel, node, axis, count)
    kept = dims(node.outputs[0])[axis]
    k = kernel.dim(kept)
    heap = kernel.scratch(ir.DataType.INT64, length if is_late(node) else kept)
    row = "" if inner == 1 else kernel.scratch(x.dtype or ir.DataType.FLOAT, length)
    rows: list[tuple[str, Dim, int]] = [("i", outer, 1), ("j", inner, 1)]
    with kernel.block(f"if ({k})"), shared(kernel, rows, product((2 * ELEMENT, length))):
        if row:
            with kernel.loop("n", length):
                kernel.line(f"{row}[n] = {p}[(i * {count} + n) * {width} + j];")
        kernel.line(f"const {kind}* in = {row or f'{p} + i * {count}'};")
        with kernel.loop("n", k):
            kernel.line(f"{heap}[n] = n;")
        kernel.line(f"for (int64_t n = {k} / 2; n-- > 0;) {name}(in, {heap}, {k}, n);")
        kernel.line(f"{name}_rest(in, {heap}, {k}, {count});")
        with kernel.block(f"for (int64_t n = {k} - 1; n > 0; --n)"):
            kernel.line(f"const int64_t worst = {heap}[0];\n{heap}[0] = {heap}[n];\n{heap}[n] = worst;")
            kernel.line(f"{name}(in, {heap}, n, 0);")
        with kernel.loop("n", k):
            for index, text in enumerate((f"in[{heap}[n]]", f"{heap}[n]")):
                if output_used(node, index):
                    q = kernel.write(node.outputs[index])
                    kernel.line(f"{q}[(i * {k} + n) * {width} + j] = {text};")
    yield kernel.step()


def _allocate(kernel: Kernel, node: ir.Node, axis: int, count: str) -> None:
    """Compare k with the number of elements; a computed one gives the dims of the outputs."""
    given = ""
    if has_input(node, 1) and constant(operand(node, 1)) is None:
        given = f"{kernel.read(operand(node, 1))}[0]"
    k = given or kernel.dim(dims(node.outputs[0])[axis])
    if not (k.isdigit() and count.isdigit()):
        parts = (f"{label(node)}: the first ", k, " of ", count, " elements")
        kernel.line(f"if ({k} < 0 || {k} > {count}) {kernel.fail_with('ValueError', *parts)}")
    for index, out in enumerate(node.outputs):
        if given and output_used(node, index):
            shape = list(map(kernel.dim, dims(operand(node, 0))))
            shape[axis] = given
            kernel.allocate(out, shape, label(node))


def _sift(kernel: Kernel, node: ir.Node) -> str:
    """Define the functions that compare two elements, and that let one sink in the heap; returns the name.

    NaN counts as larger than every number, as numpy sorts. Of two equal elements the earlier one is better.
    """
    dtype = operand(node, 0).dtype
    kind, largest = c_type(dtype), int_attr(node, "largest", 1)
    name = f"farcall_{'largest' if largest else 'smallest'}_{kind}"

    def better(a: str, b: str) -> str:
        first, last = (a, b) if largest else (b, a)
        nan = f" || ({first} != {first} && {last} == {last})" if dtype in FLOATS else ""
        return f"{first} > {last}{nan}"

    kernel.file_scope(f"""static inline int {name}_before(const {kind}* in, int64_t a, int64_t b) {{
  const {kind} x = in[a], y = in[b];
  if ({better("x", "y")}) return 1;
  return !({better("y", "x")}) && a < b;
}}
static void {name}(const {kind}* in, int64_t* heap, int64_t size, int64_t at) {{
  for (int64_t child; (child = 2 * at + 1) < size; at = child) {{
    if (child + 1 < size && {name}_before(in, heap[child], heap[child + 1])) ++child;
    if (!{name}_before(in, heap[at], heap[child])) return;
    const int64_t worse = heap[child];
    heap[child] = heap[at];
    heap[at] = worse;
  }}
}}
static inline void {name}_one(const {kind}* in, int64_t* heap, int64_t size, int64_t n) {{
  if (!{name}_before(in, n, heap[0])) return;
  heap[0] = n;
  {name}(in, heap, size, 0);
}}
/* The elements from `size` on. Most are not better than the worst one of the heap, which vectors tell. */
static void {name}_rest(const {kind}* in, int64_t* heap, int64_t size, int64_t count) {{
  int64_t n = size;
  for (; n + {_BLOCK} <= count; n += {_BLOCK}) {{
    const {kind} worst = in[heap[0]];
    int better = 0;
    for (int t = 0; t < {_BLOCK}; ++t) better |= !(in[n + t] {"<=" if largest else ">="} worst);
    for (int t = 0; t < (better ? {_BLOCK} : 0); ++t) {name}_one(in, heap, size, n + t);
  }}
  for (; n < count; ++n) {name}_one(in, heap, size, n);
}}""")
    return name
