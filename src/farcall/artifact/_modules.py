"""The modules that an artifact embeds: the bytes that regions of modules brought, each once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from farcall.backends._ctext import Content
from farcall.backends.base import RegionModule
from farcall.errors import BackendError
from farcall.library._blob import Blob
from farcall.library._manifest import ModuleInfo
from farcall.library._module_bin import module_bin

if TYPE_CHECKING:
    import numpy as np

    from farcall.backends.base import Backend, Code
    from farcall.graph import Region

_Key = tuple[str, int, bytes, tuple[str, ...]]


def module_key(code: RegionModule) -> _Key:
    """What regions of one module have in common."""
    return (code.kind, code.version, code.data, tuple(code.features))


def keeper(code: Code) -> _Key | None:
    """The module of a region if it keeps values between its regions, by what those have in common."""
    return module_key(code) if isinstance(code, RegionModule) and code.keeps else None


def _shared(regions: Sequence[Region], codes: Mapping[str, Code]) -> dict[_Key, list[Region]]:
    """The regions of each module, in order of first use."""
    found: dict[_Key, list[Region]] = {}
    for region in regions:
        code = codes[region.name]
        if isinstance(code, RegionModule):
            found.setdefault(module_key(code), []).append(region)
    return found


def distinct(
    regions: Sequence[Region], codes: Mapping[str, Code], backends: Mapping[str, Backend]
) -> list[Blob]:
    """The modules, each once, in order of first use."""
    return [
        Blob(kind, version, data, features, producer=_producer(backends[users[0].backend]))
        for (kind, version, data, features), users in _shared(regions, codes).items()
    ]


def check_functions(regions: Sequence[Region], codes: Mapping[str, Code]) -> None:
    """Check that each function of a module is found by its name alone, and gets its constants once.

    Raises:
        BackendError: two modules promise one name, or two regions share a function, but not its constants.
    """
    owners: dict[str, tuple[Region, RegionModule]] = {}
    for region in regions:
        code = codes[region.name]
        if not isinstance(code, RegionModule):
            continue
        name = code.function or region.name
        other, first = owners.setdefault(name, (region, code))
        both = (
            f"regions `{other.name}` and `{region.name}` of backends `{other.backend}` and `{region.backend}`"
        )
        if module_key(first) != module_key(code):
            raise BackendError(
                f"{both}: their modules are different, and both have the function `{name}`, so a search by "
                "its name finds one of them; put the region's name into it (RegionModule.function)"
            )
        if not _equal(first.constants, code.constants):
            raise BackendError(
                f"{both}: they share the function `{name}` of one module, which gets its constants once, and "
                "theirs differ; give each region a function of its own (RegionModule.function)"
            )


def loader_symbol(kind: str) -> str:
    """What a library exports that brings the loader of a kind."""
    return "__farcall_load_" + re.sub(r"[.-]", "_", kind)


def loaders(regions: Iterable[Region], codes: Mapping[str, Code]) -> dict[str, tuple[Region, str]]:
    """The loaders that an artifact brings: of each kind, the C text and a region that gave it.

    Raises:
        BackendError: two regions bring different loaders of a kind.
    """
    found: dict[str, tuple[Region, str]] = {}
    for region in regions:
        code = codes[region.name]
        if not isinstance(code, RegionModule) or not code.loader:
            continue
        first, text = found.setdefault(code.kind, (region, code.loader))
        if text != code.loader:
            raise BackendError(
                f"regions `{first.name}` and `{region.name}`: they bring different loaders of kind "
                f"`{code.kind}`, of which an artifact has one; give both the same text (RegionModule.loader)"
            )
    return found


def _equal(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    pairs = zip(a.values(), b.values(), strict=False)
    return len(a) == len(b) and all(
        one.dtype == two.dtype and one.shape == two.shape and Content(one) == Content(two)
        for one, two in pairs
    )


def embedded(regions: Sequence[Region], codes: Mapping[str, Code], backends: Mapping[str, Backend]) -> bytes:
    """The bytes of ``__tvm_ffi__library_bin``: the library, which imports the modules. Empty: none."""
    blobs = distinct(regions, codes, backends)
    return module_bin([None, *blobs], [range(1, len(blobs) + 1), *([()] * len(blobs))]) if blobs else b""


def _producer(backend: Backend) -> str:
    """The package of a backend, and its version; empty for a class that is in no package."""
    package = type(backend).__module__.partition(".")[0]
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return ""


def module_infos(regions: Sequence[Region], codes: Mapping[str, Code]) -> tuple[ModuleInfo, ...]:
    """What the manifest says of the modules."""
    return tuple(
        ModuleInfo(kind, version, len(data), tuple(region.name for region in users))
        for (kind, version, data, _), users in _shared(regions, codes).items()
    )
