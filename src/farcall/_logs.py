"""Loggers: each layer has one below ``farcall``. The library adds no handler that writes.

A record that belongs to a session has its number in the attribute ``session``; elsewhere that is None.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

# Without this, Python would print warnings of a program that configures no logging.
logging.getLogger("farcall").addHandler(logging.NullHandler())


class Log(logging.LoggerAdapter[logging.Logger]):
    """A layer's logger, for one session or for none.

    Args:
        layer: the name of the logger below ``farcall``, such as ``"rpc.server"``.
        session: the session's number.
    """

    def __init__(self, layer: str, session: int | None = None) -> None:
        super().__init__(logging.getLogger(f"farcall.{layer}"), {"session": session})
        self._prefix = "" if session is None else f"session {session}: "

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return f"{self._prefix}{msg}", kwargs
