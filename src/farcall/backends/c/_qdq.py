"""Operators between DequantizeLinear and QuantizeLinear, as quantizers write them: one operator on integers.

A region's matches of these patterns become QLinearConv, QLinearMatMul and their relatives, or operators that
move integers. The results are those of onnxruntime, which does the same: it rounds once, where the nodes on
their own would round each product and sum of floats.

Relu or Clip before QuantizeLinear becomes bounds of the quantized result, since rounding is monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends.c._check import reason
from farcall.backends.c._copies import Copies, like
from farcall.backends.c._node import Unsupported, constant, float_attr, int_attr, normalize_axis, opset, rank
from farcall.backends.c._quantized import NARROW
from farcall.graph import Match, Pattern, Region
from farcall.graph._microsoft_calls import DOMAIN
from farcall.graph.dims import dims, product

_D = ir.DataType
_MOST_PARTS = 8  # of a Concat
_TOLERANCE = 1e-5  # relative, between the scale of a bias and the product of the scales of what is multiplied

Inputs = Sequence["ir.Value | None"]


@dataclass(frozen=True)
class _Parts:
    """A match, and what it consists of."""

    match: Match

    @property
    def inner(self) -> ir.Node:
        """The operator between the nodes that dequantize and that which quantizes."""
        return next(
            node
            for node in self.match.nodes
            if node.op_type not in ("DequantizeLinear", "QuantizeLinear", "Relu", "Clip")
        )

    @property
    def quantize(self) -> ir.Node:
        """The node that quantizes the result."""
        return self.match.root

    def values(self, *names: str) -> list[ir.Value | None]:
        """The values that the pattern names."""
        return [self.match.values.get(name) for name in names]

    def dequantize(self, index: int) -> ir.Node | None:
        """The node that dequantizes input ``index`` of the operator."""
        inner = self.inner
        value = inner.inputs[index] if index < len(inner.inputs) else None
        return None if value is None else value.producer()


@dataclass(frozen=True)
class _StandIn:
    """The operator that takes the place of a match."""

    op_type: str
    inputs: Inputs
    attributes: Sequence[ir.Attr] = ()
    domain: str = ""


_Rule = Callable[[_Parts], _StandIn]
_RULES: dict[str, _Rule] = {}
PATTERNS: list[Pattern] = []


def _rule(name: str, *texts: str) -> Callable[[_Rule], _Rule]:
    """Register the patterns ``texts`` of one name, and what takes the place of their matches."""

    def register(rule: _Rule) -> _Rule:
        _RULES[name] = rule
        PATTERNS.extend(Pattern(name, text, _reason) for text in texts)
        return rule

    return register


def _reason(match: Match) -> str | None:
    """Why a match is not taken, or None."""
    try:
        copies = Copies(match.root.graph)
        _replace(match, copies)
        outputs = [value for value in match.root.outputs if value.name]
        given = [value for node in match.nodes for value in node.inputs]
        nodes = copies.graph([value for value in given if value not in _made(match)], outputs)
        return next((text for node in nodes if (text := reason(node))), None)
    except Unsupported as error:
        return str(error)


def _made(match: Match) -> set[ir.Value | None]:
    return {value for node in match.nodes for value in node.outputs}


def fused(region: Region) -> Region:
    """The region with one node in place of each match, or the region itself, if it has none."""
    if not any(match.pattern in _RULES for match in region.matches):
        return region
    copies = Copies(region.nodes[0].graph)
    for match in region.matches:
        if match.pattern in _RULES:
            _replace(match, copies)
            continue
        for node in match.nodes:
            copies.note_late(node)
            inputs = [None if value is None else copies.value(value) for value in node.inputs]
            copies.add(node, inputs, [copies.value(value) for value in node.outputs])
    return copies.region(region)


def _replace(match: Match, copies: Copies) -> None:
    """Add what takes the place of a match."""
    parts = _Parts(match)
    _check_axes(parts)
    new = _RULES[match.pattern](parts)
    inputs = [None if value is None else copies.value(value) for value in new.inputs]
    if new.op_type == "Concat":
        inputs = [_requantized(parts, copies, index) for index in range(len(inputs))]
    root = match.root
    copies.nodes.append(
        ir.Node(
            new.domain,
            new.op_type,
            inputs,
            new.attributes,
            outputs=[copies.value(root.outputs[0])],
            version=None,
            name=root.name,
        )
    )


def _check_axes(parts: _Parts) -> None:
    """Refuse scales of blocks; a scale for each index of an axis is left to the rules."""
    for node in parts.match.nodes:
        if node.op_type in ("DequantizeLinear", "QuantizeLinear") and int_attr(node, "block_size", 0):
            raise Unsupported("scales of blocks")


def _want_one_scale(*values: ir.Value | None) -> None:
    for value in values:
        if value is not None and product(dims(value)) != 1:
            raise Unsupported(f"`{value.name}` is not one number")


def _want_axis(node: ir.Node | None, axis: int) -> None:
    """Refuse scales for each index of another axis."""
    scale = None if node is None else node.inputs[1]
    value = None if node is None else node.inputs[0]
    if node is None or scale is None or value is None or product(dims(scale)) == 1:
        return
    if normalize_axis(int_attr(node, "axis", 1), rank(value)) != axis % rank(value):
        raise Unsupported(f"scales for axis {int_attr(node, 'axis', 1)}")


# ---- bounds of the result ----


def _bounds(parts: _Parts) -> list[ir.Attr]:
    """The attributes ``low`` and ``high`` for a Relu or Clip."""
    node = next((node for node in parts.match.nodes if node.op_type in ("Relu", "Clip")), None)
    if node is None:
        return []
    low, high = (0.0, None) if node.op_type == "Relu" else _limits(node)
    found = {"low": low, "high": high}
    return [ir.AttrInt64(name, _quantized(parts, item)) for name, item in found.items() if item is not None]


def _limits(node: ir.Node) -> tuple[float | None, float | None]:
    """The bounds of a Clip."""
    if "min" in node.attributes or "max" in node.attributes:
        return float_attr(node, "min", -np.inf), float_attr(node, "max", np.inf)
    limits: list[float | None] = []
    for index in (1, 2):
        value = node.inputs[index] if index < len(node.inputs) else None
        data = None if value is None else constant(value)
        limits.append(None if data is None else float(data.reshape(())))
    return limits[0], limits[1]


def _quantized(parts: _Parts, number: float) -> int:
    """What QuantizeLinear makes of a number."""
    scale, zero = (None if value is None else constant(value) for value in parts.values("ys", "yz"))
    dtype = parts.quantize.outputs[0].dtype
    if scale is None or (zero is None and parts.values("yz") != [None]) or dtype not in NARROW:
        raise Unsupported("an activation, and a scale that is not constant")
    limits = np.iinfo(dtype.numpy())
    origin = 0 if zero is None else int(zero.reshape(()))
    with np.errstate(all="ignore"):
        scaled = np.rint(np.float32(number) / np.float32(scale.reshape(())))
    return int(np.clip(scaled + origin, limits.min, limits.max))


# ---- products ----

_X, _W, _Y = ("x", "xs", "xz"), ("w", "ws", "wz"), ("ys", "yz")
_LEFT, _RIGHT = "DequantizeLinear(x, xs, xz?)", "DequantizeLinear(w, ws, wz?)"
_BIAS = "DequantizeLinear(b!, bs!, bz?!)"


def _activated(text: str) -> tuple[str, str]:
    """The patterns of a quantized result, with and without Relu or Clip."""
    return (
        f"QuantizeLinear(Relu?({text}), ys, yz?)",
        f"QuantizeLinear(Clip({text}, _?!, _?!), ys, yz?)",
    )


def _bias(parts: _Parts, alpha: float = 1.0) -> ir.Value | None:
    """The bias as int32 on the scale of the products; a float constant is quantized now."""
    bias, scale, zero = parts.values("b", "bs", "bz")
    if bias is None:
        return None
    given = (bias, scale, zero, *parts.values("xs", "ws"))
    data, own, origin, left, right = (None if value is None else constant(value) for value in given)
    if data is None or left is None or right is None or (scale is not None and own is None):
        raise Unsupported("a bias and scales that are not constant")
    unit = np.float32(alpha) * left.ravel() * right.ravel()
    if own is None:
        return _quantized_bias(bias, data, unit)
    if bias.dtype != _D.INT32 or (origin is not None and origin.any()):
        raise Unsupported("a bias that is not int32 without a zero point")
    if own.size not in (1, unit.size) or not np.allclose(own.ravel(), unit, rtol=_TOLERANCE, atol=0):
        raise Unsupported("the scale of the bias is not the product of the scales of the operands")
    return bias


def _quantized_bias(bias: ir.Value, data: np.ndarray, unit: np.ndarray) -> ir.Value:
    limits = np.iinfo(np.int32)
    with np.errstate(all="ignore"):
        numbers = np.nan_to_num(np.rint(data.astype(np.float32) / unit).astype(np.float64))
    result = like(bias, _D.INT32)
    result.const_value = ir.tensor(np.clip(numbers, limits.min, limits.max).astype(np.int32))
    return result


@_rule(
    "qlinear_conv",
    *_activated(f"Conv({_LEFT}, {_RIGHT}, {_BIAS})"),
    *_activated(f"Conv({_LEFT}, {_RIGHT}, b?!)"),
)
def _conv(parts: _Parts) -> _StandIn:
    _want_one_scale(*parts.values("xs", "xz", *_Y))
    _want_axis(parts.dequantize(1), 0)
    bias = _bias(parts)
    attributes = [*parts.inner.attributes.values(), *_bounds(parts)]
    inputs = [*parts.values(*_X, *_W, *_Y), *([] if bias is None else [bias])]
    return _StandIn("QLinearConv", inputs, attributes)


@_rule("qlinear_matmul", *_activated(f"MatMul({_LEFT}, {_RIGHT})"))
def _matmul(parts: _Parts) -> _StandIn:
    _want_one_scale(*parts.values("xs", "xz", *_Y))
    _want_axis(parts.dequantize(1), -1)
    return _StandIn("QLinearMatMul", parts.values(*_X, *_W, *_Y), _bounds(parts))


@_rule("matmul_integer_to_float", f"MatMul({_LEFT}, {_RIGHT})")
def _matmul_to_float(parts: _Parts) -> _StandIn:
    _want_one_scale(*parts.values("xs", "xz"))
    _want_axis(parts.dequantize(1), -1)
    return _StandIn("QLinearMatMul", parts.values(*_X, *_W))


@_rule(
    "qlinear_gemm",
    *_activated(f"Gemm({_LEFT}, {_RIGHT}, {_BIAS})"),
    *_activated(f"Gemm({_LEFT}, {_RIGHT}, b?!)"),
)
def _gemm(parts: _Parts) -> _StandIn:
    _want_one_scale(*parts.values("xs", "xz", *_Y))
    inner = parts.inner
    bias = _bias(parts, float_attr(inner, "alpha", 1.0))
    _want_axis(parts.dequantize(1), 0 if int_attr(inner, "transB", 0) else 1)
    if bias is not None and float_attr(inner, "beta", 1.0) != 1.0:
        raise Unsupported("beta")
    kept = [attr for name, attr in inner.attributes.items() if name != "beta"]
    inputs = [*parts.values(*_X, *_W), bias, *parts.values(*_Y)]
    return _StandIn("QGemm", inputs, [*kept, *_bounds(parts)], DOMAIN)


# ---- sums, products and means of elements ----


@_rule("qlinear_add", *_activated(f"Add({_LEFT}, {_RIGHT})"))
def _add(parts: _Parts) -> _StandIn:
    return _StandIn("QLinearAdd", parts.values(*_X, *_W, *_Y), _bounds(parts), DOMAIN)


@_rule("qlinear_mul", *_activated(f"Mul({_LEFT}, {_RIGHT})"))
def _mul(parts: _Parts) -> _StandIn:
    return _StandIn("QLinearMul", parts.values(*_X, *_W, *_Y), _bounds(parts), DOMAIN)


@_rule("qlinear_global_average_pool", *_activated(f"GlobalAveragePool({_LEFT})"))
def _global_average_pool(parts: _Parts) -> _StandIn:
    return _StandIn("QLinearGlobalAveragePool", parts.values(*_X, *_Y), _bounds(parts), DOMAIN)


@_rule("qlinear_softmax", f"QuantizeLinear(Softmax({_LEFT}), ys, yz?)")
def _softmax(parts: _Parts) -> _StandIn:
    inner = parts.inner
    axis = ir.AttrInt64("axis", int_attr(inner, "axis", -1 if opset(inner) >= 13 else 1))
    version = ir.AttrInt64("opset", opset(inner))
    return _StandIn("QLinearSoftmax", parts.values(*_X, *_Y), [axis, version], DOMAIN)


# ---- moves of elements ----


def _same_scale(parts: _Parts, index: int) -> bool:
    """Whether input ``index`` of the operator has the scale and zero point of the result."""
    node = parts.dequantize(index)
    if node is None:
        return False
    given = [*node.inputs[1:], None][:2]
    return all(_equal(a, b) for a, b in zip(given, parts.values(*_Y), strict=True))


def _equal(a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is b:
        return True
    if a is None or b is None:
        return False
    left, right = constant(a), constant(b)
    return left is not None and right is not None and left.size == right.size == 1 and bool(left == right)


_MOVERS = (
    "MaxPool|Reshape|Transpose|Flatten|Squeeze|Unsqueeze|Slice|Gather|Expand|Tile|DepthToSpace|SpaceToDepth"
)


@_rule("quantized_move", f"QuantizeLinear({_MOVERS}({_LEFT}, rest*), ys, yz?)")
def _move(parts: _Parts) -> _StandIn:
    _want_one_scale(*parts.values("xs", "xz", *_Y))
    if not _same_scale(parts, 0):
        raise Unsupported("the scales before and after are not known to be equal")
    inner = parts.inner
    return _StandIn(inner.op_type, [*parts.values("x"), *inner.inputs[1:]], list(inner.attributes.values()))


def _concats() -> Iterator[str]:
    for count in range(_MOST_PARTS, 1, -1):
        parts = ", ".join(f"DequantizeLinear(x{i}, xs{i}, xz{i}?)" for i in range(count))
        yield f"QuantizeLinear(Concat({parts}), ys, yz?)"


@_rule("qlinear_concat", *_concats())
def _concat(parts: _Parts) -> _StandIn:
    inner = parts.inner
    for index in range(len(inner.inputs)):
        node = parts.dequantize(index)
        _want_one_scale(*(() if node is None else node.inputs[1:]))
    _want_one_scale(*parts.values(*_Y))
    return _StandIn("Concat", inner.inputs, list(inner.attributes.values()))


def _requantized(parts: _Parts, copies: Copies, index: int) -> ir.Value:
    """Input ``index`` of a Concat on the scale of the result."""
    node, quantize = parts.dequantize(index), parts.quantize
    value = None if node is None else node.inputs[0]
    if node is None or value is None:
        raise Unsupported(f"input {index} is missing")
    dtype = quantize.outputs[0].dtype
    if value.dtype == dtype and _same_scale(parts, index):
        return copies.value(value)
    inputs = [None if item is None else copies.value(item) for item in node.inputs]
    wide = like(value, _D.FLOAT)
    copies.add(node, inputs, [wide])
    result = like(value, dtype)
    scales = [None if item is None else copies.value(item) for item in quantize.inputs[1:]]
    copies.add(quantize, [wide, *scales], [result])
    return result
