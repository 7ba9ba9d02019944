"""Finds a C compiler, and runs it."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farcall._logs import Log
from farcall.errors import ToolchainError
from farcall.toolchain._cache import content_key, user_cache
from farcall.toolchain._target import Target

_MESSAGE_LIMIT = 4000  # characters of a compiler's output in an error: the beginning and the end
_TIMEOUT_S = 600.0

_ARM_VERSION = re.compile(r"armv8(?:\.(\d))?-a")
_LISTING = re.compile(r"^info: available .*\n(?: .*\n)*\n?", re.MULTILINE)  # zig's, before its error


@dataclass(frozen=True)
class Compiler:
    """A C compiler: its command, its family, and its version text."""

    command: tuple[str, ...]
    family: str  # "gcc", "clang" or "zig"
    version: str

    def __str__(self) -> str:
        return f"{shlex.join(self.command)} ({self.version.splitlines()[0]})"

    @property
    def plain(self) -> bool:
        """Whether the command has no flags. With flags, such as a sanitizer's, it compiles all code."""
        return self.family == "zig" or len(self.command) == 1

    def target_flags(self, target: Target) -> list[str]:
        """The flags with which this compiler generates code for ``target``."""
        if self.family == "zig":
            return ["-target", target.triple, *self.cpu_flags(target)]
        flags = [f"--target={target.triple}"] if self.family == "clang" and not target.is_host else []
        return [*flags, *self.cpu_flags(target)]

    def link_flags(self, target: Target) -> list[str]:
        """The flags with which this compiler links for ``target``.

        zig builds its libraries for the CPU that a link names, once for each. All levels share those of the
        baseline; for Hexagon with HVX, zig cannot build them.
        """
        return self.target_flags(target.baseline if self.family == "zig" else target)

    def cpu_flags(self, target: Target) -> list[str]:
        """The flags that choose the CPU level of ``target``; empty if it names none."""
        if not target.cpu:
            return []
        is_level = target.arch == "x86_64" or target.cpu.startswith("armv")
        if self.family != "zig":
            return [f"-march={target.cpu}" if is_level else f"-mcpu={target.cpu}"]
        version = _ARM_VERSION.match(target.cpu)
        if version:  # zig names a CPU and features: armv8.2-a+dotprod is generic+v8_2a+dotprod
            extension = f"+v8_{version[1]}a" if version[1] else ""
            return [f"-mcpu=generic{extension}{target.cpu[version.end() :]}"]
        return [f"-mcpu={target.cpu.replace('-', '_')}"]

    @property
    def cautions(self) -> tuple[str, ...]:
        """Flags that avoid faults of this compiler.

        gcc 12 at -O3 unrolls short inner loops completely before it vectorizes. If the body has conditions,
        it then vectorizes the loop around them wrongly: rows of up to 16 elements got values of others.

        gcc joins two conditions in a row, such as the bounds of a Clip, to one with three ends, for which a
        vectorized loop needs twice the instructions. Without threads of jumps it does not.
        """
        return ("-fdisable-tree-cunrolli", "-fno-thread-jumps") if self.family == "gcc" else ()

    @property
    def flags_for_cold_code(self) -> tuple[str, ...]:
        """Flags, after the others, for code that hardly ever runs: they save compile time.

        zig would link its checks of undefined behaviour with -Og, whose runtime needs thread-local storage.
        """
        return ("-Og",) if self.family == "gcc" else ("-O1",)

    @property
    def flags_for_tables(self) -> tuple[str, ...]:
        """Flags, after the others, for tables and functions of one call each, of which there may be hundreds.

        gcc's -Og takes twice as long for them as -O0.
        """
        return ("-O0",) if self.family == "gcc" else ("-O1",)

    def flags_for_vectors(self, target: Target) -> tuple[str, ...]:
        """Flags, after the others, for code for ``target`` whose loops are written with vector types.

        gcc's -O3 takes 2.5 times as long for them, and gains nothing. The second flag lets it keep a tile of
        a matrix product in registers. The others leave out passes that take a sixth of the rest, and gain
        nothing with AVX2 and AVX-512. Measured for x86-64 alone.
        """
        if self.family == "gcc" and target.arch == "x86_64":
            return "-O1", "-fexpensive-optimizations", "-fno-ivopts", "-fno-tree-dominator-opts"
        return ()

    def libc_stamp(self, target: Target) -> Path | None:
        """A file in zig's cache, which exists if farcall has linked for this target with that cache before.
        None if the compiler brings no libc in source form.
        """
        if self.family != "zig":
            return None
        folder = Path(_environment(self.family)["ZIG_GLOBAL_CACHE_DIR"])
        key = content_key((*self.command, self.version, str(target.baseline)))
        return folder / f"farcall-linked-{key[:32]}"

    def run(self, arguments: Sequence[str], cwd: Path, what: str) -> str:
        """Run the compiler and return its output.

        Args:
            arguments: the arguments of the command.
            cwd: the folder to run in; file names in ``arguments`` are relative to it.
            what: the name of the job, for the error.

        Raises:
            ToolchainError: the compiler failed; the message has its output.
        """
        Log("toolchain").debug("%s: %s", what, shlex.join([*self.command, *arguments]))
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                cwd=cwd,
                env=_environment(self.family),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise ToolchainError(f"{what}: cannot start {self.command[0]!r}: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"{what}: {self} did not finish in {_TIMEOUT_S:g} s") from None
        output = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode:
            output = _LISTING.sub("", output).strip()
            raise ToolchainError(f"{what}: {self} failed with status {done.returncode}:\n{shorten(output)}")
        return output


def shorten(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    """``text``, or its beginning and end if it is longer than ``limit``."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


@dataclass(frozen=True)
class _Language:
    """The places to look for a language's compiler."""

    title: str
    variable: str
    names: tuple[str, ...]
    zig: str


_LANGUAGES = {
    "c": _Language("C", "CC", ("cc", "gcc", "clang"), "cc"),
    "c++": _Language("C++", "CXX", ("c++", "g++", "clang++"), "c++"),
}


def find_compiler(target: Target | None = None, language: str = "c") -> Compiler:
    """Find a C or C++ compiler for ``target`` (default: this machine).

    The search order for C is the variable ``CC``, then ``cc``, ``gcc``, ``clang``, then the compiler of the
    ``ziglang`` package. For C++, it is ``CXX``, ``c++``, ``g++``, ``clang++``, and ``ziglang``. For a target
    other than this machine, the order is the variable, then ``ziglang``, which knows all targets.

    Args:
        target: the machine to generate code for.
        language: ``"c"`` or ``"c++"``.

    Raises:
        ToolchainError: no compiler was found. The message names a package to install.
    """
    target = target or Target.host()
    where = _LANGUAGES[language]
    if chosen := os.environ.get(where.variable, "").strip():
        return _probe_chosen(chosen, where)
    if target.is_host:
        for name in where.names:
            if (path := shutil.which(name)) and (compiler := _probe((path,))):
                return compiler
    if (words := _zig_command(where.zig)) and (compiler := _probe(words)):
        return compiler
    looked = ", ".join((where.variable, *where.names))
    what = f"no {where.title} compiler found (looked for {looked} and ziglang)"
    if not target.is_host:
        what = f"no compiler for {target.triple} found (this machine is {Target.host().triple})"
    raise ToolchainError(f"{what}; run: pip install 'farcall[zig]'")


def zig_compiler(what: str) -> Compiler:
    """The C compiler of the ``ziglang`` package, which builds static programs for every target.

    Args:
        what: the work that needs it, for the error.

    Raises:
        ToolchainError: the package is not installed, or does not start.
    """
    words = _zig_command("cc")
    compiler = _probe(words) if words else None
    if compiler is None:
        raise ToolchainError(f"{what} needs the package ziglang; run: pip install 'farcall[zig]'")
    return compiler


def compiler_identity(language: str) -> str:
    """A text that changes when :func:`find_compiler` would find another compiler of ``language``, here.

    It consists of the file's name, size and time. It starts no process, so a look-up in a cache takes
    microseconds.
    """
    where = _LANGUAGES[language]
    found = tuple(os.environ.get(where.variable, "").split())
    if not found:
        path = next(filter(None, map(shutil.which, where.names)), "")
        found = (path,) if path else _zig_command(where.zig) or ("",)
    try:
        real = os.path.realpath(shutil.which(found[0]) or found[0])
        status = os.stat(real)  # noqa: PTH116 - of a name, twice as fast as a Path's
        return f"{shlex.join(found)} {real} {status.st_size} {status.st_mtime_ns}"
    except OSError:
        return shlex.join(found)


def _probe_chosen(text: str, where: _Language) -> Compiler:
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise ToolchainError(f"environment variable {where.variable} is {text!r}: {error}") from None
    if not (compiler := _probe(command)):
        raise ToolchainError(
            f"environment variable {where.variable} is {text!r}, which does not start or does not support "
            f"--version; set it to a {where.title} compiler, or unset it"
        )
    return compiler


def compiler_of(command: tuple[str, ...]) -> Compiler:
    """The compiler that a command starts.

    Raises:
        ToolchainError: it does not start.
    """
    if not (compiler := _probe(command)):
        raise ToolchainError(f"the compiler {shlex.join(command)} does not start")
    return compiler


@functools.cache
def _probe(command: tuple[str, ...]) -> Compiler | None:
    try:
        done = subprocess.run(
            [*command, "--version"],
            env=_environment("zig"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode or not version:
        return None
    return Compiler(command, _family(command, version), version)


def _family(command: tuple[str, ...], version: str) -> str:
    if command[-1] in ("cc", "c++") and len(command) > 1 and ("zig" in command[-2]):
        return "zig"
    return "clang" if "clang" in version else "gcc"


@functools.cache
def _zig_command(word: str) -> tuple[str, ...] | None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.origin:
        return None
    binary = Path(spec.origin).with_name("zig")  # started directly, it saves the start of a Python
    return (str(binary), word) if os.access(binary, os.X_OK) else (sys.executable, "-m", "ziglang", word)


def _environment(family: str) -> dict[str, str]:
    """The compiler's environment: messages in English, and a folder for zig's own cache.

    The folder is zig's default if it can be written. The cache has files that every link for a target needs,
    and that take seconds to make.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    if family == "zig":
        for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
            environment.setdefault(name, str(user_cache("zig")))
    return environment
