"""Builds the small server, a static program in C, from the sources that the package brings."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from farcall._files import check_folder, write_beside
from farcall._progress import Phase, Report
from farcall.library._static import check_distinct
from farcall.toolchain import (
    Compiler,
    Target,
    content_key,
    include_dir,
    native_dir,
    static_target,
    zig_compiler,
)
from farcall.toolchain._build import linking
from farcall.toolchain._cache import cached
from farcall.toolchain._room import room_to

# Sections that nothing refers to are left out. -fno-sanitize: zig adds traps that need a library.
# Nothing unwinds the stack of a C program: tables for it would be a seventh of the file, in zig's libc, too.
_FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-DFARCALL_BUILDING_CORE",
    "-Os",
    "-g0",
    "-fno-sanitize=undefined",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-w",
)
# The functions of the allocator that native/server/budget.c stands in for.
_ALLOCATOR = ("malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign")
BUDGET = tuple(f"-Wl,--wrap={name}" for name in _ALLOCATOR)
_LINK = ("-static", "-s", "-Wl,--gc-sections", "-Wl,--build-id=none", *BUDGET)
# Without this, up to 64 KiB of the file are a hole between code and data, for pages that no such machine has.
_PAGES = {"arm": ("-Wl,-z,max-page-size=4096",)}
_SHORTER = {static_target("armv7"): Target("thumb-linux-musleabihf")}  # Thumb-2: every ARMv7-A has it
_INCLUDED = re.compile(rb'^#include "([^"]+)"', re.MULTILINE)


def server_sources() -> list[Path]:
    """The C files of the small server."""
    folder = native_dir()
    lines = (folder / "server" / "sources.txt").read_text(encoding="utf-8").splitlines()
    return [folder / line for line in lines if line and not line.startswith("#")]


def build_server(
    target: str | Target | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    sources: Sequence[Path] = (),
    progress: Report | None = None,
) -> Path:
    """Build ``farcall-server``, the server for machines without Python: one static, stripped program.

    The package's sources are compiled by ziglang, once: the program is kept in the cache by the contents of
    its sources. Without ``sources``, the package ``farcall-devices`` (the extra ``devices``) brings it, if it
    was built of the same sources.

    Args:
        target: the machine to build for: a name (``"armv7"``), or a target (``"aarch64-linux-musl"``); None:
            this machine.
        output: where to put the program; None: only in the cache.
        sources: C files, and static libraries (``.a``), that are linked into it. One of the C files may
            define ``farcall_server_setup``, which registers functions for clients (docs/small_server.md).
        progress: told about the phases ``compile`` and ``link``.

    Returns:
        The program: ``output``, or its file in the cache.

    Raises:
        ToolchainError: there is no such target, ziglang is missing, or it refuses a source.
        UsageError: a file cannot be written, or two static libraries have the same name.
    """
    return _build("farcall-server", server_sources(), target, output, sources, progress)


def build_dsp(
    target: str | Target | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    sources: Sequence[Path] = (),
    progress: Report | None = None,
) -> Path:
    """Build ``farcall-dsp``, an emulated DSP that serves sessions by FastRPC's calls (docs/fastrpc.md).

    Takes, returns and raises what :func:`build_server` does.
    """
    return _build("farcall-dsp", dsp_sources(), target, output, sources, progress)


def dsp_sources() -> list[Path]:
    """The C files of an emulated DSP."""
    room = native_dir() / "server"
    server = [file for file in server_sources() if file != room / "main.c"]
    return [*server, *sorted((room / "dsp").glob("*.c"))]


def _build(
    name: str,
    own: Sequence[Path],
    target: str | Target | None,
    output: str | os.PathLike[str] | None,
    sources: Sequence[Path],
    progress: Report | None,
) -> Path:
    wanted = static_target(target)
    if output is not None:
        check_folder(output)
    prebuilt = None if sources else _prebuilt(name, wanted, own)
    if libraries := [Path(file) for file in sources if Path(file).suffix == ".a"]:
        check_distinct(libraries)
    with room_to(f"build {name}"):
        if prebuilt is not None:
            built = _unpacked(prebuilt)
        else:
            files = [*own, *(Path(file).resolve() for file in sources)]
            built = _built(name, zig_compiler(f"{name} for {wanted}"), wanted, files, progress)
    if output is None:
        return built
    write_beside(output, built.read_bytes(), mode=0o755)
    return Path(output)


def prebuilt_name(name: str, target: Target, own: Sequence[Path]) -> str:
    """The file of a program in the package ``farcall-devices``: it tells of which sources it was built."""
    flags = (*_FLAGS, *_PAGES.get(target.arch, ()), *_LINK)
    key = content_key([name, str(_SHORTER.get(target, target)), *flags, *_contents([*own])])
    return f"{name}-{target.arch}-{key[:32]}"


def _prebuilt(name: str, target: Target, own: Sequence[Path]) -> Path | None:
    """The program in the package ``farcall-devices``; None: it is not installed, or of other sources."""
    spec = importlib.util.find_spec("farcall_devices")
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / prebuilt_name(name, target, own)
    return file if file.is_file() else None


def _unpacked(file: Path) -> Path:
    """The program in the cache, since an installer may have dropped the right to execute it."""

    def make(place: Path) -> None:
        shutil.copyfile(file, place)
        place.chmod(0o755)

    return cached(content_key([file.name, file.read_bytes()]), "", make)


def _built(name: str, compiler: Compiler, target: Target, files: list[Path], progress: Report | None) -> Path:
    flags = [*compiler.target_flags(_SHORTER.get(target, target)), *_FLAGS, *_PAGES.get(target.arch, ())]
    was_there = True

    def make(place: Path) -> None:
        nonlocal was_there
        was_there = False
        with linking(compiler, target, progress):
            words = [*flags, *_LINK, f"-I{native_dir()}", f"-I{include_dir()}", *map(str, files)]
            compiler.run([*words, "-o", place.name], place.parent, f"build {name} for {target}")
            place.chmod(0o755)

    key = content_key([*compiler.command, compiler.version, *flags, *_LINK, *_contents(files)])
    program = cached(key, "", make)
    if was_there:
        Phase(progress, "compile", 1, "files", "").end(f"{name} for {target}, from the cache")
    return program


def _contents(files: list[Path]) -> list[bytes | str]:
    """The names and contents of the files, and of the headers that they include."""
    parts: list[bytes | str] = []
    seen: set[Path] = set()
    todo = list(files)
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        data = file.read_bytes()
        parts += [file.name, data]
        for name in _INCLUDED.findall(data):
            beside = (native_dir() / name.decode(), file.parent / name.decode())
            todo += filter(Path.is_file, beside)
    headers = sorted((include_dir() / "farcall").glob("*.h"))
    return [*parts, *(part for header in headers for part in (header.name, header.read_bytes()))]
