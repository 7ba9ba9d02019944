"""Collects the problems of one call, each with its path, and raises them as one error."""

from __future__ import annotations

from collections.abc import Mapping


class Report:
    """The problems of one call.

    A path is the expression that a reader would write for the value: ``tokens["ids"][1]``. If the function
    has a name, a whole parameter appears as elsewhere in farcall: ``argument 2 `x` of `matmul```.
    """

    def __init__(
        self, subject: str, function: str | None = None, places: Mapping[str, int] | None = None
    ) -> None:
        """Start without problems.

        Args:
            subject: ``argument`` or ``result``.
            function: the name of the function.
            places: the position of each parameter by name, counted from 1.
        """
        self.problems: list[str] = []
        self._subject = subject
        self._function = function
        self._places = places or {}

    def add(self, path: str, problem: str) -> None:
        """Add a problem of the value at a path."""
        self.problems.append(f"{self.label(path)}: {problem}")

    def label(self, path: str) -> str:
        """The name of the value at a path in a message."""
        if self._function is None:
            return f"{self._subject} {path}"
        if path in self._places:
            return f"{self._subject} {self._places[path]} `{path}` of `{self._function}`"
        return f"`{self._function}`: {self._subject} {path}"

    def origin(self, path: str) -> str:
        """The name in a message of another value of the same call."""
        if self._function is None or path not in self._places:
            return path
        return f"{self._subject} {self._places[path]} `{path}`"
