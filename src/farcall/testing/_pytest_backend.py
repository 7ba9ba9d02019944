"""The kit for backends as tests of pytest: one for each operator, and one for each rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from farcall.errors import FarcallError
from farcall.testing._backend import BACKEND_RULES, BackendKit
from farcall.testing._backend_report import RESULTS, BackendReport, Outcome

if TYPE_CHECKING:
    from farcall._progress import Progress, Report


class BackendChecks(pytest.Collector):
    """The checks of one backend; ``--farcall-backend`` names it."""

    kit: BackendKit
    found: list[Outcome]  # of the checks that ran

    @classmethod
    def of(cls, session: pytest.Session, backend: str, sample: int | None) -> BackendChecks:
        """Ask the backend what it takes, and tell the terminal how far that is.

        Raises:
            UsageError: of pytest: there is no such backend, or it takes nothing.
        """
        made: BackendChecks = cls.from_parent(session, name=backend, nodeid=backend)
        try:
            made.kit = BackendKit(backend, sample=sample)
            made.kit.choose(_shown(session.config))
        except (FarcallError, AssertionError) as error:
            raise pytest.UsageError(f"--farcall-backend: {error}") from None
        made.found = []
        return made

    def collect(self) -> Iterator[BackendCheck]:
        for operator in self.kit.operators:
            yield BackendCheck.of(self, operator, RESULTS, [operator])
        for rule in BACKEND_RULES:
            if rule != RESULTS:
                yield BackendCheck.of(self, rule, rule, None)

    def write(self, path: str) -> None:
        """Write the report of the checks that ran: Markdown, or JSON into a file of that ending."""
        report = BackendReport(self.kit.backend.name, self.found)
        Path(path).write_text(
            report.json() if path.endswith(".json") else report.markdown(), encoding="utf-8"
        )


def _shown(config: pytest.Config) -> Report | None:
    """Shows progress in a line of pytest's terminal."""
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or not terminal.isatty:
        return None

    def show(event: Progress) -> None:
        terminal.rewrite(f"{event.phase} {event.done} of {event.total} cases", erase=True)
        if event.finished:
            terminal.write_line("")

    return show


class BackendCheck(pytest.Item):
    """A rule of the contract, for one operator or for all."""

    rule: str
    operators: list[str] | None

    @classmethod
    def of(cls, parent: BackendChecks, name: str, rule: str, operators: list[str] | None) -> BackendCheck:
        made: BackendCheck = cls.from_parent(parent, name=name)
        made.rule, made.operators = rule, operators
        return made

    def runtest(self) -> None:
        assert isinstance(self.parent, BackendChecks)
        kit = self.parent.kit
        report = BackendReport(kit.backend.name, list(kit.check(self.rule, self.operators)))
        self.parent.found += report.outcomes
        if not report.outcomes:
            pytest.skip("the backend takes no case that shows this")
        if not report.passed:
            pytest.fail(str(report), pytrace=False)

    def reportinfo(self) -> tuple[str, None, str]:
        return self.parent.name if self.parent else "", None, self.name
