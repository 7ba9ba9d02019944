"""farcall: call compiled kernels across every boundary.

This module has the public names. It imports heavy modules when they are first used, so ``import farcall`` is
cheap, and imports neither numpy nor onnx.
"""

from __future__ import annotations

TYPE_CHECKING = False  # Type checkers take it for true. It costs less than an import of typing.

__version__ = "0.1.0"

# Each public name, and the module that has it. The imports below tell type checkers the same.
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
    "use_threads": "farcall.ffi",
    "Progress": "farcall._progress",
    "Array": "farcall.abi",
    "Signature": "farcall.abi",
    "TensorSpec": "farcall.abi",
    "benchmark": "farcall.rpc",
    "connect": "farcall.rpc",
    "connect_async": "farcall.rpc",
    "deadline": "farcall.rpc",
    "profile": "farcall.rpc",
    "serve": "farcall.rpc",
    "Session": "farcall.rpc",
    "launch": "farcall.launch",
    "trace": "farcall.rpc",
    "load_module": "farcall.library",
    "module_kind": "farcall.library",
    "Blob": "farcall.library",
    "backend": "farcall.backends",
    "partition": "farcall.artifact",
    "Plan": "farcall.artifact",
    "measured": "farcall._placement",
    "FarcallError": "farcall.errors",
    "RemoteError": "farcall.errors",
    "UsageError": "farcall.errors",
}

_ROOMS = (
    "abi",
    "artifact",
    "backends",
    "cli",
    "cpp",
    "errors",
    "ffi",
    "graph",
    "idl",
    "launch",
    "library",
    "rpc",
    "testing",
    "toolchain",
    "torch",
)

__all__ = [
    "Array",
    "Blob",
    "Device",
    "FarcallError",
    "Function",
    "Module",
    "Plan",
    "Progress",
    "RemoteError",
    "Session",
    "Shape",
    "Signature",
    "Tensor",
    "TensorSpec",
    "UsageError",
    "__version__",
    "backend",
    "benchmark",
    "connect",
    "connect_async",
    "convert",
    "deadline",
    "dtype",
    "from_dlpack",
    "get_global_func",
    "get_stream",
    "launch",
    "list_global_func_names",
    "load_module",
    "measured",
    "module_kind",
    "partition",
    "profile",
    "register_error",
    "register_global_func",
    "register_loader",
    "remove_global_func",
    "serve",
    "system_lib",
    "trace",
    "use_stream",
    "use_threads",
]

if TYPE_CHECKING:
    from farcall import abi as abi
    from farcall import artifact as artifact
    from farcall import backends as backends
    from farcall import cli as cli
    from farcall import cpp as cpp
    from farcall import errors as errors
    from farcall import ffi as ffi
    from farcall import graph as graph
    from farcall import idl as idl
    from farcall import library as library
    from farcall import rpc as rpc
    from farcall import testing as testing
    from farcall import toolchain as toolchain
    from farcall import torch as torch
    from farcall._placement import measured
    from farcall._progress import Progress
    from farcall.abi import Array, Signature, TensorSpec
    from farcall.artifact import Plan, partition
    from farcall.backends import backend
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
        use_threads,
    )
    from farcall.launch import launch
    from farcall.library import Blob, load_module, module_kind
    from farcall.rpc import Session, benchmark, connect, connect_async, deadline, profile, serve, trace


def __dir__() -> list[str]:
    return [*{*__all__, *_ROOMS}]


if not TYPE_CHECKING:  # checkers then know that there are no other names

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _ROOMS:
            return import_module(f"farcall.{name}")
        if module := _LAZY.get(name):
            value = globals()[name] = getattr(import_module(module), name)
            return value
        from farcall._suggest import did_you_mean

        meant = did_you_mean(name, __dir__())
        raise AttributeError(f"module 'farcall' has no attribute {name!r}{meant}", name=name)
