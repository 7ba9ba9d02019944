"""Positions in a picture: every group is a level with rows of items and lines between them.

The layout knows which groups are folded. When a reader opens or folds one in a browser, ``picture.js``
computes the same as :meth:`Level.place` and :meth:`Level.route`, and moves aside what stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from farcall.drawing import _text
from farcall.drawing._outline import Group

LINE = 17.0  # height of a line of text
HEAD = 26.0  # height of a card's heading
PAD = 14.0  # between a card's border and its content
ARROW = 7.0  # length of an arrowhead
FONT, SMALL = 12.0, 10.5  # sizes of text, in pixels
SKEW = 100.0  # difference between the left and right part of a card, up to which both get the same space
_GAP_X = 11.0  # on each side of an item


@dataclass
class Label:
    """The type of a value, below the port that it leaves. ``crowded``: no room while the card is folded."""

    text: str
    x: float  # relative to the middle of the item
    door: int = -1  # of a card
    crowded: bool = False

    @property
    def right(self) -> float:
        """The right end of the text."""
        return self.x + 6 + _text.width(self.text, SMALL)


@dataclass
class Item:
    """Something in a row: a box, a card, or a port at the border of the level. ``x`` is its middle."""

    row: int = 0
    x: float = 0.0
    y: float = 0.0
    wide: float = 0.0
    high: float = 0.0
    labels: list[Label] = field(default_factory=list)
    exits: dict[int, float] = field(default_factory=dict)  # value -> port, relative to the middle
    entries: dict[int, float] = field(default_factory=dict)

    def place(self) -> None:
        """Compute the vertical positions inside."""

    def height(self) -> float:
        """The height."""
        return self.high

    def hull(self) -> tuple[float, float]:
        """What it covers, relative to its middle, without labels."""
        return -self.wide / 2, self.wide / 2

    def shown(self) -> list[Label]:
        """The labels that are visible."""
        return self.labels

    def reach(self) -> tuple[float, float]:
        """What it and its labels cover, relative to its middle."""
        low, high = self.hull()
        return low, max([high, *(label.right for label in self.shown())])

    def extents(self) -> tuple[float, float]:
        """The space that it needs left and right of its middle."""
        low, high = self.reach()
        return _GAP_X - low, _GAP_X + high


@dataclass
class Port(Item):
    """The place where a value enters or leaves a level."""


@dataclass
class Node(Item):
    """A box of the diagram."""

    box: int = 0


@dataclass
class Line:
    """A line between two items. ``xs``: its start, one position for each row that it passes, and its end."""

    source: int
    target: int
    xs: list[float]
    values: list[int]


@dataclass
class Level:
    """The content of a group: items in rows, lines, and the gaps below the rows."""

    items: list[Item] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    drops: list[float] = field(default_factory=list)  # below each row, the height that labels take
    high: float = 0.0
    tops: list[float] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)

    def hull(self) -> tuple[float, float]:
        """The leftmost and the rightmost position of what is visible. The label of a port is outside."""
        reaches = [(i.x, i.hull() if isinstance(i, Port) else i.reach()) for i in self.items]
        sides = [x + side for x, reach in reaches for side in reach]
        sides += [x for line in self.lines for x in (min(line.xs) - 4, max(line.xs) + 4)]
        return min(sides, default=0.0), max(sides, default=0.0)

    def place(self) -> None:
        """Compute the vertical positions, which depend on the groups that are folded."""
        self.heights = [0.0] * len(self.gaps)
        for item in self.items:
            item.place()
            self.heights[item.row] = max(self.heights[item.row], item.height())
        self.tops, y = [], 0.0
        for height, gap in zip(self.heights, self.gaps, strict=True):
            self.tops.append(y)
            y += height + gap
        self.high = y
        for item in self.items:
            item.y = self.tops[item.row] + (self.heights[item.row] - item.height()) / 2

    def route(self, line: Line) -> str:
        """The path of a line, as SVG: straight through rows, curved between them, straight at the end."""
        source, target = self.items[line.source], self.items[line.target]
        x, row = line.xs[0], source.row
        path = [f"M{number(x)},{number(source.y + source.height())}V{number(self._bottom(row))}"]
        for to in line.xs[1:]:
            row += 1
            y, last = self.tops[row], row == target.row
            end = y - ARROW if last and not isinstance(target, Port) else y
            path.append(_curve(x, self._bottom(row - 1) + self.drops[row - 1], to, end))
            path.append(f"V{number(target.y if last else self._bottom(row))}")
            x = to
        return "".join(path)

    def _bottom(self, row: int) -> float:
        return self.tops[row] + self.heights[row]


@dataclass(frozen=True)
class Door:
    """A port of a card: the port of its level to which it leads, and its place while the card is folded."""

    inner: int  # index in the items of the level
    folded: float  # relative to the middle of the card


@dataclass
class Card(Item):
    """A group: a heading, and below it, unless it is folded, a level."""

    group: Group = field(default_factory=lambda: Group("all", "", 0, 0))
    level: Level = field(default_factory=Level)
    title: str = ""
    note: str = ""  # right of the title
    summary: str = ""  # below the title of a folded card
    need: float = 0.0  # width of title and note
    need_folded: float = 0.0  # width of all three
    middle: float = 0.0  # of the level, in its own coordinates
    doors: list[Door] = field(default_factory=list)
    leads: dict[tuple[bool, int], int] = field(default_factory=dict)  # (leaving, value) -> door

    def place(self) -> None:
        self.level.place()

    def height(self) -> float:
        if self.group.folded:
            return HEAD + (LINE if self.summary else 0.0)
        return HEAD + self.level.high

    def hull(self) -> tuple[float, float]:
        if self.group.folded:
            return -self.need_folded / 2, self.need_folded / 2
        low, high = self.level.hull()
        low, high = low - self.middle - PAD, high - self.middle + PAD
        if abs(low + high) < SKEW:  # nearly symmetric: make it so
            low, high = min(low, -high), max(high, -low)
        return min(low, -self.need / 2), max(high, self.need / 2)

    def shown(self) -> list[Label]:
        return [label for label in self.labels if not (self.group.folded and label.crowded)]

    def port(self, door: Door) -> float:
        """The place of a door, relative to the middle."""
        return door.folded if self.group.folded else self.level.items[door.inner].x - self.middle


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(to_x - x) < 0.5:
        return f"L{number(to_x)},{number(to_y)}"
    level = number((y + to_y) / 2)
    return f"V{number(y)}C{number(x)},{level} {number(to_x)},{level} {number(to_x)},{number(to_y)}"


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
