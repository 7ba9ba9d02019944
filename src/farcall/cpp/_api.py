"""The public functions. Their keywords are those of ``tvm_ffi.cpp``, so that existing calls work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from farcall.cpp._builder import build_job
from farcall.cpp._job import Flags, Job, Unit, check_backend
from farcall.cpp._sources import as_functions, as_list, file_units
from farcall.errors import ArtifactError, UsageError
from farcall.toolchain import Target

if TYPE_CHECKING:
    from farcall._progress import Report
    from farcall.ffi import Module

_Texts = Sequence[str] | str | None
_Paths = Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None
_Functions = Mapping[str, str] | Sequence[str] | str | None
_Folder = str | os.PathLike[str] | None


def build_inline(
    name: str,
    *,
    cpp_sources: _Texts = None,
    cuda_sources: _Texts = None,
    functions: _Functions = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: _Paths = None,
    build_directory: _Folder = None,
    embed_cubin: Mapping[str, bytes] | None = None,
    backend: str | None = None,
    output: str | None = None,
    target: str | Target | None = None,
    progress: Report | None = None,
) -> str:
    """Build a kernel library from source text, without loading it.

    The sources include ``farcall/kernel.hpp``, ``<cmath>`` and ``<algorithm>`` automatically. Each of
    ``functions`` is exported under its own name. If its declaration in the source can be read, its metadata
    has the names and literal defaults of the parameters.

    Args:
        name: the name of the library: letters, digits, ``_``, ``-`` and ``.``.
        cpp_sources: C++17 source, one text or several, which are joined.
        cuda_sources: CUDA source, one text or several; needs ``nvcc``.
        functions: the functions to export: one name, several, or a mapping of names to docstrings. They must
            be declared in ``cpp_sources``, or defined in ``cuda_sources`` if there are no C++ sources.
            Default: only the functions that the source exports with ``FARCALL_EXPORT``.
        extra_cflags: flags for the C++ compiler, after ``-std=c++17 -O2 -fPIC -fvisibility=hidden``.
        extra_cuda_cflags: flags for ``nvcc``. ``$FARCALL_CUDA_ARCH_LIST`` (``"9.0 10.0"``) chooses the
            architectures; the default is this machine's.
        extra_ldflags: flags for the linker.
        extra_include_paths: folders with headers of your own. If such a header changes, the next call builds
            the library again.
        build_directory: the folder to build in; default: farcall's cache.
        embed_cubin: CUBIN images by name, as symbols ``__tvm_ffi__cubin_<name>`` and ``..._end``.
        backend: ``"cuda"`` or None.
        output: the name of the file in the build directory; with ``.o``, an object file. Default: a name with
            the hash of the library's contents.
        target: the machine to build for, such as ``hexagon-linux-musl`` (see :meth:`farcall.Plan.build`);
            None: this machine. Where there is no dynamic loader, kernels are in C: see docs/spec/image.md.
        progress: called with each :class:`farcall.Progress` of the phases ``compile`` and ``link``; not
            called if the library is in the cache.

    Returns:
        The library's path.

    Raises:
        ToolchainError: there is no compiler, or it refused the source; the message has its output.
        UsageError: a name is not valid.
    """
    check_backend(backend)
    cpp, cuda = "\n".join(as_list(cpp_sources)), "\n".join(as_list(cuda_sources))
    table = as_functions(functions)
    units = []
    if cpp or not cuda:
        units.append(Unit(f"{name}.cpp", "c++", cpp, table))
    if cuda:
        units.append(Unit(f"{name}.cu", "cuda", cuda, {} if cpp else table))
    flags = Flags.of(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
    return build_job(
        Job(name, tuple(units), flags, dict(embed_cubin or {}), _target(target)),
        build_directory,
        output,
        progress,
    )


def load_inline(
    name: str,
    *,
    cpp_sources: _Texts = None,
    cuda_sources: _Texts = None,
    functions: _Functions = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: _Paths = None,
    build_directory: _Folder = None,
    embed_cubin: Mapping[str, bytes] | None = None,
    keep_module_alive: bool = True,
    backend: str | None = None,
    progress: Report | None = None,
) -> Module:
    """Build a kernel library from source text, and load it.

    Args:
        name: as for :func:`build_inline`, as are all other arguments except ``keep_module_alive``.
        keep_module_alive: has no effect, and exists for compatibility. A loaded library always stays until
            the process ends, since objects that it made may refer to its code.

    Returns:
        The module: ``module["add"](1, 2)``.

    Raises:
        ToolchainError, UsageError: as for :func:`build_inline`.
        ArtifactError: the dynamic linker refuses the library, for example because a symbol is missing.
    """
    path = build_inline(
        name,
        cpp_sources=cpp_sources,
        cuda_sources=cuda_sources,
        functions=functions,
        extra_cflags=extra_cflags,
        extra_cuda_cflags=extra_cuda_cflags,
        extra_ldflags=extra_ldflags,
        extra_include_paths=extra_include_paths,
        build_directory=build_directory,
        embed_cubin=embed_cubin,
        backend=backend,
        progress=progress,
    )
    return _load(path)


def build(
    name: str,
    *,
    sources: _Paths = None,
    cpp_files: _Paths = None,
    cuda_files: _Paths = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: _Paths = None,
    build_directory: _Folder = None,
    backend: str | None = None,
    output: str | None = None,
    link: Literal["shared", "static"] = "shared",
    target: str | Target | None = None,
    progress: Report | None = None,
) -> str:
    """Build a kernel library from files, without loading it.

    The files include the headers that they need, and export functions with ``FARCALL_EXPORT`` (C++) or
    ``FARCALL_KERNEL`` (C).

    Args:
        name: the name of the library.
        sources: files whose extensions name their language: ``.c``, ``.cc``, ``.cpp``, ``.cxx``, ``.cu``,
            ``.o``.
        cpp_files: C++ files with any extension; ``.o`` and ``.c`` files among them keep their own language.
        cuda_files: CUDA files; need ``nvcc``.
        extra_cflags: flags for the C and C++ compilers.
        extra_cuda_cflags: as for :func:`build_inline`, as are all other arguments.
        link: ``"static"``: a library (``.a``) of kernels in C, for a program of your own, whose system
            library gets them (docs/small_server.md). Its C header goes beside it.

    Returns:
        The library's path.

    Raises:
        ToolchainError: there is no compiler, or it refused a file; the message has its output.
        UsageError: a file does not exist, or its extension names no language.
    """
    check_backend(backend)
    units = file_units(sources) + file_units(cpp_files, "c++") + file_units(cuda_files, "cuda")
    flags = Flags.of(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
    job = Job(name, tuple(units), flags, target=_target(target))
    if link not in ("shared", "static"):
        raise UsageError(f"link={link!r}: expected 'shared' or 'static'")
    return build_job(job, build_directory, output, progress, static=link == "static")


def load(
    name: str,
    *,
    sources: _Paths = None,
    cpp_files: _Paths = None,
    cuda_files: _Paths = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: _Paths = None,
    build_directory: _Folder = None,
    keep_module_alive: bool = True,
    backend: str | None = None,
    progress: Report | None = None,
) -> Module:
    """Build a kernel library from files, and load it.

    Args:
        name: as for :func:`build`, as are all other arguments.
        keep_module_alive: as for :func:`load_inline`.

    Returns:
        The module.

    Raises:
        ToolchainError, UsageError: as for :func:`build`.
        ArtifactError: the dynamic linker refuses the library.
    """
    path = build(
        name,
        sources=sources,
        cpp_files=cpp_files,
        cuda_files=cuda_files,
        extra_cflags=extra_cflags,
        extra_cuda_cflags=extra_cuda_cflags,
        extra_ldflags=extra_ldflags,
        extra_include_paths=extra_include_paths,
        build_directory=build_directory,
        backend=backend,
        progress=progress,
    )
    return _load(path)


def _target(target: str | Target | None) -> Target | None:
    return None if target is None else Target.parse(target)


def _load(path: str) -> Module:
    """Load a library that was built here. Its hash is known, so it needs no checks of ``load_module``."""
    from farcall import ffi

    try:
        return ffi.load_library(path)
    except OSError as error:
        raise ArtifactError(f"{path}: the dynamic linker refuses it: {error}") from None
