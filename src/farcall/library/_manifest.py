"""The manifest of an artifact: its contents, its target, and a digest that proves that the file is complete.

The ELF section ``.farcall.manifest`` holds JSON. The section ``.farcall.digest`` holds the SHA-256 of the
file, computed with the 32 bytes of the digest as zeros. ``.farcall.checksum`` holds a checksum of the file,
which takes a tenth of the digest's time. farcall reads all without loading the library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from mmap import mmap
from typing import Any

import msgspec

from farcall._core import checksum
from farcall.abi import Signature
from farcall.errors import ArtifactError
from farcall.library._elf import Buffer, Elf, Section
from farcall.library._why import Taken, Verdict, Why, matching, why

FORMAT = 1  # raise it only if a reader of the old format would misunderstand the new one
MANIFEST_SECTION = ".farcall.manifest"
DIGEST_SECTION = ".farcall.digest"
CHECKSUM_SECTION = ".farcall.checksum"
LIBRARIES_SECTION = ".farcall.libraries"  # the files that an artifact brings
DIGEST_SIZE = 32
CHECKSUM_SIZE = len(checksum())
RUNTIME_SYMBOL = "__farcall_runtime"  # every artifact exports it
# Texts that only artifacts contain: one in the manifest, and one in the entry's code (entry_errors.c).
_MARKS = (b'"producer":"farcall ', b"farcall: the entry of an artifact\0")

_LARGEST = 64 << 20


class TargetInfo(msgspec.Struct, frozen=True):
    """The machine that the artifact is for.

    ``triple``, and CPU level (empty: the architecture's baseline). ``levels``: those for which the hot code
    is compiled, of which the CPU's is chosen when it is first called; without them, it is compiled once.
    """

    triple: str
    cpu: str = ""
    levels: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class FunctionInfo(msgspec.Struct, frozen=True):
    """One function of the artifact."""

    signature: Signature
    doc: str = ""


class StepInfo(msgspec.Struct, frozen=True):
    """One step of a region that counts its time.

    ``operations`` and ``bytes`` are numbers, or expressions of the sizes that main's dims name; 0: not known.
    If the backend had a choice, ``way`` tells how it is computed, and ``problem`` what is.
    """

    nodes: tuple[str, ...]
    operator: str
    operations: int | str = 0
    bytes: int | str = 0
    problem: str = ""
    way: str = ""


class MatchInfo(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that a backend took together: their names, their operators, and the pattern that they match.

    ``pattern`` is empty for a single node that no pattern matched.
    """

    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    pattern: str = ""


class RegionInfo(msgspec.Struct, frozen=True):
    """One region: its backend, its number of nodes, and each operator with its count.

    ``signature`` is that of the region's function; None in artifacts of earlier versions of farcall.
    ``inside`` names the graph inside of a node (If, Loop, Scan) that the region is a part of; empty for one
    of the model itself. ``steps`` are those of a profiled build, and left out of any other. ``matches`` are
    its nodes; artifacts of earlier versions have none.
    """

    name: str
    backend: str
    nodes: int
    operators: dict[str, int]
    signature: Signature | None = None
    inside: str = ""
    steps: tuple[StepInfo, ...] | msgspec.UnsetType = msgspec.UNSET
    matches: tuple[MatchInfo, ...] = ()


class ModuleInfo(msgspec.Struct, frozen=True):
    """A module that the artifact embeds: its kind and the version of that, its bytes, its regions."""

    kind: str
    version: int
    bytes: int
    regions: tuple[str, ...]


class LibraryInfo(msgspec.Struct, frozen=True):
    """A library that the artifact needs, and loads by its soname.

    ``symbols`` are the functions that the code calls, ``package`` the Python package that holds the library,
    in version ``version`` or later. ``cure`` tells users how to get it. A library that the artifact brings
    has ``size`` bytes at ``offset`` of the section for libraries; ``size`` 0: it brings none.
    """

    soname: str
    backend: str
    regions: tuple[str, ...]
    symbols: tuple[str, ...] = ()
    package: str = ""
    version: str = ""
    cure: str = ""
    offset: int = 0
    size: int = 0

    @property
    def users(self) -> str:
        """Those that need it, for errors."""
        several = "s" if len(self.regions) > 1 else ""
        names = ", ".join(f"`{name}`" for name in self.regions[:3])
        more = f" and {len(self.regions) - 3} more" if len(self.regions) > 3 else ""
        return f"backend `{self.backend}`, region{several} {names}{more},"


class ExpansionInfo(msgspec.Struct, frozen=True):
    """A node that no backend took, and the nodes of its definition, which replaced it.

    ``origin`` is the node from whose own definition it is, if it is from one.
    """

    operator: str
    nodes: tuple[str, ...]
    origin: str = ""


class AnswersInfo(msgspec.Struct, frozen=True):
    """What kept backends from nodes: each text once; and for nodes, by name, the indices of their texts.

    ``backends`` are all that were asked, in order of priority. ``expansions`` are the nodes that were
    replaced by their definitions, by name.
    """

    texts: tuple[str, ...] = ()
    nodes: dict[str, tuple[int, ...]] = {}
    backends: tuple[str, ...] = ()
    expansions: dict[str, ExpansionInfo] = {}


class ConstantsInfo(msgspec.Struct, frozen=True):
    """The number of distinct constants in the artifact, and their total size."""

    count: int
    bytes: int


class MemoryInfo(msgspec.Struct, frozen=True):
    """The memory of a call of main, in bytes: numbers, or expressions of the sizes that main's dims name.

    ``workspace`` holds the tensors between operators, and what kernels use while they run. ``least`` is the
    lower bound of every plan for them: the most bytes that are alive in one step. ``results`` are allocated
    for the caller. ``scratch`` is what each thread beyond the first one keeps for itself. Tensors whose sizes
    the data decides are in none of these.
    """

    workspace: int | str
    least: int | str
    results: int | str
    scratch: int | str = 0


class ModelInfo(msgspec.Struct, frozen=True):
    """The ONNX model that the artifact was built from."""

    name: str
    opsets: dict[str, int]
    ir_version: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of an artifact.

    A new field, here or in a part, must have a default: its meaning for artifacts without the field
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
    answers: AnswersInfo = AnswersInfo()
    diagram: msgspec.Raw = msgspec.Raw(
        b"null"
    )  # what pictures show; read when one is drawn (farcall.drawing)
    modules: tuple[ModuleInfo, ...] = ()
    libraries: tuple[LibraryInfo, ...] = ()
    memory: MemoryInfo | None = None

    @property
    def whys(self) -> tuple[Why, ...]:
        """For each node: who was asked, what each said, and who got it; region by region.

        Raises:
            ArtifactError: the artifact is of an earlier version of farcall, and does not tell.
        """
        return tuple(_whys(self))

    def why(self, name: str) -> Why:
        """Who was asked about a node, what each said, and who got it.

        Raises:
            UsageError: no node has this name; the message has a similar one.
            ArtifactError: the artifact is of an earlier version of farcall, and does not tell.
        """
        return matching(name, {one.node: one for one in self.whys})[0]


def _whys(manifest: Manifest) -> Iterator[Why]:
    answers = manifest.answers
    if not answers.backends:
        raise ArtifactError(
            f"the artifact was built by {manifest.producer}, which did not write why nodes are where they "
            "are; build it again"
        )
    origins = {part: node for node, one in answers.expansions.items() for part in one.nodes}
    for region in manifest.regions:
        for match in region.matches:
            nodes = dict(zip(match.nodes, match.operators, strict=True))
            taken = Taken(region.name, region.backend, match.pattern or match.operators[0], nodes)
            for name, operator in nodes.items():
                about, said = f"node `{name}`: {operator}", _said(answers, name)
                yield why(name, about, taken, answers.backends, said, origins.get(name, ""))
    for name, one in answers.expansions.items():
        about, said = f"node `{name}`: {one.operator}", _said(answers, name)
        verdicts = sorted(said, key=lambda verdict: answers.backends.index(verdict.backend))
        yield Why(name, one.operator, about, "", "", "", one.nodes, tuple(verdicts), one.origin)


def _said(answers: AnswersInfo, node: str) -> list[Verdict]:
    """The answers to a node; behind those to one that was replaced, a text names its parts."""
    texts = [answers.texts[index] for index in answers.nodes.get(node, ())]
    found = []
    for each in texts[:-1] if node in answers.expansions else texts:
        head, _, text = each.partition(": ")
        backend, _, said = head.partition(" ")
        found.append(Verdict(backend, said, text))
    return found


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON; equal manifests give equal bytes."""
    return msgspec.json.encode(manifest, order="deterministic")


def decode(data: Buffer, what: str) -> Manifest:
    """Read a manifest.

    Raises:
        ArtifactError: the manifest is damaged, or of a newer format than this farcall reads.
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


def may_have_manifest(data: bytes | mmap) -> bool:
    """Whether farcall may have built a library as an artifact. A kernel library needs no further checks."""
    # The names of sections are behind all constants.
    return any(data.rfind(name.encode()) >= 0 for name in (MANIFEST_SECTION, RUNTIME_SYMBOL))


def read_manifest(elf: Elf, *, quickly: bool = False) -> Manifest | None:
    """The manifest of a library, whose digest is checked; ``None`` if farcall did not build the library.

    ``quickly``: its checksum is checked instead, if it has one.

    Raises:
        ArtifactError: the library is damaged, or newer than this farcall.
    """
    if (sections := _sections(elf)) is None:
        if _looks_built_by_us(elf):
            raise _lost_manifest(elf)
        return None
    section, digest = sections
    sum_section = elf.section(CHECKSUM_SECTION) if quickly else None
    if sum_section is None:
        _check_digest(elf, digest, elf.data, digest.offset)
    else:
        _check_checksum(elf, sum_section, digest)
    return decode(elf.content(section), elf.what)


def read_member_manifest(elf: Elf, data: bytes, offset: int) -> Manifest | None:
    """The same of an object at ``offset`` of the static library ``data``, whose digest it holds."""
    if (sections := _sections(elf)) is None:
        return None
    section, digest = sections
    _check_digest(elf, digest, data, offset + digest.offset)
    return decode(elf.content(section), elf.what)


def stated_manifest(elf: Elf) -> Manifest | None:
    """The manifest of a library, without a check of the digest; ``None`` if it has no manifest.

    Raises:
        ArtifactError: the manifest is damaged, or newer than this farcall.
    """
    section = _manifest_section(elf)
    return None if section is None else decode(elf.content(section), elf.what)


def _sections(elf: Elf) -> tuple[Section, Section] | None:
    """The sections of the manifest and of the digest; ``None`` if there is neither.

    Raises:
        ArtifactError: there is only one of the two.
    """
    section, digest = _manifest_section(elf), elf.section(DIGEST_SECTION)
    if section is None and digest is None:
        return None
    if section is None or digest is None:
        raise _lost_manifest(elf)
    return section, digest


def _lost_manifest(elf: Elf) -> ArtifactError:
    return ArtifactError(f"{elf.what}: truncated or corrupted: its manifest is gone; build it again")


def _manifest_section(elf: Elf) -> Section | None:
    section = elf.section(MANIFEST_SECTION)
    if section is not None and section.size > _LARGEST:
        raise ArtifactError(f"{elf.what}: its manifest has {section.size} bytes, expected at most {_LARGEST}")
    return section


def _looks_built_by_us(elf: Elf) -> bool:
    """Whether a library without the two sections is an artifact that lost them.

    Kernel libraries also export the runtime's symbol (farcall/c_api.h), but contain no text of an artifact.
    """
    data = bytes(elf.data)
    if RUNTIME_SYMBOL.encode() not in data or not any(mark in data for mark in _MARKS):
        return False  # reading all symbols would take most of a load's time
    return any(symbol.name == RUNTIME_SYMBOL for symbol in elf.dynamic_symbols())


def _check_digest(elf: Elf, section: Section, data: Buffer, offset: int) -> None:
    """``offset``: of the digest in ``data``, all bytes of the file."""
    if section.size != DIGEST_SIZE:
        raise ArtifactError(f"{elf.what}: truncated or corrupted: its digest has {section.size} bytes")
    if bytes(elf.content(section)) != compute_digest(data, offset):
        raise ArtifactError(
            f"{elf.what}: corrupted: its content does not match its SHA-256 digest; copy or build it again"
        )


def _check_checksum(elf: Elf, section: Section, digest: Section) -> None:
    if bytes(elf.content(section)) != compute_checksum(elf.data, section, digest):
        raise ArtifactError(
            f"{elf.what}: corrupted: its content does not match its checksum; copy or build it again"
        )


def compute_checksum(data: Buffer, section: Section, digest: Section) -> bytes:
    """The checksum of ``data``, computed with itself, in ``section``, and with the digest as zeros."""
    view, end = memoryview(data), 0
    pieces: list[Buffer] = []
    for hole in sorted((section, digest), key=lambda one: one.offset):
        pieces += [view[end : hole.offset], bytes(hole.size)]
        end = hole.offset + hole.size
    return checksum(*pieces, view[end:])


def compute_digest(data: Buffer, offset: int) -> bytes:
    """SHA-256 of ``data``, computed with the digest itself, at ``offset``, as zeros."""
    view = memoryview(data)
    digest: Any = hashlib.sha256(view[:offset])
    digest.update(bytes(DIGEST_SIZE))
    digest.update(view[offset + DIGEST_SIZE :])
    return bytes(digest.digest())
