"""Operators that select elements by their values: as many as the data has, which the kernels count first."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import ALL
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import label, operand, want_dtypes
from farcall.backends.c._registry import allocating
from farcall.graph.dims import Dim, dims, product


def always(node: ir.Node) -> bool:
    """For operators whose outputs can have any size."""
    return True


def _check_nonzero(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)


@allocating("NonZero", check=_check_nonzero, when=always)
def _nonzero(node: ir.Node) -> Iterator[Step]:
    """A row of indices for each axis, in row-major order of the elements."""
    x, out = operand(node, 0), node.outputs[0]
    shape = dims(x)
    kernel = Kernel()
    p, total = kernel.read(x), kernel.dim_parameter(product(shape))
    kernel.line("int64_t count = 0;")
    with kernel.loop("i", total):
        kernel.line(f"count += {p}[i] != 0;")
    q = kernel.allocate(out, [str(len(shape)), "count"], label(node))
    if not shape:  # no row
        yield kernel.step()
        return
    kernel.line(f"int64_t at[{len(shape)}] = {{0}};")
    sizes: list[Dim] = list(shape)
    kernel.line(f"const int64_t size[] = {{{', '.join(map(kernel.dim_parameter, sizes))}}};")
    kernel.line("int64_t k = 0;")
    with kernel.block(f"for (int64_t i = 0; i < {total} && k < count; ++i)"):
        with kernel.block(f"if ({p}[i] != 0)"):
            kernel.line(f"for (int64_t d = 0; d < {len(shape)}; ++d) {q}[d * count + k] = at[d];\n++k;")
        kernel.line(f"for (int64_t d = {len(shape) - 1}; d >= 0 && ++at[d] == size[d]; --d) at[d] = 0;")
    yield kernel.step()
