"""Requests of one session -> what they do here. This is the worker's heart; it runs after the handshake."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from farcall import _core
from farcall.errors import ProtocolError
from farcall.rpc.handles import HandleTable, Kind
from farcall.rpc.limits import Limits
from farcall.rpc.standard import standard_functions

if TYPE_CHECKING:
    import numpy as np

    from farcall._core import Device

# Type indices of the C ABI (include/farcall/c_api.h), where they appear on the wire.
NONE, INT, BOOL, FLOAT, POINTER, DTYPE, DEVICE, TENSOR_VIEW = 0, 1, 2, 3, 4, 5, 6, 7
BYTES_VIEW, SMALL_STR, SMALL_BYTES, STR, BYTES = 9, 11, 12, 65, 66
FUNCTION, TENSOR, ARRAY, MAP, MODULE, OBJECT_REF = 68, 70, 71, 72, 73, 115
CPU = 1
PROTOCOL_VERSION = "0.8.0"

Values = tuple[Any, ...]


class _Exported(NamedTuple):
    """What a function's handle names."""

    function: Any
    name: str
    note: bytes  # for the page


class CallPage(Protocol):
    """Where the worker notes what it is doing, for the supervisor to read when the worker dies."""

    def note(self, name: str) -> bytes:
        """What :meth:`begin` takes for a function of this name."""

    def begin(self, note: bytes) -> None:
        """A call begins."""

    def end(self) -> None:
        """It came back."""


class Dispatcher:
    """Serves the requests of one session, in order.

    Args:
        endpoint: the server's end of the connection, behind the handshake.
        workdir: the session's own folder.
        limits: what the client may ask for.
        page: told which function runs.
    """

    def __init__(self, endpoint: _core.Endpoint, workdir: Path, limits: Limits, page: CallPage) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._page = page
        self._handles = HandleTable(limits.handles)
        self._standard = standard_functions(workdir)
        self._allocated = 0
        self._started = False
        self._syscalls: dict[int, Callable[..., Values]] = {
            9: self._get_global_func,
            10: self._free_handle,
            11: self._nothing,  # kDevSetDevice: there is one
            12: self._device_attr,
            13: self._alloc,
            14: self._free_data,
            15: self._nothing,  # kDevStreamSync: the CPU's stream is in order
            16: self._copy_among,
            17: self._alloc_with_scope,
            18: self._null_stream,
            19: self._nothing,
            20: self._nothing,
            21: self._null_stream,
        }

    def serve(self) -> None:
        """Serve until the client says goodbye or closes.

        Raises:
            ProtocolError: the client sent what cannot be read (it was told).
            ConnectionLostError: it went away inside a packet.
        """
        while (request := self._endpoint.next()) is not None:
            code = request[0]
            if code == 1:  # kShutdown
                return
            if code == 7:
                self._copy_in(request)
            elif code == 6:
                self._copy_out(request)
            else:
                self._answer(request)

    def _answer(self, request: Values) -> None:
        code = request[0]
        try:
            if code == 3:
                reply = self._call(request[1], request[2])
            elif code == 2:
                reply = self._init(request[1], request[2])
            else:
                self._require_start()
                reply = self._syscall(code, request[2])
        except Exception as error:
            self._endpoint.reply_error(describe(error))
            return
        except (SystemExit, KeyboardInterrupt) as error:  # of a function: it must not end the session
            self._endpoint.reply_error(describe(error))
            return
        try:
            self._endpoint.reply(reply)
        except (TypeError, ValueError, OverflowError) as error:  # could not be encoded: nothing was sent
            self._endpoint.reply_error(describe(error))

    def _syscall(self, code: int, args: Values) -> Values:
        handler = self._syscalls.get(code)
        if handler is None:
            raise ProtocolError(f"packet code {code} is none that a client sends")
        try:
            return handler(*args)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise ProtocolError(f"packet code {code} does not come with {len(args)} values") from None
            raise

    # ---- the session

    def _init(self, version: str, args: Values) -> Values:
        if self._started:
            raise ProtocolError("the session has begun already; kInitServer comes once")
        if version != PROTOCOL_VERSION:
            raise ProtocolError(f"this server speaks protocol {PROTOCOL_VERSION}, the client {version!r}")
        if args:
            raise NotImplementedError("session constructors are not served; connect without one")
        self._started = True
        return (None,)

    def _require_start(self) -> None:
        if not self._started:
            raise ProtocolError("the session has not begun; send kInitServer first")

    # ---- functions

    def _get_global_func(self, name: str) -> Values:
        function: Any = self._standard.get(name)
        if function is None:
            function = _core.get_global_func(name, allow_missing=True)
        if function is None:
            return ((POINTER, 0),)
        return ((POINTER, self._add_function(function, name)),)

    def _add_function(self, function: Any, name: str) -> int:
        return self._handles.add(Kind.FUNCTION, _Exported(function, name, self._page.note(name)))

    def _call(self, handle: int, args: Values) -> Values:
        self._require_start()
        function, name, note = self._handles.get(handle, Kind.FUNCTION)
        values = [self._argument(value, i, name) for i, value in enumerate(args)]
        self._page.begin(note)
        try:
            result = function(*values)
        finally:
            self._page.end()
        return self._result(result, name)

    def _argument(self, value: Any, i: int, name: str) -> Any:
        if not isinstance(value, tuple):
            return value
        match value[0]:
            case 7:
                return self._tensor(value)
            case 68:
                return self._handles.get(value[1], Kind.FUNCTION).function
            case 73:
                return self._handles.get(value[1], Kind.MODULE)
            case 115:
                return self._handles.get(value[1], Kind.OBJECT)
            case 4 if value[1] == 0:
                return None
        raise TypeError(f"argument {i + 1} of `{name}`: a pointer means nothing here")

    def _result(self, value: Any, name: str) -> Values:
        """The type that is returned, and the value (A.8: and, for a tensor, its owner)."""
        match value:
            case None:
                return (NONE, None)
            case bool():
                return (BOOL, value)
            case int():
                return (INT, value)
            case float():
                return (FLOAT, value)
            case str():
                return (SMALL_STR if len(value.encode(errors="replace")) <= 7 else STR, value)
            case bytes():
                return (SMALL_BYTES if len(value) <= 7 else BYTES, (BYTES_VIEW, value))
            case _core.dtype():
                return (DTYPE, value)
            case _core.Device():
                return (DEVICE, value)
        return self._object(value, name)

    def _object(self, value: Any, name: str) -> Values:
        if isinstance(value, _core.Tensor):
            return self._returned(value)
        if isinstance(value, _core.Module):
            return (MODULE, (POINTER, self._handles.add(Kind.MODULE, value)))
        if callable(value):
            called = getattr(value, "name", "") or f"result of {name}"
            return (FUNCTION, (POINTER, self._add_function(value, called)))
        if isinstance(value, tuple | list):
            return (ARRAY, (POINTER, self._handles.add(Kind.OBJECT, value)))
        if isinstance(value, dict):
            return (MAP, (POINTER, self._handles.add(Kind.OBJECT, value)))
        raise TypeError(f"`{name}` returned a {type(value).__name__}, which cannot travel")

    # ---- tensors

    def _returned(self, tensor: _core.Tensor) -> Values:
        if tensor.device.type != CPU:
            raise NotImplementedError(f"a tensor on {tensor.device} cannot travel; only those on the CPU can")
        if not tensor.is_contiguous():
            tensor = _compact(tensor)
        data = self._handles.add(Kind.RETURNED, tensor)
        owner = self._handles.add(Kind.TENSOR, data)
        view = (TENSOR_VIEW, data, 0, tensor.device, tensor.dtype, tuple(tensor.shape))
        return (TENSOR, view, (POINTER, owner))

    def _tensor(self, value: Values) -> _core.Tensor:
        _, data, byte_offset, device, dtype, shape = value
        _check_device(device)
        return _core.tensor_view(self._handles.get(data, Kind.DATA), shape, dtype, byte_offset)

    def _alloc(self, device: Device, nbytes: int, alignment: int, dtype: Any) -> Values:
        del alignment, dtype  # allocations are aligned to 64, for any type
        return ((POINTER, self._allocate(device, nbytes)),)

    def _alloc_with_scope(self, like: Values, scope: str | None) -> Values:
        _, _, _, device, dtype, shape = like
        if scope not in (None, "", "global"):
            raise ValueError(f"memory scope {scope!r}: the CPU has only 'global'")
        bits = math.prod(shape) * dtype.bits * dtype.lanes
        return ((POINTER, self._allocate(device, (bits + 7) // 8)),)

    def _allocate(self, device: Device, nbytes: int) -> int:
        _check_device(device)
        limit = self._limits.tensor_bytes
        if not 0 <= nbytes <= limit - self._allocated:
            raise MemoryError(
                f"{nbytes} bytes: the session has allocated {self._allocated} already, its limit is {limit}"
            )
        handle = self._handles.add(Kind.ALLOCATED, _core.empty((nbytes,), "uint8"))
        self._allocated += nbytes
        return handle

    def _free_data(self, device: Device, data: Values) -> Values:
        del device
        self._allocated -= self._handles.remove(data[1], Kind.ALLOCATED).shape[0]
        return (None,)

    def _free_handle(self, handle: Values) -> Values:
        kinds = Kind.FUNCTION | Kind.MODULE | Kind.OBJECT | Kind.TENSOR
        value = self._handles.remove(handle[1], kinds)
        if isinstance(value, int):  # the owner of a returned tensor: its data goes too
            self._handles.remove(value, Kind.RETURNED)
        return (None,)

    # ---- copies

    def _span(self, tensor: Values, nbytes: int) -> np.ndarray[Any, Any]:
        """The bytes that a copy touches, checked against the end of their allocation."""
        _, data, byte_offset, device, _, _ = tensor
        _check_device(device)
        base = self._handles.get(data, Kind.DATA)
        return _core.tensor_view(base, (nbytes,), "uint8", byte_offset).numpy()

    def _copy_in(self, request: Values) -> None:
        try:
            self._require_start()
            span = self._span(request[1], request[2])
        except Exception as error:
            self._endpoint.receive(None)
            self._endpoint.reply_error(describe(error))
            return
        self._endpoint.receive(span)
        self._endpoint.reply((None,))

    def _copy_out(self, request: Values) -> None:
        try:
            self._require_start()
            span = self._span(request[1], request[2])
        except Exception as error:
            self._endpoint.reply_error(describe(error))
            return
        self._endpoint.reply_payload(span)

    def _copy_among(self, source: Values, target: Values, stream: Values) -> Values:
        del stream
        bits = math.prod(source[5]) * source[4].bits * source[4].lanes
        nbytes = (bits + 7) // 8
        self._span(target, nbytes)[:] = self._span(source, nbytes)
        return (None,)

    # ---- devices

    def _device_attr(self, device: Device, kind: int) -> Values:
        if kind == 0:  # whether it exists
            return (int(device.type == CPU and device.index == 0),)
        return (None,)

    def _null_stream(self, device: Device) -> Values:
        _check_device(device)
        return ((POINTER, 0),)

    def _nothing(self, *args: Any) -> Values:
        return (None,)


def _check_device(device: Device) -> None:
    if device.type != CPU or device.index != 0:
        raise ValueError(f"no device {device} here; this server has cpu:0")


def _compact(tensor: _core.Tensor) -> _core.Tensor:
    import numpy as np

    return _core.from_dlpack(np.ascontiguousarray(tensor.numpy()))


def describe(error: BaseException) -> str:
    """``Kind: message``, the form in which exceptions travel; our client makes the class out of it again."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return f"{type(error).__name__}: {text}"
