"""The scoreboard: ``python -m tests.abuse.scoreboard`` runs every probe on fresh servers of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .drivers import Driver, has_tvm, incumbent, ours, small
from .probes import PROBES


def stands(start: Callable[[], Driver], name: str) -> bool:
    """Whether a fresh server survives a probe. A server that makes the probe hang does not."""
    with start() as server:
        try:
            return PROBES[name](server)
        except (OSError, EOFError):
            return False


class Row(NamedTuple):
    """One probe: whether each server survived it."""

    name: str
    text: str
    full: bool
    small: bool
    tvm: bool | None  # None: TVM is not installed


def table() -> list[Row]:
    """The rows of all probes."""
    return [
        Row(
            name,
            (probe.__doc__ or "").strip(),
            stands(ours, name),
            stands(small, name),
            stands(incumbent, name) if has_tvm() else None,
        )
        for name, probe in PROBES.items()
    ]


def words(stood: bool | None) -> str:
    """The text of a cell of the table."""
    return {True: "stands", False: "falls", None: "not installed"}[stood]


def markdown(rows: list[Row]) -> str:
    """The table."""
    lines = ["| probe | what happens | farcall | farcall-server | tvm.rpc |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.text} | {words(row.full)} | {words(row.small)} | {words(row.tvm)} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(table()))
