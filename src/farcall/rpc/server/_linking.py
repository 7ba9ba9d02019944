"""Links uploaded objects, ``lib.o`` or ``lib.tar``, which TVM's clients without a linker send."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from farcall.errors import ArtifactError, ToolchainError
from farcall.toolchain import Target, find_compiler, link_shared

_OBJECTS_MAX = 4096  # in one archive
# Symbols of the runtime (TVMFFIErrorSetRaisedFromCStr, ...) are resolved when the library is loaded.
_FLAGS = ("-Wl,-z,undefs", "-Wl,--as-needed")

Reserve = Callable[[str, int], None]


@contextmanager
def linked(file: Path, reserve: Reserve) -> Iterator[Path]:
    """The library of an uploaded file: the file itself, or its linked objects, which exist while the block
    lasts.

    The toolchain's compiler links them within this process's limits, in a folder beside the file.

    Args:
        file: a library, an object (``.o``), or an archive of objects (``.tar``, which may be compressed).
        reserve: counts a file of a name and a size among those of the session, or raises.

    Raises:
        ArtifactError: the archive is damaged, or contains other files than objects.
        ToolchainError: the server has no compiler, or it failed; the message contains its output.
        OSError: the objects take more room than the session has.
    """
    if file.suffix not in (".o", ".tar"):
        yield file
        return
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".link-") as folder:
        library = Path(folder, "linked.so")
        if file.suffix == ".tar":
            objects = _unpack(file, library.parent, reserve)
        else:
            library.with_name("0.o").hardlink_to(file)
            objects = [Path("0.o")]
        _link(file.name, objects, library)
        yield library


def _unpack(file: Path, folder: Path, reserve: Reserve) -> list[Path]:
    """Write the archive's objects to ``folder`` under new names; return these names."""
    objects: list[Path] = []
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                if member.isdir():
                    continue
                if not member.isfile() or not member.name.endswith(".o") or len(objects) == _OBJECTS_MAX:
                    raise ArtifactError(
                        f"{file.name}: it has {member.name[:80]!r}; a server links objects (.o), at most "
                        f"{_OBJECTS_MAX} of them: compile the rest, or link a library and upload that"
                    )
                reserve(member.name, member.size)
                objects.append(Path(f"{len(objects)}.o"))
                content = archive.extractfile(member)
                assert content is not None  # noqa: S101  (None only for members that are no files)
                _write(content, folder / objects[-1])
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise ArtifactError(f"{file.name}: not a complete tar archive: {error}; upload it again") from None
    if not objects:
        raise ArtifactError(f"{file.name}: an archive without objects (.o); upload what was built")
    return objects


def _write(content: IO[bytes], path: Path) -> None:
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file)


def _link(name: str, objects: list[Path], library: Path) -> None:
    target = Target.host()
    try:
        link_shared(find_compiler(target, "c++"), target, objects, library, _FLAGS)
    except ToolchainError as error:
        raise ToolchainError(
            f"{name}: this server could not link it: {error}; or link it on your side, and upload the library"
        ) from None
