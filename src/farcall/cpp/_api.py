"""What users call. The keywords are those of ``tvm_ffi.cpp``, so that existing calls work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from farcall.cpp._builder import build_job
from farcall.cpp._job import Flags, Job, Unit, check_backend
from farcall.cpp._sources import as_functions, as_list, file_units
from farcall.errors import ArtifactError

if TYPE_CHECKING:
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
) -> str:
    """Build a kernel library from source text, without loading it.

    ``farcall/kernel.hpp``, ``<cmath>`` and ``<algorithm>`` are included already. Each of ``functions`` is
    exported under its own name; where its parameters can be read in the source, their names and literal
    defaults are part of its metadata.

    Args:
        name: what the library is called: letters, digits, ``_``, ``-`` and ``.``.
        cpp_sources: C++17, one text or several that are joined.
        cuda_sources: CUDA, the same; needs ``nvcc``.
        functions: a name, several, or a mapping of names to docstrings. They must be declared in
            ``cpp_sources``, or defined in ``cuda_sources`` when there are no others. Left out, what the
            source itself exports by ``FARCALL_EXPORT`` is all.
        extra_cflags: for the C++ compiler, after ``-std=c++17 -O2 -fPIC -fvisibility=hidden``.
        extra_cuda_cflags: for ``nvcc``. Architectures are those of ``$FARCALL_CUDA_ARCH_LIST``
            (``"9.0 10.0"``), else this machine's.
        extra_ldflags: for the link.
        extra_include_paths: folders with headers of your own. A change in a header that was used builds anew.
        build_directory: where to build; default: farcall's cache.
        embed_cubin: CUBIN images by name, as symbols ``__tvm_ffi__cubin_<name>`` and ``..._end``.
        backend: ``"cuda"`` or None.
        output: the file to make in the build directory; ``.o`` gives an object file. Default: a name with the
            content's hash.

    Returns:
        The library's path.

    Raises:
        ToolchainError: there is no compiler, or it refused the source; the message holds its words.
        UsageError: a name cannot be one.
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
    return build_job(Job(name, tuple(units), flags, dict(embed_cubin or {})), build_directory, output)


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
) -> Module:
    """Build a kernel library from source text, and load it.

    Args:
        name: as for :func:`build_inline`, and so are all others but this:
        keep_module_alive: a loaded library always stays until the process ends, because objects that it made
            may hold its code; False is taken for compatibility, and changes nothing.

    Returns:
        The module: ``module["add"](1, 2)``.

    Raises:
        ToolchainError, UsageError: as :func:`build_inline`.
        ArtifactError: the dynamic linker refuses the library: a symbol is missing, say.
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
) -> str:
    """Build a kernel library from files, without loading it.

    The files include what they need and export by ``FARCALL_EXPORT`` (C++) or ``FARCALL_KERNEL`` (C).

    Args:
        name: what the library is called.
        sources: files whose language is told by their names: ``.c``, ``.cc``, ``.cpp``, ``.cxx``, ``.cu``,
            ``.o``.
        cpp_files: C++ files, whatever their names; an object file or C file among them is taken as such.
        cuda_files: CUDA files; need ``nvcc``.
        extra_cflags: for C and C++ alike.
        extra_cuda_cflags: as for :func:`build_inline`, and so are all others.

    Returns:
        The library's path.

    Raises:
        ToolchainError: there is no compiler, or it refused a file; the message holds its words.
        UsageError: a file is not there, or its name tells no language.
    """
    check_backend(backend)
    units = file_units(sources) + file_units(cpp_files, "c++") + file_units(cuda_files, "cuda")
    flags = Flags.of(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
    return build_job(Job(name, tuple(units), flags), build_directory, output)


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
) -> Module:
    """Build a kernel library from files, and load it.

    Args:
        name: as for :func:`build`, and so are all others; ``keep_module_alive`` as for :func:`load_inline`.

    Returns:
        The module.

    Raises:
        ToolchainError, UsageError: as :func:`build`.
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
    )
    return _load(path)


def _load(path: str) -> Module:
    """Load what was built here: its hash was compared, so nothing is left that load_module would check."""
    from farcall import ffi

    try:
        return ffi.load_library(path)
    except OSError as error:
        raise ArtifactError(f"{path}: the dynamic linker refuses it: {error}") from None
