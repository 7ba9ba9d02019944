"""farcall: call compiled kernels across every boundary.

The public surface. What is heavy is imported when it is first used, so ``import farcall`` costs little and
brings in neither numpy nor onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> the module that has it
_LAZY = {
    "Device": "farcall.ffi",
    "Function": "farcall.ffi",
    "Module": "farcall.ffi",
    "Tensor": "farcall.ffi",
    "dtype": "farcall.ffi",
    "from_dlpack": "farcall.ffi",
    "get_global_func": "farcall.ffi",
    "register_global_func": "farcall.ffi",
    "Signature": "farcall.abi",
    "TensorSpec": "farcall.abi",
    "connect": "farcall.rpc",
    "Session": "farcall.rpc",
    "Plan": "farcall.artifact",
    "load_module": "farcall.artifact",
    "partition": "farcall.artifact",
    "FarcallError": "farcall.errors",
    "UsageError": "farcall.errors",
    "RemoteError": "farcall.errors",
}

__all__ = [
    "Device",
    "FarcallError",
    "Function",
    "Module",
    "Plan",
    "RemoteError",
    "Session",
    "Signature",
    "Tensor",
    "TensorSpec",
    "UsageError",
    "__version__",
    "connect",
    "dtype",
    "from_dlpack",
    "get_global_func",
    "load_module",
    "partition",
    "register_global_func",
]

if TYPE_CHECKING:
    from farcall.abi import Signature, TensorSpec
    from farcall.artifact import Plan, load_module, partition
    from farcall.errors import FarcallError, RemoteError, UsageError
    from farcall.ffi import (
        Device,
        Function,
        Module,
        Tensor,
        dtype,
        from_dlpack,
        get_global_func,
        register_global_func,
    )
    from farcall.rpc import Session, connect


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
