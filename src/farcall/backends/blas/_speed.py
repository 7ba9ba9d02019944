"""Which products OpenBLAS computes faster than the backend ``c``. The limits are measured.

``c`` packs constant weights when the model is built, adds what follows to the product, and has kernels for
few rows and for few columns. OpenBLAS is faster for few columns of a short inner sum, where many rows of a
transposed operand have to be turned, and where the inner sum is so long that ``c`` leaves the second-level
cache.
"""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import itemsize
from farcall.backends.c._node import int_attr, operand
from farcall.graph.dims import dims, product

_NARROW = 16  # bytes of a row of the result
_SHORT = 256  # inner sums of which `c` spends most of the time on the ends
_FEW = 16  # rows or columns for which `c` turns nothing
_ROWS, _INNER = 32, 1024


def is_faster(node: ir.Node) -> bool:
    """Whether OpenBLAS computes a MatMul or Gemm faster; sizes that are not known may be small."""
    left, right = dims(operand(node, 0)), dims(operand(node, 1))
    if node.op_type == "Gemm":
        rows, columns = dims(node.outputs[0])
        if _is_turned(node):
            return not any(isinstance(size, int) and size < _FEW for size in (rows, columns))
        inner = left[0] if int_attr(node, "transA", 0) else left[1]
    else:
        inner = left[-1]
        columns = right[-1] if len(right) > 1 else 1
        rows = left[-2] if len(left) > 1 else 1
        if product(right[:-2]) == 1:  # one product of all rows
            rows = product(left[:-1])
    if not isinstance(columns, int):
        return False
    if columns * itemsize(node.outputs[0].dtype) <= _NARROW:
        return not isinstance(inner, int) or inner < _SHORT
    return isinstance(rows, int) and rows >= _ROWS and isinstance(inner, int) and inner >= _INNER


def _is_turned(node: ir.Node) -> bool:
    """Whether ``c`` transposes an operand of a Gemm in each call: it turns constants at the build."""
    return any(
        int_attr(node, name, 0) != 0 and value is not None and value.const_value is None
        for name, value in zip(("transA", "transB"), node.inputs, strict=False)
    )
