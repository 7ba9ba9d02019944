"""The former name of :mod:`farcall.backends.c_backend_kit`, kept until 1.0."""

from __future__ import annotations

from farcall.backends.c_backend_kit import *  # noqa: F403 - its __all__
from farcall.backends.c_backend_kit import __all__

__dir__ = __all__.copy
