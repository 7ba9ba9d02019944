"""The C sources of all regions: equal code is compiled once, and small sources are compiled together.

A compiler takes some 30 ms to start, and a model may have a thousand regions. Most of them are equal but for
their names and weights, as the layers of a transformer are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from farcall.artifact._fixed import at_level, kernels_source, renaming
from farcall.artifact._levels import FILE as LEVELS_FILE
from farcall.artifact._levels import level_source
from farcall.artifact._objects import renamings
from farcall.artifact._states import place_text, region_function
from farcall.backends.base import Kernels, RegionCode
from farcall.errors import BackendError, ToolchainError
from farcall.toolchain import Compiler, Source, Target, compile_sources

if TYPE_CHECKING:
    from pathlib import Path

    from farcall._progress import Report
    from farcall.backends.base import Code
    from farcall.graph import Region

OWN = (
    "farcall_entry.c",
    "farcall_call.c",
    "farcall_control.c",
    "farcall_late.c",
    "farcall_main.c",
    "farcall_regions.c",
    "farcall_table.c",
    LEVELS_FILE,
)
_PREFIX = "__tvm_ffi_"
_LISTED = 3  # regions that an error names
_TOGETHER = 24_000  # characters of C in one file; larger sources are compiled alone, side by side


def share(regions: Iterable[Region], codes: Mapping[str, Code]) -> dict[str, Code]:
    """The codes: those that are equal but for the names of regions and constants name one function."""
    first: dict[object, tuple[str, RegionCode]] = {}
    result: dict[str, Code] = {}
    for region in regions:
        code = codes[region.name]
        if isinstance(code, RegionCode) and _may_share(code):
            name, model = first.setdefault(_key(region, code), (region.name, code))
            code = replace(code, function=model.function or name, sources=model.sources)
        result[region.name] = code
    return result


def _may_share(code: RegionCode) -> bool:
    return not (code.state or code.objects or code.work) and (code.table or not code.constants)


def _key(region: Region, code: RegionCode) -> object:
    """What equal codes have in common. The name of a region stands in it as an identifier, or begins one."""
    name = re.compile(rf"\b{re.escape(code.function or region.name)}(?=\b|_)")
    texts = tuple(name.sub("\0", text) for item in code.sources.items() for text in item)
    libraries = tuple(library.soname for library in code.libraries)
    flags = (tuple(code.compile_flags), tuple(code.link_flags), libraries)
    return region.backend, texts, tuple(code.preamble), flags, len(code.constants)


def compile_regions(
    compiler: Compiler,
    target: Target,
    regions: Sequence[Region],
    codes: Mapping[str, Code],
    own: Sequence[Source],
    progress: Report | None = None,
) -> list[Path]:
    """Compile the sources of all regions, and farcall's ``own``, and return their objects.

    Raises:
        BackendError: two regions have different sources, or kernels, of the same name.
        ToolchainError: the compiler refused a source; the message has its output.
    """
    levels = target.levels
    units = _units(regions, codes, levels)
    together = list(_together(units))
    if functions := dict.fromkeys(name for unit in units if unit.level for name in unit.renamed.values()):
        own = [*own, level_source(list(functions), levels)]

    kernels = [
        kernels_source(one, replace(target, cpu=level or target.cpu), compiler)
        for one in _kernels(codes.values())
        for level in sorted(
            {unit.level for unit in units if not unit.called.keys().isdisjoint(one.functions)}
        )
    ]

    def sources(of: Iterable[_Unit]) -> list[Source]:
        return [*(unit.source(compiler, target) for unit in of), *kernels, *own]

    try:
        return compile_sources(compiler, target, sources(together), progress)
    except ToolchainError:
        if len(together) == len(units):
            raise
    # Definitions of two regions may contradict each other. Alone, each compiles, or its error names it.
    return compile_sources(compiler, target, sources(units), progress)


@contextmanager
def named_regions(regions: Iterable[Region], codes: Mapping[str, Code]) -> Iterator[None]:
    """Errors of compilers and linkers about the code of regions name them, and their backends.

    Raises:
        ToolchainError: the block's, with these names.
    """
    try:
        yield
    except ToolchainError as error:
        text = str(error)
        words = set(re.findall(r"[\w.-]+", text))
        found = [region for region in regions if not words.isdisjoint(_files(region, codes[region.name]))]
        if not found:
            raise
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        places = ", ".join(map(place_text, found[:_LISTED]))
        raise ToolchainError(f"{places}{more}: {text}") from error.__cause__


def _files(region: Region, code: Code) -> Iterator[str]:
    """The files of a region's code, and its function, as compilers and linkers name them."""
    if isinstance(code, RegionCode):
        yield from (*code.sources, *code.objects)
        yield region_function(region, code)


def compiled_levels(codes: Iterable[Code], target: Target) -> tuple[str, ...]:
    """The CPU levels for which code of an artifact is compiled; empty: for the target alone."""
    any_code = any(isinstance(code, RegionCode) and _has_levels(code) for code in codes)
    return target.levels if any_code else ()


def _has_levels(code: RegionCode) -> bool:
    return code.levels and not (code.state or code.objects)


def _kernels(codes: Iterable[Code]) -> list[Kernels]:
    """All kernels, once."""
    found: dict[str, Kernels] = {}
    for code in codes:
        for one in code.kernels if isinstance(code, RegionCode) else ():
            if found.setdefault(one.name, one) != one:
                raise BackendError(f"two regions have different kernels `{one.name}`; give them another name")
    return list(found.values())


@dataclass
class _Unit:
    """What is compiled as one file."""

    name: str
    backend: str
    flags: tuple[str, ...]
    preamble: dict[str, None]
    texts: list[str]
    renamed: dict[str, str] = field(default_factory=dict)  # functions without their prefix -> new names
    called: dict[str, None] = field(default_factory=dict)  # functions of kernels
    level: str = ""  # of the CPU; empty: the target's

    def source(self, compiler: Compiler, target: Target) -> Source:
        text = "\n".join([*self.preamble, *self.texts])
        kernels = renaming(self.called, self.level or target.cpu)
        if not self.level:
            names = [f"-D{_PREFIX}{name}={new}" for name, new in self.renamed.items()]
            return Source(self.name, text, (*self.flags, *names, *kernels))
        names = [f"-D{_PREFIX}{name}={at_level(new, self.level)}" for name, new in self.renamed.items()]
        cpu = compiler.cpu_flags(replace(target, cpu=self.level))
        return Source(f"{self.level}.{self.name}", text, (*cpu, *self.flags, *names, *kernels))

    @property
    def size(self) -> int:
        return sum(map(len, self.texts))


def _units(regions: Iterable[Region], codes: Mapping[str, Code], levels: Sequence[str]) -> list[_Unit]:
    """Each source once, or once for each level."""
    owners: dict[str, Region] = {}
    units = []
    done: set[str] = set()
    for region in regions:
        code = codes[region.name]
        if not isinstance(code, RegionCode) or code.function in done:
            continue
        done.add(code.function or region.name)
        renamed, own = renamings(region, code), code.function or region.name
        chosen = levels if _has_levels(code) else ()
        if chosen and code.work:  # its counters are those of the code that runs
            renamed[f"{own}_steps"] = f"{_PREFIX}{own}_steps"
        for name, text in code.sources.items():
            if name in owners or name in OWN:
                other = owners[name].name if name in owners else "main"
                raise BackendError(
                    f"backend `{region.backend}`: regions `{other}` and `{region.name}` both have a source "
                    f"file {name!r}; put the region's name into it"
                )
            owners[name] = region
            called = dict.fromkeys(name for one in code.kernels for name in one.functions)
            for level in chosen or ("",):
                unit = _Unit(
                    name, region.backend, tuple(code.compile_flags), dict.fromkeys(code.preamble), [text],
                    dict(renamed), dict(called), level,
                )  # fmt: skip
                units.append(unit)
    return units


def _together(units: Iterable[_Unit]) -> Iterable[_Unit]:
    """Units of one backend with a preamble and equal flags, joined until they are large."""
    open_units: dict[object, _Unit] = {}
    for unit in units:
        key = unit.backend, unit.flags, unit.level
        into = open_units.get(key)
        if not unit.preamble:
            yield unit
        elif into is None or into.size + unit.size > _TOGETHER:
            if into is not None:
                yield into
            open_units[key] = replace(
                unit,
                preamble=dict(unit.preamble),
                texts=list(unit.texts),
                renamed=dict(unit.renamed),
                called=dict(unit.called),
            )
        else:
            into.preamble |= unit.preamble
            into.texts += unit.texts
            into.renamed |= unit.renamed
            into.called |= unit.called
    yield from open_units.values()
