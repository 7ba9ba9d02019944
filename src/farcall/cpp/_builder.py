"""Builds a job: finds its library in the folder, or compiles it in a temporary folder and renames it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from farcall._files import write_beside
from farcall._progress import Report
from farcall.cpp._cuda import cuda_compiler, cuda_flags
from farcall.cpp._job import C_FLAGS, CPP_FLAGS, Job, Unit
from farcall.cpp._sources import exports, undeclared
from farcall.cpp._stamp import file_digest, find_built, read_headers, write_stamp
from farcall.errors import ToolchainError, UsageError
from farcall.library._image import check_image
from farcall.toolchain import Compiler, Target, assemble, cache_folder, find_compiler, include_dir
from farcall.toolchain._build import linking, run_jobs
from farcall.toolchain._room import room_to

# Included in sources that are texts: kernel authors often forget the headers of std::exp and std::sort.
_INCLUDED = ("farcall/kernel.hpp", "cmath", "algorithm")


def build_job(
    job: Job,
    build_directory: str | os.PathLike[str] | None,
    output: str | None = None,
    progress: Report | None = None,
    *,
    static: bool = False,
) -> str:
    """The path of the library of ``job``, which is built only if it does not exist yet.

    Args:
        job: the job to build.
        build_directory: the folder to build in; None: a folder in farcall's cache.
        output: a second name for the file in that folder; with ``.o``, an object file.
        static: build a static library, with a header beside it.
        progress: told about the phases ``compile`` and ``link``; not called if the library exists.

    Raises:
        ToolchainError: a compiler is missing or refused a source.
        UsageError: the folder cannot be written, or ``output`` is not a file name.
    """
    suffix = _suffix(output, static)
    folder = Path(build_directory).absolute() if build_directory else cache_folder() / "cpp" / job.name
    key = job.key()
    stamp = folder / f"{job.name}-{key[:32]}{suffix}.json"
    if not (built := find_built(stamp)) or (static and not built.with_suffix(".h").exists()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None
        with room_to(f"build {job.name!r}"):
            built = _Builder(job, folder, key, progress).build(stamp, suffix)
    if not output:
        return str(built)
    if static:
        write_beside((folder / output).with_suffix(".h"), built.with_suffix(".h").read_bytes())
    write_beside(folder / output, built.read_bytes(), 0o644 if static else 0o755)
    return str(folder / output)


def _suffix(output: str | None, static: bool) -> str:
    if output is None:
        return ".a" if static else ".so"
    path, expected = Path(output), (".a",) if static else (".so", ".o")
    if path.name != output or path.suffix not in expected:
        raise UsageError(f"output {output!r}: expected a file name that ends in {' or '.join(expected)}")
    return path.suffix


class _Builder:
    """One build, in a temporary folder beside its destination."""

    def __init__(self, job: Job, folder: Path, key: str, progress: Report | None) -> None:
        self.job, self.folder, self.key, self.progress = job, folder, key, progress
        self.target = job.target or Target(Target.host().triple)

    def build(self, stamp: Path, suffix: str) -> Path:
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".build-") as name:
            work = Path(name)
            sources = [self._source(unit) for unit in self.job.units]
            objects = self._compile_all(sources, work)
            objects += [self._cubin(name, data, work) for name, data in sorted(self.job.cubins.items())]
            new = work / f"new{suffix}"
            header = self._archive(objects, new) if suffix == ".a" else None
            if header is None:
                self._link(objects, new, relocatable=suffix == ".o")
            if self.job.target and suffix == ".so":
                check_image(new.read_bytes(), repr(self.job.name), self.target)
            digest = file_digest(new)
            library = self.folder / f"{self.job.name}-{digest[:32]}{suffix}"
            if header is not None:
                write_beside(library.with_suffix(".h"), header.encode())
            new.replace(library)
            headers = read_headers(sorted(self._read_depends(work)))
        write_stamp(stamp, library, digest, headers)
        return library

    def _source(self, unit: Unit) -> Path:
        """The file of a unit. A source text stays on disk, since tracebacks and debuggers show its lines."""
        if unit.text is None:
            return Path(unit.name)
        path = self.folder / f"{Path(unit.name).stem}-{self.key[:32]}{Path(unit.name).suffix}"
        write_beside(path, (unit.text + exports(unit.functions, unit.text)).encode())
        return path

    def _compile_all(self, sources: Sequence[Path], work: Path) -> list[Path]:
        jobs = [
            partial(self._compile, unit, source, work / f"{i}.o")
            for i, (unit, source) in enumerate(zip(self.job.units, sources, strict=True))
        ]
        return run_jobs(jobs, self.progress)

    def _compile(self, unit: Unit, source: Path, out: Path) -> tuple[Path, bool]:
        """The object, and False, since this cache keeps only libraries."""
        if unit.language == "object":
            return source, False
        compiler, flags = self._compiler(unit)
        included = [flag for header in _INCLUDED for flag in ("-include", header) if unit.text is not None]
        folders = [f"-I{folder}" for folder in (*self.job.flags.include, include_dir())]
        depends = ["-MMD", "-MF", f"{out.name}.d"]
        arguments = [*flags, *folders, *included, *depends, "-c", str(source), "-o", out.name]
        try:
            compiler.run(arguments, out.parent, f"compile {Path(unit.name).name} of {self.job.name!r}")
        except ToolchainError as error:
            if hint := undeclared(unit):
                raise ToolchainError(f"{hint}\n{error}") from None
            raise
        return out, False

    def _compiler(self, unit: Unit) -> tuple[Compiler, list[str]]:
        if unit.language == "cuda":
            return cuda_compiler(), [*cuda_flags(), *self.job.flags.cuda]
        compiler = find_compiler(self.target, unit.language)
        own = C_FLAGS if unit.language == "c" else CPP_FLAGS
        return compiler, [*compiler.target_flags(self.target), *own, *self.job.flags.cpp]

    def _cubin(self, name: str, data: bytes, work: Path) -> Path:
        (work / f"{name}.cubin").write_bytes(data)
        symbol = f"__tvm_ffi__cubin_{name}"
        text = (
            f'.section .rodata, "a"\n.balign 64\n.globl {symbol}, {symbol}_end\n'
            f'{symbol}:\n.incbin "{name}.cubin"\n{symbol}_end:\n.section .note.GNU-stack, ""\n'
        )
        return assemble(find_compiler(self.target), self.target, text, work, f"cubin_{name}")

    def _archive(self, objects: Sequence[Path], new: Path) -> str:
        """Write the static library; returns its header."""
        from farcall.cpp._static import archive_kernels  # here, because loading it takes a while

        data, header = archive_kernels(self.job.name, objects, self.target)
        new.write_bytes(data)
        return header

    def _link(self, objects: Sequence[Path], new: Path, relocatable: bool) -> None:
        if "cuda" in self.job.languages:  # nvcc knows the folder of the CUDA runtime
            compiler, flags = cuda_compiler(), ["-Xlinker", "-Bsymbolic"]
            kind = ["-shared", *flags]
        else:
            linker = "c++" if "c++" in self.job.languages or not self.job.target else "c"
            compiler = find_compiler(self.target, linker)
            undefined = ["-Wl,-z,undefs"] if compiler.family == "zig" else []  # the runtime supplies TVMFFI*
            kind = [*compiler.link_flags(self.target), *self.job.link_flags, *undefined]
        if relocatable:
            if len(objects) == 1:
                shutil.copyfile(objects[0], new)
                return
            compiler, kind = find_compiler(self.target), ["-r", "-nostdlib"]
        arguments = [*kind, *map(str, objects), *([] if relocatable else self.job.flags.link), "-o", new.name]
        with linking(compiler, self.target, self.progress):
            compiler.run(arguments, new.parent, f"link {self.job.name!r}")

    def _read_depends(self, work: Path) -> set[str]:
        """The headers that the compilers report to have read, without the system's headers."""
        paths = (path for file in work.glob("*.d") for path in depends_of(file.read_text(encoding="utf-8")))
        return {str((work / path).resolve()) for path in paths}


def depends_of(text: str) -> list[str]:
    """The prerequisites in a Makefile rule, as ``-MMD`` writes it."""
    rule = text.replace("\\\n", " ").partition(": ")[2]
    words = re.findall(r"(?:\\.|[^\s\\])+", rule)
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]
