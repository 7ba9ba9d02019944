"""Products of quantized matrices whose right operand is constant: packed when the model is built.

The left operand becomes unsigned bytes and the right one signed ones, by toggling the highest bit of those
that are not, which moves the zero point by 128. The product of the bytes themselves is then corrected by the
zero points and the sums of rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from farcall.backends.c._bytes_text import COLUMNS, COMMON, STEP, bytes_source
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._node import constant
from farcall.backends.c._pairs_text import pairs_source
from farcall.backends.c._parallel import ELEMENT
from farcall.graph.dims import Dim, dims, minimum, product

_D = ir.DataType
_ROWS = 96  # of the left operand that are multiplied before their sums are read
TOGGLE = 128


def is_fixed(value: ir.Value, zero: ir.Value | None) -> bool:
    """Whether a matrix and its zero points are constants, and not empty."""
    data = constant(value)
    if data is None or data.ndim != 2 or not data.size:
        return False
    return zero is None or constant(zero) is not None


def multiply_bytes(
    kernel: Kernel,
    left: tuple[ir.Value, ir.Value | None],
    right: tuple[ir.Value, ir.Value | None],
    transposed: bool,
    target: str,
    finish: Callable[[str, str, str], None] | None = None,
) -> None:
    """Write ``left times right``, where all axes of ``left`` but the last one are rows.

    The kernel does nothing else, so that threads may share the rows.

    Args:
        kernel: The kernel.
        left: The left operand, and its zero point, one number.
        right: A matrix for which :func:`is_fixed` holds, and its zero points: one, or one for each column.
        transposed: Whether the matrix has a row for each column of the product.
        target: The sums, as 32-bit words; empty: a few rows of them are in scratch memory.
        finish: Gets these sums, the first row and the number of rows, and writes what becomes of them.
    """
    a, zero = left
    matrix, packed, sums, zeros = _packed(kernel, right, transposed)
    k, n = matrix.shape
    fours = -(-k // STEP)
    rows = kernel.dim(product(dims(a)[:-1]))
    kernel.file_scope(COMMON)
    kernel.file_scope(pairs_source())
    kernel.file_scope(bytes_source())
    block: Dim = minimum(product(dims(a)[:-1]), _ROWS)
    flip = TOGGLE if a.dtype == _D.INT8 else 0
    source = kernel.read(a)
    origin = f"(uint32_t)*{kernel.read(zero)}" if zero is not None else "0"
    direct = not flip and k % STEP == 0 and zeros == "0"
    copy = "" if direct else kernel.scratch(_D.UINT8, block * (fours * STEP))
    left_sums = "0" if direct else kernel.scratch(_D.UINT32, block)
    made = target or kernel.scratch(_D.UINT32, block * n)
    cost = _ROWS * (k // STEP + ELEMENT) * n
    with kernel.parallel("r0", product(dims(a)[:-1]), cost, step=_ROWS):
        kernel.line(f"const int64_t rows = {rows} - r0 < {_ROWS} ? {rows} - r0 : {_ROWS};")
        place = f"{source} + r0 * {k}"
        if not direct:
            kernel.line(
                f"farcall_bytes_rows(rows, {k}, {fours * STEP}, {place}, {flip}, {copy}, {left_sums});"
            )
            place = copy
        to = f"{target} + r0 * {n}" if target else made
        kernel.line(
            f"farcall_bytes_us(rows, {n}, {fours}, {place}, {fours * STEP}, {packed}, {COLUMNS * STEP}, "
            f"{fours * COLUMNS * STEP}, {to}, {n}, {origin} + {flip}u, {sums}, {left_sums}, {zeros});"
        )
        if finish is not None:
            finish(made, "r0", "rows")


def _packed(
    kernel: Kernel, right: tuple[ir.Value, ir.Value | None], transposed: bool
) -> tuple[np.ndarray, str, str, str]:
    """The matrix as signed bytes; pointers to it in vectors, to the sums of columns, and to zero points."""
    value, zero = right
    data = constant(value)
    origins = constant(zero) if zero is not None else np.zeros((), np.int8)
    assert data is not None and origins is not None  # noqa: S101 - is_fixed
    move = 0 if data.dtype == np.int8 else TOGGLE
    matrix = (data.astype(np.int32) - move).T if transposed else data.astype(np.int32) - move
    k, n = matrix.shape
    zeros = np.broadcast_to(origins.astype(np.int64).ravel() - move, (n,))
    panels = byte_panels(matrix)
    width = len(panels) * COLUMNS
    return (
        matrix,
        kernel.table(panels),
        kernel.table(words(matrix.sum(0, np.int64) - k * zeros, width)),
        kernel.table(words(zeros, width)) if zeros.any() else "0",
    )


def byte_panels(matrix: np.ndarray) -> np.ndarray:
    """Signed numbers (k, n) in the order that products read: panels of columns, and in these fours of k."""
    k, n = matrix.shape
    width = -(-n // COLUMNS) * COLUMNS
    padded = np.zeros((-(-k // STEP) * STEP, width), np.int8)
    padded[:k, :n] = matrix
    order = padded.reshape(-1, STEP, width // COLUMNS, COLUMNS).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(order)


def words(numbers: np.ndarray, width: int) -> np.ndarray:
    """Integers as 32-bit words, padded with zeros."""
    result = np.zeros(width, np.uint32)
    result[: len(numbers)] = numbers.astype(np.int64) & 0xFFFFFFFF
    return result
