"""The interface language of FastRPC: compiles ``.idl`` files into headers, stubs and skels."""

from __future__ import annotations

from farcall.idl._compile import compile

__all__ = ["compile"]
__dir__ = __all__.copy
