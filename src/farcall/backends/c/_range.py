"""Range: numbers in equal steps, of which the dims of the output tell how many."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import known_dims, label, operand, want_dtypes
from farcall.backends.c._registry import allocating, always
from farcall.graph.dims import dims

_FLOATS = {ir.DataType.FLOAT, ir.DataType.DOUBLE}
_INTEGERS = {ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64}


def _check_range(node: ir.Node) -> None:
    want_dtypes(node, _FLOATS | _INTEGERS, 0)
    known_dims(node.outputs[0])


@allocating("Range", check=_check_range, when=always)
def _range(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    out = node.outputs[0]
    start, limit, delta = (f"{kernel.read(operand(node, index))}[0]" for index in range(3))
    zero = kernel.fail("ValueError", f"{label(node)}: expected a step other than 0")
    kernel.line(f"if ({delta} == 0) {zero}")
    floats = out.dtype in _FLOATS
    if floats:
        kernel.line(f"const double steps = ceil(((double){limit} - {start}) / {delta});")
        kernel.line("const double count = steps > 0 ? steps : 0;")
    else:  # unsigned, which cannot overflow: the limits may be far apart
        kernel.line(f"const uint64_t from = (uint64_t)(int64_t){start}, step = (uint64_t)(int64_t){delta};")
        kernel.line(f"const uint64_t to = (uint64_t)(int64_t){limit};")
        up, down = "(to - from - 1) / step + 1", "(from - to - 1) / (0 - step) + 1"
        kernel.line(f"const uint64_t up = {limit} > {start} && {delta} > 0 ? {up} : 0;")
        kernel.line(f"const uint64_t count = {limit} < {start} && {delta} < 0 ? {down} : up;")
    # A length that no int64 holds is refused as too many bytes.
    length = f"(count < {'0x1p63' if floats else 'INT64_MAX'} ? (int64_t)count : INT64_MAX)"
    q = kernel.allocate(out, [length], label(node))
    kind = c_type(out.dtype)
    with kernel.loop("i", dims(out)[0]):
        element = f"{start} + i * {delta}" if floats else "from + (uint64_t)i * step"
        kernel.line(f"{q}[i] = ({kind})({element});")
    yield kernel.step()
