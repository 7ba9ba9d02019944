"""Each public function says what it does, and names each of its arguments."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from docs import _api  # it finds the stub of a native object

from .test_house import public_modules

# Such a text stands for the descriptions of the arguments.
ELSEWHERE = re.compile(r"arguments are those of|are all other arguments")
PLAIN = {"self", "cls", "args", "kwargs", "options"}


def public(module: str) -> Iterator[tuple[str, Any]]:
    """The functions and methods of a module, with their full names."""
    room = importlib.import_module(module)
    own = [name for name, value in vars(room).items() if getattr(value, "__module__", None) == module]
    for name in getattr(room, "__all__", own):
        value = getattr(room, name)
        if inspect.isclass(value):
            yield from methods(f"{module}.{name}", value)
        elif callable(value) and not name.startswith("_"):
            yield f"{module}.{name}", value


def methods(path: str, kind: type) -> Iterator[tuple[str, Any]]:
    yield path, kind
    for name, value in vars(kind).items():
        if inspect.isroutine(value) and not name.startswith("_") and kind.__module__.startswith("farcall"):
            yield f"{path}.{name}", getattr(kind, name)


@pytest.mark.parametrize("module", sorted(public_modules() - {"farcall.cli", "farcall.backends.ckit"}))
def test_public_functions_say_what_they_do_and_take(module: str) -> None:
    lacking = {path: missing for path, value in public(module) if (missing := lacks(path, value))}
    assert lacking == {}


def lacks(path: str, value: Any) -> list[str]:
    described = _api.counterpart(path) or value
    text = inspect.getdoc(described) or inspect.getdoc(value)
    if not text:
        return ["docstring"]
    if inspect.isclass(value) or ELSEWHERE.search(text):
        return []
    return [
        name for name in parameters(described) if name not in PLAIN and not re.search(rf"\b{name}\b", text)
    ]


def parameters(function: Any) -> list[str]:
    try:
        return [name for name in inspect.signature(function).parameters if not name.startswith("_")]
    except (TypeError, ValueError):
        return []  # properties; native code without a signature
