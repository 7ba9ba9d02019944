"""Plugins: finds what installed packages add to farcall by entry points."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@cache
def installed(kind: str) -> Mapping[str, EntryPoint]:
    """The entry points of the group ``farcall.KINDs``, by name.

    The first of two with the same name wins, and a warning names the other.

    Args:
        kind: of plugin, such as ``"backend"``.
    """
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"farcall.{kind}s"):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            message = f"two packages offer a {kind} `{point.name}`: {other.value} is used, {point.value} not"
            warnings.warn(message, stacklevel=3)
    return found
