"""Decides which nodes the C backend takes, and gives the reason if it refuses one."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c._families import operator
from farcall.backends.c._narrow import has_narrow, rewritten
from farcall.backends.c._node import Unsupported, basic_check, has_input, operand
from farcall.backends.c._registry import Loops
from farcall.graph.dims import dims, late, product

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
# Operands of which the loops read the first elements, where the operator's own check need not look at their
# dims: operator, operand, elements.
_READ = {
    **{(kind, 0): 1 for kind in ("BlackmanWindow", "HammingWindow", "HannWindow")},
    **{(kind, 1): 1 for kind in ("Dropout", "TopK")},
    **{(kind, 2): 1 for kind in ("Dropout", "Pad")},
    **{("MelWeightMatrix", index): 1 for index in range(5)},
    **{("NonMaxSuppression", index): 1 for index in (2, 3, 4)},
    **{("Range", index): 1 for index in range(3)},
    **{(kind, index): 1 for kind in ("Adagrad", "Adam", "Momentum") for index in (0, 1)},
}
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
        _check_read(node)
    except Unsupported as error:
        return str(error)
    return None


def _check_read(node: ir.Node) -> None:
    """Refuse operands without the elements that are read of them."""
    for index, value in enumerate(node.inputs):
        count = _READ.get((node.op_type, index))
        if count is None or not has_input(node, index):
            continue
        size = product(dims(operand(node, index)))
        if size != count:
            named = value.name if value is not None else ""
            raise Unsupported(f"its operand `{named}` has {size} elements; expected {count}")
