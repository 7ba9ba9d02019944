"""The modules that an artifact embeds: the bytes that regions of modules brought, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from farcall.backends.base import RegionModule
from farcall.library._blob import Blob
from farcall.library._manifest import ModuleInfo
from farcall.library._module_bin import module_bin

if TYPE_CHECKING:
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


def embedded(regions: Sequence[Region], codes: Mapping[str, Code], backends: Mapping[str, Backend]) -> bytes:
    """The bytes of ``__tvm_ffi__library_bin``: the library, which imports the modules. Empty: none."""
    blobs = [
        Blob(kind, version, data, features, producer=_producer(backends[users[0].backend]))
        for (kind, version, data, features), users in _shared(regions, codes).items()
    ]
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
