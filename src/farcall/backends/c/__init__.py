"""The C backend: compiles whole models to plain C, and is the fallback for every other backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from farcall.backends.base import Backend, RegionCode
from farcall.graph import Pattern, Region

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.toolchain import Target

__all__ = ["CBackend"]
__dir__ = __all__.copy


class CBackend(Backend):
    """Takes the operators that it implements, in float32, float64, integers, bool, and narrow floats.

    The option ``winograd`` says whether 3x3 convolutions may be computed by Winograd's method.
    """

    name = "c"
    options: Mapping[str, Any] = {"winograd": True}
    color = "#4c9f70"
    allocates = True
    ends_at_late = True  # the plan of a region's memory needs all sizes
    profiles = True

    def patterns(self) -> Sequence[Pattern]:
        from farcall.backends.c._qdq import PATTERNS

        return PATTERNS

    def check(self, node: ir.Node) -> str | None:
        from farcall.backends.c._check import reason

        return reason(node)

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        from farcall.backends.c._region import generate

        fast_conv = bool(options.get("winograd", True))
        profile, ways = bool(options.get("profile")), options.get("ways")
        code = generate(region, profile=profile, fast_conv=fast_conv, ways=ways)
        return replace(code, levels=_gains_by_levels(code, target))


def _gains_by_levels(code: RegionCode, target: Target) -> bool:
    """Whether a higher CPU level makes the code faster. Of Arm it has no wider vectors, but dot products."""
    from farcall.backends.c._bytes_text import DOT

    return target.arch != "aarch64" or any(DOT in text for text in (*code.preamble, *code.sources.values()))
