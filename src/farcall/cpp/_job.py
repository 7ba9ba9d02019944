"""A build as data: two jobs with equal data give the same library."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farcall._files import unusable
from farcall.cpp._cuda import cuda_identity
from farcall.errors import UsageError
from farcall.toolchain import Target, compiler_identity, content_key

CPP_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden")
C_FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden")
# Two libraries in one process may define the same symbol; each must bind to its own.
LINK_FLAGS = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,noexecstack")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
# Variables, besides the flags, by which compilers find headers and libraries.
_ENVIRONMENT = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")


@dataclass(frozen=True)
class Unit:
    """One unit to compile: a source text, or a file (then ``text`` is None)."""

    name: str
    language: str  # "c", "c++", "cuda" or "object"
    text: str | None = None
    functions: Mapping[str, str] = field(
        default_factory=dict
    )  # to export from the text, with their docstrings

    def content(self) -> str | bytes:
        """The source text, or the bytes of the file.

        Raises:
            UsageError: the file cannot be read.
        """
        if self.text is not None:
            return self.text
        try:
            return Path(self.name).read_bytes()
        except OSError as error:
            problem = f"cannot read {self.name!r}: {error.strerror}; expected a source file"
            raise unusable(error, problem) from None


@dataclass(frozen=True)
class Flags:
    """The flags that the caller adds."""

    cpp: tuple[str, ...]
    cuda: tuple[str, ...]
    link: tuple[str, ...]
    include: tuple[str, ...]

    @classmethod
    def of(
        cls,
        cpp: Sequence[str] | None,
        cuda: Sequence[str] | None,
        link: Sequence[str] | None,
        include: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None,
    ) -> Flags:
        """Make the flags from the keywords of the public functions; folders become absolute."""
        folders = [include] if isinstance(include, str | os.PathLike) else (include or ())
        absolute = tuple(os.path.abspath(folder) for folder in folders)  # noqa: PTH100 - faster, and every load runs it
        return cls(_words(cpp), _words(cuda), _words(link), absolute)


def _words(flags: Sequence[str] | None) -> tuple[str, ...]:
    return (flags,) if isinstance(flags, str) else tuple(flags or ())


@dataclass(frozen=True)
class Job:
    """A library to build."""

    name: str
    units: tuple[Unit, ...]
    flags: Flags
    cubins: Mapping[str, bytes] = field(default_factory=dict)
    target: Target | None = None  # None: this machine, with the baseline CPU: machines may share a cache

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"name {self.name!r}: expected letters, digits, `_`, `-` and `.`, and no `-` or `.` first"
            )
        if not self.units:
            raise UsageError(f"library {self.name!r} has no sources; give at least one")
        if self.target and "cuda" in self.languages:
            raise UsageError(
                f"target {str(self.target)!r}: nvcc builds for this machine only; leave CUDA out"
            )
        for name in self.cubins:
            if not name.isidentifier():
                raise UsageError(f"embed_cubin: {name!r} cannot be part of a symbol; use an identifier")

    @property
    def languages(self) -> set[str]:
        """The languages of the units."""
        return {unit.language for unit in self.units}

    @property
    def link_flags(self) -> tuple[str, ...]:
        """Flags for the linker. A cross compiler's helpers come with up to a MiB of debug information, which
        would take memory of a board.
        """
        debugs = self.target is None or any(flag.startswith("-g") for flag in self.flags.cpp)
        return LINK_FLAGS if debugs else (*LINK_FLAGS, "-Wl,--strip-debug")

    def key(self) -> str:
        """A hash of every input of the build, except the headers that the sources include."""
        return content_key(self._parts())

    def _parts(self) -> Iterator[str | bytes]:
        yield from ("farcall.cpp 1", self.name, compiler_identity("c++"))
        if self.target:
            yield f"target {self.target}"
        if "c" in self.languages:
            yield compiler_identity("c")
        if "cuda" in self.languages:
            yield cuda_identity()
        yield from (f"{name}={os.environ.get(name, '')}" for name in _ENVIRONMENT)
        for group in (
            CPP_FLAGS,
            C_FLAGS,
            self.link_flags,
            self.flags.cpp,
            self.flags.cuda,
            self.flags.link,
            self.flags.include,
        ):
            yield from group
            yield "--"
        for unit in self.units:
            yield from (unit.language, unit.name, unit.content())
            for function, doc in unit.functions.items():
                yield from (function, doc)
        yield from _flat(self.cubins)


def _flat(mapping: Mapping[str, bytes]) -> Iterable[str | bytes]:
    for name in sorted(mapping):
        yield from (name, mapping[name])


def check_backend(backend: str | None) -> None:
    """Refuse GPU toolkits that farcall does not drive.

    Raises:
        UsageError: ``backend`` is neither None nor ``"cuda"``.
    """
    if backend not in (None, "cuda"):
        raise UsageError(
            f"backend {backend!r}: expected None or 'cuda'; build HIP sources with hipcc and load the library"
        )
