"""The manifest of an artifact: what is in it, for whom it was built, and a digest that proves it whole.

JSON in the ELF section ``.farcall.manifest``; SHA-256 of the file, with the 32 bytes of the digest itself
taken as zero, in ``.farcall.digest``. Both are read without loading the library.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from farcall.abi import Signature
from farcall.errors import ArtifactError
from farcall.library._elf import Buffer, Elf, Section

FORMAT = 1  # raised when a reader of the old one would misunderstand the new one
MANIFEST_SECTION = ".farcall.manifest"
DIGEST_SECTION = ".farcall.digest"
DIGEST_SIZE = 32
RUNTIME_SYMBOL = "__farcall_runtime"  # every artifact exports it
# Texts of an artifact alone: of its manifest, and of the code of its entry (entry_checks.h).
_MARKS = (b'"producer":"farcall ', b"farcall: the entry of an artifact\0")

_LARGEST = 64 << 20


class TargetInfo(msgspec.Struct, frozen=True):
    """The machine that the artifact is for: triple and CPU level (empty: the architecture's baseline)."""

    triple: str
    cpu: str = ""


class FunctionInfo(msgspec.Struct, frozen=True):
    """One function of the artifact."""

    signature: Signature
    doc: str = ""


class RegionInfo(msgspec.Struct, frozen=True):
    """One region: which backend made it, of how many nodes, and each operator with its count."""

    name: str
    backend: str
    nodes: int
    operators: dict[str, int]


class ConstantsInfo(msgspec.Struct, frozen=True):
    """How many different constants the artifact holds, and their size together."""

    count: int
    bytes: int


class ModelInfo(msgspec.Struct, frozen=True):
    """The ONNX model that the artifact was built from."""

    name: str
    opsets: dict[str, int]
    ir_version: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """All that an artifact says about itself.

    A field that is added here, or in a part, has a default: what it means for artifacts without the field
    (tests/library/test_format1.py).
    """

    format: int
    producer: str
    target: TargetInfo
    backends: tuple[str, ...]
    functions: dict[str, FunctionInfo]
    regions: tuple[RegionInfo, ...]
    constants: ConstantsInfo
    model: ModelInfo
    versions: dict[str, str]


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON; equal manifests give equal bytes."""
    return msgspec.json.encode(manifest, order="deterministic")


def decode(data: Buffer, what: str) -> Manifest:
    """Read a manifest.

    Raises:
        ArtifactError: it is damaged, or of a newer format than this farcall reads.
    """
    try:
        found = msgspec.json.decode(data, type=_OnlyFormat)
        if found.format > FORMAT:
            raise ArtifactError(
                f"{what}: its manifest has format {found.format} (made by {found.producer}), "
                f"and this farcall reads formats up to {FORMAT}; "
                "install a newer farcall, or build the artifact again with this one"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"{what}: its manifest is damaged ({error}); build it again") from None


class _OnlyFormat(msgspec.Struct):
    format: int
    producer: str = "?"


def may_have_manifest(data: bytes) -> bool:
    """Whether a library may be one that farcall built. A kernel library is not, and needs no more checks."""
    return MANIFEST_SECTION.encode() in data or RUNTIME_SYMBOL.encode() in data


def read_manifest(elf: Elf) -> Manifest | None:
    """The manifest of a library whose digest holds; ``None`` for one that farcall did not build.

    Raises:
        ArtifactError: the library is damaged, or newer than this farcall.
    """
    section, digest = _manifest_section(elf), elf.section(DIGEST_SECTION)
    if section is None or digest is None:
        if section is None and digest is None and not _looks_built_by_us(elf):
            return None
        raise ArtifactError(f"{elf.what}: truncated or corrupted: its manifest is gone; build it again")
    _check_digest(elf, digest)
    return decode(elf.content(section), elf.what)


def stated_manifest(elf: Elf) -> Manifest | None:
    """The manifest as it stands in a library, whose digest is left to others; ``None`` where there is none.

    Raises:
        ArtifactError: the manifest is damaged, or newer than this farcall.
    """
    section = _manifest_section(elf)
    return None if section is None else decode(elf.content(section), elf.what)


def _manifest_section(elf: Elf) -> Section | None:
    section = elf.section(MANIFEST_SECTION)
    if section is not None and section.size > _LARGEST:
        raise ArtifactError(f"{elf.what}: its manifest has {section.size} bytes, at most {_LARGEST} are read")
    return section


def _looks_built_by_us(elf: Elf) -> bool:
    """Whether a library without the two sections is an artifact that lost them.

    Kernel libraries export the runtime's symbol too (farcall/c_api.h), but have none of an artifact's texts.
    """
    data = bytes(elf.data)
    if RUNTIME_SYMBOL.encode() not in data or not any(mark in data for mark in _MARKS):
        return False  # reading all symbols would be most of a load's time
    return any(symbol.name == RUNTIME_SYMBOL for symbol in elf.dynamic_symbols())


def _check_digest(elf: Elf, section: Section) -> None:
    if section.size != DIGEST_SIZE:
        raise ArtifactError(f"{elf.what}: truncated or corrupted: its digest has {section.size} bytes")
    if bytes(elf.content(section)) != compute_digest(elf.data, section.offset):
        raise ArtifactError(
            f"{elf.what}: corrupted: its content does not match its SHA-256 digest; copy or build it again"
        )


def compute_digest(data: Buffer, offset: int) -> bytes:
    """SHA-256 of ``data`` with the digest's own place at ``offset`` taken as zero."""
    view = memoryview(data)
    digest: Any = hashlib.sha256(view[:offset])
    digest.update(bytes(DIGEST_SIZE))
    digest.update(view[offset + DIGEST_SIZE :])
    return bytes(digest.digest())
