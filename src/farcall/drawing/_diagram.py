"""A diagram as data: boxes, the wires between them, and the regions that own the boxes.

A diagram needs neither the model nor the packages that read models, so an artifact can carry one.
"""

from __future__ import annotations

import msgspec


class Box(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A node of the graph, several fused nodes, or an input or output of the model."""

    lines: tuple[str, ...]  # shown in the box: the operator; or the pattern, then its operators
    region: int  # index in the diagram's regions; -1: an input or output of the model
    about: str = ""  # shown as a tooltip, and found by search
    output: bool = False  # with region -1: an output of the model, else an input


class Value(msgspec.Struct, frozen=True, array_like=True):
    """What a wire carries."""

    name: str
    dtype: str = ""
    shape: tuple[str, ...] | None = None  # None: not known

    @property
    def type(self) -> str:
        """Dtype and shape, such as ``float32[n, 4]``."""
        dims = "..." if self.shape is None else ", ".join(self.shape)
        return f"{self.dtype or 'unknown type'}[{dims}]"


class Wire(msgspec.Struct, frozen=True, array_like=True):
    """A value that goes from one box to another: three indices in the diagram."""

    source: int
    target: int
    value: int


class Area(msgspec.Struct, frozen=True, array_like=True):
    """A region: its name, its backend, and how many nodes it has."""

    name: str
    backend: str
    nodes: int


class Diagram(msgspec.Struct, frozen=True):
    """A partitioned graph.

    ``boxes`` are in an order in which they can run, and those of a region stand together: first the model's
    inputs, then the regions one after another, then the model's outputs. Every wire goes to a later box.
    """

    title: str
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    values: tuple[Value, ...]
    regions: tuple[Area, ...]
    colors: dict[str, str]  # backend -> colour, as CSS

    def brief(self) -> Diagram:
        """The diagram without the longer descriptions of its boxes: a third of the size."""
        boxes = tuple(msgspec.structs.replace(box, about="") for box in self.boxes)
        return msgspec.structs.replace(self, boxes=boxes)
