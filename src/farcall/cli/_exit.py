"""The exit codes of the command line: one table, from the class of an error to the code and its meaning."""

from __future__ import annotations

from typing import NamedTuple

from farcall import errors


class Exit(NamedTuple):
    """One exit code: its number, its meaning in ``--help``, and the errors that end a command with it."""

    code: int
    meaning: str
    errors: tuple[type[BaseException], ...] = ()


# An error belongs to the first row that lists one of its base classes: a ConnectTimeoutError is late.
EXITS = (
    Exit(0, "success"),
    Exit(5, "refused: the token, a scope, the key or a certificate", (
        errors.AccessDeniedError, errors.CertificateError, errors.PermissionDeniedError)),
    Exit(4, "the server is busy, or a deadline has passed", (
        errors.ServerBusyError, errors.DeadlineExceededError)),
    Exit(3, "the server cannot be reached, or the connection was lost", (
        errors.ConnectError, errors.ConnectionLostError)),
    Exit(1, "the work failed", (Exception,)),
    Exit(2, "wrong usage of the command line"),
)  # fmt: skip
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def exit_code(error: BaseException) -> int:
    """The exit code of a command that this error ended."""
    return next(row.code for row in EXITS if isinstance(error, row.errors or ()))


def epilog() -> str:
    """The table for the end of ``farcall --help``."""
    rows = "\n".join(f"  {row.code}  {row.meaning}" for row in sorted(EXITS))
    return f"\b\nExit codes:\n{rows}"
