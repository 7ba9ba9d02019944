"""Values that cross no border of a region: sequences, optionals and texts. Their readers are in one region.

If nodes of another backend are between the node that makes such a value and one that reads it, no region can
hold both. So those nodes go to the backend of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import onnx_ir as ir

from farcall.graph._annotate import Answer
from farcall.graph._region import Region, reads


def is_inner(value: ir.Value) -> bool:
    """Whether a value can only be inside of a region."""
    return value.type is not None and (
        not isinstance(value.type, ir.TensorType) or value.type.dtype == ir.DataType.STRING
    )


def parted(regions: Sequence[Region]) -> Iterator[tuple[ir.Node, Answer]]:
    """The nodes that keep readers of such values from the region of the value, and why to give them up."""
    home = {node: region for region in regions for node in region.nodes}
    crossing = [value for region in regions for value in region.outputs if is_inner(value)]
    if not crossing:
        return
    for value in crossing:
        maker = value.producer()
        if maker is None or maker not in home:
            continue
        after = _reached([maker], _readers)
        for reader in _readers(maker):
            before = _reached([reader], _sources)
            for node, region in home.items():
                if node in after and node in before and region.backend != home[maker].backend:
                    text = f"it is between the uses of `{value.name}`, which crosses no border of a region"
                    yield node, Answer(region.backend, "gave up", text)


def _readers(node: ir.Node) -> Iterable[ir.Node]:
    return [user for value in node.outputs for user, _ in value.uses()]


def _sources(node: ir.Node) -> Iterable[ir.Node]:
    return [maker for value in reads(node) if (maker := value.producer()) is not None]


def _reached(start: Iterable[ir.Node], following: Callable[[ir.Node], Iterable[ir.Node]]) -> set[ir.Node]:
    """All nodes that follow from some."""
    found: set[ir.Node] = set()
    waiting = list(start)
    while waiting:
        for node in following(waiting.pop()):
            if node not in found:
                found.add(node)
                waiting.append(node)
    return found
