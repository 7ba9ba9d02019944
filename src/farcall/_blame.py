"""Errors that a backend's own code raises: they get the backend's name, and what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from farcall.errors import BackendError, FarcallError


@contextmanager
def blame(where: Callable[[], str]) -> Iterator[None]:
    """Raise what the body raises as a BackendError; farcall's own errors pass.

    Args:
        where: Gives the backend, and which of its methods was asked about what.

    Raises:
        BackendError: The body raised an error that is not farcall's.
    """
    try:
        yield
    except FarcallError:
        raise
    except Exception as error:
        raise BackendError(f"{where()} raised {type(error).__name__}: {error}") from error
