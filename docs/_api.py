"""The reference pages of the API: what autodoc cannot know by itself.

A name that two modules export is described once. The native module has its docstrings and types in its stub,
``farcall/_core.pyi``.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import re
import typing
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature
from sphinx.util.nodes import make_refnode

import farcall
import farcall._core as native

# A name is described in the first of these modules that exports it, or else in the module itself.
HOMES = (
    "farcall.errors",
    "farcall",
    "farcall.ffi",
    "farcall.abi",
    "farcall.library",
    "farcall.graph.dims",
    "farcall.rpc",
)

_OVERLOADED = typing.overload(lambda: None)
# Users do not construct the objects of such classes: the docstring names the function that makes them.
MADE = re.compile(r"\b(?:Made by|From :meth:|From :func:)")


def described_elsewhere(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """autodoc-skip-member: False keeps a member, True leaves it out, None leaves the choice to autodoc."""
    module = app.env.current_document.autodoc_module
    if what == "module" and home_of(name, module) != module:
        return True
    if name.startswith("_"):
        return None
    return False if skip and documented_in_stub(obj) else None


def home_of(name: str, module: str) -> str:
    obj = getattr(importlib.import_module(module), name)
    for home in HOMES:
        if module == home:
            break
        if getattr(importlib.import_module(home), name, None) is obj:
            return home
    return module


@cache
def stub() -> ModuleType:
    """The stub, run as a module: its classes and functions have no bodies."""
    made = ModuleType("farcall._core")
    file = Path(farcall.__file__).with_name("_core.pyi")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef):  # a class that runs needs the text that it has by itself
            kind.body = [line for line in kind.body if getattr(line, "name", "") != "__qualname__"]
    names_may_come_later = __future__.annotations.compiler_flag
    exec(compile(tree, file, "exec", names_may_come_later), vars(made))  # noqa: S102 - our own file
    return made


def documented_in_stub(member: Any) -> bool:
    owner = getattr(member, "__objclass__", None) or getattr(member, "__self__", None)
    name = getattr(owner, "__name__", None)
    if not name or getattr(native, name, None) is not owner:
        return False
    return bool(getattr(getattr(stub(), name, None), member.__name__, None).__doc__)


def counterpart(name: str) -> Any:
    """The stub's object for ``farcall.ffi.Function.submit``, say; None for an object that is not native."""
    found = _find(name)
    if found is _OVERLOADED:  # typing replaces the function; its first overload has the docstring
        return typing.get_overloads(getattr(native, name.rpartition(".")[2]))[0]
    return found


def _find(name: str) -> Any:
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            room = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        if getattr(room, parts[end], room) is not getattr(native, parts[end], native):
            return None
        found: Any = stub()
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found
    return None


def signature_from_stub(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, result: str | None
) -> tuple[str, str | None] | None:
    if signature is None and what not in ("attribute", "property"):
        return None  # Sphinx 9.0 fails on an answer for an object that has no signature of its own
    if what == "class" and MADE.search(obj.__doc__ or ""):
        return "", None
    found = counterpart(name)
    bound = inspect.isclass(found)
    if bound:
        found = vars(found).get("__init__") or vars(found).get("__new__")
        if found is None:
            return "", None  # users do not construct it
    if not callable(found) or isinstance(found, property):
        return None
    full = inspect.signature(found)
    parameters = [
        parameter for parameter in full.parameters.values() if parameter.name not in ("self", "cls")
    ]
    text = stringify_signature(full.replace(parameters=parameters), unqualified_typehints=True)
    arguments, _, returns = text.replace(" = Ellipsis", " = ...").partition(" -> ")
    return arguments, returns if returns and not bound else None


def docstring_from_stub(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if text := inspect.getdoc(counterpart(name)) if counterpart(name) else None:
        lines[:] = [*text.splitlines(), ""]


def resolve(app: Sphinx, env: Any, node: Any, shown: Any) -> Any:
    """missing-reference: a type that is named by its private module, or without one, has a public name."""
    last = node.get("reftarget", "").rpartition(".")[2]
    domain = env.domains.python_domain
    found = sorted((name for name in domain.objects if name.rpartition(".")[2] == last), key=len)
    if not found or node.get("refdomain") != "py" or last.startswith("_"):
        return None
    entry = domain.objects[found[0]]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, shown, found[0])


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", described_elsewhere)
    app.connect("autodoc-process-signature", signature_from_stub)
    app.connect("autodoc-process-docstring", docstring_from_stub, priority=100)  # before _docstrings reads it
    app.connect("missing-reference", resolve)
