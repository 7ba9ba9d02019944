"""Files that other files include: found below one folder, and read once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from farcall.idl._declarations import Declared, Interface, Unit
from farcall.idl._source import Place, Source, read_source
from farcall.idl._tokens import Token

STANDARD_FILES = ("AEEStdDef.idl", "remote.idl")
_FILES_MAX = 256
_DEPTH_MAX = 32


@dataclass
class Names:
    """The names that all files of a compilation share."""

    declared: dict[str, Declared] = field(default_factory=dict)
    in_c: dict[str, Place] = field(default_factory=dict)
    standard: set[str] = field(default_factory=set)

    def claim(self, interface: Interface, reserve: Callable[[str, Place], None], place: Place) -> None:
        """Reserve the names that the generated code has for every interface, and its inherited methods."""
        suffixes = ["URI", "handle", "skel_invoke", "skel_handle_invoke"]
        suffixes += ["open", "close"] if interface.handle else []
        suffixes += [method.name for method in interface.methods]
        for suffix in suffixes:
            reserve(f"{interface.name}_{suffix}", place)


@dataclass
class Includes:
    """The files of one compilation.

    Attributes:
        root: the folder of the first file; all others are in it, or below. None: there are no files.
        units: the included files, each behind those that it includes itself.
    """

    root: Path | None
    names: Names = field(default_factory=Names)
    units: list[Unit] = field(default_factory=list)
    _open: list[Path] = field(default_factory=list)
    _read: set[Path] = field(default_factory=set)

    def find(self, token: Token, including: str) -> tuple[Path, str, Source | None] | None:
        """The file that an #include names: its path, its name without `.idl`, its text if that is new.

        None for a standard file.

        Raises:
            IdlError: the file is missing, is outside of the folder, or includes itself.
        """
        name = token.text
        if name in STANDARD_FILES:
            self.names.standard.add(name)
            return None
        if self.root is None:
            raise token.place.error(f"{name!r} cannot be included: this text is not in a folder")
        path = self._confined(token, Path(including).parent)
        stem = path.relative_to(self.root).with_suffix("").as_posix()
        if path in self._open:
            raise token.place.error(f"{name!r} includes itself; move what both files need into a third")
        if path in self._read:
            return path, stem, None
        if len(self._read) >= _FILES_MAX:
            raise token.place.error(f"more than {_FILES_MAX} files; join some")
        if not path.is_file():
            known = " and ".join(STANDARD_FILES)
            raise token.place.error(
                f"no file {name!r} beside this one; {known} are built in, others must exist"
            )
        self._read.add(path)
        return path, stem, read_source(path)

    def _confined(self, token: Token, folder: Path) -> Path:
        assert self.root is not None  # noqa: S101
        name = token.text
        if not name.endswith(".idl") or not name.isprintable() or "\\" in name or '"' in name:
            raise token.place.error("an included file has a name that ends in .idl, without backslashes")
        path = (folder / name).resolve()
        if Path(name).is_absolute() or not path.is_relative_to(self.root):
            raise token.place.error(
                f"{name!r} is outside of the folder {str(self.root)!r}; include files from there or below"
            )
        return path

    @contextlib.contextmanager
    def inside(self, path: Path, token: Token) -> Iterator[None]:
        """While the file at ``path`` is read."""
        if len(self._open) >= _DEPTH_MAX:
            raise token.place.error(
                f"files include each other {_DEPTH_MAX} deep; include them from the first"
            )
        self._open.append(path)
        try:
            yield
        finally:
            self._open.pop()

    def begin(self, path: Path) -> None:
        """Note the first file."""
        self._open.append(path)
        self._read.add(path)
