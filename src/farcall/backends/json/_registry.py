"""The table of operators. The module of each family registers its lowerings by a decorator."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from farcall.backends.json._graph import GraphFunction

Lowering = Callable[[GraphFunction, ir.Node], None]

LOWERINGS: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register ``lower(function, node)`` for the operators ``names``."""

    def register(lower: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = lower
        return lower

    return register
