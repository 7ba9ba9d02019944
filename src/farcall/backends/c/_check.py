"""Which nodes the C backend takes, and why not."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c._families import operator
from farcall.backends.c._node import Unsupported, basic_check


def reason(node: ir.Node) -> str | None:
    """Why ``node`` is refused, or None."""
    entry = operator(node)
    if entry is None:
        return f"the C backend has no loops for {node.op_type}"
    try:
        basic_check(node)
        entry.check(node)
    except Unsupported as error:
        return str(error)
    return None
