"""The backend ``json``: a region becomes data, which an interpreter in every artifact host runs.

It needs no compiler, so it builds fastest, and it is the example for backends that give a module: bytes of a
kind of their own (docs/backends.md). docs/spec/graph.md specifies the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from farcall.backends.base import Backend

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.backends.base import RegionModule
    from farcall.graph import Region
    from farcall.toolchain import Target

__all__ = ["JsonBackend"]
__dir__ = __all__.copy


class JsonBackend(Backend):
    """Takes most operators of ``c``, for float32, and for other dtypes where they are common."""

    name = "json"
    color = "#c98f2b"

    def check(self, node: ir.Node) -> str | None:
        from farcall.backends.json._region import reason

        return reason(node)

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionModule:
        from farcall.backends.json._region import compile_region

        return compile_region(region)
