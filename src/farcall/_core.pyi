"""The native core. Import these names from :mod:`farcall.ffi`; :mod:`farcall.rpc` uses those of endpoints."""

from collections.abc import (
    Callable,
    Generator,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from concurrent.futures import Future
from mmap import mmap
from os import PathLike
from typing import Any, ClassVar, Literal, Protocol, Self, SupportsIndex, TypeAlias, TypeVar, final, overload

import numpy as np
import numpy.typing as npt

from farcall.ffi._torch_ops import TorchOps
from farcall.library._memory import Memory
from farcall.rpc.client._profile import Profile
from farcall.rpc.client._session import Session

_C = TypeVar("_C", bound=Callable[..., Any])
_E = TypeVar("_E", bound=type[BaseException])

DTypeLike: TypeAlias = Any
"""A dtype of farcall, numpy or torch, or its name."""
# Numbers of the native core, by name: native/python/constants.h.
TYPE_INDICES: Mapping[str, int]
REMOTE_STEP: int
"""The number of device types of each session: a remote device's type is its local type, plus this number
times (the session's slot + 1)."""
PACKETS: Mapping[str, int]
"""Codes of requests, see include/farcall/wire.h."""
PROTOCOL_VERSION: str
PEER: Mapping[str, int]
"""The features of a peer, one bit each."""
PAGE: Mapping[str, int]
"""Offsets in the status page of a worker."""
LEAF_KINDS: Mapping[str, int]
LEAF_FLAGS: Mapping[str, int]
REF_KINDS: Mapping[str, int]
NODE_KINDS: Mapping[str, int]
ARRAY_KINDS: Mapping[str, int]
DIMS: Mapping[str, int]
OPERATIONS: Mapping[str, int]
"""Operations in the program of a Signature, see native/python/abi/abi.h."""

DeviceLike: TypeAlias = Any
"""A Device, a torch.device, a name such as ``"cuda:1"``, or (type, index)."""

@final
class Function:
    """A native function, or a Python callable wrapped as one.

    Arguments are None, bool, int, float, str, bytes, bytearray, memoryview, dtypes, devices, Shapes,
    callables, tensors of any framework, and lists, tuples and dicts of these, nested. A numpy scalar is
    passed as its value, a complex number as a tensor without dims. Arguments are positional, or named if
    the library has metadata (as farcall/kernel.hpp writes it) or the function a :attr:`signature`;
    defaults come from the metadata.

    Tensors are shared, not copied. A torch tensor that requires grad, such as a Parameter, is passed as
    plain memory: autograd does not record the call, and its results do not require grad. Tensors with
    elements of less than a byte (ml_dtypes' int4, for example) are copied: numpy stores one element in
    each byte, so the kernel reads a packed copy.

    Results: if all tensors among the arguments, also those inside lists, tuples and dicts, belong to one
    framework, the tensors among the results, also inside containers, are of that framework: numpy, torch
    (any with DLPack's exchange API), jax (any with an array API namespace). Otherwise they are
    :class:`Tensor`.

    Raises:
        TypeError, ValueError, OverflowError: An argument cannot be passed; the message names it.
        Exception: The kernel's error, by its kind.
    """

    release_gil: bool
    """Whether other Python threads run during the call (default: True). False saves about 30 ns a call."""
    @property
    def threads(self) -> int | None:
        """On how many threads calls compute; None: as :func:`farcall.use_threads` or ``FARCALL_THREADS`` say.

        The keyword ``threads`` of a call overrides it: ``f(x, threads=1)``. Results do not depend on it.
        """
    @threads.setter
    def threads(self, value: int | None) -> None: ...
    @property
    def signature(self) -> Any:
        """The Signature of the function's arguments and results (a farcall.abi.Signature), or None."""
    @signature.setter
    def signature(self, value: Any) -> None: ...
    @property
    def abi(self) -> Any:
        """How calls are packed and results unpacked: the farcall.abi.FunctionAbi of the signature, or None.

        Set it to change the rules, such as which casts are allowed; it includes its Signature.
        """
    @abi.setter
    def abi(self, value: Any) -> None: ...
    @property
    def views(self) -> bool:
        """Whether the kernel only borrows its tensors: passed as ``DLTensor*``, else as Tensor objects.

        Set automatically if the library has metadata or the function a signature. Set it for a plain C
        kernel that takes ``DLTensor*`` and keeps no reference: a call with three tensors is then about
        15 ns cheaper.
        """
    @views.setter
    def views(self, value: bool) -> None: ...
    def __new__(cls, callable: Callable[..., Any], /) -> Self: ...
    @staticmethod
    def __from_extern_c__(c_symbol: int, *, keep_alive_object: object = ...) -> Function:
        """The function at an address, for JIT compilers.

        Args:
            c_symbol: The address of code with the universal signature, which gets NULL as its self.
            keep_alive_object: Kept alive as long as the Function: the engine that owns the code.

        Raises:
            ValueError: The address is 0.
        """
    @staticmethod
    def __from_mlir_packed_safe_call__(
        mlir_packed_symbol: int, *, keep_alive_object: object = ...
    ) -> Function:
        """Like ``__from_extern_c__``, for code with MLIR's C interface: ``void f(void** pointers)``.

        The pointers point to self, the arguments, their number, the result, and the return code.
        """
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def submit(self, *args: Any) -> Call | Future[Any]:
        """Begin a call and return at once. A remote call is sent; a local call runs in a thread."""
    async def call_async(self, *args: Any, timeout: float | None = None) -> Any:
        """Call without blocking the event loop.

        Raises:
            DeadlineExceededError: the call took longer than ``timeout`` seconds, and is abandoned: the server
                may still finish it, and the reply is ignored. The session goes on.
        """
    def _repr_html_(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    def same_as(self, other: object, /) -> bool:
        """Whether this and ``other`` are one native object, as ``==`` compares them."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Shape(tuple[int, ...]):
    """The dims of a tensor: a tuple of ints, passed to native code as a Shape."""

    def __new__(cls, dims: Iterable[int] = ..., /) -> Self: ...
    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""

@final
class Module:
    """Functions by name: ``mod["f"]`` or ``mod.f``; ``mod(...)`` calls ``main``.

    ``"f" in mod``, ``len(mod)``, ``for name in mod``, ``mod.items()`` and ``dict(mod)`` work as with a dict
    of the module's own functions. A Module is always true.

    A library stays in memory until the process ends, because its objects may outlive this one.
    """

    @property
    def kind(self) -> str:
        """The kind of module: ``"library"``, or the name of another kind."""
    @property
    def path(self) -> str:
        """The path of the loaded file, or the module's kind if it has no file."""
    @property
    def imports(self) -> tuple[Module, ...]:
        """The imported modules, in order."""
    @property
    def property_mask(self) -> int:
        """Bits: 1 if the module can be saved to bytes, 2 if it has functions to run."""
    @property
    def threads(self) -> int | None:
        """On how many threads the functions compute: what was set here, for :attr:`Function.threads`."""
    @threads.setter
    def threads(self, value: int | None) -> None: ...
    def get_function(self, name: str, /, query_imports: bool = False) -> Function:
        """The function of that name. For the module's own functions, always the same object.

        Args:
            name: The function.
            query_imports: Look also in the imported modules, depth first.

        Raises:
            MissingFunctionError: The library exports no ``__tvm_ffi_<name>``; the message suggests similar
                names. It is an AttributeError and a KeyError.
        """
    def implements_function(self, name: str, /, query_imports: bool = False) -> bool:
        """Whether a function ``name`` exists; with ``query_imports`` also in an imported module."""
    def function_names(self) -> list[str]:
        """The names of all functions, sorted."""
    def as_torch_op(
        self,
        namespace: str,
        *,
        functions: Iterable[str] | None = ...,
        fake: Mapping[str, Callable[..., Any]] | None = ...,
        mutates: Mapping[str, Sequence[str | int]] | None = ...,
    ) -> TorchOps:
        """Register the functions as operators ``torch.ops.<namespace>.<name>``.

        Args:
            namespace: A Python identifier.
            functions: The functions to register; None: all that torch's schemas can express. The result's
                ``skipped`` lists the others with the reasons.
            fake: By function name, a function that returns tensors of the right shapes without computing. An
                artifact's functions need none, nor do functions without results.
            mutates: By function name, the parameters that the kernel writes, by name or position; None: all
                tensors except those that the metadata marks as read-only.

        Arguments, result and errors are those of :func:`farcall.ffi._torch_ops.as_torch_op`.
        """
    def profile(self, /, *args: Any, on: Session | None = None, **kwargs: Any) -> Profile:
        """The time of each region of an artifact, and of each operator of a profiled build.

        The arguments are those of ``main``; see :func:`farcall.profile`.
        """
    def memory(self, /, *args: Any, **kwargs: Any) -> Memory:
        """The memory of an artifact, and of a call of ``main``: :func:`farcall.library.memory`."""
    def get_function_metadata(self, name: str, /, query_imports: bool = False) -> dict[str, Any] | None:
        """The metadata of the function ``name``, read from the library's JSON; None if there is none.

        With ``query_imports``, the function may be one of an imported module.
        """
    def get_function_doc(self, name: str, /, query_imports: bool = False) -> str | None:
        """The documentation of the function ``name``; None without one.

        With ``query_imports``, the function may be one of an imported module.
        """
    def import_module(self, module: Module, /) -> None:
        """Make another module's functions reachable from this one.

        Raises:
            RuntimeError: ``module`` is this module, or imports it.
        """
    def clear_imports(self) -> None:
        """Remove all imported modules."""
    def save_to_bytes(self) -> bytes:
        """The bytes from which the loader of this kind makes the module again.

        Raises:
            RuntimeError: The module has no ``save`` function.
        """
    def save(self, path: str | PathLike[str], /) -> None:
        """Write the bytes of :meth:`save_to_bytes` to the file ``path``, for :func:`farcall.load_module`.

        Raises:
            RuntimeError: The module has no ``save`` function.
            UsageError: The file cannot be written.
        """
    def inspect_source(self, format: str = "", /) -> str:
        """The source that the module keeps, in the ``format`` that its kind knows, or an empty str."""
    def __call__(self, *args: Any) -> Any: ...
    def __getitem__(self, name: str, /) -> Function: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def keys(self) -> KeysView[str]:
        """The names of all functions, sorted."""
    def values(self) -> ValuesView[Function]:
        """All functions, in the order of their names."""
    def items(self) -> ItemsView[str, Function]:
        """Pairs of name and function, in the order of the names."""
    def __dir__(self) -> list[str]: ...
    def _ipython_key_completions_(self) -> list[str]: ...
    def _repr_html_(self) -> str: ...
    def __getattr__(self, name: str, /) -> Function: ...
    def same_as(self, other: object, /) -> bool:
        """Whether this and ``other`` are one native object, as ``==`` compares them."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Object:
    """A native object whose type has no Python class: it can be held, compared and passed back.

    Two are equal if they refer to the same native object.
    """

    @property
    def type_key(self) -> str:
        """The name under which native code registered the type."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def same_as(self, other: object, /) -> bool:
        """Whether this and ``other`` are one native object, as ``==`` compares them."""

@final
class Tensor:
    """An n-dimensional array that owns its memory, in this process or on a server.

    Made by :func:`empty`, :func:`from_dlpack` or a function's result. A callback borrows the tensors of its
    caller: they expire when it returns.
    """

    __dlpack_c_exchange_api__: ClassVar[Any]
    """DLPack's table of C functions, in a capsule."""
    @property
    def shape(self) -> Shape: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """The distance between neighbours along each axis, in elements (not bytes)."""
    @property
    def dtype(self) -> dtype: ...
    @property
    def device(self) -> Device: ...
    @property
    def ndim(self) -> int: ...
    def numel(self) -> int:
        """The number of elements."""
    def size(self, axis: int, /) -> int:
        """The dim of an axis; a negative axis counts from the end.

        Raises:
            IndexError: The tensor has no such axis.
        """
    def data_ptr(self) -> int:
        """The address of the first element; for a remote tensor, the server's handle."""
    def is_contiguous(self) -> bool:
        """Whether the layout is row-major. Dims of size 1 and empty tensors have any layout."""
    def numpy(self) -> npt.NDArray[Any]:
        """The tensor as a numpy array: the same memory on the CPU, a copy from another machine.

        Raises:
            BufferError: The memory is on a device that numpy cannot see.
            TypeError: numpy has no such dtype (``pip install ml_dtypes`` adds bfloat16 and 8-bit floats).
        """
    def to(self, device: DeviceLike, *, copy: bool = ...) -> Tensor:
        """The tensor on a device: itself if it is already there and ``copy`` is False, else a copy.

        Raises:
            BufferError: farcall cannot copy between the two devices. It can copy from the CPU to itself, and
                from another machine to the CPU.
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
    def __buffer__(self, flags: int, /) -> memoryview:
        """``memoryview(tensor)`` shares the memory of a tensor on the CPU.

        Raises:
            BufferError: The memory is on another device, or Python's buffers have no such dtype (bfloat16).
        """
    def same_as(self, other: object, /) -> bool:
        """Whether this and ``other`` are one native object, as ``==`` compares them."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class dtype:  # noqa: N801 - the name that every array library uses
    """The type of a tensor's elements."""

    def __new__(cls, x: DTypeLike, /) -> Self: ...
    @property
    def code(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype; numpy reads this attribute when it is passed a farcall.dtype.

        Raises:
            TypeError: numpy has no such dtype.
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Opaque:
    """Any Python object as an argument: native code holds a reference, and returns the object unchanged."""

    def __new__(cls, value: Any, /) -> Self: ...
    @property
    def value(self) -> Any:
        """The object."""

class SignatureProgram:
    """A compiled Signature: the base class of farcall.abi.FunctionAbi, which documents the methods."""

    def __new__(cls, *spec: Any, **options: Any) -> Self: ...
    def pack_inputs(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The raw arguments of a call, checked: a list with one value for each input.

        Arrays become Tensors that share their memory and keep them alive. Arrays that need a copy or a cast
        by the rules of farcall.abi get one, counted in ``copies``.

        Raises:
            ArgumentError: Arguments are wrong; the message lists all, with their paths. Nothing is packed.
        """
    def unpack_results(self, values: Sequence[Any]) -> Any:
        """The structured result from raw values, one for each output.

        Raises:
            ResultError: Values do not match the Signature; the message lists all of them.
        """
    def _build(self, values: list[Any], /) -> Any: ...

@final
class Device:
    """A device that holds memory: from ``"cuda:1"``, from ``"cuda"`` and 1, or from a torch.device."""

    def __new__(cls, x: DeviceLike | int, /, index: SupportsIndex | None = None) -> Self: ...
    @property
    def type(self) -> str:
        """The kind of device by name, such as ``"cuda"``; ``"remote[0]/cuda"`` for a session's device."""
    @property
    def index(self) -> int:
        """The device's index among those of its kind, from 0."""
    def dlpack_device_type(self) -> int:
        """The DLPack number of the kind of device."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def load_module_from_bytes(kind: str, data: bytes, /) -> Module:
    """Make a module of this ``kind`` from ``data``, with the registered loader.

    Bytes in a frame (:class:`farcall.library.Blob`) are checked before the loader gets them. Where no loader
    is registered, installed packages are asked for one (entry points of the group ``farcall.modules``).

    Raises:
        ArtifactError: No loader is there for this kind, or the frame is damaged or of another kind.
    """

def system_lib(prefix: str = "", /) -> Module:
    """The module of the functions that are linked into this process, or registered by
    ``TVMFFIEnvModRegisterSystemLibSymbol``.

    A function ``f`` is looked up as ``__tvm_ffi_<prefix>f``, then as ``__tvm_ffi_f``. A prefix always gives
    the same module object.
    """

def new_module(
    kind: str,
    functions: dict[str, Callable[..., Any]],
    save: Callable[[], bytes] | None = None,
    source: Callable[[str], str] | None = None,
) -> Module:
    """A module of callables.

    Args:
        kind: Its kind; the loader of that kind makes such modules from bytes.
        functions: Its functions, by name.
        save: Returns the bytes for the loader.
        source: Returns the source code in a format.
    """

_L = TypeVar("_L", bound=Callable[[bytes], Module])

def register_loader(kind: str, fn: _L, extension: str | None = None, override: bool = False) -> _L:
    """Let ``fn(data)`` make the modules of a kind from their bytes.

    Args:
        kind: The kind that libraries embed, such as ``"cubin"``.
        fn: Called with the bytes.
        extension: Files with this extension are loaded by it, too.
        override: Replace a registered loader.

    Raises:
        ValueError: The kind or the extension already has a loader.
    """

def last_backtrace() -> list[str]:
    """The native frames of the last error that a C++ library raised in this thread, the innermost first.

    A frame is ``library: function+offset``. Names are looked up only in this call, so raising stays cheap.
    Without ``FARCALL_BACKTRACE=1`` in the environment there is only the innermost frame.
    """

def _parse_frame(kind: str, data: bytes, /) -> tuple[int, bytes, tuple[str, ...], str, str]: ...
def _module_from_bin(data: bytes, /) -> Module: ...
def load_library(path: str | PathLike[str], name: str = ..., /) -> Module:
    """Load a kernel library: a shared library that exports ``__tvm_ffi_<name>``.

    Args:
        path: The file. A name without a slash is searched as the dynamic linker does.
        name: The library's name in the module and in messages; default: ``path``.

    Raises:
        OSError: The file cannot be loaded; the message contains the dynamic linker's.
        ImportError: The library was built for another version of the ABI.
        ValueError: Its embedded modules are malformed, or it registers a name that is already registered.
    """

def load_plain(path: str | PathLike[str], /) -> Module | None:
    """Load a file if it is certainly a valid library for this machine, and not an artifact of farcall.

    Args:
        path: The file, with a slash.

    Returns:
        None for any other file: nothing was loaded, and the caller must inspect the file.

    Raises:
        OSError, ImportError, ValueError: As load_library().
    """

def empty(
    shape: int | tuple[int, ...] | list[int], dtype: DTypeLike = ..., device: DeviceLike = ...
) -> Tensor:
    """A new, uninitialized row-major Tensor.

    Args:
        shape: The dims.
        dtype: ``"float32"`` by default.
        device: ``"cpu"`` by default.

    Raises:
        ValueError: A dim is negative, or a name is unknown.
        MemoryError: There is not enough memory.
        RuntimeError: No allocator is known for the device.
    """

def from_dlpack(x: Any, /, *, require_alignment: int = ..., require_contiguous: bool = ...) -> Tensor:
    """A Tensor that shares the memory of ``x``.

    Args:
        x: An array of numpy, torch or any framework with ``__dlpack__``, or a DLPack capsule (consumed).
        require_alignment: The first element's address must be a multiple of this.
        require_contiguous: The layout must be row-major.

    Raises:
        TypeError: ``x`` is not a tensor, or its dtype has no counterpart.
        BufferError: The framework does not export the memory, or it does not meet the requirements.

    Source: DLPack 1.3, Python array API standard.
    """

def convert(x: Any, /) -> Any:
    """Convert ``x`` as for native code: an array to a Tensor, a callable to a Function, a list to a tuple.

    Raises:
        TypeError, ValueError, OverflowError: The value cannot be passed to native code.
    """

def set_device_memory(device_type: int, memory: object | None, /) -> None:
    """See farcall.ffi.register_device_memory; None removes it."""

def device_tensor(device: DeviceLike, address: int, shape: tuple[int, ...], dtype: DTypeLike, /) -> Tensor:
    """A row-major Tensor at an address that the device's driver has allocated; takes over the allocation.

    Raises:
        ValueError: there is no driver for such a device.
    """

def device_attribute(device: DeviceLike, kind: int, /) -> Any:
    """An attribute of a device of this process, by its number in kDevGetAttr; None: not known."""

def synchronize_device(device: DeviceLike, /) -> None:
    """Wait until a device of this process has finished its work.

    Raises:
        ValueError: there is no such device.
    """

def checksum(*pieces: bytes | memoryview | mmap) -> bytes:
    """The checksum of an artifact (docs/spec/artifact.md), 16 bytes, of buffers as if they were one."""

def set_threads(count: int | None, /) -> int | None:
    """Set this thread's number of threads to compute on; returns the one before. Use farcall.use_threads."""

def get_stream(device: DeviceLike, /) -> int:
    """The handle of a device's current stream in this thread; 0: none is set. See use_stream."""

def set_stream(device: DeviceLike, handle: int, /) -> int:
    """Set a device's current stream; returns the previous one. Use farcall.ffi.use_stream."""

@overload
def register_global_func(name: str, fn: None = ..., override: bool = ...) -> Callable[[_C], _C]:
    """Register a function under a name, for native code and for the sessions that this process serves.

    Args:
        name: Any text; dots group names (``"pkg.op"``).
        fn: The callable. Without it, a decorator is returned.
        override: Replace a registered function.

    Returns:
        ``fn``, unchanged.

    Raises:
        ValueError: The name is taken, and ``override`` is false.
        TypeError: ``fn`` is not callable.
    """

@overload
def register_global_func(name: str, fn: _C, override: bool = ...) -> _C: ...
@overload
def get_global_func(name: str, allow_missing: Literal[False] = ...) -> Function:
    """The Function registered under a name.

    Args:
        name: As it was registered.
        allow_missing: Return None for an unknown name.

    Raises:
        ValueError: No function has this name; the message suggests similar names.
    """

@overload
def get_global_func(name: str, allow_missing: bool) -> Function | None: ...
def get_global_func_metadata(name: str, /) -> dict[str, Any] | None:
    """The metadata with which native code registered a function, read from its JSON; None: there is none.

    Raises:
        ValueError: Nothing is registered under the name.
    """

def remove_global_func(name: str, /) -> None:
    """Remove a registered function. Existing references to it stay valid.

    Raises:
        ValueError: Nothing is registered under the name.
    """

def list_global_func_names() -> list[str]:
    """The names of all registered functions, sorted."""

@overload
def register_error(kind: str, cls: _E, /) -> _E:
    """Raise ``cls(message)`` for native errors of this kind. Python's own exceptions need no registration.

    Also a decorator: ``@register_error("Kind")``, and ``@register_error``, which takes the class's name.

    Raises:
        TypeError: ``cls`` is not an exception class.
    """

@overload
def register_error(kind: str, cls: None = None, /) -> Callable[[_E], _E]: ...
@overload
def register_error(kind: _E, cls: None = None, /) -> _E: ...
def make_error(kind: str, message: str, /) -> BaseException:
    """The exception that a native error becomes; an unknown kind gives ``RuntimeError("kind: message")``."""

def set_remote_tensor_hook(hook: Callable[[Tensor], Tensor | np.ndarray[Any, Any]] | None, /) -> None:
    """Set the function that fetches a remote tensor, for :meth:`Tensor.numpy` and others. For farcall.rpc."""

# ---- endpoints (native/python/rpc/endpoint.c), for farcall.rpc

# None, bool, int, float, str, bytes, dtype and Device stay as they are. Other values are tuples that
# begin with their type index: (4 | 68 | 73 | 115, handle), (7, data, byte_offset, device, dtype, shape),
# (9, bytes).
_WireValues = tuple[Any, ...]

class Channel:
    """Bytes in order, in both directions: over a socket, or over a descriptor to read and one to write. Takes
    ownership of the descriptors.

    Deadlines are times of ``time.monotonic()``. One thread may receive while another sends; any may close.
    """

    def __new__(cls, fd: int, out: int = ...) -> Self: ...
    @property
    def closed(self) -> bool: ...
    def receive(self, size: int, deadline: float | None = ..., /) -> bytes:
        """At least one byte and at most ``size``; empty when the peer has finished.

        Raises:
            DeadlineExceededError: Nothing arrived before the ``deadline``; the channel stays usable.
            ConnectionLostError: The connection broke, or the channel is closed.
        """
    def receive_into(self, buffer: bytearray | memoryview, deadline: float | None = ..., /) -> int:
        """Like ``receive``, into ``buffer``, with the same ``deadline``; returns the number of bytes."""
    def send(self, data: bytes | bytearray | memoryview, deadline: float | None = ..., /) -> None:
        """Send all of ``data``, before the ``deadline``.

        Raises:
            DeadlineExceededError: Not sent in time; how much was sent is unknown.
            ConnectionLostError: The peer is gone, or the channel is closed.
        """
    def finish(self) -> None:
        """Send nothing more. The other direction stays open."""
    def close(self) -> None:
        """Close both directions. May be called again, and from another thread."""

@final
class SharedChannel(Channel):
    """A channel over two rings in a memory file; ``line`` is the socket over which the file was sent.

    The file has a page and two rings of 2^n bytes, and is sealed against shrinking. The channel borrows its
    descriptor during the call, and closes ``line`` at its end. ``accepting``: this peer is the server.
    """

    def __new__(cls, line: Channel, memory: int, *, accepting: bool = ...) -> Self: ...

@final
class MemoryChannel(Channel):
    """A channel in memory: receives the bytes that are fed to it; keeps sent bytes until they are taken."""

    def __new__(cls) -> Self: ...
    def feed(self, data: bytes | bytearray | memoryview, /) -> None: ...
    def feed_end(self) -> None: ...
    def take(self) -> bytes: ...

@final
class Mailbox:
    """A file through which a server and its clients, one after another, exchange the bytes of sessions.

    ``serving``: this side is the server; it makes the file at ``path`` if there is none. See
    docs/spec/mailbox.md.

    Raises:
        ConnectError: There is no such file.
        UsageError: The file is no mailbox of this version, or others can open it, or another server has it.
    """

    def __new__(cls, path: str, *, serving: bool = ...) -> Self: ...
    def meet(self, deadline: float | None = ..., /) -> Channel:
        """Wait for the other side, until ``deadline``; the channel of the next session. The session before
        has ended.

        Raises:
            ConnectError: No server has the mailbox open; or another client used it until the deadline.
            DeadlineExceededError: The other side did not come.
            ConnectionLostError: ``interrupt`` was called.
        """
    def interrupt(self) -> None:
        """End :meth:`meet` in another thread, for good."""
    def remove(self, path: str, /) -> None:
        """Remove the file at ``path``, if it is the one that this side serves."""

class _WireLimits(Protocol):
    """The limits of a reader of packets, see fc_wire_limits in include/farcall/wire.h: a Limits."""

    @property
    def control_bytes(self) -> int: ...
    @property
    def call_bytes(self) -> int: ...
    @property
    def copy_bytes(self) -> int: ...
    @property
    def string_bytes(self) -> int: ...
    @property
    def values(self) -> int: ...
    @property
    def rank(self) -> int: ...

@final
class Endpoint:
    """One end of a connection, over a channel or a socket's descriptor. Takes ownership of a descriptor."""

    def __new__(
        cls,
        channel: Channel | int,
        peer: str,
        limits: _WireLimits,
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
    def serial(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    # client
    def beat(self) -> bool:
        """Send an empty packet, unless another exchange runs; False when the connection is lost."""
    def start(
        self, constructor: _WireValues, wishes: str, between: tuple[str, ...], /
    ) -> tuple[str | None, int]:
        """Begin the session. Returns a farcall server's hello, and how many names of ``between`` exist."""
    def set_features(self, bits: int, args_max: int, /) -> None: ...
    def set_span(self, handle: int, /) -> None: ...
    @property
    def stats(self) -> tuple[int, int, int, int, int, int, int]: ...
    @property
    def peer(self) -> str: ...
    @property
    def sent(self) -> int: ...
    def request(self, code: int, what: str, values: _WireValues, handle: int = ..., /) -> _WireValues: ...
    def function(self, handle: int, name: str, /) -> Function: ...
    def release(self, handle: int, /) -> None: ...
    def empty(self, shape: tuple[int, ...], dtype: DTypeLike, device: DeviceLike, /) -> Tensor: ...
    def tensor(self, x: Any, device: DeviceLike, /) -> Tensor: ...

class _Policy(Protocol):
    """The decisions of a server: see farcall.rpc.server._dispatch."""

    def find(self, name: str, /) -> tuple[Function, int, int] | None: ...
    def begin(self, values: _WireValues, /) -> _WireValues | tuple[Endpoint, int]: ...

SCOPES: Mapping[str, int]
"""Rights of a session, by name: one bit each."""
OFFERS: Mapping[str, int]
"""Features that a host adds to a server's, by name: one bit each."""

HANDSHAKE: Mapping[str, int]
"""The first number of a handshake: ``magic``, or the refusals ``duplicate`` and ``mismatch``."""

def read_hello(
    data: bytes, max_key_bytes: int, /
) -> tuple[str, int, bytes | None, bytes | None, bytes | None, int]:
    """Read a connector's hello: (outcome, bytes needed in all, key, token, timeout, timeout in ns).

    The outcome is ``done``, ``more``, ``magic``, ``size``, ``prefix`` or ``timeout``.
    """

def read_welcome(data: bytes, max_key_bytes: int, /) -> tuple[str, int, bytes]:
    """Read an acceptor's answer: (outcome, bytes needed in all, key).

    The outcome is ``done``, ``more``, ``magic``, ``size``, ``mismatch`` or ``duplicate``.
    """

def standard_scope(name: str, /) -> int | None:
    """The scope that a standard function needs: bits of :data:`SCOPES`. None: there is no such function."""

@final
class Dispatcher:
    """Serves the requests of one session, in order."""

    def __new__(
        cls,
        endpoint: Endpoint,
        policy: _Policy,
        handles: int,
        tensor_bytes: int,
        scopes: int,
        token: str,
        waits: bool,
        offers: int,
        limits: str,
        entropy: Callable[[int], bytes] | None = None,
    ) -> Dispatcher: ...
    @property
    def handles(self) -> int: ...
    @property
    def serving(self) -> bool: ...
    def close(self) -> None:
        """Free the objects that the client holds. Safe to call twice.

        Raises:
            RuntimeError: :meth:`serve` is running.
        """

    @property
    def last_error(self) -> BaseException | None: ...
    def keep_errors(self) -> None:
        """From now on, keep the last error that was sent to the client in ``last_error``."""
    def serve(self) -> bool:
        """Serve until the client has left (True), or a MemoryChannel has no more bytes (False).

        Raises:
            ProtocolError: the client broke the protocol (it has been told).
            ConnectionLostError: the client hung up inside a packet.
            RuntimeError: this method is already running.
        """

class RemoteRef:
    """An object on the server; farcall.rpc.client._module has the subclasses."""

    def __new__(cls, ref: RemoteRef, /) -> Self: ...
    @property
    def type_index(self) -> int: ...
    @property
    def type_name(self) -> str: ...
    @property
    def handle(self) -> int: ...
    @property
    def endpoint(self) -> Endpoint: ...

@final
class Call:
    """A pending remote call, with the methods of a :class:`concurrent.futures.Future`.

    From a pipeline, or ``Function.submit``. It can be awaited, and be an argument of a later call;
    ``concurrent.futures.wait`` and ``as_completed`` take it.
    """

    @property
    def slot(self) -> int: ...
    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result.

        Raises:
            DeadlineExceededError: the result did not arrive within ``timeout`` seconds; you may wait again.
                Or the call's own deadline has passed, which ends the session; see :func:`farcall.deadline`.
            concurrent.futures.CancelledError: the call was cancelled.
            Exception: the error of the call itself.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, for at most ``timeout`` seconds; return the exception, or None if the call succeeded."""
    def done(self) -> bool: ...
    def running(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self) -> bool:
        """Abandon the result. A call of a pipeline that was not sent yet is never sent (unless a later call
        uses its result); one that was sent still runs, and its reply is ignored. Never waits.

        Returns:
            False if the call has already ended.
        """
    def add_done_callback(self, fn: Callable[[Call], object], /) -> None:
        """Call ``fn(call)`` when the call has ended: in another thread, or in the thread that cancels it."""
    def __await__(self) -> Generator[Any, None, Any]: ...

@final
class Pipeline:
    """Calls of one session that do not wait for each other. From :meth:`farcall.rpc.Session.pipeline`."""

    def __new__(cls, endpoint: Endpoint, keep: bool = ...) -> Self: ...
    def __call__(self, function: Function, /, *args: Any) -> Call:
        """Begin a call. The pipeline collects requests before it sends them; the Call holds the error.

        Raises:
            TypeError: ``function`` is local, or an argument cannot be sent.
            ValueError: ``function`` belongs to another session.
        """
    def map(self, function: Function, items: Iterable[Any], /) -> list[Any]:
        """The results of ``function(item)`` for all ``items``, in order.

        An item that is a tuple is passed as several arguments.

        The first error ends it, and is raised.
        """
    def flush(self) -> None:
        """Send the queued requests."""
    def wait(self) -> None:
        """Wait until all calls of the session are answered."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

def submit(function: Function, args: tuple[Any, ...], keep: bool = ..., /) -> Call | None: ...
def set_remote_object_hook(hook: Callable[[RemoteRef], RemoteRef] | None, /) -> None: ...
def fetch_remote(tensor: Tensor, /) -> Tensor: ...
def copy_to_remote(remote: Tensor, local: Any, /) -> None: ...
def copy_from_remote(remote: Tensor, local: Any, /) -> None: ...
def copy_among_remote(source: Tensor, target: Tensor, /) -> None: ...
def copy_runs(run: Tensor, offsets: npt.NDArray[np.int64], local: Any, to_remote: bool, /) -> None: ...
def compute_remote(
    compute: Function, function: Function, inputs: int, pairs: tuple[tuple[Tensor, Tensor | None], ...], /
) -> None: ...
def remote_view(
    base: Tensor,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    byte_offset: int,
    dtype: DTypeLike = ...,
    /,
) -> Tensor: ...
def rename_remote(function: Function, name: str, /) -> Function: ...
def describe_by(function: Function, source: Callable[[], str | None], /) -> None: ...
def observe(
    function: Function,
    around: Callable[[Function, bool], tuple[str | None, Callable[[BaseException | None, int], object]]],
    /,
) -> None: ...
def set_deadline(at: int, /) -> int: ...
def beat_if_held(serial: int, /) -> bool:
    """Send an empty packet on the Endpoint with this serial number; the caller need not hold a reference.

    Returns:
        False when the connection has ended, or the last reference to the Endpoint is gone.
    """

def trace_start() -> None: ...
def trace_stop() -> tuple[list[tuple[int, str, str, int, int, int, str]], int]:
    """Stop.

    Returns:
        The spans, (track, category, name, start_ns, duration_ns, bytes, args), and the number of spans for
        which there was no room.
    """

def file_writer(begin: Callable[[str, int, int, int], int], end: Callable[[str, bool], None], /) -> Function:
    """A Function that writes files: (name, bytes), or (name, offset, total, bytes) for a piece.

    ``begin(name, offset, size, total)`` returns the descriptor to which a piece is written;
    ``end(name, whether it is whole)`` is called after the last piece, or one that failed.
    """

def file_is_ours(fd: int, /) -> bool:
    """Whether an open file has no other name, descriptor or mapping. False if the file
    system cannot tell."""

def time_evaluator(
    function: Function,
    before: Function | None,
    number: int,
    repeat: int,
    min_repeat_ms: int,
    limit_zero_time_iterations: int,
    cooldown_interval_ms: int,
    repeats_to_cooldown: int,
    cache_flush_bytes: int,
    /,
) -> Function: ...
