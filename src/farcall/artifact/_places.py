"""The option ``on`` of backends: the place where their regions are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from farcall._suggest import did_you_mean
from farcall.backends import backend
from farcall.errors import UsageError

if TYPE_CHECKING:
    from farcall.backends.base import Backend
    from farcall.toolchain import Target


def place(on: Any) -> str:
    """The name of the place that an option ``on`` means: a URL, or the name of a device.

    A Session is named by the URLs of its servers.

    Raises:
        UsageError: it means none.
    """
    if isinstance(on, str) and on:
        return on
    route = getattr(on, "route", None)
    if isinstance(route, tuple) and route:
        return " -> ".join(route)
    raise UsageError(
        f"option `on`: expected a URL, a Session or the name of a device, got {on!r}; "
        'write fc.backend("remote", on="tcp://HOST:PORT"), say'
    )


def sessions(backends: Mapping[str, Backend]) -> dict[str, Any]:
    """The sessions that backends are on, by the names of their places."""
    found = (one.options.get("on") for one in backends.values())
    return {place(on): on for on in found if on is not None and not isinstance(on, str)}


def for_devices(
    backends: Mapping[str, Backend], targets: Mapping[str, str | Target]
) -> Mapping[str, Backend]:
    """The backends, of which those on a device build for its target.

    Raises:
        UsageError: no backend is on such a device.
    """
    named = {one.options["on"] for one in backends.values() if isinstance(one.options.get("on"), str)}
    for name in targets:
        if name not in named:
            raise UsageError(
                f"devices: no backend of the plan is on `{name}`{did_you_mean(name, named)}; "
                f'name it in the partition: fc.backend("remote", on={name!r})'
            )
    return {name: _built_for(one, targets) for name, one in backends.items()}


def _built_for(one: Backend, targets: Mapping[str, str | Target]) -> Backend:
    on = one.options.get("on")
    return backend(one, target=str(targets[on])) if isinstance(on, str) and on in targets else one
