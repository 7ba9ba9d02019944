"""An example backend, as a third party would write it, for an accelerator that only computes Conv+Relu pairs.

It generates plain C; a real backend would emit the accelerator's instructions or call its library. Try it
with ``farcall demo``, or ``fc.partition(model, backends=[NpuBackend(), "c"])``.
"""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c_backend_kit import CBackendKit, RegionWriter
from farcall.graph import Match, Pattern
from farcall.graph.dims import dims


def limits(match: Match) -> str | None:
    """Why the accelerator cannot compute this Conv+Relu: it convolves planes of known size, in float32."""
    conv, x, w = match.nodes[0], match.values["x"], match.values["w"]
    if x.dtype != ir.DataType.FLOAT or len(dims(x)) != 4:
        return "only float32 in two spatial dims"
    if w.const_value is None or not all(isinstance(d, int) for d in dims(x)[1:]):
        return "only constant weights, and planes of known size"
    if conv.attributes.get_int("group", 1) != 1 or set(conv.attributes.get_ints("dilations", [1])) != {1}:
        return "no groups, no dilation"
    return None if conv.attributes.get_string("auto_pad", "NOTSET") == "NOTSET" else "only explicit pads"


class NpuBackend(CBackendKit):
    """Takes ``Relu(Conv(x, w, b))``: computes all filters at one pixel, with weights laid out for that."""

    name = "npu"
    color = "#e8883a"

    def patterns(self) -> list[Pattern]:
        return [Pattern("conv_relu", "Relu(Conv(x, w, b?))", check=limits)]

    def emit(self, match: Match, out: RegionWriter) -> None:
        conv, (x, w, b) = match.nodes[0], (match.values[name] for name in "xwb")
        (batch, channels, height, width), (filters, _, kh, kw) = dims(x), dims(w)
        rows, columns = dims(match.root.outputs[0])[2:]
        top, left = conv.attributes.get_ints("pads", [0] * 4)[:2]
        sy, sx = conv.attributes.get_ints("strides", [1, 1])
        source, target = out.pointer(x), out.pointer(match.root.outputs[0])
        taps = out.constant(w.const_value.numpy().transpose(2, 3, 1, 0))  # [kh, kw, channels, filters]
        bias = f"{out.pointer(b)}[o]" if b is not None else "0"
        each = f"for (int o = 0; o < {filters}; ++o)"
        with out.loop("n", batch), out.loop("i", rows), out.loop("j", columns):
            out.line(f"float sum[{filters}];\n{each} sum[o] = {bias};")
            with out.loop("u", kh), out.loop("v", kw):
                out.line(f"const int64_t y = i * {sy} + u - {top}, x = j * {sx} + v - {left};")
                out.line(f"if (y < 0 || y >= {height} || x < 0 || x >= {width}) continue;")
                with out.loop("c", channels):
                    out.line(
                        f"const float pixel = {source}[((n * {channels} + c) * {height} + y) * {width} + x];"
                    )
                    out.line(f"const float* tap = {taps} + ((u * {kw} + v) * {channels} + c) * {filters};")
                    out.line(f"{each} sum[o] += tap[o] * pixel;")
            place = f"{target}[((n * {filters} + o) * {rows} + i) * {columns} + j]"
            out.line(f"{each} {place} = sum[o] < 0 ? 0 : sum[o];")
