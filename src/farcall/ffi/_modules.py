"""Modules as mappings of names to Functions, and how notebooks show both. Their native methods call these."""

from __future__ import annotations

import inspect
from collections.abc import ItemsView, KeysView, ValuesView
from difflib import get_close_matches

from farcall import _html
from farcall._core import Function, Module
from farcall.errors import MissingFunctionError

_MOST_NAMES = 8


def missing(module: Module, name: str) -> MissingFunctionError:
    """The error for a function that a module does not have. It suggests similar names, or lists the first."""
    names = module.function_names()
    near = get_close_matches(name, names) or names[:_MOST_NAMES]
    none = "it exports none (functions are symbols __tvm_ffi_<name>)"
    has = f"it has `{'`, `'.join(near)}`" if near else none
    where = module.path or "the module"
    return MissingFunctionError(f"{where} has no function `{name}`; {has}", name=name)


def keys(module: Module) -> KeysView[str]:
    """The names of all functions."""
    return KeysView(module)


def values(module: Module) -> ValuesView[Function]:
    """All functions."""
    return ValuesView(module)


def items(module: Module) -> ItemsView[str, Function]:
    """Pairs of name and function."""
    return ItemsView(module)


def names_to_complete(module: Module) -> list[str]:
    """The attributes of a Module, and those of its functions that ``mod.name`` can reach."""
    return [*object.__dir__(module), *filter(str.isidentifier, module)]


def module_html(module: Module) -> str:
    """Each function and its Signature, as a table."""
    rows = ((name, signature_text(module[name])) for name in module)
    return _html.table(repr(module)[1:-1], ("function", "signature"), rows)


def function_html(function: Function) -> str:
    """The parameters of a function, as a table."""
    found = _described(function)
    title = repr(function)[1:-1].replace(str(function.signature), "")  # the table has it
    if found is None:
        return _html.table(title, (), [], "no Signature: it takes any arguments, by position")
    rows = [(one.name, str(one.annotation), _default(one)) for one in found.parameters.values()]
    return _html.parameters(title, rows, str(found.return_annotation))


def signature_text(function: Function) -> str:
    """``(x: float32[n]) -> float32[n]``; empty if nothing describes the function."""
    found = function.signature or _described(function)
    return "" if found is None else str(found).replace("'", "")


def _described(function: Function) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is inspect.Parameter.empty else repr(parameter.default)
