"""Backends as commands name them: ``--backends npu,c --backend-option npu.level=2``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from farcall.backends.base import Backend

_F = TypeVar("_F", bound=Callable[..., Any])
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def backend_options(command: _F) -> _F:
    """Adds ``--backend-option``, which may be repeated, to a command."""
    return click.option(
        "--backend-option",
        "backend_options",
        metavar="BACKEND.OPTION=VALUE",
        multiple=True,
        help="Option of a backend, such as npu.level=2; may be repeated.",
    )(command)


def device_option(command: _F) -> _F:
    """Adds ``--device``, which may be repeated, to a command: a dict of targets by name."""
    return click.option(
        "--device",
        "devices",
        metavar="NAME[=TARGET]",
        multiple=True,
        callback=lambda _context, _parameter, texts: _targets(texts),
        help="Place regions on a device that the server's owner calls NAME, and build them for TARGET. Its "
        "options are those of the backend remote: --backend-option NAME.operators=Conv,Relu.",
    )(command)


def _targets(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not name or (equals and not target) or name in found:
            problem = f"{name!r} is named twice" if name in found else f"{text!r}: expected NAME=TARGET"
            raise click.BadParameter(f"{problem}, such as dsp0=hexagon-linux-musl", param_hint="--device")
        found[name] = target
    return found


def chosen(names: str, options: Sequence[str], devices: Iterable[str] = ()) -> list[Backend]:
    """The backends of a list such as ``npu,c``, with their options.

    Args:
        names: between commas.
        devices: names of devices, for each of which a backend of its name comes before the list.
        options: texts such as ``npu.level=2``. The value is read as the type of the option's default.

    Raises:
        click.UsageError: an option has another form, or names a backend that is not in the list.
        UsageError: a backend has no such option, or the value is of another type.
        BackendError: a backend is missing.
    """
    from farcall.backends import backend, resolve

    there = [backend("remote", called=name, on=name) for name in devices]
    found = {one.name: one for one in resolve([*there, *resolve(names)])}
    for text in options:
        place, equals, value = text.partition("=")
        name, dot, option = place.partition(".")
        if not (equals and dot and option):
            raise click.BadParameter(
                f"expected BACKEND.OPTION=VALUE, got {text!r}", param_hint="--backend-option"
            )
        if name not in found:
            raise click.BadParameter(
                f"{text!r}: `{name}` is not among the backends ({', '.join(found)}); name it in --backends",
                param_hint="--backend-option",
            )
        one = found[name]
        values: dict[str, Any] = {option: _value(value, one.options.get(option))}
        found[name] = backend(one, **values)
    return list(found.values())


def _value(text: str, default: object) -> object:
    """``text`` as the type of the option's default; the text itself where it is not of that type."""
    if isinstance(default, bool):
        return _FLAGS.get(text.lower(), text)
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                return text
    return text
