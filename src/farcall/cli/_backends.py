"""Backends as commands name them: ``--backends npu,c --backend-option npu.level=2``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def chosen(names: str, options: Sequence[str]) -> list[Backend]:
    """The backends of a list such as ``npu,c``, with their options.

    Args:
        names: between commas.
        options: texts such as ``npu.level=2``. The value is read as the type of the option's default.

    Raises:
        click.UsageError: an option has another form, or names a backend that is not in the list.
        UsageError: a backend has no such option, or the value is of another type.
        BackendError: a backend is missing.
    """
    from farcall.backends import backend, resolve

    found = {one.name: one for one in resolve(names)}
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
        found[name] = backend(one, **{option: _value(value, one.options.get(option))})
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
