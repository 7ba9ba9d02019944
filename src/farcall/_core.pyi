"""The native core. Import these names from :mod:`farcall.ffi`; the endpoint's are for :mod:`farcall.rpc`."""

from collections.abc import Callable
from mmap import mmap
from os import PathLike
from typing import Any, Literal, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

_C = TypeVar("_C", bound=Callable[..., Any])
_E = TypeVar("_E", bound=type[BaseException])

DTypeLike: TypeAlias = Any
"""A dtype of farcall, numpy or torch, or its name."""
DeviceLike: TypeAlias = Any
"""A Device, a torch.device, a name such as ``"cuda:1"``, or (type, index)."""

class Function:
    """A native function, or a Python callable as one.

    Call it with positional arguments: None, bool, int, float, str, bytes, dtypes, devices, callables,
    tensors of any framework, lists and tuples of these. A result tensor comes back in the framework of the
    tensor arguments: all numpy gives numpy, all torch gives torch, none or a mixture gives :class:`Tensor`.

    Raises:
        TypeError, ValueError, OverflowError: An argument cannot be passed; the message names it.
        Exception: What the kernel raised, by its kind.
    """

    release_gil: bool
    """Whether other Python threads run during the call (True). Without, a call is about 30 ns cheaper."""
    signature: Any
    """What the function takes and gives (a farcall.abi.Signature), or None."""
    def __init__(self, callable: Callable[..., Any], /) -> None: ...
    def __call__(self, *args: Any) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...

class Module:
    """A loaded library. It stays in memory until the process ends: what it made may outlive this object."""

    @property
    def kind(self) -> str:
        """What the module is made of: ``"library"``."""
    @property
    def path(self) -> str:
        """The file that was loaded."""
    def get_function(self, name: str, /) -> Function:
        """The function ``name``, always the same object.

        Raises:
            AttributeError: The library exports no ``__tvm_ffi_<name>``; the message names those near.
        """
    def implements_function(self, name: str, /) -> bool:
        """Whether the library exports a function of that name."""
    def function_names(self) -> list[str]:
        """The names of all functions, sorted."""
    def __getitem__(self, name: str, /) -> Function: ...
    def __getattr__(self, name: str, /) -> Function: ...

class Tensor:
    """An n-dimensional array that owns its memory, here or on another machine.

    Made by :func:`empty`, :func:`from_dlpack` or a function's result. A callback gets the tensors of its
    caller as Tensors that are lent: they expire when it returns.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """The distance of neighbours along each axis, in elements (not bytes)."""
    @property
    def dtype(self) -> dtype: ...
    @property
    def device(self) -> Device: ...
    @property
    def ndim(self) -> int: ...
    def numel(self) -> int:
        """The number of elements."""
    def data_ptr(self) -> int:
        """The address of the first element; of a tensor on another machine, the far side's handle."""
    def is_contiguous(self) -> bool:
        """Whether the layout is row-major. Dims of size 1 and empty tensors have any layout."""
    def numpy(self) -> npt.NDArray[Any]:
        """The tensor as a numpy array: the same memory on the CPU, a copy from another machine.

        Raises:
            BufferError: The memory is on a device that numpy cannot see.
            TypeError: numpy has no such dtype (``pip install ml_dtypes`` adds bfloat16 and 8-bit floats).
        """
    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class dtype:  # noqa: N801 - the name that every array library uses
    """The type of a tensor's elements."""

    def __init__(self, x: DTypeLike, /) -> None: ...
    @property
    def code(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class Device:
    """Where memory is."""

    def __init__(self, x: DeviceLike | int, index: int = ..., /) -> None: ...
    @property
    def type(self) -> int: ...
    @property
    def index(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def load_library(path: str | PathLike[str], name: str = ..., /) -> Module:
    """Load a kernel library: a shared library that exports ``__tvm_ffi_<name>``.

    Args:
        path: The file. A name without a slash is searched as the dynamic linker does.
        name: What the module and its messages call it; default: ``path``.

    Raises:
        OSError: The file cannot be loaded; the message has the dynamic linker's words.
    """

def empty(
    shape: int | tuple[int, ...] | list[int], dtype: DTypeLike = ..., device: DeviceLike = ...
) -> Tensor:
    """A new row-major Tensor whose elements are not set.

    Args:
        shape: The dims.
        dtype: ``"float32"`` by default.
        device: ``"cpu"`` by default.

    Raises:
        ValueError: A dim is negative, or a name is unknown.
        MemoryError: There is not that much memory.
        RuntimeError: No allocator is known for the device.
    """

def from_dlpack(x: Any, /) -> Tensor:
    """A Tensor that shares the memory of ``x``.

    Args:
        x: An array of numpy, torch or any framework with ``__dlpack__``, or a DLPack capsule (consumed).

    Raises:
        TypeError: ``x`` is no tensor, or its dtype has no counterpart.
        BufferError: The framework does not give the memory out.

    Source: DLPack 1.3, Python array API standard.
    """

@overload
def register_global_func(name: str, fn: None = ..., override: bool = ...) -> Callable[[_C], _C]:
    """Register a function under a name, for native code and for the sessions that this process serves.

    Args:
        name: Any text; dots make families (``"pkg.op"``).
        fn: The callable. Left out, a decorator is returned.
        override: Replace what is registered already.

    Returns:
        ``fn`` as it came.

    Raises:
        ValueError: The name is taken, and ``override`` is false.
        TypeError: ``fn`` is not callable.
    """

@overload
def register_global_func(name: str, fn: _C, override: bool = ...) -> _C: ...
@overload
def get_global_func(name: str, allow_missing: Literal[False] = ...) -> Function:
    """The function that is registered under a name.

    Args:
        name: As it was registered.
        allow_missing: Return None for an unknown name.

    Raises:
        ValueError: Nothing is registered under the name; the message names those near.
    """

@overload
def get_global_func(name: str, allow_missing: bool) -> Function | None: ...
def remove_global_func(name: str, /) -> None:
    """Forget a registered function. Functions that were handed out stay alive.

    Raises:
        ValueError: Nothing is registered under the name.
    """

def list_global_func_names() -> list[str]:
    """The names of all registered functions, sorted."""

def register_error(kind: str, cls: _E, /) -> _E:
    """Raise ``cls(message)`` for native errors of this kind. Python's own exceptions are known already.

    Raises:
        TypeError: ``cls`` is no exception class.
    """

def make_error(kind: str, message: str, /) -> BaseException:
    """The exception that a native error becomes; an unknown kind gives ``RuntimeError("kind: message")``."""

def set_remote_tensor_hook(hook: Callable[[Tensor], np.ndarray[Any, Any]] | None, /) -> None:
    """What :meth:`Tensor.numpy` calls for a tensor on another machine. For farcall.rpc."""

# ---- endpoints (native/core/endpoint*.c); farcall.rpc is what uses them

# None, bool, int, float, str, bytes, dtype and Device are themselves. The rest are tuples that begin with
# their type index: (4 | 68 | 73 | 115, handle), (7, data, byte_offset, device, dtype, shape), (9, bytes).
_WireValues = tuple[Any, ...]

class Endpoint:
    """One end of a connection, over a connected socket whose descriptor moves in."""

    def __new__(
        cls,
        fd: int,
        peer: str,
        limits: tuple[int, int, int, int, int, int],
        *,
        client: bool = ...,
        page: mmap | bytearray | None = ...,
    ) -> Endpoint: ...
    @property
    def timeout(self) -> float | None: ...
    @timeout.setter
    def timeout(self, seconds: float | None) -> None: ...
    @property
    def slot(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    # client
    def start(self) -> None: ...
    def request(self, code: int, what: str, values: _WireValues, handle: int = ..., /) -> _WireValues: ...
    def function(self, handle: int, name: str, /) -> Function: ...
    def release(self, handle: int, /) -> None: ...
    def empty(self, shape: tuple[int, ...], dtype: DTypeLike, device: DeviceLike, /) -> Tensor: ...
    def tensor(self, x: Any, device: DeviceLike, /) -> Tensor: ...
    # server
    def next(self) -> tuple[Any, ...] | None: ...
    def receive(self, target: np.ndarray[Any, Any] | bytearray | None, /) -> None: ...
    def reply(self, values: _WireValues, /) -> None: ...
    def reply_error(self, text: str, /) -> None: ...
    def reply_payload(self, source: np.ndarray[Any, Any] | bytes, /) -> None: ...

def fetch_remote(tensor: Tensor, /) -> Tensor: ...
def tensor_view(base: Tensor, shape: tuple[int, ...], dtype: DTypeLike, byte_offset: int, /) -> Tensor: ...
