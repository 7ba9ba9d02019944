"""Det: determinants of square matrices."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import Unsupported, operand, rank, want_dtypes
from farcall.backends.c._registry import loops
from farcall.graph.dims import dims, product


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    if rank(operand(node, 0)) < 2:
        raise Unsupported("rank below 2")
    shape = dims(operand(node, 0))
    want_same("a square matrix", shape[-1:], shape[-2:-1])


@loops("Det", check=_check)
def _det(node: ir.Node) -> Iterator[Step]:
    """Gaussian elimination in double, with the largest element of a column as pivot."""
    x, out = operand(node, 0), node.outputs[0]
    *batch, rows, columns = dims(x)
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(out)
    verify_same(kernel, node, "a square matrix", (columns,), (rows,))
    n, square = kernel.dim(rows), kernel.dim(product((rows, rows)))
    m = kernel.scratch(ir.DataType.DOUBLE, product((rows, rows)))
    with kernel.parallel("b", product(batch), product((rows, rows, rows))):
        with kernel.loop("i", square):
            kernel.line(f"{m}[i] = {p}[b * {square} + i];")
        kernel.line("double det = 1;")
        with kernel.loop("c", n):
            kernel.line("int64_t pivot = c;")
            with kernel.loop("r", n, start="c + 1"):
                kernel.line(f"if (fabs({m}[r * {n} + c]) > fabs({m}[pivot * {n} + c])) pivot = r;")
            kernel.line(f"const double top = {m}[pivot * {n} + c];\ndet *= pivot == c ? top : -top;")
            kernel.line("if (top == 0) break;")
            with kernel.loop("j", n, start="c"):
                kernel.line(f"const double kept = {m}[c * {n} + j];")
                kernel.line(f"{m}[c * {n} + j] = {m}[pivot * {n} + j];\n{m}[pivot * {n} + j] = kept;")
            with kernel.loop("r", n, start="c + 1"):
                kernel.line(f"const double factor = {m}[r * {n} + c] / top;")
                with kernel.loop("j", n, start="c + 1"):
                    kernel.line(f"{m}[r * {n} + j] -= factor * {m}[c * {n} + j];")
        kernel.line(f"{q}[b] = ({c_type(out.dtype)})det;")
    yield kernel.step()
