"""A whole backend for an accelerator that does not exist."""

from __future__ import annotations

from farcall.backends.c_backend_kit import CBackendKit, RegionWriter, dims
from farcall.graph import Match, Pattern


class Npu(CBackendKit):
    """Takes Conv+Relu pairs whose strides equal the kernel's size, so that windows do not overlap."""

    name = "npu"

    def patterns(self) -> list[Pattern]:
        return [Pattern("conv_relu", "Relu(Conv(x, w, b?))")]

    def emit(self, match: Match, out: RegionWriter) -> None:
        x, w, b = (match.values[name] for name in "xwb")
        y = match.root.outputs[0]
        (n, c, h, wide), (m, _, kh, kw), (_, _, oh, ow) = dims(x), dims(w), dims(y)
        bias = f"{out.pointer(b)}[m]" if b is not None else "0"
        source, weights, target = out.pointer(x), out.pointer(w), out.pointer(y)
        with out.loop("n", n), out.loop("m", m), out.loop("i", oh), out.loop("j", ow):
            out.line(f"float sum = {bias};")
            with out.loop("c", c), out.loop("u", kh), out.loop("v", kw):
                place = f"((n * {out.dim(c)} + c) * {out.dim(h)} + i + u) * {out.dim(wide)} + j + v"
                out.line(f"sum += {source}[{place}] * {weights}[((m * {c} + c) * {kh} + u) * {kw} + v];")
            out.line(
                f"{target}[((n * {m} + m) * {out.dim(oh)} + i) * {out.dim(ow)} + j] = sum > 0 ? sum : 0;"
            )
