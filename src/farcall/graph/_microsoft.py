"""Definitions of operators of ``com.microsoft``, which onnxruntime's tools write, by operators of ONNX."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import onnx_ir as ir

import farcall.graph._microsoft_attention
import farcall.graph._microsoft_fused
import farcall.graph._microsoft_packed  # noqa: F401 - they define operators
from farcall.graph._microsoft_calls import DEFINITIONS, DOMAIN, Call, UnknownError, attributes_text, defines

if TYPE_CHECKING:
    import onnx

_SQRT_HALF, _SQRT_2_BY_PI = 0.70710678118654752, 0.79788456080286536


def definition(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """The definition of a node of this domain by ONNX's operators of version ``opset``, if there is one."""
    import onnx

    make = DEFINITIONS.get(node.op_type)
    if make is None:
        return None
    try:
        text = make(Call(node, opset))
    except UnknownError:
        return None
    count = 1 + max((int(number) for number in re.findall(r"\bi(\d+)\b", text)), default=0)
    given = ", ".join(f"i{index}" for index in range(max(count, len(node.inputs))))
    made = ", ".join(f"o{index}" for index in range(len(node.outputs)))
    head = f'<domain: "{DOMAIN}", opset_import: ["" : {opset}]> {node.op_type} ({given}) => ({made})'
    return onnx.parser.parse_function(f"{head} {{\n{text}\n}}")


# ---- quantized operators ----


def _channels(call: Call) -> tuple[list[int], list[int]]:
    """Orders of axes that put the channels, which are last, first and back."""
    inner = list(range(1, call.rank(0) - 1))
    return [0, len(inner) + 1, *inner], [0, *(axis + 1 for axis in inner), 1]


@defines("QuantizeLinear", "DequantizeLinear")
def _linear(call: Call) -> str:
    names = ("axis", "saturate", "block_size", "output_dtype")
    return f"o0 = {call.node.op_type} {attributes_text(call, *names)} (i0, i1, i2)"


@defines("QLinearAdd", "QLinearMul")
def _binary(call: Call) -> str:
    return f"""a = DequantizeLinear(i0, i1, i2)
        b = DequantizeLinear(i3, i4, i5)
        c = {call.node.op_type.removeprefix("QLinear")}(a, b)
        o0 = QuantizeLinear(c, i6, i7)"""


@defines("QLinearSigmoid", "QLinearLeakyRelu")
def _unary(call: Call) -> str:
    kind = call.node.op_type.removeprefix("QLinear")
    return f"""x = DequantizeLinear(i0, i1, i2)
        y = {kind} {attributes_text(call, "alpha")} (x)
        o0 = QuantizeLinear(y, i3, i4)"""


@defines("QLinearSoftmax")
def _softmax(call: Call) -> str:
    rank = call.rank(0)
    axis = call.attr("axis", -1) % max(rank, 1)
    one_axis = call.attr("opset", 13) >= 13
    if axis != rank - 1 and one_axis != (call.opset >= 13):
        raise UnknownError  # before opset 13, all axes from that one on are one
    return f"""x = DequantizeLinear(i0, i1, i2)
        y = Softmax <axis: int = {axis}> (x)
        o0 = QuantizeLinear(y, i3, i4)"""


def _quantize(result: str) -> str:
    return f"{result} = QuantizeLinear(y, i3, i4)"


def _quantize_with_zero(call: Call, result: str) -> str:
    """As QuantizeLinear, but rounded after the zero point was added: so does onnxruntime here."""
    dtype = call.node.inputs[0].dtype if call.node.inputs[0] is not None else None
    if dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        raise UnknownError
    low, high = (-128.0, 127.0) if dtype == ir.DataType.INT8 else (0.0, 255.0)
    zero = "zero = Cast <to: int = 1> (i4)\nmoved = Add(scaled, zero)"
    return f"""scaled = Div(y, i3)
        {zero if call.has(4) else "moved = Identity(scaled)"}
        rounded = Round(moved)
        low = Constant <value_float: float = {low}> ()
        high = Constant <value_float: float = {high}> ()
        clipped = Clip(rounded, low, high)
        {result} = Cast <to: int = {dtype.value}> (clipped)"""


@defines("QLinearGlobalAveragePool", "QLinearAveragePool")
def _pool(call: Call) -> str:
    kind = call.node.op_type.removeprefix("QLinear")
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    pool = f"y = {kind} {attributes_text(call, *names)} (x)"
    quantize = partial(_quantize_with_zero, call) if kind == "AveragePool" else partial(_quantize)
    if not call.attr("channels_last", 0):
        return f"x = DequantizeLinear(i0, i1, i2)\n{pool}\n{quantize('o0')}"
    first, last = _channels(call)
    return f"""turned = Transpose <perm: ints = {first}> (i0)
        x = DequantizeLinear(turned, i1, i2)
        {pool}
        {quantize("small")}
        o0 = Transpose <perm: ints = {last}> (small)"""


@defines("QLinearConv")
def _conv(call: Call) -> str:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    conv = f"QLinearConv {attributes_text(call, *names)} "
    operands = ", ".join(f"i{index}" for index in range(1, 9 if call.has(8) else 8))
    if not call.attr("channels_last", 0):
        return f"o0 = {conv}(i0, {operands})"
    first, last = _channels(call)
    return f"""turned = Transpose <perm: ints = {first}> (i0)
        small = {conv}(turned, {operands})
        o0 = Transpose <perm: ints = {last}> (small)"""


@defines("NhwcMaxPool")
def _nhwc_max_pool(call: Call) -> str:
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    first, last = _channels(call)
    return f"""turned = Transpose <perm: ints = {first}> (i0)
        small = MaxPool {attributes_text(call, *names)} (turned)
        o0 = Transpose <perm: ints = {last}> (small)"""


@defines("QLinearWhere")
def _where(call: Call) -> str:
    return """x = DequantizeLinear(i1, i2, i3)
        y = DequantizeLinear(i4, i5, i6)
        chosen = Where(i0, x, y)
        o0 = QuantizeLinear(chosen, i7, i8)"""


@defines("QLinearConcat")
def _concat(call: Call) -> str:
    starts = range(2, len(call.node.inputs), 3)
    lines = [
        f"x{i} = DequantizeLinear(i{i}, i{i + 1}, i{i + 2})\nq{i} = QuantizeLinear(x{i}, i0, i1)"
        for i in starts
    ]
    parts = ", ".join(f"q{i}" for i in starts)
    return "\n".join([*lines, f"o0 = Concat {attributes_text(call, 'axis')} ({parts})"])


@defines("QGemm")
def _gemm(call: Call) -> str:
    transposed = attributes_text(call, "transA", "transB", "alpha")
    quantized = call.has(7)
    text = f"""a = DequantizeLinear(i0, i1, i2)
        b = DequantizeLinear {f"<axis: int = {1 - call.attr('transB', 0)}>"} (i3, i4, i5)
        y = Gemm {transposed} (a, b)
        """
    if call.has(6):
        text += f"""{call.numbers(1, alpha=call.attr("alpha", 1.0))}
        both = Mul(i1, i4)
        scale = Mul(both, alpha)
        wide = Cast <to: int = 1> (i6)
        c = Mul(wide, scale)
        z = Add(y, c)
        """
    last = "z" if call.has(6) else "y"
    return text + (f"o0 = QuantizeLinear({last}, i7, i8)" if quantized else f"o0 = Identity({last})")


@defines("MatMulIntegerToFloat")
def _matmul_to_float(call: Call) -> str:
    text = """sums = MatMulInteger(i0, i1, i4, i5)
        wide = Cast <to: int = 1> (sums)
        scale = Mul(i2, i3)
        y = Mul(wide, scale)
        """
    return text + call.plus("o0", "y", 6)


@defines("DynamicQuantizeMatMul")
def _dynamic_matmul(call: Call) -> str:
    text = """q, scale_a, zero_a = DynamicQuantizeLinear(i0)
        sums = MatMulInteger(q, i1, zero_a, i3)
        wide = Cast <to: int = 1> (sums)
        scale = Mul(scale_a, i2)
        y = Mul(wide, scale)
        """
    return text + call.plus("o0", "y", 4)


# ---- float operators ----


def _gelu_of(call: Call, x: str) -> str:
    """Half of x times 1 plus the error function of x by the square root of 2."""
    return f"""{call.numbers(half=0.5, one=1.0, root=_SQRT_HALF)}scaled = Mul({x}, root)
        error = Erf(scaled)
        more = Add(error, one)
        part = Mul({x}, more)
        o0 = Mul(part, half)"""


@defines("Gelu")
def _gelu(call: Call) -> str:
    return _gelu_of(call, "i0")


@defines("BiasGelu")
def _bias_gelu(call: Call) -> str:
    return f"x = Add(i0, i1)\n{_gelu_of(call, 'x')}"


@defines("FastGelu")
def _fast_gelu(call: Call) -> str:
    return f"""{call.plus("x", "i0", 1)}{call.numbers(half=0.5, one=1.0, root=_SQRT_2_BY_PI, cubic=0.044715)}
        square = Mul(x, x)
        bend = Mul(square, cubic)
        factor = Add(bend, one)
        arc = Mul(x, root)
        inner = Mul(arc, factor)
        curve = Tanh(inner)
        more = Add(curve, one)
        part = Mul(x, more)
        o0 = Mul(part, half)"""


@defines("QuickGelu")
def _quick_gelu(call: Call) -> str:
    return f"""{call.numbers(alpha=call.attr("alpha", 1.702))}scaled = Mul(i0, alpha)
        gate = Sigmoid(scaled)
        o0 = Mul(i0, gate)"""


def _mean(call: Call, result: str, value: str) -> str:
    if call.opset < 18:
        return f"{result} = ReduceMean <axes: ints = [-1], keepdims: int = 1> ({value})\n"
    return f"{result} = ReduceMean <keepdims: int = 1> ({value}, last)\n"


def _normalized(call: Call, x: str, weight: int, bias: str, centred: bool) -> str:
    """Rows, less their mean if ``centred``, by the root of the mean of their squares.

    Input ``weight`` multiplies the result, and ``bias`` is added, if it is not empty.
    """
    epsilon = call.attr("epsilon", 1e-12 if centred else 1e-5)
    if centred and call.opset >= 17:
        operands = ", ".join(item for item in (x, f"i{weight}", bias) if item)
        return f"o0 = LayerNormalization <axis: int = -1, epsilon: float = {epsilon!r}> ({operands})\n"
    text = call.numbers(weight, epsilon=epsilon) + "last = Constant <value_ints: ints = [-1]> ()\n"
    if centred:
        text += f"{_mean(call, 'mean', x)}rest = Sub({x}, mean)\n"
    else:
        text += f"rest = Identity({x})\n"
    text += f"square = Mul(rest, rest)\n{_mean(call, 'variance', 'square')}"
    text += "safe = Add(variance, epsilon)\nroot = Sqrt(safe)\nunit = Div(rest, root)\n"
    if not bias:
        return f"{text}o0 = Mul(unit, i{weight})\n"
    return f"{text}weighted = Mul(unit, i{weight})\no0 = Add(weighted, {bias})\n"


def _refuse_statistics(call: Call) -> None:
    """Refuse outputs for training, which no inference reads."""
    if any(value.uses() or value.is_graph_output() for value in call.node.outputs[1:3]):
        raise UnknownError


@defines("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_layer_normalization(call: Call) -> str:
    _refuse_statistics(call)
    centred = call.node.op_type == "SkipLayerNormalization"
    bias = ("i3" if call.has(3) else "") if centred else ""
    text = "both = Add(i0, i1)\n" + call.plus("sum", "both", 4 if centred else 3)
    text += _normalized(call, "sum", 2, bias, centred)
    return text + ("o3 = Identity(sum)" if len(call.node.outputs) > 3 else "")


@defines("SimplifiedLayerNormalization")
def _simplified_layer_normalization(call: Call) -> str:
    _refuse_statistics(call)
    if call.attr("axis", -1) % max(call.rank(0), 1) != call.rank(0) - 1:
        raise UnknownError
    return _normalized(call, "i0", 1, "", centred=False)


@defines("EmbedLayerNormalization")
def _embed_layer_normalization(call: Call) -> str:
    """Words plus positions plus segments, normalized; and for each row the number of words that count."""
    text = "words = Gather(i2, i0)\nshape = Shape(i0)\n"
    if call.has(8):
        text += "places = Gather(i3, i8)\n"
    else:
        text += f"""{_NUMBERS}length = Gather(shape, one)
        places = Slice(i3, zero, length, zero)
        """
    text += "placed = Add(words, places)\n"
    if call.has(1):
        text += "kinds = Gather(i4, i1)\nsum = Add(placed, kinds)\n"
    else:
        text += "sum = Identity(placed)\n"
    text += _normalized(call, "sum", 5, "i6", centred=True)
    if len(call.node.outputs) > 1:
        text += _counts(call)
    return text + ("o2 = Identity(sum)" if len(call.node.outputs) > 2 else "")


_NUMBERS = "zero = Constant <value_ints: ints = [0]> ()\none = Constant <value_ints: ints = [1]> ()\n"


def _counts(call: Call) -> str:
    """How many words of each row the mask keeps; 0 without a mask."""
    numbers = _NUMBERS if call.has(8) else ""
    if not call.has(7):
        rows = "rows = Gather(shape, zero)\nzeros = ConstantOfShape(rows)\n"
        return f"{numbers}{rows}o1 = Cast <to: int = 6> (zeros)\n"
    if call.opset < 13:
        return "o1 = ReduceSum <axes: ints = [1], keepdims: int = 0> (i7)\n"
    return f"{numbers}o1 = ReduceSum <keepdims: int = 0> (i7, one)\n"
