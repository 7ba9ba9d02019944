"""What is wrong with one call: each problem with its path, collected and raised as one error."""

from __future__ import annotations

from collections.abc import Mapping


class Report:
    """The problems of one call.

    A path is what a reader would write to get the value: ``tokens["ids"][1]``. In a call of a function
    with a name, a parameter as a whole is shown as elsewhere in farcall: ``argument 2 `x` of `matmul```.
    """

    def __init__(
        self, subject: str, function: str | None = None, places: Mapping[str, int] | None = None
    ) -> None:
        """Start empty.

        Args:
            subject: what the values are: ``argument`` or ``result``.
            function: its name.
            places: of the parameters by name, from 1.
        """
        self.problems: list[str] = []
        self._subject = subject
        self._function = function
        self._places = places or {}

    def add(self, path: str, problem: str) -> None:
        """Note what is wrong with the value at a path."""
        self.problems.append(f"{self.label(path)}: {problem}")

    def label(self, path: str) -> str:
        """How a message names the value at a path."""
        if self._function is None:
            return f"{self._subject} {path}"
        if path in self._places:
            return f"{self._subject} {self._places[path]} `{path}` of `{self._function}`"
        return f"`{self._function}`: {self._subject} {path}"

    def origin(self, path: str) -> str:
        """How a message points to another value of the same call."""
        if self._function is None or path not in self._places:
            return path
        return f"{self._subject} {self._places[path]} `{path}`"
