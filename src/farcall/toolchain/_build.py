"""Compiling C sources to objects, and linking objects to a shared library."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from farcall.errors import ToolchainError
from farcall.toolchain._cache import cached, content_key
from farcall.toolchain._compiler import Compiler, find_compiler
from farcall.toolchain._room import room_to
from farcall.toolchain._target import Target

# No -ffast-math: NaN, infinity and signed zero mean what ONNX says. What is switched off here changes no
# value: nobody reads errno or the floating-point exception flags of a kernel. Contraction to fused
# multiply-add happens inside one expression only, as C11 6.5p8 has it.
C_FLAGS = (
    "-std=c11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=on",
    "-Werror=implicit-function-declaration",  # C11 has none, and guessing one breaks 64-bit results
)

# Symbols of the library bind inside it, so that two artifacts in one process, each with a `main`, cannot
# take each other's; and nothing that differs from build to build goes into the file.
LINK_FLAGS = ("-shared", "-s", "-Wl,-Bsymbolic", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-z,defs")


@dataclass(frozen=True)
class Source:
    """One C file: its name (for messages), its text, and flags of its own, which come last."""

    name: str
    text: str
    flags: tuple[str, ...] = ()


def include_dir() -> Path:
    """The folder to pass with ``-I``, so that ``#include <farcall/c_api.h>`` works.

    Raises:
        ToolchainError: the headers are not there (a broken installation).
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "include", package.parents[1] / "include"):  # a wheel, a checkout
        if (folder / "farcall" / "c_api.h").is_file():
            return folder
    raise ToolchainError(f"farcall's headers are not in {package / 'include'}; install farcall again")


def compile_sources(compiler: Compiler, target: Target, sources: Sequence[Source]) -> list[Path]:
    """Compile ``sources``, several at once, and return their objects (files in the cache), in order.

    Raises:
        ToolchainError: the compiler refused one; the message holds its words.
    """
    headers = _header_key()
    workers = min(len(sources), len(os.sched_getaffinity(0)))
    if workers <= 1:
        return [_compile(compiler, target, source, headers) for source in sources]
    from concurrent.futures import ThreadPoolExecutor  # 10 ms, which those need not pay who find all built

    with ThreadPoolExecutor(workers) as pool:  # threads: each only waits for a compiler
        return list(pool.map(lambda source: _compile(compiler, target, source, headers), sources))


def _header_key() -> str:
    """What is in our headers: an object made with other ones must not be taken from the cache."""
    files = sorted((include_dir() / "farcall").glob("*.h"))
    return content_key(part for file in files for part in (file.name, file.read_bytes()))


def _compile(compiler: Compiler, target: Target, source: Source, headers: str) -> Path:
    flags = [*compiler.target_flags(target), *C_FLAGS, *source.flags]
    key = content_key([*compiler.command, compiler.version, *flags, "--", source.name, source.text, headers])

    def make(place: Path) -> None:
        place.with_name(source.name).write_text(source.text, encoding="utf-8")
        arguments = [*flags, f"-I{include_dir()}", "-c", source.name, "-o", place.name]
        compiler.run(arguments, place.parent, f"compile {source.name} for {target}")

    return cached(key, ".o", make)


def assemble(compiler: Compiler, target: Target, text: str, folder: Path, name: str) -> Path:
    """Assemble ``text``, whose ``.incbin`` files are in ``folder``, to the object ``name`` there.

    Not cached: assembling costs milliseconds, and the data would be kept twice.

    Raises:
        ToolchainError: the assembler refused it.
    """
    source = folder / f"{name}.s"
    source.write_text(text, encoding="utf-8")
    arguments = [*compiler.target_flags(target), "-c", source.name, "-o", f"{name}.o"]
    compiler.run(arguments, folder, f"assemble {source.name} for {target}")
    return folder / f"{name}.o"


def link_shared(
    compiler: Compiler, target: Target, objects: Iterable[Path], output: Path, flags: Sequence[str] = ()
) -> None:
    """Link ``objects`` to the shared library ``output``.

    Raises:
        ToolchainError: the linker failed: an undefined symbol, say. The message holds its words.
    """
    arguments = [*compiler.target_flags(target), *LINK_FLAGS, *map(str, objects), *flags, "-lm"]
    compiler.run([*arguments, "-o", output.name], output.parent, f"link for {target}")


def compile_shared(
    sources: Sequence[Source], output: Path, target: Target | None = None, flags: Sequence[str] = ()
) -> None:
    """Compile and link ``sources`` to the shared library ``output``, which appears whole or not at all.

    Kernels that call the runtime (``TVMFFIErrorSetRaisedFromCStr``, ...) get it from whoever loads them: pass
    ``flags=["-Wl,-z,undefs"]``.

    Raises:
        ToolchainError: no compiler was found, or it failed.
        UsageError: a file cannot be written: no space left, say.
    """
    target = target or Target.host()
    compiler = find_compiler(target)
    with room_to(f"make {str(output)!r}"):
        objects = compile_sources(compiler, target, sources)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as folder:
            beside = Path(folder) / output.name
            link_shared(compiler, target, objects, beside, flags)
            beside.replace(output)
