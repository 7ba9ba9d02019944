"""Sphinx reads farcall's docstrings: sections such as ``Args:`` become fields.

Napoleon is not used, because it takes the text before a colon for a type; farcall's types are annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises):(?: (.*))?$")
ENTRY = re.compile(r"([*\w.`, ]+?): +(.*)|([*\w.`, ]+):$")


def converted(lines: list[str]) -> Iterator[str]:
    rest = list(lines)
    while rest:
        line = rest.pop(0)
        found = SECTION.match(line)
        if not found:
            yield line
            continue
        body = [found[2]] if found[2] else []
        while rest and (not rest[0].strip() or rest[0].startswith(" ")):
            body.append(rest.pop(0))
        yield from ("", *section(found[1], cleandoc("\n".join(["", *body])).splitlines()), "")


def section(title: str, body: list[str]) -> Iterator[str]:
    if title in ("Returns", "Yields"):
        yield from field(f":{title.lower()}:", body)
        return
    for names, text in entries(body):
        if title == "Attributes":
            for name in names.split(", "):
                yield from ("", f".. attribute:: {name}", "   :no-index-entry:", "", *indented(text))
        else:
            kind = "param" if title == "Args" else "raises"
            name = names.replace("*", r"\*") if title == "Args" else names
            yield from field(f":{kind} {name}:", text)


def entries(body: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The entries of a section: each begins at the margin with its name and a colon."""
    names, text = "", list[str]()
    for line in body:
        found = None if line.startswith(" ") else ENTRY.match(line)
        if found:
            if names:
                yield names, text
            names, text = found[1] or found[3], [found[2] or ""]
        else:
            text.append(line)
    if names:
        yield names, text


def field(head: str, text: list[str]) -> Iterator[str]:
    first, *rest = cleandoc("\n".join(text)).splitlines() or [""]
    yield f"{head} {first}"
    yield from indented(rest)


def indented(lines: list[str]) -> Iterator[str]:
    for line in cleandoc("\n".join(lines)).splitlines():
        yield f"   {line}" if line else ""


def convert(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = converted(lines)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", convert)
