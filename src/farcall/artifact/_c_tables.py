"""The C tables of one file. Equal ones are written once: regions of a model repeat shapes and parameters."""

from __future__ import annotations

from collections.abc import Iterable


class Tables:
    """The tables of a C file.

    Args:
        prefix: the beginning of their names.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._names: dict[tuple[str, tuple[str, ...]], str] = {}

    def add(self, kind: str, rows: Iterable[object]) -> str:
        """The C name of a table of these rows; ``NULL`` if there are none.

        ``kind`` is the type of a row. Rows may refer to tables that were added before.
        """
        key = kind, tuple(map(str, rows))
        return self._names.setdefault(key, f"{self._prefix}t{len(self._names)}") if key[1] else "NULL"

    def text(self) -> str:
        """The C text of all tables."""
        return "".join(
            f"static const {kind} {name}[] = {{{', '.join(rows)}}};\n"
            for (kind, rows), name in self._names.items()
        )
