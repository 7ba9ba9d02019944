"""The contract of a backend, as rules that compile models with it, run them and compare the results."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from farcall._progress import Phase
from farcall.testing._backend_report import RESULTS, BackendReport, Outcome
from farcall.testing._isolated import EndedError, in_child

if TYPE_CHECKING:
    import onnx

    from farcall._progress import Report
    from farcall.artifact import Plan
    from farcall.backends.base import Backend
    from farcall.testing._backend_report import State
    from farcall.testing._bundles import Drive, MakeSession
    from farcall.testing._cases import Case

_VAIN = 4  # cases of an operator that are tried with constant weights, if none of them fits
_EACH = 2  # cases of an operator under each rule but the first


def check_backend(
    backend: str | Backend,
    *,
    beside: Sequence[str | Backend] = ("c",),
    models: Mapping[str, tuple[onnx.ModelProto, Sequence[Any]]] | None = None,
    operators: Iterable[str] | None = None,
    rules: Iterable[str] | None = None,
    sample: int | None = None,
    connect: MakeSession | None = None,
    seconds: float = 120.0,
    progress: Report | None = None,
) -> BackendReport:
    """Check that a backend keeps its contract, on ONNX's node tests and on variants of them.

    ::

        def test_my_backend():
            print(check_backend(MyBackend()))

    A case counts where the backend takes at least one node. Cases of the same operators that it does not take
    are counted as refused, which is no failure. The backend's code runs in child processes of this one: a
    case whose code crashes or hangs is one that failed.

    Args:
        backend: the backend, its name, or ``"pkg.mod:Class"``.
        beside: the backends that get what it does not take.
        models: further models, by name: each with its inputs, numpy arrays in the order of the graph. onnx's
            reference evaluator computes what they should give.
        operators: check these operators and patterns; by default all that the backend takes.
        rules: the rules to check, of :data:`BACKEND_RULES`; all by default.
        sample: at most so many node tests of each operator.
        connect: opens a session, as a context manager, for the rule on sessions; by default with a server
            on this machine, whose processes find the loaders of modules by their entry points.
        seconds: how long a child process may take, for a case or for some 30 at once.
        progress: called with each :class:`farcall.Progress` of the phases ``choose``, ``vary`` and ``check``.

    Returns:
        The report: ``str(report)``, ``report.markdown()``, ``report.json()``.

    Raises:
        AssertionError: a case failed; the message is the report. Also if the backend takes no case.
        UsageError: there is no such rule.
    """
    kit = BackendKit(backend, beside, models or {}, operators, sample, connect, seconds)
    chosen = list(BACKEND_RULES if rules is None else rules)
    kit.choose(progress)
    total = kit.vary(chosen, progress=progress)
    work = Phase(progress, "check", total, "cases", f"checking {total} cases")
    found: list[Outcome] = []
    for rule in chosen:
        for outcome in kit.check(rule):
            found.append(outcome)
            if outcome.state != "refused":
                work.step(f"{rule}: {outcome.case}")
    report = BackendReport(kit.backend.name, found)
    assert report.passed, str(report)
    return report


@dataclass(frozen=True)
class _Answer:
    """What became of the question whether the backend takes a case."""

    kind: Literal["taken", "taken with weights", "in vain", "refused", "passed over", "failed"]
    operator: str = ""
    reason: str = ""


class BackendKit:
    """The cases that a backend takes, and the rules that check them."""

    def __init__(
        self,
        backend: str | Backend,
        beside: Sequence[str | Backend] = ("c",),
        models: Mapping[str, tuple[onnx.ModelProto, Sequence[Any]]] | None = None,
        operators: Iterable[str] | None = None,
        sample: int | None = None,
        connect: MakeSession | None = None,
        seconds: float = 120.0,
    ) -> None:
        from farcall.backends import resolve

        (self.backend,) = resolve([backend])
        self._beside = [one for one in resolve(beside) if one.name != self.backend.name]
        self._models = models or {}
        self._operators = None if operators is None else set(operators)
        self._sample = sample
        self._connect = connect or _local_session
        self._seconds = seconds
        self._settled: dict[str, list[Outcome]] = {}  # cases that were refused, or ended the process
        self._taken: dict[str, list[Case]] = {}
        self._cases: dict[tuple[str, str], list[Case] | EndedError] = {}  # by rule and operator
        self._vain: Counter[str] = Counter()  # cases of an operator that constant weights did not make fit

    @property
    def operators(self) -> list[str]:
        """The operators and patterns of which the backend takes a case."""
        return list(self._taken)

    def choose(self, progress: Report | None = None) -> None:
        """Find the cases that the backend takes.

        Raises:
            AssertionError: it takes none.
        """
        cases = list(self._candidates)
        work = Phase(progress, "choose", len(cases), "cases", f"asking about {len(cases)} cases")
        for case, answer in in_child(self._ask, cases, self._seconds):
            if isinstance(answer, EndedError):
                self._enter(case, _Answer("failed", case.operator or case.name, str(answer)))
            else:
                self._enter(case, answer)
            work.step(case.name)
        assert self._taken, f"the backend `{self.backend.name}` takes no case: name operators, or give models"

    def vary(
        self, rules: Sequence[str], operators: Iterable[str] | None = None, progress: Report | None = None
    ) -> int:
        """Make the cases of rules, for all operators or for some, and return how many there are.

        Raises:
            UsageError: there is no such rule.
        """
        from farcall._suggest import did_you_mean
        from farcall.errors import UsageError

        for rule in rules:
            if rule not in BACKEND_RULES:
                raise UsageError(f"no rule `{rule}`{did_you_mean(rule, BACKEND_RULES)}; see BACKEND_RULES")
        names = list(self._taken if operators is None else operators)
        self._cases.update(((RESULTS, name), self._taken[name]) for name in names)
        wanted = [(rule, name) for rule in rules for name in names]
        missing = [one for one in wanted if one not in self._cases]
        work = Phase(progress, "vary", len(missing), "cases", f"making variants for {len(rules)} rules")
        for one, found in in_child(self._of, missing, self._seconds):
            self._cases[one] = found
            work.step(": ".join(one))
        failed = sum(one.state == "failed" for name in names for one in self._settled.get(name, ()))
        made = [self._cases[one] for one in wanted]
        counts = [1 if isinstance(found, EndedError) else len(found) for found in made]
        return sum(counts) + (failed if RESULTS in rules else 0)

    def check(self, rule: str, operators: Iterable[str] | None = None) -> Iterator[Outcome]:
        """The outcomes of a rule, for all operators or for some.

        Raises:
            UsageError: there is no such rule.
        """
        from farcall.testing._bundles import outcomes

        names = list(self._taken if operators is None else operators)
        self.vary([rule], names)
        cases: list[Case] = []
        for name in names:
            found = self._cases[rule, name]
            if isinstance(found, EndedError):
                yield Outcome(rule, name, "a variant", "failed", str(found))
            else:
                cases += found
        for case, wrong in outcomes(cases, self._plan, self._drive(rule), self._seconds):
            yield Outcome(rule, case.operator, case.name, "failed" if wrong else "passed", wrong)
        if rule == RESULTS:
            yield from (one for name in names for one in self._settled.get(name, ()))

    @cached_property
    def _candidates(self) -> list[Case]:
        from farcall.backends.base import Backend
        from farcall.testing._cases import Case, evaluated, node_cases, pattern_cases

        own = [
            Case(name, name, model, [(inputs, evaluated(model, inputs))])
            for name, (model, inputs) in self._models.items()
        ]
        patterns = [case for case in pattern_cases(self.backend) if self._wants(case)]
        if type(self.backend).check is not Backend.check:
            nodes = [case for case in node_cases() if self._wants(case)]
        else:  # it takes nothing but its patterns
            nodes = [case for case in node_cases() if case.kinds & _pattern_kinds(self.backend)]
            nodes = [case for case in nodes if self._wants(case)]
        return own + sorted(patterns + nodes, key=_order)

    def _wants(self, case: Case) -> bool:
        return self._operators is None or case.operator in self._operators

    def _ask(self, case: Case) -> _Answer:
        """Ask about a case, in a child process, which enters the answer as this one does."""
        answer = self._answer(case)
        self._enter(case, answer)
        return answer

    def _answer(self, case: Case) -> _Answer:
        from farcall.testing._cases import with_weights

        if self._sample is not None and len(self._taken.get(case.operator, ())) >= self._sample:
            return _Answer("passed over")
        label, reason = self._claim(case)
        operator = case.operator or label
        if label:
            return _Answer("taken", operator)
        if self._vain[operator] < _VAIN and (weights := with_weights(case)) is not None:
            label, _ = self._claim(weights)
            return _Answer("taken with weights" if label else "in vain", operator or label, reason)
        return _Answer("refused", operator, reason)

    def _enter(self, case: Case, answer: _Answer) -> None:
        """Enter a case where it belongs: under what the backend takes of it, or as refused."""
        from farcall.testing._cases import with_weights

        operator = answer.operator
        self._vain[operator] += answer.kind == "in vain"
        if answer.kind == "taken with weights":
            case = with_weights(case) or case
        if answer.kind in ("taken", "taken with weights"):
            self._taken.setdefault(operator, []).append(replace(case, operator=operator))
        elif answer.kind == "failed":
            self._taken.setdefault(operator, [])
            self._settle(case, answer, "failed")
        elif operator and answer.kind != "passed over":
            self._settle(case, answer, "refused")

    def _settle(self, case: Case, answer: _Answer, state: State) -> None:
        outcome = Outcome(RESULTS, answer.operator, case.name, state, answer.reason)
        self._settled.setdefault(answer.operator, []).append(outcome)

    def _claim(self, case: Case) -> tuple[str, str]:
        """The first operator or pattern of the model that the backend takes, or why it takes none."""
        from farcall.errors import FarcallError

        try:
            if (reason := self._refusal(case.model)) is not None:
                return "", reason
            plan = self._plan(case.model)
        except FarcallError as error:
            return "", str(error)
        for region in plan.regions:
            if region.backend == self.backend.name:
                return region.matches[0].pattern, ""
        return "", "the next backend has it"

    def _refusal(self, model: onnx.ModelProto) -> str | None:
        """Why the backend surely takes no node; None: it may take one. Cheaper than a plan."""
        from farcall.graph import load_model

        kinds = _pattern_kinds(self.backend)
        reason = "no node is left when constants are folded"
        for node in load_model(model).graph:
            if node.op_type in kinds:
                return None
            found = self.backend.check(node)
            if found is None:
                return None
            reason = found
        return reason

    def _plan(self, model: onnx.ModelProto) -> Plan:
        import farcall as fc

        return fc.partition(model, backends=[self.backend, *self._beside])

    def _of(self, which: tuple[str, str]) -> list[Case]:
        """The cases of an operator for a rule. Of the variants of a case, the first is used that is taken."""
        from farcall.testing import _cases

        rule, operator = which
        variants = [getattr(_cases, name) for name in _RULES[rule][0]]
        found: list[Case] = []
        for case in self._taken[operator]:
            if len(found) == _EACH:
                break
            tried = (variant(case) for variant in variants)
            found += [one for one in tried if one is not None and self._claim(one)[0]][:1]
        return found

    def _drive(self, rule: str) -> Drive:
        from farcall.testing import _bundles

        drive: Drive = getattr(_bundles, _RULES[rule][1])
        return partial(drive, connect=self._connect) if rule == "a session calls it" else drive


def _order(case: Case) -> tuple[bool, str, int]:
    """Cases of one node come first; those of an operator are mixed, so that a sample has different ones."""
    return not case.operator, case.operator, zlib.crc32(case.name.encode())


def _pattern_kinds(backend: Backend) -> set[str]:
    from farcall.graph._pattern_text import Operator, parts

    found = (part for pattern in backend.patterns() for root in pattern.roots for part in parts(root))
    return {kind for part in found if isinstance(part, Operator) for _, kind in part.kinds}


def _local_session() -> Any:
    from contextlib import contextmanager

    import farcall as fc
    from farcall.rpc import Server

    @contextmanager
    def session() -> Iterator[Any]:
        with Server() as server, fc.connect(server.url) as made:
            yield made

    return session()


_RULES: dict[
    str, tuple[tuple[str, ...], str]
] = {  # variants of farcall.testing._cases, a way to run of _bundles
    RESULTS: ((), "plainly"),
    "one artifact serves several sizes": (("symbolic", "symbolic_with_weights"), "plainly"),
    "empty tensors": (("empty", "empty_with_weights", "empty_static"), "plainly"),
    "inputs are strided or not aligned": (("varied",), "strided"),
    "nothing beyond the tensors is read or written": (("varied",), "at_the_end_of_memory"),
    "constants are used twice": (("twice",), "plainly"),
    "results inside a region are outputs": (("chained",), "plainly"),
    "several threads call at once": (("varied",), "in_threads"),
    "load, unload and load again": (("varied",), "again"),
    "save and load": (("varied",), "from_file"),
    "a session calls it": (("varied",), "remotely"),
    "two builds are equal": (("varied",), "equally"),
}
BACKEND_RULES: tuple[str, ...] = tuple(_RULES)
"""The names of the rules of :func:`check_backend`."""
