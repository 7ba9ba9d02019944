"""Elements of 4 and 2 bits: packed in memory, low bits first, and one in a byte wherever a kernel computes.

The operators of this module are of a domain of their own. :mod:`farcall.backends.c._narrow` puts them where
packed elements enter and leave: ``LowBits`` reads them, ``Pack`` writes them, ``Saturate`` bounds integers,
``FromCode`` and ``ToCode`` convert codes of float4.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import PACKED
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._narrow_text import narrow, widen
from farcall.backends.c._node import int_attr, operand
from farcall.backends.c._registry import elementwise, loops
from farcall.graph.dims import dims, product

DOMAIN = "farcall.c"
SIGNED = frozenset({ir.DataType.INT4, ir.DataType.INT2})


def is_packed(value: ir.Value | None) -> bool:
    """Whether several elements of a value share one byte of memory."""
    return value is not None and value.dtype in PACKED


def holder(dtype: ir.DataType) -> ir.DataType:
    """The dtype of one element in a byte of its own: the number itself, or the code of a float."""
    return ir.DataType.INT8 if dtype in SIGNED else ir.DataType.UINT8


def internal(op_type: str, source: ir.Value, target: ir.Value, dtype: ir.DataType) -> ir.Node:
    """A node of this module about elements of ``dtype``."""
    about = [ir.AttrInt64("dtype", dtype.value)]
    return ir.Node(DOMAIN, op_type, [source], about, outputs=[target], version=13)


def element(dtype: ir.DataType, pointer: str, index: str) -> str:
    """The C of element ``index`` of packed memory, with other bits above it."""
    bits = dtype.bitwidth
    shift = {4: 1, 2: 2}[bits]
    return f"{pointer}[({index}) >> {shift}] >> (({index}) & {8 // bits - 1}) * {bits}"


def _dtype(node: ir.Node) -> ir.DataType:
    return ir.DataType(int_attr(node, "dtype", 0))


def _any(node: ir.Node) -> None:
    """Only :mod:`farcall.backends.c._narrow` makes these nodes."""


@elementwise(f"{DOMAIN}::LowBits", check=_any)
def _low_bits(node: ir.Node, x: str) -> str:
    """The number in the low bits, whatever is above them."""
    dtype = _dtype(node)
    mask, half = 2**dtype.bitwidth - 1, 2 ** (dtype.bitwidth - 1)
    return f"(int8_t)((({x} & {mask}) ^ {half}) - {half})" if dtype in SIGNED else f"(uint8_t)({x} & {mask})"


@elementwise(f"{DOMAIN}::Saturate", check=_any)
def _saturate(node: ir.Node, x: str) -> str:
    dtype = _dtype(node)
    low = -(2 ** (dtype.bitwidth - 1)) if dtype in SIGNED else 0
    high = low + 2**dtype.bitwidth - 1
    return f"{x} < {low} ? {low} : {x} > {high} ? {high} : {x}"


@elementwise(f"{DOMAIN}::FromCode", check=_any)
def _from_code(node: ir.Node, x: str) -> str:
    return widen(_dtype(node), x)


@elementwise(f"{DOMAIN}::ToCode", check=_any)
def _to_code(node: ir.Node, x: str) -> str:
    return narrow(_dtype(node), x)


@loops(f"{DOMAIN}::Pack", check=_any)
def _pack(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    x, y = kernel.read(operand(node, 0)), kernel.write(node.outputs[0])
    bits = _dtype(node).bitwidth
    each, mask = 8 // bits, 2**bits - 1
    count = kernel.dim(product(dims(node.outputs[0])))
    parts = [f"({x}[i * {each} + {k}] & {mask}) << {k * bits}" for k in range(each)]
    kernel.line(f"const int64_t whole = {count} / {each};")
    with kernel.loop("i", "whole"):
        kernel.line(f"{y}[i] = (uint8_t)({' | '.join(parts)});")
    kernel.line(f"if ({count} % {each}) {y}[whole] = 0;")
    with kernel.loop("k", f"{count} % {each}"):
        kernel.line(f"{y}[whole] |= (uint8_t)(({x}[whole * {each} + k] & {mask}) << k * {bits});")
    yield kernel.step()
