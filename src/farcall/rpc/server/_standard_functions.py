"""The remote functions that every client of TVM's protocol expects, confined to the session's folder."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from farcall import _core
from farcall._suggest import did_you_mean
from farcall.errors import ArtifactError
from farcall.library import load_module
from farcall.library._places import using
from farcall.rpc.server._files import Workdir
from farcall.rpc.server._linking import linked
from farcall.rpc.server._store import ContentStore, SharedFiles
from farcall.rpc.server._uploads import Uploads
from farcall.rpc.shared._limits import Limits

_ITEMS = 1024  # of a dict, in one reply
_PLAIN_CHARS = 16 << 20  # of a dict as JSON


def standard_functions(
    folder: Path,
    limits: Limits,
    store: Callable[[], ContentStore] | None = None,
    devices: Mapping[str, Any] | None = None,
) -> dict[str, Callable[..., Any]]:
    """The functions by name, bound to one session's folder.

    Files live in that folder only. ``workpath`` returns the name unchanged: a client may pass it back, and
    does not learn where the folder is.

    Args:
        folder: the session's folder.
        limits: of the session.
        store: returns the store of uploaded files, which it makes when first needed; None: there is no store.
        devices: the sessions with the server's devices, which regions of an artifact may be on.
    """
    files = Workdir(folder)

    def workpath(name: str) -> str:
        files.path(name)
        return name

    uploads = Uploads(files, store, limits.files_bytes)

    def load(name: str) -> _core.Module:
        place = using(devices or {}, urls=False)
        with linked(files.existing(name), uploads.reserve) as library, place:
            return load_module(library)

    def download_linked(name: str) -> bytes:
        with linked(files.existing(name), uploads.reserve) as library:
            data = library.read_bytes()
        if not data.startswith(b"\x7fELF"):
            raise ArtifactError(f"{name}: no shared library, and no objects to link to one (.o, .tar)")
        return data

    writer = uploads.writer()
    return {
        **(_file_functions(files, store, uploads, writer) if store is not None else {}),
        "tvm.rpc.server.upload": writer,
        "tvm.rpc.server.download": files.discreet(files.read),
        "tvm.rpc.server.download_linked_module": files.discreet(download_linked),
        "tvm.rpc.server.remove": files.discreet(files.remove),
        "tvm.rpc.server.listdir": files.discreet(files.listdir),
        "tvm.rpc.server.workpath": files.discreet(workpath),
        "tvm.rpc.server.load_module": files.discreet(load),
        "tvm.rpc.server.ImportModule": lambda module, imported: _module(module).import_module(
            _module(imported)
        ),
        "tvm.rpc.server.ModuleGetFunction": _module_get_function,
        "ffi.ModuleGetKind": lambda module: _module(module).kind,
        "ffi.ModuleInspectSource": lambda module, form="": _module(module).inspect_source(form),
        "ffi.ModuleGetFunctionMetadata": _module_get_metadata,
        "ffi.SystemLib": lambda prefix="": _core.system_lib(prefix),
        "runtime.RPCTimeEvaluator": time_evaluator,
        "farcall.rpc.functions": lambda: json.dumps(_exports()),
        "farcall.rpc.module_functions": lambda module: json.dumps(_module(module).function_names()),
        "farcall.rpc.items": _items,
        "farcall.rpc.plain_items": _plain_items,
        "farcall.rpc.clock": time.monotonic_ns,
        "farcall.rpc.trace_begin": _core.trace_start,
        "farcall.rpc.trace_take": _trace_take,
    }


def _file_functions(
    files: Workdir, store: Callable[[], ContentStore], uploads: Uploads, writer: _core.Function
) -> dict[str, Callable[..., Any]]:
    """The feature ``files``."""
    shared = SharedFiles(files, store, uploads.reserve)
    return {
        "farcall.rpc.write": writer,
        "farcall.rpc.read": files.discreet(files.read_piece),
        "farcall.rpc.size": files.discreet(files.size),
        "farcall.rpc.known": shared.known,
        "farcall.rpc.have": files.discreet(shared.have),
        "farcall.rpc.share": files.discreet(shared.share),
    }


def exported_function(name: str) -> _core.Function | None:
    """The function that was registered as ``name`` for clients to call; None: there is none.

    Names that begin with ``ffi.`` belong to the runtime and are never exported: some of them load libraries.
    """
    return _core.get_global_func(name, allow_missing=True) if _is_export(name) else None


def _is_export(name: str) -> bool:
    return not name.startswith("ffi.")


def _exports() -> list[str]:
    return list(filter(_is_export, _core.list_global_func_names()))


def _exported(name: str) -> _core.Function:
    function = exported_function(name)
    if function is None:
        meant = did_you_mean(name, _exports())
        raise ValueError(f"the server exports no function `{name}`{meant}")
    return function


def _trace_take() -> bytes:
    """The spans that this process recorded, as hop 1, without those of farcall's own functions."""
    spans, _ = _core.trace_stop()
    return json.dumps([[1, *span[1:]] for span in spans if not span[2].startswith("farcall.rpc.")]).encode()


def _items(mapping: object, start: int) -> list[Any]:
    """The number of a dict's items, then keys and values in turn, from the item ``start``."""
    if not isinstance(mapping, dict):
        raise TypeError(f"expected a dict, got {type(mapping).__name__}")
    pairs = itertools.islice(mapping.items(), start, start + _ITEMS)
    return [len(mapping), *itertools.chain.from_iterable(pairs)]


def _plain_items(mapping: object) -> str | None:
    """Keys and values in turn, as JSON; None if JSON lacks one of them, or the text is long."""
    if not isinstance(mapping, dict):
        raise TypeError(f"expected a dict, got {type(mapping).__name__}")
    flat = [*itertools.chain.from_iterable(mapping.items())]
    if not all(isinstance(one, (str, int, float, type(None))) for one in flat):
        return None
    try:
        text = json.dumps(flat, allow_nan=False)
    except ValueError:
        return None
    return text if len(text) <= _PLAIN_CHARS else None


def _module(module: object) -> _core.Module:
    if not isinstance(module, _core.Module):
        raise TypeError(f"expected a module, got {type(module).__name__}")
    return module


def _module_get_function(module: object, name: str, query_imports: bool = True) -> _core.Function | None:
    found = _module(module).implements_function(name, query_imports)
    return _module(module).get_function(name, query_imports) if found else None


def _module_get_metadata(module: object, name: str, query_imports: bool = False) -> str | None:
    metadata = _module(module).get_function_metadata(name, query_imports)
    return None if metadata is None else json.dumps(metadata)


def time_evaluator(
    module: object,
    name: str,
    device_type: int,
    device_index: int,
    number: int,
    repeat: int,
    min_repeat_ms: int,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    preprocess: str = "",
) -> _core.Function:
    """TVM's ``runtime.RPCTimeEvaluator``: a Function that measures another on its own arguments.

    Args:
        module: the Module that has the function; None for a function that the server exports.
        name: of the function.
        device_type: DLPack's number of the device's kind. The server times every device with the CPU's clock.
        device_index: the device's index among those of its kind.
        preprocess: name of an exported function that is called before each measurement; empty for none.

    The other arguments are those of :class:`farcall.rpc.TimingOptions`.

    Returns:
        A function that takes the measured function's arguments and returns ``repeat`` little-endian doubles:
        seconds per call.

    Raises:
        ValueError: there is no such function or device.
    """
    _core.synchronize_device(_core.Device(device_type, device_index))
    function = _exported(name) if module is None else _module(module).get_function(name, True)
    before = _exported(preprocess) if preprocess else None
    return _core.time_evaluator(
        function,
        before,
        number,
        repeat,
        min_repeat_ms,
        limit_zero_time_iterations,
        cooldown_interval_ms,
        repeats_to_cooldown,
        cache_flush_bytes,
    )
