"""Writes a scene as SVG: one stand-alone document, which is also a part of a page.

Colours follow the reader's light or dark theme (``_theme.py``). Where scripts run, a reader can open and
fold groups, search, zoom and pan (``picture.js``); elsewhere the picture is static.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from farcall.drawing import _items
from farcall.drawing._diagram import Diagram
from farcall.drawing._heat import Heat
from farcall.drawing._items import HEAD, LINE, Card, Item, Level, Line, Node, Port, number
from farcall.drawing._legend import MARGIN, count, heading, legend, painted
from farcall.drawing._outline import Group
from farcall.drawing._scene import Scene, scene, shown_lines
from farcall.drawing._text import width, xml
from farcall.drawing._theme import theme

_HIDDEN = ' display="none"'
_LISTED = 12  # values and regions that a text names


def svg(
    diagram: Diagram, heat: Mapping[str, Heat] | None = None, notes: Mapping[str, str] | None = None
) -> str:
    """The picture of a diagram.

    Args:
        diagram: what is drawn.
        heat: for each region, its time, whose colour replaces that of the backend.
        notes: for regions, what stands beside their names instead of backend and size.
    """
    shown = {**(notes or {}), **{region: one.text for region, one in (heat or {}).items()}}
    return _Writer(scene(diagram, shown), heat or {}).document()


class _Writer:
    def __init__(self, drawn: Scene, heat: Mapping[str, Heat]) -> None:
        self._scene = drawn
        self._diagram = drawn.diagram
        self._heat = heat

    def document(self) -> str:
        low, high = self._scene.root.hull()
        key = legend(self._scene, self._heat, high - low)
        legend_width, top = key.wide, key.high
        wide = max(high - low, legend_width) + 2 * MARGIN
        high_ = top + self._scene.root.high + MARGIN
        left = (wide - high - low) / 2
        size = f'width="{wide:.0f}" height="{high_:.0f}"'
        data = json.dumps(self._data(top, legend_width), separators=(",", ":"))
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" class="farcall-plan" {size} '
                f'viewBox="0 0 {wide:.0f} {high_:.0f}" role="img" aria-label="{xml(heading(self._diagram))}" '
                'style="max-width:100%;height:auto">',
                f"<title>{xml(heading(self._diagram))}</title>",
                f"<desc>{xml(self._description())}</desc>",
                f"<style>{theme()}\n{_asset('picture.css')}</style>",
                f'<rect class="page" {size} rx="6"/>',
                f'<g class="world">{key.text}',
                f'<g class="root" transform="translate({number(left)},{number(top)})">',
                *self._level(self._scene.root),
                "</g></g>",
                f'<metadata class="scene">{xml(data)}</metadata>',
                f"<script><![CDATA[\n{_asset('picture.js')}]]></script>",
                "</svg>\n",
            )
        )

    def _description(self) -> str:
        """The picture in words, for those who do not see it."""
        boxes = [box for box in self._diagram.boxes if box.region < 0]
        lines = [f"{'output' if box.output else 'input'} {': '.join(box.lines)}" for box in boxes]
        lines += [
            f"region {area.name}, backend {area.backend}: {count(area.nodes, 'node')}"
            for area in self._diagram.regions
        ]
        rest = f"\nand {len(lines) - _LISTED:,} more" if len(lines) > _LISTED else ""
        return "\n".join(lines[:_LISTED]) + rest

    def _level(self, level: Level) -> list[str]:
        lines = [
            f'<g><path class="line" d="{level.route(line)}"><title>{xml(self._values(line.values))}</title>'
            f"</path>{self._tip(level, line.target, line.xs[-1])}</g>"
            for line in level.lines
        ]
        items = [part for item in level.items if not isinstance(item, Port) for part in self._item(item)]
        return ['<g class="lines">', *lines, '</g><g class="items">', *items, "</g>"]

    def _tip(self, level: Level, target: int, x: float) -> str:
        item = level.items[target]
        if isinstance(item, Port):
            return ""
        at = f"translate({number(x)},{number(item.y)})"
        return f'<path class="tip" d="M-3.5,-7L0,0L3.5,-7z" transform="{at}"/>'

    def _values(self, values: list[int]) -> str:
        found = [self._diagram.values[value] for value in values[:_LISTED]]
        rest = [f"and {len(values) - _LISTED:,} more"] if len(values) > _LISTED else []
        return "\n".join([*(f"{value.name}: {value.type}" for value in found), *rest])

    def _item(self, item: Item) -> list[str]:
        if isinstance(item, Card):
            return self._card(item)
        return self._box(item) if isinstance(item, Node) else []

    def _box(self, node: Node) -> list[str]:
        box = self._diagram.boxes[node.box]
        outside = box.region < 0
        paint = "" if outside else f' stroke="{xml(self._color(box.region))}"'
        rounded = number(node.high / 2) if outside else "5"
        parts = [
            f'<g class="{"port" if outside else "box"}" transform="{_at(node)}">'
            f"<title>{xml(box.about or ' '.join(box.lines))}</title>"
            f'<rect x="{number(-node.wide / 2)}" width="{number(node.wide)}" height="{number(node.high)}" '
            f'rx="{rounded}"{paint}/>'
        ]
        for row, (text, small) in enumerate(shown_lines(box)):
            style = "mid small" if small else "mid strong"
            parts.append(f'<text class="{style}" y="{number(18 + row * LINE)}">{xml(text)}</text>')
        return ["".join([*parts, _labels(node, node.high), "</g>"])]

    def _card(self, card: Card) -> list[str]:
        group, folded = card.group, card.group.folded
        low, high = card.hull()
        paint = self._paint(group)
        size = f'width="{number(high - low)}" height="{number(card.height())}"'
        return [
            f'<g class="card {group.kind}" transform="{_at(card)}"><title>{xml(self._about(card))}</title>'
            f'<rect class="back" x="{number(low)}" {size} rx="9"/>'
            f'<rect class="frame" x="{number(low)}" {size} rx="9" {paint}/>'
            f'<g class="bar" transform="translate({number(low)},0)">{self._bar(card, high - low)}</g>'
            f'<text class="small summary" x="{number(low + 12)}" y="{HEAD + 8:.0f}"'
            f"{'' if folded else _HIDDEN}>{xml(card.summary)}</text>"
            f'<g class="below" transform="translate(0,{number(card.height())})">{_labels(card, 0.0)}</g>',
            f'<g class="level" transform="translate({number(-card.middle)},{HEAD:.0f})"'
            f"{_HIDDEN if folded else ''}>",
            *self._level(card.level),
            "</g></g>",
        ]

    def _bar(self, card: Card, wide: float) -> str:
        """The heading of a card, which opens and folds it."""
        title_width = width(card.title, 12, bold=True)
        return (
            f'<rect width="{number(wide)}" height="{HEAD:.0f}"/>'
            f'<text class="strong" x="12" y="17.5">{xml(card.title)}</text>'
            f'<text class="small" x="{number(12 + title_width + 6)}" y="17.5">{xml(card.note)}</text>'
        )

    def _about(self, card: Card) -> str:
        area = self._diagram.regions[card.group.region] if card.group.region >= 0 else None
        backend = f" ({area.backend})" if area else ""
        lines = [f"{card.title}{backend}: {card.note}", card.summary]
        for what, ends in (("in", card.entries), ("out", card.exits)):
            lines += [f"{what}: {self._values([value])}" for value in list(ends)[:_LISTED]]
        return "\n".join(lines)

    def _paint(self, group: Group) -> str:
        heat = self._heat.get(group.title) if group.kind == "region" else None
        return heat.paint if heat else painted(self._color(group.region))

    def _color(self, region: int) -> str:
        if region < 0:
            return "#8c959f"
        area = self._diagram.regions[region]
        if self._heat:
            return self._heat[area.name].color if area.name in self._heat else "#8c959f"
        return self._diagram.colors.get(area.backend, "#8c959f")

    def _data(self, top: float, legend: float) -> dict[str, Any]:
        """The numbers from which the script computes positions anew."""
        sizes = {"head": HEAD, "line": LINE, "pad": _items.PAD, "arrow": _items.ARROW, "skew": _items.SKEW}
        return {
            **sizes,
            "margin": MARGIN,
            "top": top,
            "legend": legend,
            "root": _level_data(self._scene.root),
        }


def _level_data(level: Level) -> dict[str, Any]:
    return {
        "gaps": _rounded(level.gaps),
        "drops": level.drops,
        "items": [_item_data(item) for item in level.items],
        "lines": [_line_data(level, line) for line in level.lines],
    }


def _line_data(level: Level, line: Line) -> list[float]:
    """Source and target, the port at each (a door of a card, else a distance), and the bends between."""
    source, target, value = level.items[line.source], level.items[line.target], line.values[0]
    start = source.leads[True, value] if isinstance(source, Card) else line.xs[0] - source.x
    end = target.leads[False, value] if isinstance(target, Card) else line.xs[-1] - target.x
    return [line.source, line.target, *_rounded([start, end, *line.xs[1:-1]])]


def _item_data(item: Item) -> dict[str, Any]:
    low, high = item.hull() if isinstance(item, Port) else item.reach()
    data: dict[str, Any] = {"row": item.row, "x": round(item.x, 1), "reach": _rounded([low, high])}
    if not isinstance(item, Card):
        return data | {"high": round(item.high, 1), "port": isinstance(item, Port)}
    return data | {
        "need": _rounded([item.need, item.need_folded]),
        "doors": [[door.inner, round(door.folded, 1)] for door in item.doors],
        "labels": [[one.door, round(one.right - one.x, 1), one.crowded] for one in item.labels],
        "middle": round(item.middle, 1),
        "folded": item.group.folded,
        "summary": bool(item.summary),
        "level": _level_data(item.level),
    }


def _rounded(numbers: Iterable[float]) -> list[float]:
    return [round(one, 1) for one in numbers]


def _at(item: Item) -> str:
    return f"translate({number(item.x)},{number(item.y)})"


def _labels(item: Item, y: float) -> str:
    shown = item.shown()
    return "".join(
        f'<text class="type" x="{number(label.x + 5)}" y="{number(y + 12)}"'
        f"{'' if label in shown else _HIDDEN}>{xml(label.text)}</text>"
        for label in item.labels
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
