"""The report of :func:`farcall.testing.check_backend`: counts by operator and by property."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from farcall import __version__
from farcall._table import plain_table
from farcall.toolchain._target import host_triple

_SHOWN = 300  # characters of a failure

State = Literal["passed", "failed", "refused"]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``message`` tells why it failed, or why the backend refused it."""

    rule: str
    operator: str
    case: str
    state: State
    message: str = ""


@dataclass(frozen=True)
class Row:
    """A line of the report: an operator or a rule, its counts, and its first failure."""

    name: str
    passed: int
    failed: int
    refused: int
    failure: str


@dataclass(frozen=True)
class BackendReport:
    """What :func:`farcall.testing.check_backend` found. ``str(report)`` is a table.

    Attributes:
        backend: its name.
        outcomes: every case under every rule.
    """

    backend: str
    outcomes: Sequence[Outcome]

    @property
    def passed(self) -> bool:
        """Whether no case failed."""
        return all(one.state != "failed" for one in self.outcomes)

    @property
    def operators(self) -> list[Row]:
        """ONNX's node tests, by operator."""
        return _rows((one for one in self.outcomes if one.rule == RESULTS), lambda one: one.operator)

    @property
    def rules(self) -> list[Row]:
        """All outcomes by rule."""
        return _rows(self.outcomes, lambda one: one.rule)

    def __str__(self) -> str:
        operators = [_text("operator", self.operators), ""] if self.operators else []
        parts = [*operators, _text("rule", self.rules), *self._failures]
        return "\n".join([f"backend {self.backend}: {self._verdict}", *parts])

    def markdown(self) -> str:
        """The tables in Markdown, to publish them."""
        tests = f"ONNX {metadata.version('onnx')}'s node tests"
        about = f"Checked by {tests}, with farcall {__version__}, on {host_triple()}."
        parts = [f"# Backend `{self.backend}`", about, self._verdict]
        tables = {"operator": self.operators, "rule": self.rules}
        for head, rows in ((head, rows) for head, rows in tables.items() if rows):
            lines = [f"| {head} | passed | failed | refused |", "|---|--:|--:|--:|"]
            lines += [f"| {row.name} | {row.passed} | {row.failed} | {row.refused} |" for row in rows]
            parts.append("\n".join(lines))
        if failures := list(self._failures):
            parts.append("```text\n" + "\n".join(failures) + "\n```")
        return "\n\n".join(parts) + "\n"

    def json(self) -> str:
        """The same as JSON: ``backend``, ``passed``, ``operators`` and ``rules``, with all first failures."""
        rows = {"operators": self.operators, "rules": self.rules}
        tables = {key: [vars(row) for row in found] for key, found in rows.items()}
        return json.dumps({"backend": self.backend, "passed": self.passed, **tables}, indent=1)

    @property
    def _verdict(self) -> str:
        counts = {
            state: sum(one.state == state for one in self.outcomes)
            for state in ("passed", "failed", "refused")
        }
        return ", ".join(f"{count} {state}" for state, count in counts.items())

    @property
    def _failures(self) -> Iterable[str]:
        """The first failure of each rule."""
        return [f"{row.name}: {row.failure}" for row in self.rules if row.failure]


RESULTS = "results are ONNX's"


def _rows(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> list[Row]:
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(key(one), []).append(one)
    return [_row(name, found) for name, found in groups.items()]


def _row(name: str, found: Sequence[Outcome]) -> Row:
    passed, failed, refused = (
        sum(one.state == state for one in found) for state in ("passed", "failed", "refused")
    )
    failure = next(
        (f"{one.operator}, {one.case}: {one.message[:_SHOWN]}" for one in found if one.state == "failed"), ""
    )
    return Row(name, passed, failed, refused, failure)


def _text(head: str, rows: Sequence[Row]) -> str:
    cells = [(row.name, str(row.passed), str(row.failed), str(row.refused)) for row in rows]
    return plain_table((False, True, True, True), [(head, "passed", "failed", "refused"), *cells])
