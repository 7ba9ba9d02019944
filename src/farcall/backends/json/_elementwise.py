"""Operators that compute one element from one element of each operand."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import inf

import onnx_ir as ir

from farcall.backends.c._node import (
    constant,
    float_attr,
    has_input,
    int_attr,
    operand,
    opset,
    str_attr,
)
from farcall.backends.c._registry import Elementwise, operator
from farcall.backends.json._graph import GraphFunction, dtype_of
from farcall.backends.json._registry import LOWERINGS, lowers
from farcall.graph.dims import dims

Formula = Callable[..., int]


def _operands(f: GraphFunction, node: ir.Node) -> list[int]:
    """The operands, with the dims by which they broadcast."""
    entry = operator(node)
    assert isinstance(entry, Elementwise)  # noqa: S101 - the C backend's table has the same operators
    return [f.view(f.of(value), shape) for value, shape in entry.operands(node)]


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Register ``compute(function, node, *operands)``, which returns the result."""

    def register(compute: Formula) -> Formula:
        def lower(f: GraphFunction, node: ir.Node) -> None:
            result = compute(f, node, *_operands(f, node))
            shape = dims(node.outputs[0])
            if len(f.shape(result)) != len(shape):
                result = f.view(result, shape)
            f.define(node.outputs[0], result)

        for name in names:
            LOWERINGS[name] = lower
        return compute

    return register


_PLAIN = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Sqrt": "sqrt", "Exp": "exp", "Log": "log",
    "Tanh": "tanh", "Erf": "erf", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sin": "sin",
    "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Sigmoid": "sigmoid",
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Equal": "eq", "Less": "lt", "LessOrEqual": "le",
    "And": "and", "Or": "or", "Xor": "xor", "Not": "not", "IsNaN": "isnan", "Where": "where",
}  # fmt: skip


@formula(*_PLAIN)
def _plain(f: GraphFunction, node: ir.Node, *operands: int) -> int:
    return f.map(_PLAIN[node.op_type], *operands)


@formula("Greater", "GreaterOrEqual")
def _greater(f: GraphFunction, node: ir.Node, a: int, b: int) -> int:
    return f.map("lt" if node.op_type == "Greater" else "le", b, a)


@formula("Mod")
def _mod(f: GraphFunction, node: ir.Node, a: int, b: int) -> int:
    return f.map("fmod" if int_attr(node, "fmod", 0) else "mod", a, b)


_CHAINS = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}


@formula(*_CHAINS)
def _chain(f: GraphFunction, node: ir.Node, *operands: int) -> int:
    total = reduce(lambda a, b: f.map(_CHAINS[node.op_type], a, b), operands)
    if node.op_type == "Mean":
        return f.map("div", total, f.scalar(len(operands), f.dtype(total)))
    return total if len(operands) > 1 else f.map("add", total, f.scalar(0, f.dtype(total)))


@formula("Pow")
def _pow(f: GraphFunction, node: ir.Node, a: int, b: int) -> int:
    known = constant(operand(node, 1))
    if known is not None and known.size == 1 and known.item() == 2:
        return f.map("mul", a, a)
    base, exponent = f.dtype(a), f.dtype(b)
    if base == exponent and base.startswith("float"):
        return f.map("pow", a, b)
    whole = not base.startswith("float") and not exponent.startswith("float")
    wide = "int64" if whole else "float64"
    return f.cast(f.map("pow", f.cast(a, wide), f.cast(b, wide)), base)


def _number(f: GraphFunction, like: int, value: float) -> int:
    return f.scalar(value, f.dtype(like))


def _attribute(f: GraphFunction, node: ir.Node, like: int, name: str, default: float) -> int:
    return _number(f, like, float_attr(node, name, default))


@formula("Reciprocal")
def _reciprocal(f: GraphFunction, node: ir.Node, x: int) -> int:
    return f.map("div", _number(f, x, 1), x)


@formula("Relu")
def _relu(f: GraphFunction, node: ir.Node, x: int) -> int:
    return f.map("max", x, _number(f, x, 0))


def _below(f: GraphFunction, x: int, then: int) -> int:
    """``x < 0 ? then : x``."""
    return f.map("where", f.map("lt", x, _number(f, x, 0)), then, x)


@formula("LeakyRelu")
def _leaky_relu(f: GraphFunction, node: ir.Node, x: int) -> int:
    return _below(f, x, f.map("mul", x, _attribute(f, node, x, "alpha", 0.01)))


@formula("PRelu")
def _prelu(f: GraphFunction, node: ir.Node, x: int, slope: int) -> int:
    return _below(f, x, f.map("mul", slope, x))


def _elu_of(f: GraphFunction, x: int, alpha: int) -> int:
    """exp(x) - 1 = 2 t / (1 - t), where t = tanh(x / 2): near zero, exp(x) is rounded to 1."""
    t = f.map("tanh", f.map("mul", x, _number(f, x, 0.5)))
    power = f.map("div", f.map("add", t, t), f.map("sub", _number(f, x, 1), t))
    return _below(f, x, f.map("mul", power, alpha))


@formula("Elu")
def _elu(f: GraphFunction, node: ir.Node, x: int) -> int:
    return _elu_of(f, x, _attribute(f, node, x, "alpha", 1.0))


@formula("Selu")
def _selu(f: GraphFunction, node: ir.Node, x: int) -> int:
    alpha = _attribute(f, node, x, "alpha", 1.67326319217681884765625)
    return f.map("mul", _elu_of(f, x, alpha), _attribute(f, node, x, "gamma", 1.05070102214813232421875))


@formula("Softplus")
def _softplus(f: GraphFunction, node: ir.Node, x: int) -> int:
    rest = f.map("log1p", f.map("exp", f.map("neg", f.map("abs", x))))
    return f.map("add", rest, f.map("max", x, _number(f, x, 0)))


@formula("Softsign")
def _softsign(f: GraphFunction, node: ir.Node, x: int) -> int:
    return f.map("div", x, f.map("add", f.map("abs", x), _number(f, x, 1)))


def _hard(f: GraphFunction, x: int, alpha: int, beta: int) -> int:
    line = f.map("add", f.map("mul", x, alpha), beta)
    return f.map("max", f.map("min", line, _number(f, x, 1)), _number(f, x, 0))


@formula("HardSigmoid")
def _hard_sigmoid(f: GraphFunction, node: ir.Node, x: int) -> int:
    return _hard(f, x, _attribute(f, node, x, "alpha", 0.2), _attribute(f, node, x, "beta", 0.5))


@formula("HardSwish")
def _hard_swish(f: GraphFunction, node: ir.Node, x: int) -> int:
    return f.map("mul", x, _hard(f, x, _number(f, x, 1 / 6), _number(f, x, 0.5)))


@formula("Gelu")
def _gelu(f: GraphFunction, node: ir.Node, x: int) -> int:
    if str_attr(node, "approximate", "none") == "none":
        inner = f.map("erf", f.map("mul", x, _number(f, x, 0.5**0.5)))
    else:
        cube = f.map("mul", f.map("mul", f.map("mul", x, x), x), _number(f, x, 0.044715))
        inner = f.map("tanh", f.map("mul", f.map("add", x, cube), _number(f, x, 0.7978845608028654)))
    half = f.map("mul", x, _number(f, x, 0.5))
    return f.map("mul", half, f.map("add", inner, _number(f, x, 1)))


@formula("Clip")
def _clip(f: GraphFunction, node: ir.Node, x: int, *bounds: int) -> int:
    given = list(bounds)
    low = high = None
    if opset(node) < 11:
        low = _attribute(f, node, x, "min", 0.0) if "min" in node.attributes else None
        high = _attribute(f, node, x, "max", 0.0) if "max" in node.attributes else None
    else:
        low = given.pop(0) if has_input(node, 1) else None
        high = given.pop(0) if has_input(node, 2) else None
    result = f.map("max", x, low) if low is not None else x
    result = f.map("min", result, high) if high is not None else result
    return result if result != x else f.map("add", x, _number(f, x, 0))


@formula("IsInf")
def _is_inf(f: GraphFunction, node: ir.Node, x: int) -> int:
    positive, negative = int_attr(node, "detect_positive", 1), int_attr(node, "detect_negative", 1)
    if positive and negative:
        return f.map("eq", f.map("abs", x), _number(f, x, inf))
    if positive or negative:
        return f.map("eq", x, _number(f, x, inf if positive else -inf))
    return f.map("lt", x, x)


@formula("Cast", "CastLike")
def _cast(f: GraphFunction, node: ir.Node, x: int) -> int:
    result = f.cast(x, dtype_of(node.outputs[0]))
    return result if result != x else f.view(x, f.shape(x))


@formula("BatchNormalization")
def _batch_normalization(
    f: GraphFunction, node: ir.Node, x: int, scale: int, bias: int, mean: int, variance: int
) -> int:
    root = f.map("sqrt", f.map("add", variance, _attribute(f, node, x, "epsilon", 1e-5)))
    return f.map("add", f.map("mul", f.map("sub", x, mean), f.map("div", scale, root)), bias)


def _softmax_axes(node: ir.Node, rank: int) -> list[int]:
    if opset(node) >= 13:
        return [int_attr(node, "axis", -1) % rank] if rank else []
    axis = int_attr(node, "axis", 1)
    return list(range(axis if axis >= 0 else axis + rank, rank))


@lowers("Softmax", "LogSoftmax")
def _softmax(f: GraphFunction, node: ir.Node) -> None:
    x = f.of(operand(node, 0))
    shape, dtype = f.shape(x), f.dtype(x)
    axes = _softmax_axes(node, len(shape))
    kept = [1 if axis in axes else dim for axis, dim in enumerate(shape)]
    top = f.step("reduce_max", [x], f.temporary(dtype, kept), axes)
    shifted = f.map("sub", x, top)
    powers = f.map("exp", shifted)
    total = f.step("reduce_sum", [powers], f.temporary(dtype, kept), axes)
    if node.op_type == "Softmax":
        result = f.map("div", powers, total)
    else:
        result = f.map("sub", shifted, f.map("log", total))
    f.define(node.outputs[0], result)
