"""Operators that compute one element from one element of each operand."""

from __future__ import annotations

from functools import reduce

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, INTEGERS, SIGNED, STORED, c_literal, c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._narrow_text import NARROW_FLOATS, narrow, widen
from farcall.backends.c._node import (
    Unsupported,
    constant,
    float_attr,
    has_input,
    int_attr,
    operand,
    opset,
    output_used,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._registry import Operands, elementwise
from farcall.graph.dims import Dim, dims, try_dims

_D = ir.DataType
NUMBERS = FLOATS | INTEGERS


def _check_numbers(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS)


def _check_floats(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)


def _check_signed(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | SIGNED)


def _check_bools(node: ir.Node) -> None:
    want_dtypes(node, {_D.BOOL})


def _check_any(node: ir.Node) -> None:
    want_dtypes(node, ALL)


def _dtype(node: ir.Node) -> ir.DataType | None:
    return operand(node, 0).dtype


@elementwise("Mod", check=_check_numbers)
def _mod(node: ir.Node, a: str, b: str) -> str:
    dtype = _dtype(node)
    if dtype in FLOATS:
        kind = "fmod" if int_attr(node, "fmod", 0) else "farcall_mod"
        return f"{kind}{'f' if dtype == _D.FLOAT else 'd'}({a}, {b})".replace("fmodd(", "fmod(")
    if dtype not in SIGNED:
        return f"{b} == 0 ? 0 : {a} % {b}"
    return f"({c_type(dtype)})farcall_{'fmod' if int_attr(node, 'fmod', 0) else 'mod'}({a}, {b})"


_WRAPPING = {"Add": "+", "Sub": "-", "Mul": "*"}


@elementwise("Add", "Sub", "Mul", check=_check_numbers)
def _add(node: ir.Node, a: str, b: str) -> str:
    return scalar.wrapping(_dtype(node), a, _WRAPPING[node.op_type], b)


@elementwise("Div", check=_check_numbers)
def _div(node: ir.Node, a: str, b: str) -> str:
    return scalar.divide(_dtype(node), a, b)


@elementwise("Sum", check=_check_floats)
def _sum(node: ir.Node, *items: str) -> str:
    return " + ".join(items)


@elementwise("Mean", check=_check_floats)
def _mean(node: ir.Node, *items: str) -> str:
    return f"({' + '.join(items)}) / {c_literal(len(items), _dtype(node))}"


@elementwise("Max", check=_check_numbers)
def _max(node: ir.Node, *items: str) -> str:
    return _fold("larger", node, items)


@elementwise("Min", check=_check_numbers)
def _min(node: ir.Node, *items: str) -> str:
    return _fold("smaller", node, items)


def _fold(name: str, node: ir.Node, items: tuple[str, ...]) -> str:
    """Nested calls of ``name`` that fold all items."""
    tag = _tag(_dtype(node))
    return reduce(lambda a, b: f"farcall_{name}_{tag}({a}, {b})", items)


def _tag(dtype: ir.DataType | None) -> str:
    return dtype.name.lower() if dtype is not None else ""


def _check_pow(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS)


@elementwise("Pow", check=_check_pow)
def _pow(node: ir.Node, a: str, b: str) -> str:
    base, exponent = operand(node, 0).dtype, operand(node, 1).dtype
    known = constant(operand(node, 1))
    if known is not None and known.size == 1:
        product = _known_power(base, a, known.item())
        if product:
            return product
    if base in INTEGERS and exponent in INTEGERS:
        return f"({c_type(base)})farcall_ipow((uint64_t){a}, (int64_t){b})"
    if base == exponent:
        return f"{scalar.function(base, 'pow')}({a}, {b})"
    return scalar.convert(_D.DOUBLE, base, f"pow((double){a}, (double){b})")


def _known_power(base: ir.DataType | None, a: str, exponent: float) -> str:
    """C of a power that needs no call of ``pow``, as those of GELU and of norms; '' if there is none.

    ``pow`` of -0 and of -infinity are those of 0 and infinity where the exponent is a half: C99, F.10.4.4.
    """
    if exponent == 2:
        return scalar.wrapping(base, a, "*", a)
    if base not in FLOATS:
        return ""
    root = f"({a} == -INFINITY ? INFINITY : {scalar.function(base, 'sqrt')}({a}) + {c_literal(0, base)})"
    products = {3: f"{a} * {a} * {a}", 0.5: root, -0.5: f"{c_literal(1, base)} / {root}"}
    return products.get(exponent, "")


_LIBM = {
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Tanh": "tanh", "Erf": "erf", "Floor": "floor",
    "Ceil": "ceil", "Round": "rint", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
}  # fmt: skip


@elementwise(*_LIBM, check=_check_floats)
def _libm(node: ir.Node, x: str) -> str:
    return f"{scalar.function(_dtype(node), _LIBM[node.op_type])}({x})"


def _one(node: ir.Node) -> str:
    return c_literal(1, _dtype(node))


def _zero(node: ir.Node) -> str:
    return c_literal(0, _dtype(node))


def _float(node: ir.Node, name: str, default: float) -> str:
    return c_literal(float_attr(node, name, default), _dtype(node))


@elementwise("Sigmoid", check=_check_floats)
def _sigmoid(node: ir.Node, x: str) -> str:
    return f"{scalar.function(_dtype(node), 'sigmoid')}({x})"


@elementwise("Reciprocal", check=_check_floats)
def _reciprocal(node: ir.Node, x: str) -> str:
    return f"{_one(node)} / {x}"


@elementwise("Relu", check=_check_signed)
def _relu(node: ir.Node, x: str) -> str:
    return f"{x} < 0 ? 0 : {x}"  # NaN stays NaN


@elementwise("LeakyRelu", check=_check_floats)
def _leaky_relu(node: ir.Node, x: str) -> str:
    return f"{x} < 0 ? {_float(node, 'alpha', 0.01)} * {x} : {x}"


@elementwise("PRelu", check=_check_signed)
def _prelu(node: ir.Node, x: str, slope: str) -> str:
    return f"{x} < 0 ? {scalar.wrapping(_dtype(node), slope, '*', x)} : {x}"


@elementwise("Elu", check=_check_floats)
def _elu(node: ir.Node, x: str) -> str:
    expm1 = scalar.function(_dtype(node), "expm1")
    return f"{x} < 0 ? {_float(node, 'alpha', 1.0)} * {expm1}({x}) : {x}"


@elementwise("Selu", check=_check_floats)
def _selu(node: ir.Node, x: str) -> str:
    alpha, gamma = (
        _float(node, "alpha", 1.67326319217681884765625),
        _float(node, "gamma", 1.05070102214813232421875),
    )
    expm1 = scalar.function(_dtype(node), "expm1")
    return f"{gamma} * ({x} <= 0 ? {alpha} * {expm1}({x}) : {x})"


@elementwise("Softplus", check=_check_floats)
def _softplus(node: ir.Node, x: str) -> str:
    return f"{scalar.function(_dtype(node), 'softplus')}({x})"


@elementwise("Softsign", check=_check_floats)
def _softsign(node: ir.Node, x: str) -> str:
    return f"{x} / ({_one(node)} + {scalar.function(_dtype(node), 'fabs')}({x}))"


@elementwise("HardSigmoid", check=_check_floats)
def _hard_sigmoid(node: ir.Node, x: str) -> str:
    line = f"{_float(node, 'alpha', 0.2)} * {x} + {_float(node, 'beta', 0.5)}"
    tag = _tag(_dtype(node))
    return f"farcall_at_least_{tag}(farcall_at_most_{tag}({line}, {_one(node)}), {_zero(node)})"


@elementwise("HardSwish", check=_check_floats)
def _hard_swish(node: ir.Node, x: str) -> str:
    dtype, tag = _dtype(node), _tag(_dtype(node))
    line = f"{x} * {c_literal(1 / 6, dtype)} + {c_literal(0.5, dtype)}"
    return f"{x} * farcall_at_least_{tag}(farcall_at_most_{tag}({line}, {_one(node)}), {_zero(node)})"


@elementwise("Gelu", check=_check_floats)
def _gelu(node: ir.Node, x: str) -> str:
    dtype = _dtype(node)
    half = c_literal(0.5, dtype)
    if str_attr(node, "approximate", "none") == "none":
        inner = f"{scalar.function(dtype, 'erf')}({x} * {c_literal(0.5**0.5, dtype)})"
    else:
        cubic = f"{c_literal(0.044715, dtype)} * {x} * {x} * {x}"
        inner = f"{scalar.function(dtype, 'tanh')}({c_literal(0.7978845608028654, dtype)} * ({x} + {cubic}))"
    return f"{half} * {x} * ({_one(node)} + {inner})"


@elementwise("Swish", check=_check_floats)
def _swish(node: ir.Node, x: str) -> str:
    exp = scalar.function(_dtype(node), "exp")
    return f"{x} / ({_one(node)} + {exp}(-{_float(node, 'alpha', 1.0)} * {x}))"


@elementwise("Mish", check=_check_floats)
def _mish(node: ir.Node, x: str) -> str:
    return f"{scalar.function(_dtype(node), 'mish')}({x})"


@elementwise("Celu", check=_check_floats)
def _celu(node: ir.Node, x: str) -> str:
    expm1, alpha = scalar.function(_dtype(node), "expm1"), _float(node, "alpha", 1.0)
    return f"{x} < 0 ? {alpha} * {expm1}({x} / {alpha}) : {x}"


@elementwise("ThresholdedRelu", check=_check_floats)
def _thresholded_relu(node: ir.Node, x: str) -> str:
    return f"{x} > {_float(node, 'alpha', 1.0)} ? {x} : 0"  # NaN gives 0, as in ONNX's definition


@elementwise("Shrink", check=_check_numbers)
def _shrink(node: ir.Node, x: str) -> str:
    """Integers are computed in double and cast, as the reference does."""
    dtype = _dtype(node)
    wide = dtype if dtype in FLOATS else _D.DOUBLE
    lambd, bias = (c_literal(float_attr(node, *item), wide) for item in (("lambd", 0.5), ("bias", 0.0)))
    wider = x if dtype in FLOATS else f"(double){x}"
    below, above = (scalar.convert(wide, dtype, f"({wider} {sign} {bias})") for sign in "+-")
    return f"{wider} < -{lambd} ? {below} : {wider} > {lambd} ? {above} : 0"


@elementwise("Neg", check=_check_signed)
def _neg(node: ir.Node, x: str) -> str:
    dtype = _dtype(node)
    return f"-{x}" if dtype in FLOATS else scalar.wrapping(dtype, "0", "-", x)


@elementwise("Abs", check=_check_numbers)
def _abs(node: ir.Node, x: str) -> str:
    dtype = _dtype(node)
    if dtype in FLOATS:
        return f"{scalar.function(dtype, 'fabs')}({x})"
    return f"{x} < 0 ? {scalar.wrapping(dtype, '0', '-', x)} : {x}" if dtype in SIGNED else x


@elementwise("Sign", check=_check_numbers)
def _sign(node: ir.Node, x: str) -> str:
    dtype = _dtype(node)
    if dtype in FLOATS:
        return f"{x} != {x} ? {x} : ({c_type(dtype)})(({x} > 0) - ({x} < 0))"
    return f"({x} > 0) - ({x} < 0)" if dtype in SIGNED else f"{x} > 0"


def _check_clip(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS if opset(node) >= 12 else FLOATS)
    for index in (1, 2):
        if has_input(node, index) and _elements(operand(node, index)) != 1:
            raise Unsupported(f"input {index} of Clip must be a scalar")


def _elements(value: ir.Value) -> Dim | None:
    known = try_dims(value)
    total: Dim = 1
    for dim in known or ():
        total = total * dim
    return total if known is not None else None


def _clip_operands(node: ir.Node) -> Operands:
    bounds = [operand(node, i) for i in (1, 2) if has_input(node, i)]
    x = operand(node, 0)
    return [(x, dims(x)), *((value, ()) for value in bounds)]


@elementwise("Clip", check=_check_clip, operands=_clip_operands)
def _clip(node: ir.Node, x: str, *bounds: str) -> str:
    tag = _tag(_dtype(node))
    given = list(bounds)
    text = x
    for index, name, function, other in (
        (1, "min", "at_least", "larger"),
        (2, "max", "at_most", "smaller"),
    ):
        if opset(node) < 11:
            bound = _float(node, name, 0.0) if name in node.attributes else ""
            is_number = bool(bound) and not np.isnan(float_attr(node, name, 0.0))
        else:
            bound = given.pop(0) if has_input(node, index) else ""
            data = constant(operand(node, index)) if bound else None
            is_number = data is not None and not np.isnan(data.astype(np.float64)).any()
        if bound:
            text = f"farcall_{function if is_number else other}_{tag}({text}, {bound})"
    return text


_COMPARISONS = {"Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}


@elementwise(*_COMPARISONS, check=_check_any)
def _compare(node: ir.Node, a: str, b: str) -> str:
    return f"{a} {_COMPARISONS[node.op_type]} {b}"


@elementwise("And", "Or", "Xor", check=_check_bools)
def _logic(node: ir.Node, a: str, b: str) -> str:
    symbol = {"And": "&", "Or": "|", "Xor": "^"}[node.op_type]
    return f"({a} != 0) {symbol} ({b} != 0)"


@elementwise("Not", check=_check_bools)
def _not(node: ir.Node, x: str) -> str:
    return f"{x} == 0"


@elementwise("IsNaN", check=_check_floats)
def _is_nan(node: ir.Node, x: str) -> str:
    return f"{x} != {x}"


@elementwise("IsInf", check=_check_floats)
def _is_inf(node: ir.Node, x: str) -> str:
    tests = [f"{x} == INFINITY"] if int_attr(node, "detect_positive", 1) else []
    tests += [f"{x} == -INFINITY"] if int_attr(node, "detect_negative", 1) else []
    return " || ".join(tests) or "0"


@elementwise("Where", check=_check_any)
def _where(node: ir.Node, condition: str, a: str, b: str) -> str:
    return f"{condition} != 0 ? {a} : {b}"


def _check_cast(node: ir.Node) -> None:
    want_dtypes(node, STORED, 0)


@elementwise(
    "Cast", "CastLike", check=_check_cast, operands=lambda node: [(operand(node, 0), dims(operand(node, 0)))]
)
def _cast(node: ir.Node, x: str) -> str:
    source, target = _dtype(node), node.outputs[0].dtype
    if source == target:
        return x
    if source in NARROW_FLOATS:
        source, x = _D.FLOAT, widen(source, x)
    if target not in NARROW_FLOATS:
        return scalar.convert(source, target, x)
    if source == _D.DOUBLE and target == _D.FLOAT16:
        return narrow(target, f"farcall_odd({x})")
    saturate, mode = bool(int_attr(node, "saturate", 1)), str_attr(node, "round_mode", "up")
    return narrow(target, scalar.convert(source, _D.FLOAT, x), saturate, mode)


def _check_batch_normalization(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    if len({operand(node, i).dtype for i in range(5)}) > 1:
        raise Unsupported("mixed dtypes")
    if any(output_used(node, index) for index in range(1, len(node.outputs))):
        raise Unsupported("training outputs (running mean and variance)")
    if int_attr(node, "spatial", 1) != 1:
        raise Unsupported("spatial=0")


def _batch_normalization_operands(node: ir.Node) -> Operands:
    x = operand(node, 0)
    trailing = (1,) * max(len(dims(x)) - 2, 0)
    channels = [operand(node, i) for i in range(1, 5)]
    return [(x, dims(x)), *((value, (*dims(value), *trailing)) for value in channels)]


@elementwise("BatchNormalization", check=_check_batch_normalization, operands=_batch_normalization_operands)
def _batch_normalization(node: ir.Node, x: str, scale: str, bias: str, mean: str, variance: str) -> str:
    root = f"{scalar.function(_dtype(node), 'sqrt')}({variance} + {_float(node, 'epsilon', 1e-5)})"
    return f"({x} - {mean}) * ({scale} / {root}) + {bias}"
