"""Getting a server onto a device: builds the small server, ``farcall-server``."""

from farcall.launch._server_build import build_server

__all__ = ["build_server"]
__dir__ = __all__.copy
