"""Operators on bits, as parts of fused loops: BitShift, BitwiseAnd and its relatives, BitCast."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import ALL, INTEGERS, SIGNED, c_type, itemsize
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._node import Unsupported, operand, str_attr, want_dtypes
from farcall.backends.c._registry import elementwise

_D = ir.DataType
_FLOAT_BITS = {_D.FLOAT: "float", _D.DOUBLE: "double"}


def _check_integers(node: ir.Node) -> None:
    want_dtypes(node, INTEGERS)


def _check_shift(node: ir.Node) -> None:
    _check_integers(node)
    direction = str_attr(node, "direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise Unsupported(f"direction `{direction}`")


@elementwise("BitShift", check=_check_shift)
def _shift(node: ir.Node, x: str, distance: str) -> str:
    """A negative or too long distance shifts out all bits; a right shift fills with the sign."""
    dtype = operand(node, 0).dtype
    bits = 8 * itemsize(dtype)
    outside = f"(uint64_t){distance} >= {bits}"
    if str_attr(node, "direction", "") == "LEFT":
        return f"({c_type(dtype)})({outside} ? 0 : ({scalar.unsigned(dtype)}){x} << {distance})"
    if dtype in SIGNED:
        return f"({c_type(dtype)})({x} >> ({outside} ? {bits - 1} : {distance}))"
    return f"({c_type(dtype)})({outside} ? 0 : {x} >> {distance})"


_BITWISE = {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}


@elementwise(*_BITWISE, check=_check_integers)
def _bitwise(node: ir.Node, a: str, b: str) -> str:
    return f"({c_type(operand(node, 0).dtype)})({a} {_BITWISE[node.op_type]} {b})"


@elementwise("BitwiseNot", check=_check_integers)
def _bitwise_not(node: ir.Node, x: str) -> str:
    return f"({c_type(operand(node, 0).dtype)})~{x}"


def _check_any(node: ir.Node) -> None:
    want_dtypes(node, ALL)


@elementwise("BitCast", check=_check_any)
def _bit_cast(node: ir.Node, x: str) -> str:
    """Integers of one size convert by their bits; floats pass through the unsigned type of their size."""
    source, target = operand(node, 0).dtype, node.outputs[0].dtype
    if source == target:
        return x
    bits = f"farcall_bits_of_{_FLOAT_BITS[source]}({x})" if source in _FLOAT_BITS else x
    if target in _FLOAT_BITS:
        return f"farcall_{_FLOAT_BITS[target]}_of_bits({bits})"
    return f"({c_type(target)}){bits}"
