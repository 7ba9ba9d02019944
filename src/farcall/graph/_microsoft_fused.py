"""Definitions of operators of ``com.microsoft`` that are several of ONNX's in one, or an older one."""

from __future__ import annotations

from collections.abc import Sequence

from farcall.graph._microsoft_calls import Call, UnknownError, attributes_text, defines

_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
# For each activation the attributes that its parameters are, in the order in which they are given.
_PARAMETERS = {
    "": (),
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "Softplus": (),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("low", "high"),
}


def _activated(call: Call, value: str, given: Sequence[float]) -> str:
    """Lines that give the activation of ``value`` as the result."""
    name = call.attr("activation", "")
    wanted = _PARAMETERS.get(name)
    if wanted is None or len(given) < len(wanted):
        raise UnknownError
    if not name:
        return f"o0 = Identity({value})"
    if name == "Clip":
        return f"{call.numbers(low=given[0], high=given[1])}o0 = Clip({value}, low, high)"
    texts = [f"{key}: float = {number!r}" for key, number in zip(wanted, given, strict=False)]
    attributes = f"<{', '.join(texts)}>" if texts else ""
    return f"o0 = {name} {attributes} ({value})"


def _three(call: Call) -> list[float]:
    """The parameters of an activation that are attributes of their own."""
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return [call.attr(name, 0.0) for name in names if name in call.node.attributes]


@defines("FusedConv")
def _fused_conv(call: Call) -> str:
    given = call.node.attributes.get("activation_params")
    text = f"y = Conv {attributes_text(call, *_WINDOW)} (i0, i1{', i2' if call.has(2) else ''})\n"
    text += call.plus("sum", "y", 3)
    return text + _activated(call, "sum", [] if given is None else list(given.as_floats()))


@defines("FusedGemm")
def _fused_gemm(call: Call) -> str:
    names = attributes_text(call, "alpha", "beta", "transA", "transB")
    text = f"y = Gemm {names} (i0, i1{', i2' if call.has(2) else ''})\n"
    return text + _activated(call, "y", _three(call))


@defines("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation")
def _fused_matmul(call: Call) -> str:
    text = ""
    for index, name in ((0, "A"), (1, "B")):
        rank = call.rank(index)
        order = list(range(rank))
        if call.attr(f"transBatch{name}", 0) and rank > 1:  # the rows come first
            order = [*order[1:-1], 0, rank - 1]
        if call.attr(f"trans{name}", 0) and rank > 1:
            order[-2:] = order[:-3:-1]
        text += f"m{index} = Transpose <perm: ints = {order}> (i{index})\n"
    alpha, last = call.attr("alpha", 1.0), "product"
    text += "product = MatMul(m0, m1)\n"
    if alpha != 1.0:
        text += f"{call.numbers(factor=alpha)}scaled = Mul(product, factor)\n"
        last = "scaled"
    return text + _activated(call, last, _three(call))


@defines("Trilu", "GatherND", "Range")
def _same(call: Call) -> str:
    """Operators that are those of ONNX, from before ONNX had them."""
    operands = ", ".join(f"i{index}" for index in range(len(call.node.inputs)))
    return f"o0 = {call.node.op_type} {attributes_text(call, 'upper')} ({operands})"


@defines("ExpandDims")
def _expand_dims(call: Call) -> str:
    if call.opset < 13 or call.rank(1) > 1:
        raise UnknownError
    return """flat = Constant <value_ints: ints = [-1]> ()
        axis = Reshape(i1, flat)
        axes = Cast <to: int = 7> (axis)
        o0 = Unsqueeze(i0, axes)"""
