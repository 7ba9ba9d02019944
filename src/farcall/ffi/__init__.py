"""Values and calls inside one process: native functions, tensors without copies, modules, the registry.

The module is native (``farcall._core``). It imports neither numpy nor any framework; it looks a framework up
when a call first passes one of its objects.

    >>> import farcall.ffi as ffi
    >>> double = ffi.register_global_func("demo.double", lambda x: 2 * x)
    >>> ffi.get_global_func("demo.double")(21)
    42
"""

from __future__ import annotations

from farcall import errors
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
from farcall.ffi._threads import use_threads

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
    "use_threads",
]
__dir__ = __all__.copy


def include_dir() -> str:
    """The folder of ``farcall/c_api.h``: pass it to a C compiler as ``-I``.

    Returns:
        The folder inside the installed package, or the repository's in a source checkout.

    Raises:
        FileNotFoundError: the installation has no headers.
    """
    from pathlib import Path

    import farcall._core as core

    package = Path(__file__).parents[1]
    # Beside the sources; beside the extension, which an editable installation has elsewhere; in the
    # repository.
    for parent in (package, Path(core.__file__).parent, package.parents[1]):
        folder = parent / "include"
        if (folder / "farcall" / "c_api.h").is_file():
            return str(folder)
    raise FileNotFoundError(f"no farcall/c_api.h near {package}; install farcall again")


for _name, _class in vars(errors).items():
    if isinstance(_class, type) and issubclass(_class, errors.FarcallError):
        register_error(_name, _class)
