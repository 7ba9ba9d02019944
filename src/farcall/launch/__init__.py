"""Getting a server onto a device and starting it there; the small server's build.

The room is called as a function, too: ``farcall.launch(url, server=None, devices=None, progress=None,
timeout=60.0)`` is :func:`launch`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType

from farcall._progress import Report
from farcall.launch._device import LaunchedDevice
from farcall.launch._driver import launch
from farcall.launch._launcher import Completed, Launcher, ProcessLauncher, Stream
from farcall.launch._server_build import build_server

__all__ = ["Completed", "LaunchedDevice", "Launcher", "ProcessLauncher", "Stream", "build_server", "launch"]
__dir__ = __all__.copy


class _Room(ModuleType):
    """A module that can be called: its name is that of its main function, so `farcall.launch` is both."""

    def __call__(
        self,
        url: str,
        *,
        server: str | os.PathLike[str] | None = None,
        devices: Mapping[str, str] | None = None,
        progress: Report | None = None,
        timeout: float = 60.0,
    ) -> LaunchedDevice:
        return launch(url, server=server, devices=devices, progress=progress, timeout=timeout)


sys.modules[__name__].__class__ = _Room
