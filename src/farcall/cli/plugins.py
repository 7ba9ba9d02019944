"""``farcall plugins``: what other packages add to farcall."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from farcall.cli import _show
from farcall.cli._settings import setting

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@click.group("plugins")
def command() -> None:
    """See what installed packages add to farcall. The variable FARCALL_PLUGINS=0 turns all of them off.

    \b
    farcall plugins list
    """


@command.command("list")
@setting("json")
def list_(json_: bool) -> None:
    """List backends, channels, launchers and kinds of modules: packages, versions, and whether they work.

    \b
    farcall plugins list
    FARCALL_PLUGINS=0 farcall plugins list      only what comes with farcall
    """
    from farcall._plugins import enabled

    rows = list(_rows())
    if json_:
        _show.as_json("plugins list", {"enabled": enabled(), "plugins": rows})
        return
    columns = ("kind", "name", "package", "version", "object", "state")
    _show.table(
        f"Plugins{'' if enabled() else ' (those of other packages are turned off by FARCALL_PLUGINS)'}",
        columns,
        [[row[column] for column in columns] for row in rows],
    )


def _rows() -> Iterator[dict[str, Any]]:
    from farcall._plugins import installed
    from farcall.backends import get, names
    from farcall.launch._launchers import launcher_names, load_launcher
    from farcall.rpc.channels._schemes import find_scheme, scheme_names

    loads: Mapping[str, tuple[list[str], Callable[[str], object]]] = {
        "backend": (names(), get),
        "channel": (scheme_names(), find_scheme),
        "launcher": (launcher_names(), load_launcher),
        "module": (sorted(installed("module")), lambda name: installed("module")[name].load()),
    }
    for kind, (known, load) in loads.items():
        for name in known:
            yield _row(kind, name, load, installed(kind).get(name))


def _row(kind: str, name: str, load: Callable[[str], object], point: EntryPoint | None) -> dict[str, Any]:
    import farcall

    package = point.dist if point is not None else None
    return {
        "kind": kind,
        "name": name,
        "package": package.name if package else "farcall",
        "version": package.version if package else farcall.__version__,
        "object": point.value if point else "",
        "state": _state(load, name),
    }


def _state(load: Callable[[str], object], name: str) -> str:
    """``ok``, or why the plugin cannot be used."""
    try:
        load(name)
    except Exception as error:  # whatever the code of another package raises
        return str(error).splitlines()[0]
    return "ok"
