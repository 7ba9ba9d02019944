"""RotaryEmbedding: rotates pairs of elements of each head by the angle of its position."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import Unsupported, has_input, int_attr, operand, rank, want_dtypes
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, product, same


def _heads(node: ir.Node) -> tuple[Dim, Dim, Dim]:
    """The number of heads, the length of the sequence, and the elements of one head."""
    shape = dims(operand(node, 0))
    if len(shape) == 4:
        return shape[1], shape[2], shape[3]
    heads = int_attr(node, "num_heads", 0)
    if heads < 1 or not isinstance(shape[2], int) or shape[2] % heads:
        raise Unsupported(f"num_heads={heads} of {shape[2]} elements")
    return heads, shape[1], shape[2] // heads


def _rotated(node: ir.Node) -> int:
    """How many elements of a head are rotated, from the first on."""
    size = _heads(node)[2]
    count = int_attr(node, "rotary_embedding_dim", 0) or size
    if not isinstance(count, int) or not isinstance(size, int) or count % 2 or not 0 <= count <= size:
        raise Unsupported(f"rotary_embedding_dim={count} of {size} elements; an even number is needed")
    return count


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS, 0, 1, 2)
    if len({operand(node, i).dtype for i in range(3)}) > 1:
        raise Unsupported("mixed dtypes")
    if rank(operand(node, 0)) not in (3, 4):
        raise Unsupported(f"rank {rank(operand(node, 0))}; 3 and 4 are defined")
    wanted = 2 if has_input(node, 3) else 3
    for index in (1, 2):
        shape = dims(operand(node, index))
        if len(shape) != wanted or not same(shape[-1], _rotated(node) // 2):
            raise Unsupported(f"input {index} is {list(shape)}; {_rotated(node) // 2} columns are needed")


@loops("RotaryEmbedding", check=_check)
def _rotary(node: ir.Node) -> Iterator[Step]:
    x, out = operand(node, 0), node.outputs[0]
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(out)
    heads, length, size = _heads(node)
    count = kernel.dim(length)
    inner_first = rank(x) == 3  # [batch, sequence, heads, size]; else [batch, heads, sequence, size]
    with shared(kernel, [("b", dims(x)[0], 1), ("s", length, 1)], product((ELEMENT, heads, size))):
        _angles(kernel, node, count)
        with kernel.loop("h", kernel.dim(heads)):
            row = f"(b * {count} + s) * {kernel.dim(heads)} + h"
            row = row if inner_first else f"(b * {kernel.dim(heads)} + h) * {count} + s"
            kernel.line(f"const {c_type(x.dtype)}* in = {p} + ({row}) * {kernel.dim(size)};")
            kernel.line(f"{c_type(x.dtype)}* to = {q} + ({row}) * {kernel.dim(size)};")
            _rotate(kernel, node)
    yield kernel.step()


def _angles(kernel: Kernel, node: ir.Node, length: str) -> None:
    """Declare ``cosine`` and ``sine``, the rows for position ``s`` of batch ``b``."""
    half = _rotated(node) // 2
    for name, index in (("cosine", 1), ("sine", 2)):
        table = operand(node, index)
        pointer, rows = kernel.read(table), dims(table)[:-1]
        if has_input(node, 3):
            at, limit = f"{_position(kernel, node, length)}", kernel.dim(rows[0])
            kernel.line(f"const int64_t row_{name} = {at};")
            message = f"node `{node.name}` (RotaryEmbedding): a position is outside of the caches"
            kernel.line(f"if (row_{name} < 0 || row_{name} >= {limit}) {kernel.fail('IndexError', message)}")
            row = f"row_{name}"
        else:
            batch = "0" if rows[0] == 1 else f"b * {kernel.dim(rows[1])}"
            row = f"({batch} + {'0' if rows[1] == 1 else 's'})"
        kernel.line(f"const {c_type(table.dtype)}* {name} = {pointer} + {row} * {half};")


def _position(kernel: Kernel, node: ir.Node, length: str) -> str:
    positions = operand(node, 3)
    shape = dims(positions)
    batch = "" if len(shape) < 2 or shape[0] == 1 else f"b * {length} + "
    return f"(int64_t){kernel.read(positions)}[{batch}s]"


def _rotate(kernel: Kernel, node: ir.Node) -> None:
    count = _rotated(node)
    half = count // 2
    first, second = ("2 * k", "2 * k + 1") if int_attr(node, "interleaved", 0) else ("k", f"k + {half}")
    kind = c_type(operand(node, 0).dtype)
    with kernel.loop("k", str(half)):
        kernel.line(f"const {kind} u = in[{first}], v = in[{second}];")
        kernel.line(f"to[{first}] = cosine[k] * u - sine[k] * v;")
        kernel.line(f"to[{second}] = sine[k] * u + cosine[k] * v;")
    with kernel.loop("k", kernel.dim(_heads(node)[2]), start=str(count)):
        kernel.line("to[k] = in[k];")
