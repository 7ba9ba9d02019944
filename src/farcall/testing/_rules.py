"""Contracts: named rules that run one by one against an implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Contract(Generic[P]):
    """The rules for one kind of implementation, in the order of their definition.

    Args:
        thing: its name in errors, such as ``"channel"``.
    """

    def __init__(self, thing: str) -> None:
        self.rules: dict[str, Callable[P, None]] = {}
        self._thing = thing

    def rule(self, text: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
        """Register the decorated function as the rule that ``text`` states."""

        def enter(rule: Callable[P, None]) -> Callable[P, None]:
            self.rules[text] = rule
            return rule

        return enter

    def check(self, names: Iterable[str] | None, *args: P.args, **kwargs: P.kwargs) -> None:
        """Run rules, all by default.

        Raises:
            AssertionError: a rule is broken; the message names it.
        """
        for name in self.rules if names is None else names:
            try:
                self.rules[name](*args, **kwargs)
            except Exception as error:
                raise AssertionError(
                    f"the {self._thing} breaks the rule `{name}`: {type(error).__name__}: {error}"
                ) from error
