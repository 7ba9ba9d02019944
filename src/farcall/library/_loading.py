"""Loads libraries. It checks everything that the file shows before any of its code runs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from mmap import MAP_POPULATE, MAP_SHARED, PROT_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from farcall._core import get_global_func, load_library, load_module_from_bytes, load_plain
from farcall.errors import ArtifactError, FarcallError, MissingFileError, UsageError
from farcall.library import _far as far
from farcall.library._archive import members_of
from farcall.library._attaching import signatures_of
from farcall.library._blob import Blob, is_frame
from farcall.library._elf import Buffer, Elf, Header, parse_header, parse_library
from farcall.library._libraries import load_libraries
from farcall.library._manifest import Manifest, may_have_manifest, read_manifest, read_member_manifest
from farcall.library._places import using
from farcall.toolchain._target import Target, host_cpu_flags, host_triple, missing_features

if TYPE_CHECKING:
    from farcall._core import Module

_LOADER = "ffi.Module.load_from_bytes."


def load_module(path: str | os.PathLike[str], devices: Mapping[str, Any] | None = None) -> Module:
    """Load an artifact, a plain kernel library, or a module that was saved, into this process.

    An artifact must be complete, of a format that this farcall reads, and built for this machine. Its
    functions get their Signatures. A plain library, which has no manifest, must be an ELF library for this
    machine. Any other file goes to the loader of its extension (:func:`farcall.register_loader`), or of the
    kind that its frame names (:func:`farcall.module_kind`).

    Args:
        path: the path of the file.
        devices: where the devices are that regions of the backend ``remote`` are computed on: their names,
            or URLs, and for each a Session or a URL. A name that is a URL need not be given.

    Returns:
        The module; ``module["main"]`` is the model of an artifact.

    Raises:
        MissingFileError: there is no such file.
        UsageError: the file cannot be read.
        ArtifactError: the file cannot run here; the message gives the reason.
        ConnectError: a device cannot be reached.
    """
    with using(devices):
        return _load_module(path)


def _load_module(path: str | os.PathLike[str]) -> Module:
    with _linking(path):
        if (module := load_plain(path)) is not None:
            return module
    if _has_own_loader(path):
        with _named(path):
            return load_library(path)
    with _open(path) as file:
        data = _content(file)
        if is_frame(data):
            with _named(path):
                return load_module_from_bytes(Blob.parse(frame := bytes(data)).kind, frame)
        manifest = None
        if may_have_manifest(data):
            elf, manifest = examine(memoryview(data), str(path), quickly=True)
            check_machine(elf.header, manifest, elf.what)
            if manifest is not None:
                load_libraries(manifest, elf)
        else:
            check_machine(parse_library(memoryview(data), str(path)), None, str(path))
        module = _load(Path(path), file, manifest)
    for name, signature in signatures_of(manifest).items():
        try:
            module[name].signature = signature
        except AttributeError:
            raise ArtifactError(
                f"{path}: its manifest names a function `{name}` that it does not export; build it again"
            ) from None
    return module


def inspect(path: str | os.PathLike[str]) -> Manifest:
    """The manifest of an artifact for any target. The file is read and checked, but never loaded.

    Args:
        path: the path of the file.

    Raises:
        MissingFileError: there is no such file.
        UsageError: the file cannot be read.
        ArtifactError: the file is damaged, newer than this farcall, or not an artifact.
    """
    with _open(path) as file:
        data = file.read()
    static = data.startswith(b"!<arch>")
    _, manifest = (examine_static if static else examine)(data, str(path))
    if manifest is None:
        use = "link it into a program" if static else "load_module can load it"
        raise ArtifactError(f"{path}: a library without a manifest: it is no artifact of a model; {use}")
    return manifest


def examine(data: Buffer, what: str, *, quickly: bool = False) -> tuple[Elf, Manifest | None]:
    """Read the headers of a library and, if farcall built it, its manifest.

    ``quickly``: an artifact with a checksum is checked by that, and not by its digest.

    Raises:
        ArtifactError: the bytes are not a complete shared library, or do not match their digest.
    """
    parse_library(data, what)
    elf = Elf(data, what)
    return elf, read_manifest(elf, quickly=quickly)


def examine_static(data: bytes, what: str) -> tuple[Elf, Manifest | None]:
    """The same of a static library: the headers of one of its objects, and its manifest.

    Raises:
        ArtifactError: the bytes are no such library, are not complete, or do not match their digest.
    """
    elf = None
    for offset, member in members_of(data, what):
        elf = Elf(member, what)
        if (manifest := read_member_manifest(elf, data, offset)) is not None:
            return elf, manifest
    if elf is None:
        raise ArtifactError(f"{what}: a static library without objects; build it again")
    return elf, None


def _has_own_loader(path: str | os.PathLike[str]) -> bool:
    """Whether :func:`farcall.register_loader` registered a loader for this file extension."""
    ending = os.path.splitext(path)[1][1:]  # noqa: PTH122 - the rest of the name is not needed
    if not ending or ending == "so":
        return False
    return get_global_func(f"ffi.Module.load_from_file.{ending}", allow_missing=True) is not None


def check_machine(header: Header, manifest: Manifest | None, what: str) -> None:
    """Refuse a library that this process cannot run.

    Args:
        header: the ELF header of the library.
        manifest: its manifest, if it is an artifact.
        what: the name of the file in errors.

    Raises:
        ArtifactError: the library is for another architecture, C library or CPU level; the message names
            both.
    """
    here = own_header()
    there = manifest.target.triple if manifest else str(header)
    if (header.bits, header.big_endian, header.machine) != (here.bits, here.big_endian, here.machine):
        raise ArtifactError(
            f"{what}: built for {there}, this machine is {here.architecture}; "
            f"build it with target={host_triple()!r}, or load it there"
        )
    if manifest is None:
        return
    target = Target(manifest.target.triple, manifest.target.cpu)
    if target.triple.split("-")[1:] != host_triple().split("-")[1:]:
        raise ArtifactError(
            f"{what}: built for {target.triple}, this process runs on {host_triple()}; "
            f"build it with target={host_triple()!r}"
        )
    flags = host_cpu_flags()
    if flags and (missing := missing_features(target.cpu, flags)):
        raise ArtifactError(
            f"{what}: built for CPUs of level {target.cpu}, this CPU lacks {', '.join(sorted(missing))}; "
            f"build it with target={target.triple!r}"
        )


@cache
def own_header() -> Header:
    """The ELF header of this process's own program, which its libraries must match."""
    for program in ("/proc/self/exe", sys.executable):
        try:
            with Path(program).open("rb") as file:
                return parse_header(file.read(64), program)
        except (OSError, ArtifactError):
            continue
    raise UsageError("cannot tell this machine's architecture: /proc is not there; mount it")


def _content(file: BinaryIO) -> bytes | mmap:
    """The bytes of ``file``, mapped: an artifact's constants are checked without a copy of them in memory."""
    try:
        return mmap(file.fileno(), 0, flags=MAP_SHARED | MAP_POPULATE, prot=PROT_READ)
    except (OSError, ValueError):  # nothing in it, or no file that can be mapped
        return file.read()


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except FileNotFoundError:
        raise MissingFileError(
            f"no such file: {str(path)!r}; build an artifact with `farcall build`"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}; expected a shared library") from None


def _load(path: Path, file: BinaryIO, manifest: Manifest | None) -> Module:
    """Call dlopen on the open file ``file``, which was checked.

    A plain library is loaded by its own name, since it may look for others beside itself ($ORIGIN).
    """
    private: AbstractContextManager[Path]
    if manifest is None:
        private = nullcontext(path.absolute())
    elif any(module.kind == far.KIND for module in manifest.modules):
        private = _own_copy(path, file)
    else:
        private = _own_name(path, file)
    with private as name, _linking(path, manifest):
        return load_library(str(name), str(path))


@contextmanager
def _named(path: str | os.PathLike[str], manifest: Manifest | None = None) -> Iterator[None]:
    """The core knows a module by its kind only: its errors get the names of the file and of the regions.

    Loaders, and functions that take the constants of a region, may raise anything: of an artifact, that is an
    ArtifactError.
    """
    try:
        yield
    except ArtifactError as error:
        place = _place(error)
        text = f"{place}: {error}" if place.startswith("region ") else str(error)
        raise ArtifactError(f"{path}: {text}{_about(text, manifest)}") from error.__cause__
    except Exception as error:
        if manifest is None or isinstance(error, (FarcallError, MemoryError)):
            raise
        raise ArtifactError(f"{path}: {_foreign(error, manifest)}") from error


def _foreign(error: Exception, manifest: Manifest) -> str:
    """An error of a package's code: where it is from, which module it is about, and the cure."""
    place = _place(error)
    text = f"{place}: " * bool(place) + f"{type(error).__name__}: {error}"
    about = _about(text, manifest)
    cure = "see that what it needs is there, or build it again"
    if about:
        cure = "install the version of the backend's package that made it, or build it again"
    return f"{text}{about}; {cure}"


def _about(text: str, manifest: Manifest | None) -> str:
    """What an error does not say of the modules that it names by their kind, or by a region."""
    found = ""
    by_kind: dict[str, list[str]] = {}
    for info in manifest.modules if manifest else ():
        by_kind.setdefault(info.kind, []).extend(info.regions)
    for kind, names in by_kind.items():
        regions = f"computes the regions {', '.join(sorted(names))}"
        if f"kind `{kind}`" in text:
            found += f" (it {regions})"
        elif f"{_LOADER}{kind}`" in text or any(f"region `{name}`" in text for name in names):
            found += f" (a module of kind `{kind}` {regions})"
    return found


def _place(error: Exception) -> str:
    """The loader or the region in which an exception was raised, which the core noted in its traceback."""
    trace = error.__traceback__
    names = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return next((name[1:-1] for name in names if name.startswith(("<region `", "<the loader `"))), "")


@contextmanager
def _linking(path: str | os.PathLike[str], manifest: Manifest | None = None) -> Iterator[None]:
    with _named(path, manifest):
        try:
            yield
        except OSError as error:
            raise ArtifactError(f"the dynamic linker refuses it: {error}") from error


@contextmanager
def _own_copy(path: Path, file: BinaryIO) -> Iterator[Path]:
    """A copy of the open file.

    The dynamic linker loads a file once. But a library whose regions are computed elsewhere keeps their
    sessions, and each load of it may name others.
    """
    with tempfile.TemporaryDirectory(prefix="farcall-load-") as folder:
        copy = Path(folder, path.name)
        file.seek(0)
        with copy.open("wb") as target:
            shutil.copyfileobj(file, target)
        yield copy


@contextmanager
def _own_name(path: Path, file: BinaryIO) -> Iterator[Path]:
    """A new name for the open file.

    The dynamic linker identifies libraries by name. For a name that it knows, it returns the library that
    it has loaded, even if the file was built again. And it opens the file by name, which may meanwhile be
    another file.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="farcall-load-"))
    except OSError:  # no folder is writable
        yield path.absolute()
        return
    try:
        name = folder / path.name
        name.symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        yield name if name.exists() else path.absolute()  # /proc may be missing
    finally:
        shutil.rmtree(folder, ignore_errors=True)
