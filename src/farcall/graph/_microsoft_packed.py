"""Definitions of operators of ``com.microsoft`` whose weights are small integers, in blocks or of an LSTM."""

from __future__ import annotations

import onnx_ir as ir

from farcall.graph._microsoft_calls import Call, UnknownError, attributes_text, defines, ints

_FLOAT = int(ir.DataType.FLOAT)
_INT32 = int(ir.DataType.INT32)


def _unpacked(result: str, value: str, bits: int, shape: tuple[int, ...]) -> str:
    """Lines that take bytes apart to integers of ``bits``, the lowest bits first, as a tensor of a shape."""
    parts = [f"{result}_{index}" for index in range(8 // bits)]
    text = f"{result}_bytes = Cast <to: int = {_INT32}> ({value})\n" + ints(
        **{f"{result}_shape": shape, f"{result}_last": (-1,)}
    )
    for index, part in enumerate(parts):
        for name, number in (("by", 1 << (bits * index)), ("limit", 1 << bits)):
            text += f"{part}_{name} = Constant <value: tensor = int32[1] {{{number}}}> ()\n"
        text += f"""{part}_moved = Div({result}_bytes, {part}_by)
            {part}_low = Mod({part}_moved, {part}_limit)
            {part} = Unsqueeze({part}_low, {result}_last)
            """
    return f"""{text}{result}_all = Concat <axis: int = -1> ({", ".join(parts)})
        {result} = Reshape({result}_all, {result}_shape)
        """


@defines("MatMulNBits")
def _matmul_n_bits(call: Call) -> str:
    """Weights ``[n, blocks, bytes]``, each block with a scale and a zero point of its own."""
    call.refuse(4)
    bits, block = call.attr("bits", 4), call.attr("block_size", 0)
    n, k = call.attr("N", 0), call.attr("K", 0)
    if bits not in (2, 4, 8) or block < 1 or n < 1 or k < 1 or call.opset < 13:
        raise UnknownError
    blocks, kind = -(-k // block), call.dtype(2).value
    text = _unpacked("small", "i1", bits, (n, blocks, block)) + ints(by_block=(n, blocks, 1))
    if not call.has(3):
        text += f"zero = Constant <value: tensor = int32[1] {{{1 << (bits - 1)}}}> ()\n"
        text += "centred = Sub(small, zero)\n"
    elif call.dtype(3) == ir.DataType.UINT8:
        padded = -(-blocks * bits // 8) * (8 // bits)
        text += _unpacked("zeros", "i3", bits, (n, padded, 1)) + ints(start=(0,), end=(blocks,), axis=(1,))
        text += "zero = Slice(zeros, start, end, axis)\ncentred = Sub(small, zero)\n"
    else:
        text += f"zero = Reshape(i3, by_block)\nsmall_float = Cast <to: int = {kind}> (small)\n"
        text += "centred = Sub(small_float, zero)\n"
    text += f"""{ints(flat=(n, blocks * block), from0=(0,), to_k=(k,), along=(1,))}
        wide = Cast <to: int = {kind}> (centred)
        scale = Reshape(i2, by_block)
        scaled = Mul(wide, scale)
        whole = Reshape(scaled, flat)
        rows = Slice(whole, from0, to_k, along)
        weight = Transpose <perm: ints = [1, 0]> (rows)
        product = MatMul(i0, weight)
        """
    return text + call.plus("o0", "product", 5)


@defines("DynamicQuantizeLSTM")
def _dynamic_quantize_lstm(call: Call) -> str:
    """An LSTM of the weights that the integers stand for; onnxruntime rounds its inputs, too."""
    text = ints(by=(0, 1, -1))
    for name, weight, scale in (("w", 1, 8), ("r", 2, 10)):
        text += f"""{name}_wide = Cast <to: int = {_FLOAT}> (i{weight})
            {name}_zero_wide = Cast <to: int = {_FLOAT}> (i{scale + 1})
            {name}_zero = Reshape({name}_zero_wide, by)
            {name}_scale = Reshape(i{scale}, by)
            {name}_centred = Sub({name}_wide, {name}_zero)
            {name}_turned = Mul({name}_centred, {name}_scale)
            {name} = Transpose <perm: ints = [0, 2, 1]> ({name}_turned)
            """
    names = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size")
    made = ", ".join(f"o{index}" for index in range(len(call.node.outputs)))
    attributes = attributes_text(call, *names, "input_forget")
    return f"{text}{made} = LSTM {attributes} (i0, w, r, i3, i4, i5, i6, i7)"
