"""Builds one library from a plan: generates code, compiles, links, checks, and writes the digest."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from farcall import __version__
from farcall._files import mapped
from farcall._logs import Log
from farcall._progress import Report
from farcall._texts import count
from farcall.artifact._artifact import Artifact
from farcall.artifact._constants import Constants, data_assembly
from farcall.artifact._data_only import DataOnly, all_graphs, data_only
from farcall.artifact._entry import (
    LATE_BYTES,
    control_source,
    has_late,
    late_source,
    main_source,
    regions_source,
)
from farcall.artifact._fixed import fixed_sources
from farcall.artifact._generate import generate
from farcall.artifact._libraries import Libraries, check_needs
from farcall.artifact._link import link_with_constants, seal
from farcall.artifact._modules import check_functions, embedded, loader_symbol, loaders, module_infos
from farcall.artifact._objects import Objects, renamings
from farcall.artifact._region_entry import RegionEntry
from farcall.artifact._sources import compile_regions, compiled_levels, named_regions, share
from farcall.artifact._states import constant_names
from farcall.backends._ctext import stored
from farcall.backends.base import RegionCode, RegionModule
from farcall.errors import BackendError, ToolchainError, UsageError
from farcall.graph._why import interned, replaced
from farcall.graph.dims import text
from farcall.library._elf import MACHINES, Elf
from farcall.library._image import check_image
from farcall.library._manifest import (
    FORMAT,
    RUNTIME_SYMBOL,
    AnswersInfo,
    ConstantsInfo,
    ExpansionInfo,
    FunctionInfo,
    LibraryInfo,
    Manifest,
    MatchInfo,
    MemoryInfo,
    RegionInfo,
    StepInfo,
    TargetInfo,
    encode,
)
from farcall.library._static import Contents, check_name, header, identifier, static_library, table_source
from farcall.toolchain import (
    Compiler,
    Source,
    Target,
    assemble,
    find_compiler,
)
from farcall.toolchain._room import room_to

if TYPE_CHECKING:
    from farcall.artifact._plan import Plan
    from farcall.backends.base import Code, Work
    from farcall.graph import Match, Region
    from farcall.graph.dims import Dim

Link: TypeAlias = Literal["shared", "static"]

_PREFIX = "__tvm_ffi_"


def build(
    plan: Plan,
    target: Target,
    link: Link = "shared",
    progress: Report | None = None,
    name: str | None = None,
    late_bytes: int | None = None,
    profile: bool = False,
) -> Artifact:
    """Build the artifact of ``plan`` for ``target``. The same plan and tools give the same bytes.

    ``link``: ``shared`` for a library that a loader loads, ``static`` for one that is linked into a program,
    in which its names begin with ``name`` (None: the model's name). ``late_bytes`` bounds what a call may
    allocate for tensors whose sizes depend on the data. ``profile``: regions count the time of their steps.

    ``progress`` is told about the phases ``generate``, ``compile`` and ``link``.

    Raises:
        ToolchainError: there is no compiler for the target, or the compiler rejected the code.
        BackendError: the code that a backend generated breaks its contract.
        ModelError: a size cannot be computed from the inputs before the model runs.
        UsageError: a temporary file cannot be written, for example because no space is left.
    """
    if link not in get_args(Link):
        raise UsageError(f"link={link!r}: expected {' or '.join(map(repr, get_args(Link)))}")
    if name is not None and link != "static":
        raise UsageError(f'name={name!r}: names a static library; build with link="static", or leave it out')
    limit = LATE_BYTES if late_bytes is None else late_bytes
    if not 0 <= limit < 1 << 63:
        raise UsageError(f"late_bytes={late_bytes!r}: expected a number of bytes, from 0 on")
    if profile and link == "static":
        raise UsageError('profile=True: a static library has no profile; build with link="shared"')
    own = identifier(plan.model.name) if name is None else check_name(name)
    static = own if link == "static" else None
    with room_to(f"build {plan.model.name!r}"):
        return _build(plan, target, static, progress, limit, profile)


def _build(
    plan: Plan,
    target: Target,
    static: str | None,
    progress: Report | None,
    late_bytes: int,
    profile: bool,
) -> Artifact:
    generated = generate(plan, target, progress, profile=profile)
    check_functions(plan.regions, generated)
    means = find_compiler(target) if static is not None else _means(plan, target, generated)
    if isinstance(means, DataOnly):
        return _build_data_only(plan, target, generated, means)
    compiler, codes = means, share(plan.regions, generated)
    constants = _constants(plan.regions, codes, target)
    outputs = constants.add_outputs(plan.partition)
    libraries = Libraries(plan.regions, codes, target)
    main = main_source(plan.partition, codes, outputs, late_bytes)
    own = [
        *fixed_sources(compiler),
        Source("farcall_main.c", main.text, ("-O2",)),
        Source("farcall_regions.c", regions_source(plan.partition, codes), compiler.flags_for_tables),
    ]
    if has_late(plan.partition, codes):
        own.append(Source("farcall_late.c", late_source(), ("-O1",)))
    if any(plan.partition.bodies()):
        own.append(Source("farcall_control.c", control_source(), ("-O1",)))
    brought = loaders(plan.regions, codes)
    own += [Source(f"{loader_symbol(kind)}.c", text) for kind, (_, text) in brought.items()]
    tools = {"compiler": compiler.version.splitlines()[0]}
    totals = ConstantsInfo(*constants.totals())
    memory = MemoryInfo(*map(_plain, main.memory))
    manifest = _manifest(plan, target, tools, totals, codes, libraries.infos, memory)

    table = _contents(static, manifest) if static else None
    if table:
        _refuse_in_static(plan.regions, codes)
        own.append(table_source(table))

    with tempfile.TemporaryDirectory(prefix="farcall-build-") as name, named_regions(plan.regions, codes):
        folder = Path(name)
        objects = compile_regions(compiler, target, plan.regions, codes, own, progress)
        given = Objects(folder, target)
        for region in plan.regions:
            objects += given.add(region, codes[region.name])
        flags = _check_objects(plan.regions, codes, objects)
        (folder / "manifest.json").write_bytes(encode(manifest))
        modules = embedded(plan.regions, codes, plan.backends)
        (folder / "modules.bin").write_bytes(modules)
        (folder / "libraries.bin").write_bytes(libraries.data)
        data = partial(data_assembly, constants, modules=len(modules), libraries=bool(libraries.data))
        library = folder / "library"
        if table:
            constants.write(folder / "constants.bin")
            objects.append(assemble(compiler, target, data(in_memory=True), folder, "farcall_data"))
            library.write_bytes(static_library(table.name, objects, target))
            artifact = Artifact.temporary(f"{table.name}.a", manifest, header(table))
        else:
            others = [*map(str, given.libraries), *flags]
            stubs = libraries.stubs(compiler, folder)
            link_with_constants(
                compiler, target, objects, constants, data, library, others, progress, libraries=stubs
            )
            _check_library(library, plan.regions, brought, target, compiler)
            seal(library)
            artifact = Artifact.temporary(f"{_safe(plan.model.name)}.so", manifest)
        artifact.adopt(library)
    Log("build").info("built %s for %s: %s", plan.model.name, target, count(len(codes), "region"))
    return artifact


def _means(plan: Plan, target: Target, codes: Mapping[str, Code]) -> Compiler | DataOnly:
    """What makes an artifact: a compiler. Graphs need none; other modules do without, if there is none.

    What a compiler makes runs under other runtimes, too.
    """
    if all_graphs(codes):
        content = data_only(plan.partition, codes, target, plan.backends)
        if isinstance(content, DataOnly):
            return content
    try:
        return find_compiler(target)
    except ToolchainError as error:
        content = data_only(plan.partition, codes, target, plan.backends)
        if isinstance(content, DataOnly):
            return content
        because = f"; all regions are modules, which need none, but `main` needs one: {content}"
        raise ToolchainError(f"{error.args[0]}{because if content else ''}") from None


def _build_data_only(plan: Plan, target: Target, codes: Mapping[str, Code], content: DataOnly) -> Artifact:
    """An artifact without code, which needs no compiler."""
    manifest = _manifest(plan, target, {}, content.constants, codes)
    with tempfile.TemporaryDirectory(prefix="farcall-build-") as name:
        library = Path(name) / "library"
        library.write_bytes(content.write(encode(manifest)))
        seal(library)
        artifact = Artifact.temporary(f"{_safe(plan.model.name)}.so", manifest)
        artifact.adopt(library)
    Log("build").info("built %s for %s without a compiler", plan.model.name, target)
    return artifact


def _contents(name: str, manifest: Manifest) -> Contents:
    """The table of a model's static library."""
    return Contents(
        name,
        f"{manifest.target.triple}:{manifest.target.cpu}".rstrip(":"),
        manifest.producer,
        {function: str(info.signature) for function, info in manifest.functions.items()},
        [*manifest.functions, *(region.name for region in manifest.regions)],
        len(encode(manifest)),
    )


def _constants(regions: Iterable[Region], codes: Mapping[str, Code], target: Target) -> Constants:
    constants = Constants(target.big_endian)
    for region in regions:
        code = codes[region.name]
        named = code.constants
        if isinstance(code, RegionModule):
            data = map(stored, code.constants.values())
            named = dict(zip(constant_names(region, code), data, strict=True))
        constants.add_region(region.name, named)
    return constants


def _check_objects(
    regions: Iterable[Region], codes: Mapping[str, Code], objects: Iterable[Path]
) -> list[str]:
    """Check that the objects define the functions of each region, and return the flags to link with."""
    symbols = {symbol for path in objects for symbol in Elf(path.read_bytes(), path.name).object_symbols()}
    defined = {symbol.name for symbol in symbols if symbol.defined}
    flags: dict[str, None] = {}
    for region in regions:
        code = codes[region.name]
        if isinstance(code, RegionModule):
            continue
        flags.update(dict.fromkeys(code.link_flags))
        for name, new in renamings(region, code).items():
            if new not in defined:
                raise _missing(region, name, defined)
    if any(symbol.name.startswith("TVMFFI") and not symbol.defined and not symbol.weak for symbol in symbols):
        flags["-Wl,-z,undefs"] = None  # the runtime that loads the library supplies them
    return list(flags)


def _missing(region: Region, name: str, defined: Iterable[str]) -> BackendError:
    near = sorted(one for one in defined if region.name in one and not one.endswith(f"_ffi_{name}"))
    others = " but " + ", ".join(near) if near else ""
    return BackendError(
        f"backend `{region.backend}`: its code for region `{region.name}` does not define "
        f"`{_PREFIX}{name}`{others}; begin the function with FARCALL_KERNEL({name})"
    )


def _refuse_in_static(regions: Iterable[Region], codes: Mapping[str, Code]) -> None:
    for region in regions:
        code, where = codes[region.name], f"backend `{region.backend}`: the code of region `{region.name}`"
        cure = 'take another backend for it, or build with link="shared"'
        if isinstance(code, RegionModule):
            raise BackendError(
                f"{where} is a module of kind `{code.kind}`, which a static library cannot load; {cure}"
            )
        if code.libraries:
            names = ", ".join(f"`{library.soname}`" for library in code.libraries)
            raise BackendError(f"{where} needs {names}, which a static library cannot load; {cure}")
        if flags := [flag for flag in code.link_flags if flag != "-lm"]:
            raise BackendError(
                f"{where} is linked with {' '.join(flags)}, which a static library cannot hold; {cure}"
            )


def _check_library(
    library: Path,
    regions: Iterable[Region],
    brought: Mapping[str, tuple[Region, str]],
    target: Target,
    compiler: Compiler,
) -> None:
    """Check the machine and the exported symbols now, so that a bad library fails to build, not to load."""
    elf = Elf(mapped(library), "library")
    made = elf.header.architecture
    if target.arch in {*MACHINES.values(), "riscv32", "riscv64"} and made != target.arch:
        raise ToolchainError(
            f"{compiler} makes code for {made}, not for {target}; "
            "set CC to a compiler for that target, or unset it to take ziglang's"
        )
    check_image(elf.data, elf.what, target)
    check_needs(elf)
    exported = {symbol.name for symbol in elf.dynamic_symbols() if symbol.defined}
    for region in regions:
        if _PREFIX + region.name not in exported:
            raise BackendError(
                f"backend `{region.backend}`: the linked library does not export `{_PREFIX}{region.name}`; "
                "look at the link flags"
            )
    for kind, (region, _) in brought.items():
        if loader_symbol(kind) not in exported:
            raise BackendError(
                f"backend `{region.backend}`: the loader that its region `{region.name}` brings does not "
                f"export `{loader_symbol(kind)}`; begin its function with FARCALL_MODULE_LOADER(...)"
            )
    for name in (_PREFIX + "main", RUNTIME_SYMBOL):
        if name not in exported:
            raise BackendError(f"the linked library does not export `{name}`; look at the link flags")


def _manifest(
    plan: Plan,
    target: Target,
    tools: Mapping[str, str],
    constants: ConstantsInfo,
    codes: Mapping[str, Code],
    libraries: Iterable[LibraryInfo] = (),
    memory: MemoryInfo | None = None,
) -> Manifest:
    used = dict.fromkeys(region.backend for region in plan.regions)
    inside = {region.name: body.name for body in plan.partition.bodies() for region in body.partition.regions}
    return Manifest(
        format=FORMAT,
        producer=f"farcall {__version__}",
        target=TargetInfo(
            target.triple, target.cpu, compiled_levels(codes.values(), target) or msgspec.UNSET
        ),
        backends=tuple(name for name in plan.backends if name in used),
        functions={"main": FunctionInfo(plan.signature, f"The model {plan.model.name}.")},
        regions=tuple(
            RegionInfo(
                region.name,
                region.backend,
                len(region.nodes),
                dict(Counter(node.op_type for node in region.nodes)),
                RegionEntry(region, codes[region.name], {}).signature,
                inside.get(region.name, ""),
                _steps(codes[region.name]),
                tuple(map(_match, region.matches)),
            )
            for region in plan.regions
        ),
        modules=module_infos(plan.regions, codes),
        libraries=tuple(libraries),
        constants=constants,
        answers=_answers(plan),
        model=plan.model,
        versions={
            "farcall": __version__,
            "onnx": metadata.version("onnx"),
            "onnx-ir": metadata.version("onnx-ir"),
            **tools,
        },
        diagram=msgspec.Raw(msgspec.json.encode(plan.diagram().brief(), order="deterministic")),
        memory=memory,
    )


def _match(match: Match) -> MatchInfo:
    operators = tuple(node.op_type for node in match.nodes)
    names = tuple(node.name or "" for node in match.nodes)
    return MatchInfo(names, operators, "" if operators == (match.pattern,) else match.pattern)


def _answers(plan: Plan) -> AnswersInfo:
    return AnswersInfo(
        *interned(plan.partition.all_answers, plan.partition.all_expansions.values()),
        tuple(plan.partition.colors),
        {one.node: ExpansionInfo(one.operator, one.others, one.origin) for one in replaced(plan.partition)},
    )


def _steps(code: Code) -> tuple[StepInfo, ...] | msgspec.UnsetType:
    if not isinstance(code, RegionCode) or not code.work:
        return msgspec.UNSET
    return tuple(map(_step, code.work))


def _step(work: Work) -> StepInfo:
    choice = work.choice
    return StepInfo(
        tuple(work.nodes), work.operator, _plain(work.operations), _plain(work.bytes),
        choice.problem if choice else "", choice.way if choice else "",
    )  # fmt: skip


def _plain(dim: Dim) -> int | str:
    return text([dim])[0]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:80].lstrip(".") or "model"
