"""Completion by the shell: live names of functions, targets, backends and servers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

_TARGETS = ("host", "x86_64-linux-gnu", "x86_64-linux-gnu:x86-64-v3", "aarch64-linux-gnu")


def _items(names: Iterable[str], start: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(start)]


def urls(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """The servers that commands have reached lately."""
    from farcall.cli import _recent

    return _items(_recent.urls(), start)


def places(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """Those servers, and files."""
    return [*urls(ctx, param, start), CompletionItem(start, type="file")]


def targets(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """Common targets."""
    from farcall.toolchain import MACHINES

    return _items([*_TARGETS, *(machine.target.triple for machine in MACHINES)], start)


def machines(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """The machines that the small server is built for."""
    from farcall.toolchain import MACHINES

    return _items([machine.name for machine in MACHINES], start)


def devices(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """Devices that need no address, and those on which a server was started."""
    from farcall.launch import _started
    from farcall.toolchain import MACHINES

    emulators = (f"emulator:{machine.name}" for machine in MACHINES)
    started = (record.device for record in _started.records())
    return _items(dict.fromkeys(["local", "local:small", *emulators, *started]), start)


def started(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """The devices on which a server was started."""
    from farcall.launch import _started

    return _items([record.device for record in _started.records()], start)


def backends(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """Installed backends; after a comma, the next one."""
    from farcall._plugins import installed

    before, comma, last = start.rpartition(",")
    names = sorted({"c", *installed("backend")})
    return [CompletionItem(before + comma + item.value) for item in _items(names, last)]


def functions(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """The functions of the artifact that the command line names. No server is asked, which may take long."""
    from farcall.errors import FarcallError

    place = Path(str(ctx.params.get("place", "")))
    try:
        from farcall.artifact import inspect

        return _items(inspect(place).functions, start)
    except (FarcallError, OSError):
        return []
