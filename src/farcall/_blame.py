"""Errors that a backend's code raises: adds the backend's name and the method to them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from farcall.errors import BackendError, FarcallError


class blame:  # noqa: N801 - used like a function; a class, since it surrounds every check of a node
    """Raise the block's errors as a BackendError; farcall's own errors pass unchanged.

    Args:
        where: Returns the backend's name, its method and the method's subject.

    Raises:
        BackendError: The block raised an error that is not farcall's.
    """

    __slots__ = ("_where",)

    def __init__(self, where: Callable[[], str]) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, FarcallError):
            raise BackendError(f"{self._where()} raised {type(error).__name__}: {error}") from error
