"""Finds backends by name, and accepts Backend objects.

A package provides a backend by an entry point in the group ``farcall.backends``::

    [project.entry-points."farcall.backends"]
    npu = "acme_npu:NpuBackend"
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from farcall._plugins import installed
from farcall._suggest import did_you_mean
from farcall.errors import BackendError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from farcall.backends.base import Backend

__all__ = ["backend", "get", "names", "resolve"]
__dir__ = __all__.copy

_BUILTIN = {  # found without package metadata, for example in a checkout
    "c": "farcall.backends.c:CBackend",
    "blas": "farcall.backends.blas:BlasBackend",
    "json": "farcall.backends.json:JsonBackend",
    "onednn": "farcall.backends.onednn:OneDnnBackend",
    "onnxruntime": "farcall.backends._host:OnnxRuntimeBackend",
    "reference": "farcall.backends._host:ReferenceBackend",
    "remote": "farcall.artifact._remote:RemoteBackend",
}


RESERVED = ("control",)  # farcall adds it to every plan


def names() -> list[str]:
    """The names that :func:`get` accepts, sorted."""
    return sorted({*_BUILTIN, *installed("backend")})


def get(name: str) -> Backend:
    """A backend by its name, or by ``"pkg.mod:Class"``.

    Raises:
        BackendError: No backend has that name, or it cannot be imported or constructed.
    """
    if ":" in name:
        return _make(name, name)
    if name in _BUILTIN:
        return _make(name, _BUILTIN[name])
    point = installed("backend").get(name)
    if point is None:
        hint = did_you_mean(name, names()) or (
            "; install the package that offers it, or name a class as pkg.mod:Class"
        )
        raise BackendError(f"no backend is called `{name}` (installed: {', '.join(names())}){hint}")
    return _make(name, point.value)


def backend(name: str | Backend, *, called: str = "", **options: Any) -> Backend:
    """A backend with options: ``fc.partition(model, backends=[fc.backend("npu", level=2), "c"])``.

    Args:
        name: what :func:`get` accepts, or a Backend, of which a copy is made.
        called: another name for it in the plan, with which the names of its regions begin. A plan may so have
            one backend twice, with other options.
        **options: values for some of its options; the others keep theirs.

    Raises:
        UsageError: The backend has no such option, or the value is of another type than the default.
        BackendError: No backend has that name, it cannot be imported or constructed, or ``called`` is not a
            short C identifier.
    """
    made = copy.copy(get(name) if isinstance(name, str) else _check(name))
    for option, value in options.items():
        _check_option(made, option, value)
    made.options = {**made.options, **options}
    made.name = called or made.name
    return _check(made)


def _check_option(backend: Backend, option: str, value: object) -> None:
    if option not in backend.options:
        has = f"it has `{'`, `'.join(backend.options)}`" if backend.options else "it has no options"
        hint = did_you_mean(option, backend.options)
        raise UsageError(f"backend `{backend.name}` has no option `{option}`; {has}{hint}")
    default = backend.options[option]
    if default is not None and not isinstance(value, _accepted(type(default))):
        raise UsageError(
            f"backend `{backend.name}`, option `{option}`: expected {type(default).__name__}, got {value!r}"
        )


def _accepted(kind: type) -> type | tuple[type, ...]:
    return (int, float) if kind is float else kind


def resolve(backends: Iterable[str | Backend]) -> list[Backend]:
    """The Backend objects for names and objects, in the given order, which is that of priority.

    Args:
        backends: names that :func:`get` accepts, Backend objects, or one text with names between commas.

    Raises:
        BackendError: A backend is missing or is not a Backend, two have the same name, or there are none.
    """
    if isinstance(backends, str):
        backends = [item.strip() for item in backends.split(",") if item.strip()]
    found = [get(item) if isinstance(item, str) else item for item in backends]
    if not found:
        raise BackendError('no backends are given; pass backends=["c"] for the one that comes with farcall')
    for item in found:
        _check(item)
    repeated = sorted({item.name for item in found if [other.name for other in found].count(item.name) > 1})
    if repeated:
        raise BackendError(
            f"two backends are called `{repeated[0]}`; give one of them another name: "
            f'fc.backend("{repeated[0]}", called="...")'
        )
    return found


def _make(name: str, target: str) -> Backend:
    """Import ``pkg.mod:Class`` and call the class. Any exception of a plugin becomes a BackendError."""
    module, _, attribute = target.partition(":")
    try:
        made = importlib.import_module(module)
        for part in attribute.split("."):
            made = getattr(made, part)
        backend = made() if callable(made) else made
    except MissingExtraError:
        raise  # it says by itself what to install
    except Exception as error:
        raise BackendError(
            f"backend `{name}` ({target}) cannot be used: {type(error).__name__}: {error}"
        ) from error
    return _check(backend)


def _check(backend: object) -> Backend:
    from farcall.backends.base import Backend

    if not isinstance(backend, Backend):
        raise BackendError(
            "expected a backend (a name, or an object of a subclass of farcall.backends.base.Backend), "
            f"got {type(backend).__name__}"
        )
    name = getattr(backend, "name", "")
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and len(name) <= 32):
        raise BackendError(
            f"{type(backend).__name__}.name is {name!r}; expected a short C identifier, such as `npu`"
        )
    if name in RESERVED:
        raise BackendError(
            f"{type(backend).__name__}.name is {name!r}, which is farcall's own backend for If, Loop and "
            "Scan; choose another name"
        )
    if not isinstance(backend.options, Mapping):
        raise BackendError(
            f"{type(backend).__name__}.options is {backend.options!r}; expected names with defaults, such as "
            '{"level": 1}'
        )
    return backend
