"""Regular expressions mean the same in every CPython that farcall runs on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from .tree import ROOT

ONE_CHARACTER = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}


def patterns() -> Iterator[tuple[str, str]]:
    """Each pattern that is a literal in a call such as ``re.compile("...")``, with its file and line."""
    for path in sorted((ROOT / "src" / "farcall").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re")), args=[ast.Constant(value=str(text)), *_]
                ):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def possessive_groups(tokens: Any) -> Iterator[Any]:
    """The possessive repetitions of more than one character, at any depth of a parsed pattern."""
    for operation, argument in tokens:
        if str(operation) == "POSSESSIVE_REPEAT":
            item = argument[2]
            if len(item) != 1 or str(item[0][0]) not in ONE_CHARACTER:
                yield item
        for part in argument if isinstance(argument, tuple | list) else (argument,):
            for inside in part if isinstance(part, list) else (part,):
                if isinstance(inside, _parser.SubPattern):
                    yield from possessive_groups(inside)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("a++b?+[0-9]{1,9}+", 0), ("(?:ab)*+", 1), ("(x(?:a|b[0-9]++)*+)?", 1), ("(?:c(?:ab)++)*+|(d)?+", 3)],
)
def test_possessive_groups_are_found(pattern: str, count: int) -> None:
    assert len(list(possessive_groups(_parser.parse(pattern)))) == count


def test_no_pattern_repeats_a_group_possessively() -> None:
    """CPython before 3.11.5 matches too much if an item of such a group fails half-way (gh-106052)."""
    found = list(patterns())
    assert len(found) > 10
    wrong = [(place, text) for place, text in found if any(possessive_groups(_parser.parse(text)))]
    assert wrong == []
    assert all(re.compile(text) for _, text in found)
