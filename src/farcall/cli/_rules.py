"""Who gets which nodes, as commands say it: ``--pin``, ``--exclude`` and ``--min-nodes``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def rule_options(command: _F) -> _F:
    """Adds the three options, which may be repeated, to a command."""
    options = (
        ("--pin", "NODE=BACKEND", "Node, or pattern of names, that this backend must take; may be repeated."),
        ("--exclude", "BACKEND=NODE", "Node, or pattern of names, that a backend does not get; repeatable."),
        ("--min-nodes", "BACKEND=COUNT", "Least number of nodes of a backend's regions; may be repeated."),
    )
    for flag, metavar, text in reversed(options):
        command = click.option(flag, metavar=metavar, multiple=True, help=text)(command)
    return command


def rules(pin: Sequence[str], exclude: Sequence[str], min_nodes: Sequence[str]) -> dict[str, Any]:
    """The options as arguments of :func:`farcall.partition`.

    Raises:
        click.BadParameter: an option has another form.
    """
    excluded: dict[str, list[str]] = {}
    for text in exclude:
        backend, _, node = _split(text, "--exclude", "BACKEND=NODE").partition("=")
        excluded.setdefault(backend, []).append(node)
    pairs = (_split(text, "--pin", "NODE=BACKEND").rpartition("=") for text in pin)
    return {
        "pin": {node: backend for node, _, backend in pairs},
        "exclude": excluded,
        "min_nodes": dict(map(_least, min_nodes)),
    }


def _split(text: str, flag: str, form: str) -> str:
    before, _, after = text.rpartition("=")
    if not (before and after):
        raise click.BadParameter(f"expected {form}, got {text!r}", param_hint=flag)
    return text


def _least(text: str) -> tuple[str, int]:
    backend, _, number = _split(text, "--min-nodes", "BACKEND=COUNT").rpartition("=")
    if not number.isdecimal():
        raise click.BadParameter(f"expected BACKEND=COUNT, got {text!r}", param_hint="--min-nodes")
    return backend, int(number)
