"""The scoreboard: ``python -m tests.abuse.scoreboard`` runs every probe on fresh servers of both kinds."""

from __future__ import annotations

from collections.abc import Callable

from .drivers import Driver, has_tvm, incumbent, ours
from .probes import PROBES


def stands(start: Callable[[], Driver], name: str) -> bool:
    """Whether a fresh server survives a probe. A server that makes the probe hang does not."""
    with start() as server:
        try:
            return PROBES[name](server)
        except (OSError, EOFError):
            return False


def table() -> list[tuple[str, str, bool, bool | None]]:
    """The name and text of each probe; whether farcall's server survived it, and TVM's (None: no TVM)."""
    return [
        (
            name,
            (probe.__doc__ or "").strip(),
            stands(ours, name),
            stands(incumbent, name) if has_tvm() else None,
        )
        for name, probe in PROBES.items()
    ]


def words(stood: bool | None) -> str:
    """The text of a cell of the table."""
    return {True: "stands", False: "falls", None: "not installed"}[stood]


def markdown(rows: list[tuple[str, str, bool, bool | None]]) -> str:
    """The table."""
    lines = ["| probe | what happens | farcall | tvm.rpc |", "|---|---|---|---|"]
    lines += [f"| {name} | {text} | {words(us)} | {words(them)} |" for name, text, us, them in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(table()))
