"""The oneDNN backend: convolutions, products, pooling and softmax by oneDNN's primitives.

It is the example of a backend whose regions keep state: primitives for each set of sizes, and weights in the
layouts that these want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farcall.backends.base import Backend, Library, RegionCode
from farcall.errors import UsageError
from farcall.graph import Match, Pattern, Region

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.toolchain import Target

__all__ = ["OneDnnBackend"]
__dir__ = __all__.copy

_SINGLE = ("Conv", "MatMul", "Gemm", "MaxPool", "AveragePool", "GlobalAveragePool", "Softmax")
_ROOTS = {"conv": "Conv(x, w, b?)", "matmul": "MatMul(x, w)", "gemm": "Gemm(x, w, b?)"}
_ACTIVATIONS = {"act": "Relu|LeakyRelu|Sigmoid|Tanh({})", "clip": "Clip({}, lo?, hi?)"}


class OneDnnBackend(Backend):
    """Takes float32 convolutions and products with constant weights, pooling, and softmax.

    Bias, a residual sum and the activation behind a convolution or product are computed with it. The option
    ``threads`` is the number of threads of one call; it needs oneDNN built with OpenMP.
    """

    name = "onednn"
    color = "#7b5ea7"
    options: Mapping[str, Any] = {"threads": 1}

    def patterns(self) -> Sequence[Pattern]:
        from farcall.backends.onednn._operators import refusal

        found = []
        for name, root in _ROOTS.items():
            added = f"Add({root}, r)"
            for way, text in _ACTIVATIONS.items():
                found.append(Pattern(f"{name}_add_{way}", text.format(added), refusal))
            found.append(Pattern(f"{name}_add", added, refusal))
            for way, text in _ACTIVATIONS.items():
                found.append(Pattern(f"{name}_{way}", text.format(root), refusal))
        return found

    def check(self, node: ir.Node) -> str | None:
        from farcall.backends.onednn._operators import refusal

        if node.domain not in ("", "ai.onnx") or node.op_type not in _SINGLE:
            return f"only {', '.join(_SINGLE)}"
        return refusal(Match(node.op_type, (node,)))

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        from farcall.backends.onednn._region import generate

        if int(options["threads"]) < 1:
            raise UsageError(
                f"backend `onednn`, option `threads`: expected 1 or more, got {options['threads']}"
            )
        return generate(region, int(options["threads"]), _libraries())


def _libraries() -> list[Library]:
    from farcall.backends.onednn._region import called

    cure = "install it: pip install 'farcall[onednn]'"
    return [
        Library("libdnnl.so.3", called("dnnl_"), "onednn-cpu-gomp", "2023.2", cure),
        Library("libgomp.so.1", called("omp_"), cure="install it (Debian: libgomp1)"),
    ]
