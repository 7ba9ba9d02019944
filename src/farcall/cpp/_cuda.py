"""CUDA: finds ``nvcc``, and chooses its flags."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from farcall.errors import ToolchainError
from farcall.toolchain import Compiler

# nvcc passes these on to the C++ compiler.
_HOST_FLAGS = ("-std=c++17", "-O2", "-Xcompiler", "-fPIC,-fvisibility=hidden")


def find_nvcc() -> str | None:
    """The path of ``nvcc``: ``$CUDA_HOME``, ``$CUDA_PATH``, ``$PATH``, then ``/usr/local/cuda``."""
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if home and os.access(path := Path(home, "bin", "nvcc"), os.X_OK):
            return str(path)
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def cuda_compiler() -> Compiler:
    """``nvcc`` as a compiler.

    Raises:
        ToolchainError: ``nvcc`` is not installed.
    """
    if path := find_nvcc():
        return Compiler((path,), "nvcc", cuda_identity())
    raise ToolchainError(
        "CUDA sources need nvcc, which is neither in $CUDA_HOME/bin nor in $PATH; install the CUDA toolkit, "
        "or set CUDA_HOME to it"
    )


def cuda_identity() -> str:
    """A text that changes when another ``nvcc``, or other architectures, would be used."""
    path = find_nvcc() or ""
    try:
        status = Path(path).stat()
        return f"{path} {status.st_size} {status.st_mtime_ns} {' '.join(architecture_flags())}"
    except OSError:
        return path


def architecture_flags() -> list[str]:
    """Flags for the architectures in ``$FARCALL_CUDA_ARCH_LIST`` (``"9.0 10.0a"``).

    The default is this machine's architecture, or all of them if it has no GPU.
    """
    if chosen := os.environ.get("FARCALL_CUDA_ARCH_LIST", "").replace(",", " ").replace(";", " ").split():
        plain = [one.replace(".", "") for one in chosen]
        return [f"-gencode=arch=compute_{one},code=sm_{one}" for one in plain]
    return ["-arch=native" if Path("/dev/nvidiactl").exists() else "-arch=all-major"]


def cuda_flags() -> list[str]:
    """The flags to compile a CUDA unit; the caller's flags follow them."""
    return [*_HOST_FLAGS, *architecture_flags()]
