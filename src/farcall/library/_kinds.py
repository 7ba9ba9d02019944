"""Kinds of modules whose loaders are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from farcall._core import Module, register_loader
from farcall.errors import ArtifactError, FarcallError
from farcall.library._blob import Blob, asks_runtime

_L = TypeVar("_L", bound=Callable[[Blob], Module])


def module_kind(
    kind: str,
    versions: Collection[int] = (1,),
    features: Collection[str] = (),
    *,
    extension: str | None = None,
    override: bool = False,
) -> Callable[[_L], _L]:
    """Register a function as the loader of a kind of module.

    The function gets the :class:`Blob` of a module, checked, and returns the Module, usually one of
    :func:`farcall.ffi.new_module`. It becomes the global function ``ffi.Module.load_from_bytes.<kind>``,
    where TVM FFI looks for it too. A package that names the function in the entry-point group
    ``farcall.modules``, under the name of the kind, is imported when such a module is first loaded
    (docs/extending.md).

    Args:
        kind: 1 to 64 letters, digits and ``_.-``.
        versions: of the format that the function reads.
        features: that it has; a module that needs others is refused.
        extension: of files that hold such a module; :func:`farcall.load_module` reads a file with a frame
            in it under any extension.
        override: replace a loader that is registered.

    Returns:
        A decorator, which returns the function unchanged.

    Raises:
        ValueError: the kind has a loader.
    """
    known, able = frozenset(versions), frozenset(features)

    def register(load: _L) -> _L:
        def loader(data: bytes) -> Module:
            return _loaded(load, _checked(Blob.parse(data, f"a module of kind `{kind}`"), kind, known, able))

        register_loader(kind, loader, extension=extension, override=override)
        return load

    return register


def _loaded(load: Callable[[Blob], Module], blob: Blob) -> Module:
    try:
        module = load(blob)
    except FarcallError:
        raise
    except Exception as error:  # whatever the code of another package raises
        problem = f"its loader failed: {type(error).__name__}: {error}"
        raise ArtifactError(f"{_name(blob)}: {problem}; build the module again") from error
    if not isinstance(module, Module):
        problem = f"its loader returned a {type(module).__name__}, expected a Module (farcall.ffi.new_module)"
        raise ArtifactError(f"{_name(blob)}: {problem}")
    return module


def _name(blob: Blob) -> str:
    made = f", made by {blob.producer}" if blob.producer else ""
    return f"a module of kind `{blob.kind}` (version {blob.version}{made})"


def _checked(blob: Blob, kind: str, versions: frozenset[int], features: frozenset[str]) -> Blob:
    what = _name(blob)
    cure = "build the module again"
    if not versions or blob.version > min(versions):
        cure = f"`pip install --upgrade {blob.package() or 'PACKAGE'}`, the package of the loader"
    if blob.kind != kind:
        raise ArtifactError(f"{what}: expected one of kind `{kind}`")
    if blob.version not in versions:
        read = ", ".join(map(str, sorted(versions)))
        raise ArtifactError(f"{what}: its loader reads versions {read}; {cure}")
    if missing := [name for name in blob.features if not asks_runtime(name) and name not in features]:
        has = ", ".join(f"`{name}`" for name in sorted(features)) or "none"
        raise ArtifactError(f"{what} needs the feature `{missing[0]}`, and its loader has: {has}; {cure}")
    return blob
