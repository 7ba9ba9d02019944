"""Compiles C sources to objects, and links objects to a shared library."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from farcall._progress import Phase, Report
from farcall._texts import count
from farcall.errors import ToolchainError
from farcall.toolchain._cache import cached, content_key
from farcall.toolchain._compiler import Compiler, find_compiler
from farcall.toolchain._room import room_to
from farcall.toolchain._target import Target

T = TypeVar("T")

# There is no -ffast-math: NaN, infinity and signed zero must mean what ONNX says. The math flags below
# change no value, since no code reads errno or the floating-point exception flags of a kernel. The compiler
# contracts to fused multiply-add only inside one expression, as C11 6.5p8 allows.
C_FLAGS = (
    "-std=c11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=on",
    "-Werror=implicit-function-declaration",  # a guessed declaration breaks 64-bit results
)

# -Bsymbolic: two artifacts in one process each have a `main`, and each must bind to its own.
# --build-id=none: equal inputs must give equal files.
LINK_FLAGS = ("-shared", "-s", "-Wl,-Bsymbolic", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-z,defs")


@dataclass(frozen=True)
class Source:
    """One C file: its name (for messages), its text, and additional flags, which come last.

    ``fixed``: the file does not depend on the model, and so an installation may bring its object.
    """

    name: str
    text: str
    flags: tuple[str, ...] = ()
    fixed: bool = False


def include_dir() -> Path:
    """The folder to pass with ``-I``, so that ``#include <farcall/c_api.h>`` works.

    Raises:
        ToolchainError: the headers are missing, since the installation is broken.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "include", package.parents[1] / "include"):  # in a wheel, in a checkout
        if (folder / "farcall" / "c_api.h").is_file():
            return folder
    raise ToolchainError(f"farcall's headers are not in {package / 'include'}; install farcall again")


def native_dir() -> Path:
    """The folder of the sources of the small server, whose rooms are its subfolders.

    Raises:
        ToolchainError: they are missing, since the installation is broken.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_native", package.parents[1] / "native"):  # in a wheel, in a checkout
        if (folder / "server" / "sources.txt").is_file():
            return folder
    raise ToolchainError(f"the server's sources are not in {package / '_native'}; install farcall again")


def compile_sources(
    compiler: Compiler, target: Target, sources: Sequence[Source], progress: Report | None = None
) -> list[Path]:
    """Compile ``sources`` for ``target``, several at once.

    Those with the longest texts are the first to start: the last ones to end are then short.

    Returns their objects, files in the cache, in order.

    ``progress`` is told about the phase ``compile``.

    Raises:
        ToolchainError: the compiler refused a source; the message has its output.
    """
    headers = _header_key()
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index].text))
    jobs = [functools.partial(_compile, compiler, target, sources[index], headers) for index in order]
    objects = dict(zip(order, run_jobs(jobs, progress), strict=True))
    return [objects[index] for index in range(len(sources))]


def run_jobs(jobs: Sequence[Callable[[], tuple[Path, bool]]], progress: Report | None) -> list[Path]:
    """Run jobs of a compiler, several at once, and return their files, in order.

    After a failure, or an exception of ``progress``, no further job starts.

    Args:
        jobs: each returns its file, and whether the file was in the cache.
        progress: told about the phase ``compile``.
    """
    total, cached = len(jobs), 0
    phase = Phase(progress, "compile", total, "files", f"compiling 1 of {total}")
    results: dict[int, Path] = {}
    with closing(_finished(jobs)) as finished:
        for index, (path, was_there) in finished:
            results[index] = path
            cached += was_there
            done = len(results)
            phase.step(f"compiling {done + 1} of {total}" if done < total else _compiled(total, cached))
    return [results[index] for index in range(total)]


def _compiled(total: int, cached: int) -> str:
    return count(total, "file") + (f", {cached} from the cache" if cached else "")


def _finished(jobs: Sequence[Callable[[], T]]) -> Generator[tuple[int, T], None, None]:
    """The results of jobs with their indices, as they finish."""
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    if workers <= 1:
        yield from ((index, job()) for index, job in enumerate(jobs))
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed  # takes 10 ms, so one source skips it

    with ThreadPoolExecutor(workers) as pool:  # threads are enough, as each only waits for a compiler
        try:
            futures = {pool.submit(job): index for index, job in enumerate(jobs)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _header_key() -> str:
    """A hash of farcall's headers, so that the cache does not return an object built with other headers."""
    files = sorted((include_dir() / "farcall").glob("*.h"))
    return content_key(part for file in files for part in (file.name, file.read_bytes()))


def _compile(compiler: Compiler, target: Target, source: Source, headers: str) -> tuple[Path, bool]:
    """The object, and whether it was there: in the installation, or in the cache."""
    fixed = source.fixed and compiler.plain
    if fixed and (installed := _installed(_fixed_name(target, source, headers))):
        return installed, True
    was_there = True
    flags = _flags(compiler, target, source)
    key = content_key([*compiler.command, compiler.version, *flags, "--", source.name, source.text, headers])

    def make(place: Path) -> None:
        nonlocal was_there
        was_there = False
        _run(compiler, target, source, place)

    return cached(key, ".o", make), was_there


def _flags(compiler: Compiler, target: Target, source: Source) -> list[str]:
    return [*compiler.target_flags(target), *C_FLAGS, *compiler.cautions, *source.flags]


def _run(compiler: Compiler, target: Target, source: Source, place: Path) -> None:
    """Compile one source to the object ``place``, in whose folder the source is written."""
    place.with_name(source.name).write_text(source.text, encoding="utf-8")
    arguments = [*_flags(compiler, target, source), f"-I{include_dir()}", "-c", source.name, "-o", place.name]
    compiler.run(arguments, place.parent, f"compile {source.name} for {target}")


def install_fixed(compiler: Compiler, target: Target, sources: Iterable[Source], folder: Path) -> None:
    """Compile sources that do not depend on a model to objects in ``folder``, which an installation brings.

    ``target`` has no CPU level. Where the flags of a source have none either, a build takes the object for
    every level.
    """
    headers = _header_key()
    folder.mkdir(parents=True, exist_ok=True)

    def install(source: Source) -> tuple[Path, bool]:
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            place = Path(beside) / _fixed_name(target, source, headers)
            _run(compiler, target, source, place)
            return place.replace(folder / place.name), False

    run_jobs([functools.partial(install, source) for source in sources], None)


def _fixed_name(target: Target, source: Source, headers: str) -> str:
    """The name of an object that an installation brings. It changes with all that the object is made of,
    but not with the compiler: its objects fit those of others.
    """
    return content_key([target.triple, source.name, source.text, headers])[:32] + ".o"


def _installed(name: str) -> Path | None:
    """An object of the installation, which may have several folders (an editable one does)."""
    places = (Path(folder) / "_objects" / name for folder in sys.modules["farcall"].__path__)
    return next(filter(Path.is_file, places), None)


def assemble(compiler: Compiler, target: Target, text: str, folder: Path, name: str) -> Path:
    """Assemble ``text`` for ``target`` with ``compiler``, to the object ``name`` in ``folder``.

    The folder also has the ``.incbin`` files of the text.

    The cache does not keep the object: assembling costs milliseconds, and the data would be stored twice.

    Raises:
        ToolchainError: the assembler refused the text.
    """
    source = folder / f"{name}.s"
    source.write_text(text, encoding="utf-8")
    arguments = [*compiler.target_flags(target), "-c", source.name, "-o", f"{name}.o"]
    compiler.run(arguments, folder, f"assemble {source.name} for {target}")
    return folder / f"{name}.o"


def link_shared(
    compiler: Compiler,
    target: Target,
    objects: Iterable[Path],
    output: Path,
    flags: Sequence[str] = (),
    progress: Report | None = None,
    *,
    libraries: Sequence[Path] = (),
) -> None:
    """Link ``objects`` for ``target`` to the shared library ``output``; ``compiler`` gets the ``flags``, too.

    ``libraries`` come last: of several with one soname, a linker reads the first one.

    ``progress`` is told about the phase ``link``.

    Raises:
        ToolchainError: the linker failed, for example on an undefined symbol; the message has its output.
    """
    arguments = [*compiler.link_flags(target), *LINK_FLAGS, *map(str, objects), *flags, "-lm"]
    arguments += map(str, libraries)
    with linking(compiler, target, progress):
        compiler.run([*arguments, "-o", output.name], output.parent, f"link for {target}")


@contextmanager
def linking(compiler: Compiler, target: Target, progress: Report | None) -> Iterator[None]:
    """Report the phase ``link``, in which ziglang also builds a target's libc, the first time."""
    stamp = compiler.libc_stamp(target)
    first = stamp is not None and not stamp.exists()
    once = f"preparing libc for {target.triple}, once"
    phase = Phase(progress, "link", 1, "libraries", once if first else "linking")
    yield
    if stamp is not None and first:
        with suppress(OSError):  # then the next build says it again
            stamp.touch()
    phase.end(f"for {target}")


def compile_shared(
    sources: Sequence[Source], output: Path, target: Target | None = None, flags: Sequence[str] = ()
) -> None:
    """Compile and link ``sources`` to the shared library ``output``, which appears complete or not at all.

    ``target`` is the machine to compile for; None: this one.

    The loader supplies the runtime's functions (``TVMFFIErrorSetRaisedFromCStr``, ...). For kernels that call
    them, pass ``flags=["-Wl,-z,undefs"]``.

    Raises:
        ToolchainError: no compiler was found, or it failed.
        UsageError: a file cannot be written, for example because the disk is full.
    """
    target = target or Target.host()
    compiler = find_compiler(target)
    with room_to(f"make {str(output)!r}"):
        objects = compile_sources(compiler, target, sources)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as folder:
            beside = Path(folder) / output.name
            link_shared(compiler, target, objects, beside, flags)
            beside.replace(output)
