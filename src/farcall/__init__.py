"""farcall: call compiled kernels across every boundary.

This module has the public names. It imports heavy modules when they are first used, so ``import farcall`` is
cheap, and imports neither numpy nor onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> the module that defines it
_LAZY = {
    "convert": "farcall.ffi",
    "Device": "farcall.ffi",
    "dtype": "farcall.ffi",
    "from_dlpack": "farcall.ffi",
    "Function": "farcall.ffi",
    "get_global_func": "farcall.ffi",
    "get_stream": "farcall.ffi",
    "list_global_func_names": "farcall.ffi",
    "Module": "farcall.ffi",
    "register_error": "farcall.ffi",
    "register_global_func": "farcall.ffi",
    "register_loader": "farcall.ffi",
    "remove_global_func": "farcall.ffi",
    "Shape": "farcall.ffi",
    "system_lib": "farcall.ffi",
    "Tensor": "farcall.ffi",
    "use_stream": "farcall.ffi",
    "Array": "farcall.abi",
    "Signature": "farcall.abi",
    "TensorSpec": "farcall.abi",
    "benchmark": "farcall.rpc",
    "connect": "farcall.rpc",
    "deadline": "farcall.rpc",
    "Session": "farcall.rpc",
    "trace": "farcall.rpc",
    "load_module": "farcall.library",
    "partition": "farcall.artifact",
    "Plan": "farcall.artifact",
    "FarcallError": "farcall.errors",
    "RemoteError": "farcall.errors",
    "UsageError": "farcall.errors",
}

__all__ = [
    "Array",
    "Device",
    "FarcallError",
    "Function",
    "Module",
    "Plan",
    "RemoteError",
    "Session",
    "Shape",
    "Signature",
    "Tensor",
    "TensorSpec",
    "UsageError",
    "__version__",
    "benchmark",
    "connect",
    "convert",
    "deadline",
    "dtype",
    "from_dlpack",
    "get_global_func",
    "get_stream",
    "list_global_func_names",
    "load_module",
    "partition",
    "register_error",
    "register_global_func",
    "register_loader",
    "remove_global_func",
    "system_lib",
    "trace",
    "use_stream",
]

if TYPE_CHECKING:
    from farcall.abi import Array, Signature, TensorSpec
    from farcall.artifact import Plan, partition
    from farcall.errors import FarcallError, RemoteError, UsageError
    from farcall.ffi import (
        Device,
        Function,
        Module,
        Shape,
        Tensor,
        convert,
        dtype,
        from_dlpack,
        get_global_func,
        get_stream,
        list_global_func_names,
        register_error,
        register_global_func,
        register_loader,
        remove_global_func,
        system_lib,
        use_stream,
    )
    from farcall.library import load_module
    from farcall.rpc import Session, benchmark, connect, deadline, trace


def __getattr__(name: str) -> Any:
    if module := _LAZY.get(name):
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value
    try:
        return importlib.import_module(f"farcall.{name}")  # a room, as in `fc.rpc.Server`
    except ModuleNotFoundError as error:
        if error.name != f"farcall.{name}":
            raise
        raise AttributeError(f"module 'farcall' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
