"""The oneDNN backend: convolutions, products, pools and normalizations by oneDNN's primitives.

It is the example of a backend whose regions keep state: primitives for each set of sizes, and weights in the
layouts that these want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farcall.backends.base import Backend, Library, RegionCode
from farcall.errors import UsageError
from farcall.graph import Match, Region

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.toolchain import Target

__all__ = ["OneDnnBackend"]
__dir__ = __all__.copy


class OneDnnBackend(Backend):
    """Takes float32 convolutions, products, pools, softmax, normalizations, and what is computed with them.

    Bias, sums and activations behind a convolution or product are computed with it. Options: ``threads`` is
    the number of threads of one call, which needs oneDNN built with OpenMP; ``winograd`` says whether 3x3
    convolutions may be computed by Winograd's method, which one thread does.
    """

    name = "onednn"
    color = "#7b5ea7"
    options: Mapping[str, Any] = {"threads": 1, "winograd": True}

    def check(self, node: ir.Node) -> str | None:
        from farcall.backends.onednn._check import refusal

        return refusal(node)

    def accept(self, region: Region) -> str | Sequence[Match] | None:
        from farcall.backends.onednn._fusion import needless

        left = needless(region.nodes, set(region.outputs))
        if left is None:
            return "only operators that `c` computes faster: elementwise ones, convolutions with a Swish"
        return [match for match in region.matches if match.root not in left] if left else None

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        from farcall.backends.onednn._region import generate

        if int(options["threads"]) < 1:
            raise UsageError(
                f"backend `onednn`, option `threads`: expected 1 or more, got {options['threads']}"
            )
        threads = int(options["threads"])
        return generate(region, threads, _libraries(), bool(options["winograd"]) and threads == 1)


def _libraries() -> list[Library]:
    from farcall.backends.onednn._region import called

    cure = "install it: pip install 'farcall[onednn]'"
    return [
        Library("libdnnl.so.3", called("dnnl_"), "onednn-cpu-gomp", "2023.2", cure),
        Library("libgomp.so.1", called("omp_"), cure="install it (Debian: libgomp1)"),
    ]
