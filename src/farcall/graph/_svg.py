"""Draws a partition as SVG: regions in their backend's colour, with their nodes; values are edges.

Up to :data:`MAX_NODES` nodes, every node is drawn. Above that, a region is one box; above
:data:`MAX_REGIONS` regions, only the first are drawn, with a note. Tooltips show dtypes, shapes and names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

import onnx_ir as ir

from farcall.graph._annotate import describe_node, describe_value
from farcall.graph._layout import Layout, Point, layered
from farcall.graph._region import Match, Region, reads
from farcall.graph._report import count, operators

if TYPE_CHECKING:
    from farcall.graph._partition import Partition

MAX_NODES = 200
MAX_REGIONS = 200

_MARGIN = 20.0
_LINE = 18.0  # height of a line of text
_CHAR = 6.7  # width of a letter of 12 px, on average
_PAD = 12.0
_HEAD = 20.0  # a region's title
_STYLE = """
text { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328; }
.head { font-size: 15px; font-weight: 600; }
.small { font-size: 10.5px; fill: #59636e; }
.mid { text-anchor: middle; }
.title { font-weight: 600; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-opacity: 0.6; }
.edge { fill: none; stroke: #8c959f; stroke-width: 1.3; marker-end: url(#arrow); }
.edge.cross { stroke: #424a53; stroke-width: 1.7; }
.node { fill: #ffffff; stroke: #8c959f; }
.port { fill: #f6f8fa; stroke: #59636e; }
"""


def draw(partition: Partition) -> str:
    """The picture as a stand-alone SVG document."""
    return _Picture(partition).text()


@dataclass
class _Shape:
    """A box of the layout: a region, or an input or output of the graph, with its size and content."""

    width: float
    height: float
    title: str
    tooltip: str
    region: Region | None = None
    inside: Layout | None = None
    entries: dict[ir.Value, float] = field(
        default_factory=dict
    )  # where values enter and leave: x relative to the shape
    exits: dict[ir.Value, float] = field(default_factory=dict)
    edges: list[tuple[ir.Value, int]] = field(
        default_factory=list
    )  # inside the shape: value, index of the route


class _Picture:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._regions = partition.regions[:MAX_REGIONS]
        nodes = sum(len(region.nodes) for region in self._regions)
        self._detailed = nodes <= MAX_NODES and len(self._regions) == len(partition.regions)
        self._shapes: list[_Shape] = []
        self._makers: dict[ir.Value, int] = {}
        self._links: dict[tuple[int, int, ir.Value | None], list[ir.Value]] = {}
        self._collect()

    def _collect(self) -> None:
        graph = self._partition.model.graph
        for value in graph.inputs:
            self._makers[value] = self._add(_terminal(value, "input"))
        for region in self._regions:
            shape = _detailed_region(region) if self._detailed else _plain_region(region)
            index = self._add(shape)
            for value in region.inputs:
                self._link(value, index)
            self._makers.update((value, index) for value in region.outputs)
        if len(self._regions) < len(self._partition.regions):
            return
        for value in graph.outputs:
            self._link(value, self._add(_terminal(value, "output")))

    def _add(self, shape: _Shape) -> int:
        self._shapes.append(shape)
        return len(self._shapes) - 1

    def _link(self, value: ir.Value, target: int) -> None:
        if value in self._makers:  # an output may be an initializer
            key = (self._makers[value], target, value if self._detailed else None)
            self._links.setdefault(key, []).append(value)

    def text(self) -> str:
        links = [(source, target) for source, target, _ in self._links]
        layout = layered([(shape.width, shape.height) for shape in self._shapes], links, gap_y=46)
        legend = self._legend()
        width = max(layout.width, legend[1]) + 2 * _MARGIN
        left, top = (width - layout.width) / 2, _MARGIN + 48
        height = top + layout.height + _MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{_text(self._heading())}</title><style>{_STYLE}</style>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#59636e"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            legend[0],
            f'<g transform="translate({left:.1f},{top:.1f})">',
            *self._boxes(layout),
            *self._edges(layout),
            *self._contents(layout),
            "</g></svg>",
        ]
        return "\n".join(parts) + "\n"

    def _heading(self) -> str:
        regions = self._partition.regions
        nodes = sum(len(region.nodes) for region in regions)
        name = self._partition.model.graph.name or "graph"
        head = f"{name}: {count(nodes, 'node')} in {count(len(regions), 'region')}"
        rest = len(regions) - len(self._regions)
        return f"{head} (the first {len(self._regions)} are drawn)" if rest else head

    def _legend(self) -> tuple[str, float]:
        """The heading and the backends' colours, and their width."""
        heading = self._heading()
        parts = [f'<text class="head" x="{_MARGIN}" y="{_MARGIN + 12}">{_text(heading)}</text>']
        regions = Counter(region.backend for region in self._partition.regions)
        nodes: Counter[str] = Counter()
        for region in self._partition.regions:
            nodes[region.backend] += len(region.nodes)
        x, y = _MARGIN, _MARGIN + 24
        for backend, color in self._partition.colors.items():
            label = f"{backend}: {count(regions[backend], 'region')}, {count(nodes[backend], 'node')}"
            paint = quoteattr(color)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="14" height="14" rx="3" fill={paint} fill-opacity="0.35" '
                f'stroke={paint}/><text x="{x + 20:.1f}" y="{y + 11}">{_text(label)}</text>'
            )
            x += 40 + len(label) * _CHAR
        return "\n".join(parts), max(x, len(heading) * 8.2)

    def _place(self, layout: Layout, index: int) -> Point:
        return layout.centers[index] - self._shapes[index].width / 2, layout.tops[index]

    def _boxes(self, layout: Layout) -> list[str]:
        parts = []
        for index, shape in enumerate(self._shapes):
            if shape.region is None:
                continue
            x, y = self._place(layout, index)
            paint = quoteattr(self._partition.colors.get(shape.region.backend, "#888888"))
            parts.append(
                f'<g class="region"><title>{_text(shape.tooltip)}</title><rect x="{x:.1f}" y="{y:.1f}" '
                f'width="{shape.width:.1f}" height="{shape.height:.1f}" rx="8" fill={paint} '
                f'fill-opacity="0.22" stroke={paint} stroke-width="1.5"/></g>'
            )
        return parts

    def _edges(self, layout: Layout) -> list[str]:
        parts = []
        for ((source, target, _), values), route in zip(self._links.items(), layout.routes, strict=True):
            value = values[0]
            first, last = self._shapes[source], self._shapes[target]
            start = self._place(layout, source)[0] + first.exits.get(value, first.width / 2)
            end = self._place(layout, target)[0] + last.entries.get(value, last.width / 2)
            first_y, last_y = [y for _, y in route[:2]], [y for _, y in route[-2:]]
            points = [*((start, y) for y in first_y), *route[2:-2], *((end, y) for y in last_y)]
            tooltip = "\n".join(map(describe_value, values))
            parts.append(_edge(points, tooltip, "edge cross"))
        return parts

    def _contents(self, layout: Layout) -> list[str]:
        parts = []
        for index, shape in enumerate(self._shapes):
            x, y = self._place(layout, index)
            parts.append(f'<g transform="translate({x:.1f},{y:.1f})">')
            if shape.region is None:
                parts.append(_draw_terminal(shape))
            elif shape.inside is None:
                parts.append(_draw_plain(shape))
            else:
                parts += _draw_inside(shape)
            parts.append("</g>")
        return parts


def _terminal(value: ir.Value, role: str) -> _Shape:
    lines = [value.name or role, describe_value(value).removeprefix(f"{value.name}: ")]
    width = max(len(lines[0]) * _CHAR, len(lines[1]) * 5.9) + 2 * _PAD
    return _Shape(width, 2 * _LINE + 6, "\n".join(lines), f"{role} {describe_value(value)}")


def _describe_region(region: Region) -> str:
    contents = f"{count(len(region.nodes), 'node')}, {count(len(region.constants), 'constant')}"
    lines = [f"{region.name} ({region.backend}): {contents}"]
    for what, values in (("in", region.inputs), ("out", region.outputs)):
        lines += [f"{what}: {describe_value(value)}" for value in values[:12]]
    return "\n".join(lines)


def _plain_region(region: Region) -> _Shape:
    name = _shorten(operators(region), 48)
    lines = [region.name, count(len(region.nodes), "node"), name]
    width = max(map(len, lines)) * _CHAR + 2 * _PAD
    return _Shape(width, 3 * _LINE + 8, "\n".join(lines), _describe_region(region), region)


def _detailed_region(region: Region) -> _Shape:
    """Lay out the inside: a box for each match, a point on the border for each value that crosses it."""
    sizes = [_match_size(match) for match in region.matches]
    owner = {node: index for index, match in enumerate(region.matches) for node in match.nodes}
    entry = {value: len(sizes) + index for index, value in enumerate(region.inputs)}
    leave = {value: len(sizes) + len(entry) + index for index, value in enumerate(region.outputs)}
    sizes += [(1.0, 0.0)] * (len(entry) + len(leave))
    edges: dict[tuple[int, int], ir.Value] = {}
    for node, index in owner.items():
        for value in reads(node):
            maker = value.producer()
            source = owner[maker] if maker in owner else entry.get(value)
            if source is not None and source != index:
                edges.setdefault((source, index), value)
    for value, index in leave.items():
        maker = value.producer()
        if maker is not None:
            edges[owner[maker], index] = value
    top, bottom = frozenset(entry.values()), frozenset(leave.values())
    inside = layered(sizes, list(edges), gap_x=18, gap_y=22, top=top, bottom=bottom)
    width = max(inside.width, len(region.name) * _CHAR + 10) + 2 * _PAD
    shift = (width - inside.width) / 2
    shape = _Shape(width, inside.height + _HEAD, region.name, _describe_region(region), region, inside)
    shape.entries = {value: inside.centers[index] + shift for value, index in entry.items()}
    shape.exits = {value: inside.centers[index] + shift for value, index in leave.items()}
    shape.edges = [(value, index) for index, value in enumerate(edges.values())]
    return shape


def _labels(match: Match) -> list[str]:
    names = [node.op_type for node in match.nodes]
    return names if len(names) == 1 else [match.pattern, *names]


def _match_size(match: Match) -> tuple[float, float]:
    labels = _labels(match)
    return max(58.0, max(map(len, labels)) * _CHAR + 20), len(labels) * _LINE + 8


def _draw_terminal(shape: _Shape) -> str:
    name, kind = shape.title.split("\n")
    middle = shape.width / 2
    return (
        f'<g><title>{_text(shape.tooltip)}</title><rect class="port" width="{shape.width:.1f}" '
        f'height="{shape.height:.1f}" rx="{shape.height / 2:.1f}"/>'
        f'<text class="mid" x="{middle:.1f}" y="17">{_text(name)}</text>'
        f'<text class="mid small" x="{middle:.1f}" y="32">{_text(kind)}</text></g>'
    )


def _draw_plain(shape: _Shape) -> str:
    styles = ("mid title", "mid small", "mid")
    lines = zip(shape.title.split("\n"), styles, strict=True)
    texts = (
        f'<text class="{style}" x="{shape.width / 2:.1f}" y="{17 + _LINE * row:.1f}">{_text(line)}</text>'
        for row, (line, style) in enumerate(lines)
    )
    return f"<g><title>{_text(shape.tooltip)}</title>{''.join(texts)}</g>"


def _draw_inside(shape: _Shape) -> list[str]:
    inside, region = shape.inside, shape.region
    if inside is None or region is None:
        return []
    parts = [f'<text class="title" x="{_PAD - 4}" y="15">{_text(region.name)}</text>']
    shift = (shape.width - inside.width) / 2
    parts.append(f'<g transform="translate({shift:.1f},{_HEAD:.1f})">')
    parts += [
        _edge(_to_border(inside.routes[index], shape), describe_value(value), "edge")
        for value, index in shape.edges
    ]
    for index, match in enumerate(region.matches):
        parts.append(_draw_match(match, inside.centers[index], inside.tops[index]))
    return [*parts, "</g>"]


def _to_border(route: list[Point], shape: _Shape) -> list[Point]:
    """Extend an edge from the top row to the region's border, above the title."""
    x, y = route[0]
    return [(x, -_HEAD), *route] if y == 0 and shape.entries else route


def _draw_match(match: Match, center: float, top: float) -> str:
    width, height = _match_size(match)
    labels = _labels(match)
    tooltip = "\n".join(describe_node(node) for node in match.nodes)
    parts = [
        f'<g><title>{_text(tooltip)}</title><rect class="node" x="{center - width / 2:.1f}" y="{top:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="5"/>'
    ]
    for row, label in enumerate(labels):
        style = "mid small" if row == 0 and len(labels) > 1 else "mid"
        y = top + 16.5 + row * _LINE
        parts.append(f'<text class="{style}" x="{center:.1f}" y="{y:.1f}">{_text(label)}</text>')
    return "".join([*parts, "</g>"])


def _edge(points: Sequence[Point], tooltip: str, style: str) -> str:
    x, y = points[0]
    path = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in points[1:]:
        middle = (y + to_y) / 2
        path.append(
            f"L{to_x:.1f},{to_y:.1f}"
            if abs(to_x - x) < 0.5
            else f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"
        )
        x, y = to_x, to_y
    return f'<path class="{style}" d="{" ".join(path)}"><title>{_text(tooltip)}</title></path>'


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _text(text: str) -> str:
    """Text as XML content; characters that XML 1.0 does not allow become U+FFFD."""
    return escape(_NOT_XML.sub("\ufffd", text))


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
