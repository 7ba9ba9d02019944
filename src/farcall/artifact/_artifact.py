"""The one file that ships."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from farcall._files import write_beside
from farcall.library import Manifest, load_module

if TYPE_CHECKING:
    from farcall.ffi import Module


class Artifact:
    """A built library, in a temporary file until :meth:`save` puts it where it is wanted."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._path = path
        self._manifest = manifest

    @classmethod
    def temporary(cls, name: str, manifest: Manifest) -> Artifact:
        """An artifact whose file, once adopted, lives as long as the object."""
        folder = tempfile.mkdtemp(prefix="farcall-artifact-")
        artifact = cls(Path(folder) / name, manifest)
        weakref.finalize(artifact, shutil.rmtree, folder, ignore_errors=True)
        return artifact

    def adopt(self, library: Path) -> None:
        """Take ``library`` as the content; the file moves away from where it is."""
        shutil.move(library, self._path)

    @property
    def manifest(self) -> Manifest:
        """What is in it."""
        return self._manifest

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._path.stat().st_size

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the library to ``path``, whole or not at all, and return the path.

        Raises:
            UsageError: it cannot be written there.
        """
        write_beside(path, self._path.read_bytes(), mode=0o755)
        return Path(path)

    def load(self) -> Module:
        """Load it into this process.

        Raises:
            ArtifactError: it was built for another machine.
        """
        return load_module(self._path)

    def __repr__(self) -> str:
        functions = ", ".join(f"{name}{f.signature}" for name, f in self._manifest.functions.items())
        return f"<farcall.Artifact for {self._manifest.target.triple}: {functions}>"
