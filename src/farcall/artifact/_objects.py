"""Object files and static libraries that backends give: named for the artifact, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farcall.artifact._states import region_function
from farcall.backends.base import RegionModule
from farcall.errors import ArtifactError, BackendError
from farcall.library._archive import rename_symbols
from farcall.library._elf import MACHINES, Elf

if TYPE_CHECKING:
    from farcall.backends.base import Code, RegionCode
    from farcall.graph import Region
    from farcall.toolchain import Target

_PREFIX = "__tvm_ffi_"
_RELOCATABLE = 1  # ET_REL


def renamings(region: Region, code: RegionCode) -> dict[str, str]:
    """The functions that a region's code must define, without their prefix -> their names in the artifact."""
    function, own = region_function(region, code), code.function or region.name
    names = {own: function}
    if code.state:
        names |= {f"{own}_{part}": f"{function}_{part}" for part in ("init", "destroy")}
    return names


class Objects:
    """The files that backends give for regions, written to a folder.

    Attributes:
        libraries: the static libraries, which the linker reads after all objects.
    """

    def __init__(self, folder: Path, target: Target) -> None:
        self._folder = folder
        self._target = target
        self.libraries: list[Path] = []

    def add(self, region: Region, code: Code) -> list[Path]:
        """Write the files of a region, and return its objects.

        Raises:
            BackendError: two regions have a file of that name, or an object is not one for the target.
        """
        objects: list[Path] = []
        if isinstance(code, RegionModule):
            return objects
        names = {_PREFIX + name: new for name, new in renamings(region, code).items()}
        for name, data in code.objects.items():
            where = f"backend `{region.backend}`, region `{region.name}`: {name}"
            path = self._folder / name
            if path.exists():
                raise BackendError(f"{where}: another region has such a file; put the region's name into it")
            if name.endswith(".a"):
                self.libraries.append(path)
            else:
                self._check(data, where)
                objects.append(path)
            path.write_bytes(rename_symbols(data, names) if path in objects else data)
        return objects

    def _check(self, data: bytes, where: str) -> None:
        try:
            header = Elf(data, where).header
        except ArtifactError as error:
            raise BackendError(f"{error}; expected an object file for {self._target}") from None
        if self._target.arch in MACHINES.values() and header.architecture != self._target.arch:
            raise BackendError(
                f"{where}: an object for {header.architecture}, and the artifact is for {self._target}; "
                "compile it for the target that compile() gets"
            )
