"""Groups the boxes of a diagram: regions; in them and around them, repeated blocks, and sections.

A group is an interval of the diagram's boxes. Boxes are in an order in which they can run, so groups that
stand beside each other never depend on each other in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from farcall.drawing._diagram import Diagram
from farcall.drawing._repeats import repeats, sections

SMALL = 40  # boxes up to which a picture shows all of them, and repeated blocks are not folded
SHOWN = 420  # boxes that a picture shows before the reader opens a group
_LONG = 400  # parts of a group, above which it gets sections
_SECTION = 120
_ENDS = 24  # inputs, or outputs, above which they are one group


@dataclass
class Group:
    """Boxes ``start`` to ``stop`` of the diagram, divided into ``parts``: groups, or numbers of boxes."""

    kind: str  # "all", "region", "repeat", "rest" (the other blocks of a repeat), "block", "section", "ends"
    title: str
    start: int
    stop: int
    parts: list[Group | int] = field(default_factory=list)
    region: int = -1
    folded: bool = False

    @property
    def groups(self) -> Iterator[Group]:
        """The groups among the parts."""
        return (part for part in self.parts if isinstance(part, Group))

    def walk(self) -> Iterator[Group]:
        """This group and all below it."""
        yield self
        for group in self.groups:
            yield from group.walk()

    def shown(self) -> int:
        """The number of boxes that are visible."""
        if self.folded:
            return 1
        return sum(part.shown() if isinstance(part, Group) else 1 for part in self.parts)


def outline(diagram: Diagram) -> Group:
    """The diagram's boxes in groups, some of which are folded so that the picture is readable."""
    parts = _gathered(diagram, _regions(diagram))
    root = Group("all", diagram.title, 0, len(diagram.boxes), parts)
    if len(diagram.boxes) > SMALL:
        _Folder(diagram).fold(root)
    _hide(root)
    return root


def _regions(diagram: Diagram) -> list[Group | int]:
    parts: list[Group | int] = []
    for index, box in enumerate(diagram.boxes):
        last = parts[-1] if parts else None
        if box.region < 0:
            parts.append(index)
        elif isinstance(last, Group) and last.region == box.region:
            last.parts.append(index)
            last.stop = index + 1
        else:
            area = diagram.regions[box.region]
            parts.append(Group("region", area.name, index, index + 1, [index], box.region))
    return parts


def _gathered(diagram: Diagram, parts: list[Group | int]) -> list[Group | int]:
    """The parts, with many inputs or many outputs of the model in a group, which is folded."""
    result = list(parts)
    for output, what in ((False, "inputs"), (True, "outputs")):
        ends: list[Group | int] = [
            part for part in parts if isinstance(part, int) and diagram.boxes[part].output == output
        ]
        if len(ends) > _ENDS:
            group = _around("ends", f"{len(ends):,} {what}", ends, -1)
            group.folded = True
            rest = [part for part in result if part not in ends]
            result = [*rest, group] if output else [group, *rest]
    return result


def _hide(root: Group) -> None:
    """Fold parts of long groups, then the largest groups, until at most :data:`SHOWN` boxes are visible."""
    if root.shown() > SHOWN:
        for group in root.walk():
            group.folded = group.folded or group.kind == "section"
    groups = [group for group in root.walk() if group.kind in ("region", "section", "block", "repeat")]
    for group in sorted(groups, key=lambda one: (-one.shown(), one.start)):
        if root.shown() <= SHOWN:
            return
        group.folded = group.shown() > 1


class _Folder:
    """Puts repeated blocks and long sequences into groups of their own."""

    def __init__(self, diagram: Diagram) -> None:
        self._diagram = diagram
        self._sources: list[list[int]] = [[] for _ in diagram.boxes]  # for each box, those that it reads from
        for wire in diagram.wires:
            self._sources[wire.target].append(wire.source)
        self._types = [_types(diagram, index) for index in _made_by(diagram)]

    def fold(self, group: Group) -> None:
        """Divide a group, and then its parts."""
        for part in group.groups:
            self.fold(part)
        group.parts = self._repeated(group, group.parts)
        if len(group.parts) > _LONG:
            group.parts = self._sections(group)

    def _links(self, parts: Sequence[Group | int]) -> list[tuple[int, int]]:
        """The (source, target) pairs of parts that a wire joins."""
        owner: dict[int, int] = {}
        for number, part in enumerate(parts):
            owner.update(dict.fromkeys(_boxes(part), number))
        pairs = {
            (owner[source], target): None
            for box, target in owner.items()
            for source in self._sources[box]
            if source in owner and owner[source] != target
        }
        return sorted(pairs)

    def _label(self, part: Group | int) -> Hashable:
        """What makes two parts equal: the operators and the types of what they make."""
        if isinstance(part, int):
            box = self._diagram.boxes[part]
            # Inputs and outputs of the model stay outside of blocks.
            return (box.lines, self._types[part]) if box.region >= 0 else (part,)
        backend = self._diagram.regions[part.region].backend if part.region >= 0 else part.kind
        return (backend, *(self._label(inner) for inner in part.parts))

    def _repeated(self, group: Group, parts: list[Group | int]) -> list[Group | int]:
        result: list[Group | int] = []
        done = 0
        for found in repeats([self._label(part) for part in parts], self._links(parts)):
            result += parts[done : found.start]
            blocks = [parts[at : at + found.length] for at in range(found.start, found.stop, found.length)]
            result.append(self._repeat(group, blocks))
            done = found.stop
        return [*result, *parts[done:]]

    def _repeat(self, group: Group, blocks: list[list[Group | int]]) -> Group:
        """A group that shows the first block, and the others folded."""
        first = self._repeated(group, blocks[0]) if len(blocks[0]) < len(group.parts) else blocks[0]
        others: list[Group | int] = [
            block[0] if len(block) == 1 else _around("block", f"block {number}", block, group.region)
            for number, block in enumerate(blocks[1:], start=2)
        ]
        title = f"{len(others)} more like this" if len(others) > 1 else "1 more like this"
        rest = _around("rest", title, others, group.region)
        for block in rest.walk():
            block.folded = block.kind in ("rest", "block")
        return _around("repeat", f"block \u00d7 {len(blocks)}", [*first, rest], group.region)

    def _sections(self, group: Group) -> list[Group | int]:
        parts = group.parts
        borders = sections(len(parts), self._links(parts), _SECTION)
        return [
            _around("section", f"part {number} of {len(borders) - 1}", parts[low:high], group.region)
            for number, (low, high) in enumerate(pairwise(borders), start=1)
        ]


def _around(kind: str, title: str, parts: Sequence[Group | int], region: int) -> Group:
    first, last = parts[0], parts[-1]
    start = first if isinstance(first, int) else first.start
    stop = last + 1 if isinstance(last, int) else last.stop
    return Group(kind, title, start, stop, list(parts), region)


def _boxes(part: Group | int) -> range:
    return range(part, part + 1) if isinstance(part, int) else range(part.start, part.stop)


def _made_by(diagram: Diagram) -> list[list[int]]:
    """For each box, the values that leave it."""
    made: list[dict[int, None]] = [{} for _ in diagram.boxes]
    for wire in diagram.wires:
        made[wire.source][wire.value] = None
    return [list(values) for values in made]


def _types(diagram: Diagram, values: Sequence[int]) -> tuple[str, ...]:
    return tuple(diagram.values[value].type for value in values)


def summary(diagram: Diagram, group: Group) -> str:
    """The operators of a group, most frequent first, such as ``Conv x2, MaxPool``."""
    kinds = Counter(diagram.boxes[box].lines[0] for box in range(group.start, group.stop))
    parts = [f"{kind} \u00d7{count}" if count > 1 else kind for kind, count in kinds.most_common(4)]
    return ", ".join(parts) + (", \u2026" if len(kinds) > 4 else "")
