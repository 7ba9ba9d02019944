"""The heading of a picture, and the meaning of its colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farcall.drawing._diagram import Diagram
from farcall.drawing._heat import Heat
from farcall.drawing._items import number
from farcall.drawing._scene import Scene
from farcall.drawing._text import shorten, width, xml

MARGIN = 20.0  # around a picture
_LONGEST = 90  # characters of a heading
_SIZE = 16.0  # of the heading's font
_SHARES = ((0.02, "little of the time"), (0.25, "25 %"), (0.5, "50 %"), (1.0, "all"))

Key = tuple[str, str]  # the colour as attributes, empty for a remark; and its meaning


@dataclass(frozen=True)
class Legend:
    """The text as SVG, its width, and the height above the graph that it takes."""

    text: str
    wide: float
    high: float


def heading(diagram: Diagram) -> str:
    """The title of a picture, such as ``digits: 12 nodes in 4 regions``."""
    nodes = sum(area.nodes for area in diagram.regions)
    return f"{diagram.title}: {count(nodes, 'node')} in {count(len(diagram.regions), 'region')}"


def legend(scene: Scene, heat: Mapping[str, Heat], wide: float) -> Legend:
    """The heading and the keys of a picture whose graph has the width ``wide``."""
    title = shorten(heading(scene.diagram), _LONGEST)
    widest = width(title, _SIZE, bold=True)
    keys = [(one.paint, label) for one, label in _shares()] if heat else _backends(scene.diagram)
    if scene.dtype and scene.diagram.wires:
        keys = [*keys, ("", f"shapes on the lines; {scene.dtype} unless named")]
    rows, own, y = _rows(keys, max(wide, widest, 420.0))
    text = f'<text class="head" x="{MARGIN:.0f}" y="{MARGIN + 13:.0f}">{xml(title)}</text>'
    return Legend("\n".join([text, *rows]), max(widest, own), y + 14 + MARGIN)


def _shares() -> list[tuple[Heat, str]]:
    return [(Heat(share, ""), label) for share, label in _SHARES]


def _backends(diagram: Diagram) -> list[Key]:
    regions = Counter(area.backend for area in diagram.regions)
    nodes: Counter[str] = Counter()
    for area in diagram.regions:
        nodes[area.backend] += area.nodes
    return [
        (painted(color), f"{name}: {count(regions[name], 'region')}, {count(nodes[name], 'node')}")
        for name, color in diagram.colors.items()
    ]


def _rows(keys: Sequence[Key], limit: float) -> tuple[list[str], float, float]:
    """The keys side by side, in rows of at most ``limit``; their width, and the top of the last row."""
    parts, widest, x, y = [], 0.0, MARGIN, MARGIN + 28
    for paint, label in keys:
        need = (22 if paint else 0) + width(label, 12) + 18
        if x > MARGIN and x + need - MARGIN > limit:
            x, y = MARGIN, y + 22
        parts.append(_key(x, y, paint, label))
        x += need
        widest = max(widest, x - MARGIN - 18)
    return parts, widest, y


def _key(x: float, y: float, paint: str, label: str) -> str:
    if not paint:
        return f'<text class="small" x="{number(x)}" y="{number(y + 11)}">{xml(label)}</text>'
    return (
        f'<rect class="frame" x="{number(x)}" y="{number(y)}" width="14" height="14" rx="3" {paint}/>'
        f'<text x="{number(x + 20)}" y="{number(y + 11)}">{xml(label)}</text>'
    )


def painted(color: str) -> str:
    """A colour as attributes of a shape."""
    return f'fill="{xml(color)}" stroke="{xml(color)}"'


def count(number_: int, what: str) -> str:
    """A number and its noun: ``1 node``, ``2,000 nodes``."""
    return f"{number_:,} {what}{'' if number_ == 1 else 's'}"
