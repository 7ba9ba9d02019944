"""The artifact: one library file with code, constants and manifest."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farcall._files import copy_beside, link_beside, write_beside
from farcall.errors import ArtifactError, UsageError
from farcall.library import Manifest, load_module

if TYPE_CHECKING:
    from farcall.ffi import Module


class Artifact:
    """A built library, in a temporary file until :meth:`save` writes it to a path.

    The first file that is saved may be the temporary one by a second name, so that a large artifact is
    written once. A process that loads the artifact has a copy, which nobody else can write to.
    """

    def __init__(self, path: Path, manifest: Manifest, header: str | None = None) -> None:
        self._path = path
        self._manifest = manifest
        self._header = header
        self._loaded = False
        self._shared: tuple[int, int] | None = None  # size and time of the file that also has a saved name
        self.sessions: Mapping[str, Any] = {}  # those that the plan named; the file holds their names only

    @classmethod
    def temporary(cls, name: str, manifest: Manifest, header: str | None = None) -> Artifact:
        """An artifact with this ``name`` and ``manifest``, without a file yet.

        ``header`` is the text of the C header of a static library. The file that it adopts lives as long as
        the object.
        """
        folder = tempfile.mkdtemp(prefix="farcall-artifact-")
        artifact = cls(Path(folder) / name, manifest, header)
        weakref.finalize(artifact, shutil.rmtree, folder, ignore_errors=True)
        return artifact

    def adopt(self, library: Path) -> None:
        """Take ownership of the file ``library``, which is moved into the artifact's temporary folder."""
        shutil.move(library, self._path)

    @property
    def manifest(self) -> Manifest:
        """The description of the content: target, Signatures, constants, digest."""
        return self._manifest

    @property
    def size(self) -> int:
        """Size of the file, in bytes."""
        return self._content().stat().st_size

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the library to ``path`` atomically, and return the path.

        The C header of a static library, ``model.a``, goes beside it: ``model.h``.

        Raises:
            UsageError: the file cannot be written there, or a static library has another name than ``*.a``.
            ArtifactError: the file that was saved before has changed since.
        """
        if self._header is not None:
            _check_static(Path(path))
            write_beside(Path(path).with_suffix(".h"), self._header.encode())
        mode, content = 0o755 if self._header is None else 0o644, self._content()
        if not self._loaded and self._shared is None and link_beside(path, content, mode):
            self._shared = _stamp(content)
        else:
            copy_beside(path, content, mode)
        return Path(path)

    def read(self) -> bytes:
        """The bytes of the file."""
        return self._content().read_bytes()

    def load(self, devices: Mapping[str, Any] | None = None) -> Module:
        """Load the artifact into this process.

        Args:
            devices: as :func:`farcall.load_module` takes them. The sessions that were given to backends as
                ``on`` are known.

        Raises:
            ArtifactError: the artifact was built for another machine, or is a static library; or the file
                that was saved before has changed since.
        """
        if self._header is not None:
            raise ArtifactError(
                f"{self._path.name}: a static library, which is linked into a program and not loaded; "
                'build with link="shared" to load it'
            )
        if self._shared is not None:
            copy_beside(self._path, self._content())
            self._shared = None
        self._loaded = True
        module = load_module(self._path, devices={**self.sessions, **(devices or {})})
        weakref.finalize(module, _forget, self)  # the module's profile() and memory() read the file
        return module

    def _content(self) -> Path:
        """The file, if it is as it was built."""
        if self._shared not in (None, _stamp(self._path)):
            raise ArtifactError(
                f"{self._path.name}: the artifact's only file is the saved one, which has been written to "
                "since; build it again, and replace saved files instead of writing into them"
            )
        return self._path

    def __repr__(self) -> str:
        functions = ", ".join(f"{name}{f.signature}" for name, f in self._manifest.functions.items())
        return f"<farcall.Artifact for {self._manifest.target.triple}: {functions}>"


def _forget(artifact: Artifact) -> None:
    """What had to keep ``artifact`` alive is gone."""


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _check_static(path: Path) -> None:
    if path.suffix != ".a":
        raise UsageError(
            f"{str(path)!r}: the artifact is a static library; name it {path.with_suffix('.a').name!r}, "
            'or build with link="shared"'
        )
