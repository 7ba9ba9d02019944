"""The kit for backends as tests of pytest: one for each operator, and one for each rule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farcall.errors import FarcallError
from farcall.testing._backend import BACKEND_RULES, BackendKit
from farcall.testing._backend_report import RESULTS, BackendReport


class BackendChecks(pytest.Collector):
    """The checks of one backend; ``--farcall-backend`` names it."""

    kit: BackendKit

    @classmethod
    def of(cls, session: pytest.Session, backend: str, sample: int | None) -> BackendChecks:
        """Ask the backend what it takes.

        Raises:
            UsageError: of pytest: there is no such backend, or it takes nothing.
        """
        made: BackendChecks = cls.from_parent(session, name=backend, nodeid=backend)
        try:
            made.kit = BackendKit(backend, sample=sample)
            made.kit.choose()
        except (FarcallError, AssertionError) as error:
            raise pytest.UsageError(f"--farcall-backend: {error}") from None
        return made

    def collect(self) -> Iterator[BackendCheck]:
        for operator in self.kit.operators:
            yield BackendCheck.of(self, operator, RESULTS, [operator])
        for rule in BACKEND_RULES:
            if rule != RESULTS:
                yield BackendCheck.of(self, rule, rule, None)


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
        if not report.outcomes:
            pytest.skip("the backend takes no case that shows this")
        if not report.passed:
            pytest.fail(str(report), pytrace=False)

    def reportinfo(self) -> tuple[str, None, str]:
        return self.parent.name if self.parent else "", None, self.name
