"""Decides which nodes the C backend takes, and gives the reason if it refuses one."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c._families import operator
from farcall.backends.c._narrow import has_narrow, rewritten
from farcall.backends.c._node import Unsupported, basic_check
from farcall.backends.c._registry import Loops
from farcall.graph.dims import late

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
_RANDOM_CURE = "make them an input of the model, or add the backend `onnxruntime`"


def reason(node: ir.Node) -> str | None:
    """The reason why ``node`` is refused, or None."""
    if has_narrow(node):
        try:
            return next((text for item in rewritten(node) if (text := _reason(item))), None)
        except Unsupported as error:
            return str(error)
    return _reason(node)


def _reason(node: ir.Node) -> str | None:
    entry = operator(node)
    if entry is None and node.op_type in _RANDOM:
        return f"ONNX defines no generator for the random numbers of {node.op_type}; {_RANDOM_CURE}"
    if entry is None:
        return f"the C backend has no loops for {node.op_type}"
    try:
        basic_check(node)
        unknown = [value for value in node.outputs if late(value) and value.name]
        if unknown and not (isinstance(entry, Loops) and entry.allocates):
            raise Unsupported(f"the shape of `{unknown[0].name}` is known only when the node has run")
        entry.check(node)
    except Unsupported as error:
        return str(error)
    return None
