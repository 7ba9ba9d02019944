"""The libraries that the code of regions calls: linked by name, against stubs, and checked where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farcall.artifact._states import place_text
from farcall.backends.base import RegionCode
from farcall.errors import ArtifactError, BackendError
from farcall.library._elf import MACHINES, NEEDED, RPATH, RUNPATH, SONAME, Elf
from farcall.library._libraries import LibraryNotFoundError, open_library
from farcall.library._manifest import LibraryInfo
from farcall.toolchain import Source, compile_sources, link_shared
from farcall.toolchain._target import host_triple

if TYPE_CHECKING:
    from farcall.backends.base import Code, Library
    from farcall.graph import Region
    from farcall.toolchain import Compiler, Target

_LIBC = re.compile(r"lib[cm]\.(so(\.\d+)?|musl-\w+\.so\.1)")  # with which every artifact is linked


class Libraries:
    """The libraries of an artifact: each soname once, with the symbols that all its regions call.

    Attributes:
        infos: what the manifest says of them.
        data: the content of the section for the files that the artifact brings.
    """

    def __init__(self, regions: Sequence[Region], codes: Mapping[str, Code], target: Target) -> None:
        """Collect and check what the regions declare.

        Raises:
            BackendError: two regions do not agree on a library, the target loads none, or the library that is
                there, or that a backend brings, is not what they declare.
        """
        self._target = target
        self._users: dict[str, tuple[Library, list[Region], dict[str, None]]] = {}
        for region in regions:
            code = codes[region.name]
            for library in code.libraries if isinstance(code, RegionCode) else ():
                self._add(library, region)
        self.infos: list[LibraryInfo] = []
        self.data = b""
        for library, users, symbols in self._users.values():
            names = tuple(region.name for region in users)
            about = (library.package, library.version, library.cure)
            place = (len(self.data), len(library.data))
            self.infos.append(
                LibraryInfo(library.soname, users[0].backend, names, tuple(symbols), *about, *place)
            )
            self._check(self.infos[-1], library.data)
            self.data += library.data

    def _add(self, library: Library, region: Region) -> None:
        where = place_text(region)
        if not self._target.has_loader:
            raise BackendError(
                f"{where} needs the library `{library.soname}`, and {self._target.triple} has no dynamic "
                "loader; take another backend for it"
            )
        first, users, symbols = self._users.setdefault(library.soname, (library, [], {}))
        if _terms(first) != _terms(library):
            raise BackendError(
                f"{where} declares the library `{library.soname}` with other terms than "
                f"{place_text(users[0])}: {_terms(library)}, and {_terms(first)}"
            )
        users.append(region)
        symbols.update(dict.fromkeys(library.symbols))

    def _check(self, info: LibraryInfo, data: bytes) -> None:
        """Check the library now if it is at hand, so that a missing function fails to build, not to load."""
        if data:
            self._check_file(info, data)
        if self._target.triple != host_triple():
            return
        try:
            open_library(info, data)
        except LibraryNotFoundError as error:
            if error.lacks:
                raise BackendError(
                    f"{info.users} declares functions that the library does not have: {error}; "
                    "correct the names, or install a later version"
                ) from None

    def _check_file(self, info: LibraryInfo, data: bytes) -> None:
        where = f"{info.users} brings the library `{info.soname}`"
        try:
            elf = Elf(data, info.soname)
        except ArtifactError as error:
            raise BackendError(f"{where}: {error}") from None
        arch, names = elf.header.architecture, elf.dynamic_texts(SONAME)
        if self._target.arch in MACHINES.values() and arch != self._target.arch:
            raise BackendError(f"{where}: its file is for {arch}, and the artifact is for {self._target}")
        if names != (info.soname,):
            raise BackendError(f"{where}: its file has the soname {names[0] if names else '(none)'}")
        exported = {symbol.name for symbol in elf.dynamic_symbols() if symbol.defined}
        if missing := [name for name in info.symbols if name not in exported]:
            raise BackendError(f"{where}: its file lacks `{'`, `'.join(missing)}`")

    def stubs(self, compiler: Compiler, folder: Path) -> list[Path]:
        """Stub libraries to link with: they have the sonames and the functions, which do nothing.

        The C library has none: the stub would take its place, also for code that declares nothing of it.
        """
        made = []
        for k, info in enumerate(self.infos):
            if _LIBC.fullmatch(info.soname):
                continue
            text = "".join(
                f'__attribute__((visibility("default"))) void {name}(void) {{}}\n' for name in info.symbols
            )
            source = Source(f"stub{k}.c", text, ("-O0", "-fno-builtin", "-w"))
            path = folder / f"stub{k}.so"
            objects = compile_sources(compiler, self._target, [source])
            link_shared(compiler, self._target, objects, path, [f"-Wl,-soname,{info.soname}"])
            made.append(path)
        return made


def _terms(library: Library) -> str:
    terms = {"package": library.package, "version": library.version, "cure": library.cure}
    return ", ".join(f"{name} {value!r}" for name, value in terms.items()) + f", {len(library.data)} bytes"


def check_needs(elf: Elf) -> None:
    """Refuse a linked library that would look for others by a path.

    Raises:
        BackendError: the message has the path.
    """
    paths = [name for name in elf.dynamic_texts(NEEDED) if "/" in name]
    paths += [*elf.dynamic_texts(RPATH), *elf.dynamic_texts(RUNPATH)]
    if paths:
        raise BackendError(
            f"the linked library would look for others in {paths[0]!r}, which other machines lack; "
            "declare them (RegionCode.libraries) instead of naming them in link_flags"
        )
