"""Values and calls inside one process: native functions, tensors without copies, modules, the registry.

Everything here is native (``farcall._core``) and imports neither numpy nor any framework: they are met when
their first object is.

    >>> import farcall.ffi as ffi
    >>> double = ffi.register_global_func("demo.double", lambda x: 2 * x)
    >>> ffi.get_global_func("demo.double")(21)
    42
"""

from __future__ import annotations

from farcall._core import (
    Device,
    Function,
    Module,
    Object,
    Opaque,
    Shape,
    Tensor,
    convert,
    dtype,
    empty,
    from_dlpack,
    get_global_func,
    get_global_func_metadata,
    last_backtrace,
    list_global_func_names,
    load_library,
    load_module_from_bytes,
    new_module,
    register_error,
    register_global_func,
    register_loader,
    remove_global_func,
    system_lib,
)
from farcall.ffi._devices import DEVICE_ATTRIBUTES, DeviceMemory, register_device_memory
from farcall.ffi._stream import get_stream, use_stream

__all__ = [
    "DEVICE_ATTRIBUTES",
    "Device",
    "DeviceMemory",
    "Function",
    "Module",
    "Object",
    "Opaque",
    "Shape",
    "Tensor",
    "convert",
    "dtype",
    "empty",
    "from_dlpack",
    "get_global_func",
    "get_global_func_metadata",
    "get_stream",
    "include_dir",
    "last_backtrace",
    "list_global_func_names",
    "load_library",
    "load_module_from_bytes",
    "new_module",
    "register_device_memory",
    "register_error",
    "register_global_func",
    "register_loader",
    "remove_global_func",
    "system_lib",
    "use_stream",
]


def include_dir() -> str:
    """Where ``farcall/c_api.h`` is: pass it to a C compiler as ``-I``.

    Returns:
        The folder inside the installed package, or the repository's in a source checkout.

    Raises:
        FileNotFoundError: The installation has no headers.
    """
    from pathlib import Path

    import farcall._core as core

    package = Path(__file__).parents[1]
    # Beside the sources, beside the extension (an editable installation has it elsewhere), in the repository.
    for parent in (package, Path(core.__file__).parent, package.parents[1]):
        folder = parent / "include"
        if (folder / "farcall" / "c_api.h").is_file():
            return str(folder)
    raise FileNotFoundError(f"no farcall/c_api.h near {package}; install farcall again")
