"""Library files: their ELF headers, the manifest in them, and loading."""

from __future__ import annotations

from farcall.library._loading import inspect, load_module
from farcall.library._manifest import Manifest

__all__ = ["Manifest", "inspect", "load_module"]
__dir__ = __all__.copy
