"""Diagrams as text for other tools: Mermaid, which GitHub draws in Markdown, and Graphviz's DOT."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from farcall.drawing._diagram import Box, Diagram, Wire

_COLOR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]+")
_MERMAID = {char: f"#{ord(char)};" for char in '#"`<>&;'} | {"\n": "<br>", "\r": "", "\t": " "}
_DOT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "", "\t": " "}


def mermaid(diagram: Diagram) -> str:
    """A Mermaid flowchart: regions are subgraphs, shapes stand on the edges."""
    start = '  subgraph r{index}["{label}"]'
    lines = ["flowchart TD", *_blocks(diagram, _mermaid_box, start, "  end", _mermaid_text)]
    lines += [
        f'  n{wire.source} -->|"{_mermaid_text(_type(diagram, wire))}"| n{wire.target}'
        for wire in dict.fromkeys(diagram.wires)
    ]
    for index, area in enumerate(diagram.regions):
        color = diagram.colors.get(area.backend, "")
        if _COLOR.fullmatch(color):
            lines.append(f"  style r{index} stroke:{color},stroke-width:2px")
    return "\n".join(lines) + "\n"


def dot(diagram: Diagram) -> str:
    """A graph in Graphviz's DOT: regions are clusters, shapes stand on the edges."""
    head = [
        "digraph {",
        f'  label="{_dot_text(diagram.title)}"; labelloc=t; fontname=Helvetica;',
        "  node [shape=box, style=rounded, fontname=Helvetica];",
        "  edge [fontname=Helvetica, fontsize=10];",
    ]
    start = '  subgraph cluster_{index} { label="{label}"; color="{color}";'
    lines = [*head, *_blocks(diagram, _dot_box, start, "  }", _dot_text)]
    lines += [
        f'  n{wire.source} -> n{wire.target} [label="{_dot_text(_type(diagram, wire))}"];'
        for wire in dict.fromkeys(diagram.wires)
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _blocks(
    diagram: Diagram, box: Callable[[int, Box], str], start: str, end: str, text: Callable[[str], str]
) -> Iterator[str]:
    """The boxes, those of a region between the lines ``start`` and ``end``."""
    region = -1
    for index, item in enumerate(diagram.boxes):
        if item.region != region and region >= 0:
            yield end
        if item.region != region and item.region >= 0:
            area = diagram.regions[item.region]
            color = text(diagram.colors.get(area.backend, "gray"))
            filled = start.replace("{index}", str(item.region)).replace("{color}", color)
            yield filled.replace("{label}", text(f"{area.name} ({area.backend})"))
        region = item.region
        yield f"  {'  ' if region >= 0 else ''}{box(index, item)}"
    if region >= 0:
        yield end


def _mermaid_box(index: int, box: Box) -> str:
    label = _mermaid_text("\n".join(box.lines))
    return f'n{index}["{label}"]' if box.region >= 0 else f'n{index}(["{label}"])'


def _dot_box(index: int, box: Box) -> str:
    shape = "" if box.region >= 0 else ", shape=ellipse"
    return f'n{index} [label="{_dot_text(chr(10).join(box.lines))}"{shape}];'


def _type(diagram: Diagram, wire: Wire) -> str:
    return diagram.values[wire.value].type


def _mermaid_text(text: str) -> str:
    return _escaped(text, _MERMAID)


def _dot_text(text: str) -> str:
    return _escaped(text, _DOT)


def _escaped(text: str, replacements: dict[str, str]) -> str:
    """The text with characters replaced; control characters, which no format can have, become U+FFFD."""
    return "".join(replacements.get(char, char if char >= " " else "\ufffd") for char in text)
