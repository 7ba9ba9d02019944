"""Errors that a backend's code raises: adds the backend's name and the method to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from farcall.errors import BackendError, FarcallError


@contextmanager
def blame(where: Callable[[], str]) -> Iterator[None]:
    """Raise the block's errors as a BackendError; farcall's own errors pass unchanged.

    Args:
        where: Returns the backend's name, its method and the method's subject.

    Raises:
        BackendError: The block raised an error that is not farcall's.
    """
    try:
        yield
    except FarcallError:
        raise
    except Exception as error:
        raise BackendError(f"{where()} raised {type(error).__name__}: {error}") from error
