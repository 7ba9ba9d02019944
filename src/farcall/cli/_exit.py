"""The exit codes of the command line: one table, from the class of an error to the code and its meaning."""

from __future__ import annotations

from typing import NamedTuple

from farcall import errors


class Exit(NamedTuple):
    """One exit code: its number, its meaning in ``--help``, and the errors that end a command with it."""

    code: int
    meaning: str
    errors: tuple[type[BaseException], ...] = ()


# An error belongs to the row that lists its class, or else the nearest of its base classes.
EXITS = (
    Exit(0, "success"),
    Exit(5, "refused: the token, a scope, the key or a certificate", (
        errors.AccessDeniedError, errors.CertificateError, errors.PermissionDeniedError)),
    Exit(4, "the server is busy, or a deadline has passed", (
        errors.ServerBusyError, errors.DeadlineExceededError, errors.ConnectTimeoutError)),
    Exit(3, "the server cannot be reached, or the connection was lost", (
        errors.ConnectError, errors.ConnectionLostError)),
    Exit(1, "the work failed", (
        Exception, errors.ArtifactError, errors.ModelError, errors.MissingDataError, errors.MissingExtraError,
        errors.MissingFunctionError, errors.ToolchainError)),
    Exit(2, "wrong usage: an option, an argument or a setting, or a file that does not exist", (
        errors.UsageError,)),
)  # fmt: skip
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def exit_code(error: BaseException) -> int:
    """The exit code of a command that this error ended."""
    codes = {listed: row.code for row in EXITS for listed in row.errors}
    return next(codes[base] for base in type(error).__mro__ if base in codes)


def epilog() -> str:
    """The table for the end of ``farcall --help``."""
    rows = "\n".join(f"  {row.code}  {row.meaning}" for row in sorted(EXITS))
    return f"\b\nExit codes:\n{rows}"
