"""Links an artifact, writes its constants into it, and seals it with its checksum and its digest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from farcall._files import mapped
from farcall.artifact._constants import CONSTANTS, Constants
from farcall.errors import BackendError
from farcall.library._elf import Elf, Section
from farcall.library._manifest import (
    CHECKSUM_SECTION,
    CHECKSUM_SIZE,
    DIGEST_SECTION,
    DIGEST_SIZE,
    compute_checksum,
    compute_digest,
)
from farcall.toolchain import Compiler, Target, assemble, link_shared

if TYPE_CHECKING:
    from farcall._progress import Report


class DataText(Protocol):
    """Makes the assembly source of an artifact's data, with or without the bytes of the constants."""

    def __call__(self, *, hollow: bool) -> str: ...


def link_with_constants(
    compiler: Compiler,
    target: Target,
    objects: Iterable[Path],
    constants: Constants,
    data: DataText,
    library: Path,
    flags: Sequence[str],
    progress: Report | None = None,
    *,
    libraries: Sequence[Path] = (),
) -> None:
    """Link ``objects`` and the artifact's data to ``library``, in whose folder the data's files are.

    ``libraries`` are those that the code of regions calls.

    Constants pass through neither assembler nor linker: the library is linked with room for them, which
    they are written into. A linker that leaves no room in the file gets them.

    Raises:
        ToolchainError: the assembler or the linker failed; the message has its output.
    """
    with library.open("wb") as file:
        file.truncate(constants.room)  # fails here, with a reason, where a linker would be killed
    for hollow in (True, False):
        if not hollow:
            constants.write(library.parent / "constants.bin")
        item = assemble(compiler, target, data(hollow=hollow), library.parent, "farcall_data")
        link_shared(compiler, target, [*objects, item], library, flags, progress, libraries=libraries)
        if not hollow or _fill(library, constants):
            return


def _fill(library: Path, constants: Constants) -> bool:
    """Write the constants into their room. False: the file has none."""
    room = Elf(mapped(library), library.name).place_of(CONSTANTS)
    if room is None or len(room) < constants.room:
        return False
    with library.open("r+b") as file:
        constants.write_at(file, room.start)
    return True


def seal(library: Path) -> None:
    """Write the checksum and the digest of the file into their sections.

    Raises:
        BackendError: the file lost a section.
    """
    content = mapped(library)
    elf = Elf(content, library.name)
    checksum, digest = (
        _section(elf, CHECKSUM_SECTION, CHECKSUM_SIZE),
        _section(elf, DIGEST_SECTION, DIGEST_SIZE),
    )
    with library.open("r+b", buffering=0) as file:
        file.seek(checksum.offset)
        file.write(compute_checksum(content, checksum, digest))
        file.seek(digest.offset)
        file.write(compute_digest(content, digest.offset))


def _section(elf: Elf, name: str, size: int) -> Section:
    section = elf.section(name)
    if section is None or section.size != size:
        raise BackendError(f"the linked library lost its section {name}; look at the link flags")
    return section
