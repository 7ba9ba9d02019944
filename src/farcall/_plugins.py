"""Plugins: finds what installed packages add to farcall by entry points."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS = ("backend", "channel", "launcher", "module")  # of plugins; the group of a kind is ``farcall.KINDs``


def enabled() -> bool:
    """Whether farcall looks for plugins: the variable ``FARCALL_PLUGINS=0`` turns them off."""
    return os.environ.get("FARCALL_PLUGINS", "1").lower() not in ("0", "off", "no", "false")


def installed(kind: str) -> Mapping[str, EntryPoint]:
    """The entry points of the group ``farcall.KINDs``, by name; none if plugins are turned off.

    The first of two with the same name wins, and a warning names the other.

    Args:
        kind: of plugin, one of :data:`KINDS`.
    """
    return _found(kind) if enabled() else {}


@cache
def _found(kind: str) -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points

    try:
        points = entry_points(group=f"farcall.{kind}s")
    except Exception as error:  # the metadata of some package, which need not be a plugin of farcall
        warnings.warn(f"cannot look for {kind}s of other packages: {error!r}", stacklevel=4)
        return {}
    found: dict[str, EntryPoint] = {}
    for point in points:
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            message = f"two packages offer a {kind} `{point.name}`: {other.value} is used, {point.value} not"
            warnings.warn(message, stacklevel=4)
    return found
