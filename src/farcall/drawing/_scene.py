"""Lays out a diagram: from groups, level by level from the inside, to positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from farcall.drawing import _text
from farcall.drawing._diagram import Box, Diagram, Value, Wire
from farcall.drawing._items import (
    FONT,
    LINE,
    PAD,
    SKEW,
    SMALL,
    Card,
    Door,
    Item,
    Label,
    Level,
    Line,
    Node,
    Port,
)
from farcall.drawing._layers import Layers, Link, layered
from farcall.drawing._outline import Group, outline, summary

_GAP_Y = 26.0
_LABEL = 13.0  # height of a label below an item
_LABELS = 4  # labels below one box
_PORTS = 12  # at one border of a card; more values share one port


@dataclass(frozen=True)
class Scene:
    """A diagram with all positions."""

    diagram: Diagram
    root: Level
    dtype: str  # of most values; labels name others


def scene(diagram: Diagram, notes: Mapping[str, str] | None = None) -> Scene:
    """Lay out a diagram. ``notes`` replace what stands beside the names of regions."""
    dtypes = Counter(value.dtype for value in diagram.values)
    common = dtypes.most_common(1)[0][0] if dtypes else ""
    wires = [wire for wire in dict.fromkeys(diagram.wires) if wire.source != wire.target]
    root = _Builder(diagram, common, notes or {}).level(outline(diagram), wires)
    root.place()
    return Scene(diagram, root, common)


class _Builder:
    def __init__(self, diagram: Diagram, common: str, notes: Mapping[str, str]) -> None:
        self._notes = notes
        self.diagram = diagram
        self.common = common

    def level(self, group: Group, wires: Sequence[Wire]) -> Level:
        """The level of a group, from the wires that touch its boxes."""
        return _LevelBuilder(self, group, wires).build()

    def label(self, value: Value) -> str:
        """The type of a value, such as ``1x64x56x56``; its dtype only if it is not the common one."""
        shape = "?" if value.shape is None else "\u00d7".join(value.shape) or "scalar"
        return _text.shorten(shape if value.dtype == self.common else f"{value.dtype} {shape}", 30)

    def node(self, index: int, values: Iterable[int]) -> Node:
        """A box, with the values whose type stands below it."""
        box = self.diagram.boxes[index]
        wide, high = box_size(box)
        texts = {value: self.label(self.diagram.values[value]) for value in values}
        node = Node(wide=wide, high=high, box=index)
        _spread(node, texts, list(texts)[:_LABELS])
        return node

    def card(self, group: Group, wires: Sequence[Wire], labelled: Iterable[int]) -> Card:
        """A group, with the values whose type stands below it."""
        level = self.level(group, wires)
        title, note = group.title, self._note(group)
        short = _text.shorten(summary(self.diagram, group), 44)
        need = _text.width(title, FONT, bold=True) + _text.width(note, SMALL) + 46
        folded = max(need, _text.width(short, SMALL) + 2 * PAD)
        card = Card(
            group=group, level=level, title=title, note=note, summary=short, need=need, need_folded=folded
        )
        card.middle = _axis(level)
        for leaving in (False, True):
            self._add_doors(card, leaving=leaving)
        card.labels = self._labels(card, set(labelled))
        return card

    @staticmethod
    def _add_doors(card: Card, *, leaving: bool) -> None:
        """A door for each port at one border of the level. While the card is folded, they stand evenly."""
        items = card.level.items
        inner = [i for i, item in enumerate(items) if isinstance(item, Port) and bool(item.exits) == leaving]
        inner.sort(key=lambda index: items[index].x)
        room = card.need_folded / max(len(inner), 1)
        for place, index in enumerate(inner):
            door = Door(index, (place + 0.5) * room - card.need_folded / 2)
            for value in (*items[index].entries, *items[index].exits):
                (card.exits if leaving else card.entries)[value] = card.port(door)
                card.leads[leaving, value] = len(card.doors)
            card.doors.append(door)

    def _labels(self, card: Card, labelled: set[int]) -> list[Label]:
        """The label of each door below a card."""
        at: dict[int, list[int]] = {}
        for value in card.exits:
            at.setdefault(card.leads[True, value], []).append(value)
        labels = [
            Label(self.port_label(values), card.exits[values[0]], door)
            for door, values in at.items()
            if not labelled.isdisjoint(values)
        ]
        room = card.need_folded / max(len(at), 1)
        crowded = len(labels) > 1 and any(label.right - label.x > room for label in labels)
        return [replace(label, crowded=crowded) for label in labels]

    def port_label(self, values: Sequence[int]) -> str:
        """The type of the value that leaves a port, or the number of values."""
        return self.label(self.diagram.values[values[0]]) if len(values) == 1 else f"{len(values):,} values"

    def _note(self, group: Group) -> str:
        boxes = self.diagram.boxes[group.start : group.stop]
        nodes = sum(max(len(box.lines) - 1, 1) for box in boxes if box.region >= 0)
        count = f"{nodes:,} node{'' if nodes == 1 else 's'}"
        if group.kind == "region" and group.title in self._notes:
            return self._notes[group.title]
        if group.kind == "region":
            return f"{self.diagram.regions[group.region].backend} \u00b7 {count}"
        if group.kind == "ends":
            return ""
        return count


def _axis(level: Level) -> float:
    """The position at which a card stands: that of its ports, if they are in one line near the middle."""
    low, high = level.hull()
    middle = (low + high) / 2
    ports = {item.x for item in level.items if isinstance(item, Port)}
    return ports.pop() if len(ports) == 1 and abs(min(ports) - middle) < SKEW / 2 else middle


def _spread(node: Node, texts: dict[int, str], labelled: Sequence[int]) -> None:
    """Give each value that leaves a box a port; several stand side by side, with room for their labels."""
    if len(texts) < 2:
        node.exits = dict.fromkeys(texts, 0.0)
        node.labels = [Label(text, 0.0) for text in texts.values() if text]
        return
    widths = {value: _text.width(texts[value], SMALL) + 14 if value in labelled else 10.0 for value in texts}
    node.wide = max(node.wide, sum(widths.values()))
    x = -sum(widths.values()) / 2 + 4
    for value, wide in widths.items():
        node.exits[value] = x
        if value in labelled and texts[value]:
            node.labels.append(Label(texts[value], x))
        x += wide


def box_size(box: Box) -> tuple[float, float]:
    """Width and height of a box around its lines."""
    lines = shown_lines(box)
    sizes = [_text.width(line, SMALL if small else FONT, bold=not small) for line, small in lines]
    return max(54.0, max(sizes) + 24), LINE * len(lines) + 11


def shown_lines(box: Box) -> list[tuple[str, bool]]:
    """The texts in a box, and whether each is small."""
    lines = [_text.shorten(line, 36) for line in box.lines] or [""]
    if len(lines) == 1:
        return [(lines[0], False)]
    if box.region < 0:
        return [(lines[0], False), *((line, True) for line in lines[1:])]
    return [(lines[0], False), (_text.shorten(" \u2192 ".join(lines[1:]), 40), True)]


class _LevelBuilder:
    def __init__(self, builder: _Builder, group: Group, wires: Sequence[Wire]) -> None:
        self._builder = builder
        self._group = group
        self._items: list[Item] = []
        self._owner: dict[int, int] = {}  # box -> the item that holds it
        for index, part in enumerate(group.parts):
            boxes = [part] if isinstance(part, int) else range(part.start, part.stop)
            self._owner.update(dict.fromkeys(boxes, index))
        self._touching: list[list[Wire]] = [[] for _ in group.parts]
        self._edges: dict[tuple[int, int, int], None] = {}  # source, target, value; -1: from or to outside
        for wire in wires:
            self._sort(wire)

    def _sort(self, wire: Wire) -> None:
        """Note a wire as an edge between two items, or of one and the border; else it is inside of one."""
        source, target = self._owner.get(wire.source, -1), self._owner.get(wire.target, -1)
        for item in {source, target} - {-1}:
            self._touching[item].append(wire)
        if source != target:
            self._edges[source, target, wire.value] = None

    def build(self) -> Level:
        """The level, with horizontal positions."""
        made, labelled = self._values()
        for index, part in enumerate(self._group.parts):
            if isinstance(part, int):
                self._items.append(self._node(part, made[index], labelled[index]))
            else:
                self._items.append(self._builder.card(part, self._touching[index], labelled[index]))
        entries = self._add_ports(source for source in self._edges if source[0] < 0)
        exits = self._add_ports((key for key in self._edges if key[1] < 0), leaving=True)
        links, values = self._links(entries, exits)
        layers = layered(
            [item.extents() for item in self._items],
            links,
            frozenset(entries.values()),
            frozenset(exits.values()),
        )
        return self._level(layers, links, values)

    def _values(self) -> tuple[list[list[int]], list[set[int]]]:
        """For each item, the values that leave it, and those among them that get a label."""
        made: list[dict[int, None]] = [{} for _ in self._group.parts]
        labelled: list[set[int]] = [set() for _ in self._group.parts]
        boxes = self._builder.diagram.boxes
        for source, target, value in self._edges:
            if source >= 0:
                made[source][value] = None
                part = self._group.parts[target] if target >= 0 else None
                if part is not None and not (isinstance(part, int) and boxes[part].region < 0):
                    labelled[source].add(value)
        return [list(values) for values in made], labelled

    def _node(self, box: int, made: Sequence[int], labelled: set[int]) -> Node:
        outside = self._builder.diagram.boxes[box].region < 0
        node = self._builder.node(box, made)
        if outside or not labelled:
            node.labels = []
        elif len(made) == 1:
            node.labels = node.labels[:1]
        return node

    def _add_ports(self, edges: Iterable[tuple[int, int, int]], *, leaving: bool = False) -> dict[int, int]:
        """A port for each value that crosses the border, or one for many; returns the port of each value."""
        values = list(dict.fromkeys(value for _, _, value in edges))
        groups = [[value] for value in values] if len(values) <= _PORTS else [values]
        ports: dict[int, int] = {}
        for group in groups:
            port = Port(wide=2.0)
            ends = dict.fromkeys(group, 0.0)
            if leaving:
                port.exits, port.labels = ends, [Label(self._builder.port_label(group), 0.0)]
            else:
                port.entries = ends
            ports.update(dict.fromkeys(group, len(self._items)))
            self._items.append(port)
        return ports

    def _links(self, entries: dict[int, int], exits: dict[int, int]) -> tuple[list[Link], list[list[int]]]:
        """The links, and the values that each carries."""
        carried: dict[Link, list[int]] = {}
        for source, target, value in self._edges:
            upper = entries[value] if source < 0 else source
            lower = exits[value] if target < 0 else target
            start = self._items[upper].exits.get(value, 0.0)
            end = self._items[lower].entries.get(value, 0.0)
            carried.setdefault(Link(upper, lower, start, end), []).append(value)
        return list(carried), list(carried.values())

    def _level(self, layers: Layers, links: Sequence[Link], values: Sequence[list[int]]) -> Level:
        self._center_shared_ports(layers)
        xs = layers.xs
        for item, rank, x in zip(self._items, layers.ranks, xs, strict=True):
            item.row, item.x = rank, x
        lines = [
            Line(
                link.source,
                link.target,
                [
                    xs[link.source] + link.source_port,
                    *bends,
                    xs[link.target] + link.target_port,
                ],
                carried,
            )
            for link, bends, carried in zip(links, layers.bends, values, strict=True)
        ]
        drops = self._drops(len(layers.rows))
        return Level(self._items, lines, self._gaps(lines, drops), drops)

    def _center_shared_ports(self, layers: Layers) -> None:
        """Move a port of many values, alone in its row, to the middle, so that a folded card is narrow."""
        borders = [x + side for x, item in zip(layers.xs, self._items, strict=True) for side in item.hull()]
        for index, item in enumerate(self._items):
            if isinstance(item, Port) and len(item.entries) + len(item.exits) > 1:
                layers.xs[index] = (min(borders) + max(borders)) / 2

    def _gaps(self, lines: Sequence[Line], drops: Sequence[float]) -> list[float]:
        """The space below each row: more where labels stand, and where lines go far sideways."""
        far = [0.0] * len(drops)
        for line in lines:
            row = self._items[line.source].row
            for step, (a, b) in enumerate(pairwise(line.xs)):
                far[row + step] = max(far[row + step], abs(a - b))
        gaps = [_GAP_Y + drop + min(60.0, max(0.0, d - 60) * 0.1) for drop, d in zip(drops, far, strict=True)]
        if gaps:
            gaps[0] -= 8.0 if any(isinstance(item, Port) and item.entries for item in self._items) else 0.0
            gaps[-1] = 0.0 if self._ends_in_ports() else PAD
        return gaps

    def _drops(self, rows: int) -> list[float]:
        """The height of the labels below each row."""
        labelled = {item.row for item in self._items if item.labels and not isinstance(item, Port)}
        return [_LABEL if row in labelled else 0.0 for row in range(rows)]

    def _ends_in_ports(self) -> bool:
        return any(isinstance(item, Port) and item.exits for item in self._items)
