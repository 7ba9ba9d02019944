"""Decides which nodes the C backend takes, and gives the reason if it refuses one."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c._families import operator
from farcall.backends.c._node import Unsupported, basic_check


def reason(node: ir.Node) -> str | None:
    """The reason why ``node`` is refused, or None."""
    entry = operator(node)
    if entry is None:
        return f"the C backend has no loops for {node.op_type}"
    try:
        basic_check(node)
        entry.check(node)
    except Unsupported as error:
        return str(error)
    return None
