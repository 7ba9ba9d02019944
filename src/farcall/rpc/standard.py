"""The remote functions that every client of TVM's protocol expects to find, served harmlessly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from farcall import _core
from farcall.abi.loading import load_module
from farcall.rpc.files import Workdir


def standard_functions(folder: Path) -> dict[str, Callable[..., Any]]:
    """The functions by name, bound to one session's folder.

    Files live in that folder only. ``workpath`` answers the name as it came: a client may hand it back, and
    learns nothing of where the folder is.
    """
    files = Workdir(folder)

    def workpath(name: str) -> str:
        files.path(name)
        return name

    return {
        "tvm.rpc.server.upload": files.write,
        "tvm.rpc.server.download": files.read,
        "tvm.rpc.server.remove": files.remove,
        "tvm.rpc.server.listdir": files.listdir,
        "tvm.rpc.server.workpath": workpath,
        "tvm.rpc.server.load_module": lambda name: load_module(files.existing(name)),
        "tvm.rpc.server.ImportModule": _import_module,
        "tvm.rpc.server.ModuleGetFunction": _module_get_function,
    }


def _import_module(module: _core.Module, imported: _core.Module) -> None:
    raise NotImplementedError("modules that are loaded here cannot import each other; link them into one")


def _module_get_function(
    module: _core.Module, name: str, query_imports: bool = True
) -> _core.Function | None:
    del query_imports  # there are none
    if not isinstance(module, _core.Module):
        raise TypeError(f"expected a module, got {type(module).__name__}")
    return module.get_function(name) if module.implements_function(name) else None
