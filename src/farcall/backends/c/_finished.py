"""Products that are followed by elementwise nodes: a thread computes these for the parts that it has made."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from farcall.backends.c._epilogue import Epilogue
from farcall.backends.c._gemm import Left, Right, Start, call_gemm, copies_rows, gemm_type
from farcall.backends.c._kernel import Kernel

_HOT = 1 << 15  # elements of the result of a product that are in the caches when the product ends


def call_finished(
    kernel: Kernel,
    dtype: ir.DataType | None,
    sizes: Sequence[str],
    a: Left,
    b: Right,
    c: tuple[str, str],
    start: Start | None,
    parts: tuple[str, str],
    epilogue: Epilogue | None,
    before: str = "0",
) -> None:
    """Write the call of :func:`call_gemm` for ``parts``, followed by the epilogue of what they have made.

    ``before`` is how many rows the output has before those of this product.
    """
    if epilogue is None:
        call_gemm(kernel, dtype, sizes, a, b, c, start, parts)
        return
    rows, columns, _ = sizes
    some = f"farcall_max({_HOT} * parts / (({rows}) * {columns}), 1)"
    if copies_rows(dtype, sizes, a, b):  # once, rather than for some columns after others
        some = "parts"
    kernel.line(f"const int64_t some = {some};")
    with kernel.loop("part0", parts[1], start=parts[0], step="some"):
        kernel.line(f"const int64_t part1 = {parts[1]} - part0 < some ? {parts[1]} : part0 + some;")
        call_gemm(kernel, dtype, sizes, a, b, c, start, ("part0", "part1"))
        kernel.line("struct farcall_range done;")
        kernel.line(f"farcall_gemm_range_{gemm_type(dtype)}({rows}, {columns}, part0, part1, &done);")
        with kernel.loop("m", "done.row_end", start="done.row"):
            first = f"({before} + m) * {columns} + done.column"
            epilogue.write(kernel, first, "done.column_end - done.column", "done.column")
