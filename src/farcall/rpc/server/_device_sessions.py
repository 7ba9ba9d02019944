"""The devices behind a server as devices of its own, ``hexagon:N``: their memory, functions and modules.

The worker of a session opens a session of its own with each device, at its first use. A tensor on
``hexagon:0`` is a tensor of that session; the address that it has here only says which one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from farcall import _core
from farcall.errors import ConnectionLostError, RemoteError, WorkerCrashedError
from farcall.ffi._addresses import Addresses
from farcall.ffi._devices import DEVICE_ATTRIBUTES, register_device_memory
from farcall.rpc.channels import parse_address
from farcall.rpc.client._session import Session
from farcall.rpc.client._views import is_remote
from farcall.rpc.server._relay import Devices, no_device
from farcall.rpc.shared._hops import Hop
from farcall.rpc.shared._limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from farcall._core import Device, Function, Module, Tensor
    from farcall.rpc.channels import Connection

_KIND = "hexagon"
_TYPE = _core.Device(_KIND).dlpack_device_type()
# Of the supervisor's patience with a call: the device's session must end before the one with our client.
_PATIENCE = 0.9


class _Block(NamedTuple):
    """Memory of a device."""

    device: int  # its index
    session: Session
    tensor: Tensor


class _ByName(Mapping[str, Session]):
    """Devices, whose sessions are opened at their first use."""

    def __init__(self, names: Sequence[str], session: Callable[[int], Session]) -> None:
        self._names = names
        self._session = session

    def __getitem__(self, name: str) -> Session:
        try:
            index = self._names.index(name)
        except ValueError:
            raise KeyError(name) from None
        return self._session(index)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class DeviceSessions:
    """The memory driver of ``hexagon:N`` (see :class:`farcall.ffi.DeviceMemory`), and the devices' functions.

    When a session with a device is lost, the next use opens another. Tensors and modules of the lost one are
    gone; functions that were found by name go on.

    Args:
        devices: of the server; ``hexagon:0`` is the first.
        limits: of the session that is served.
        go_on: connects to a device, if the client's token allows that.
    """

    def __init__(self, devices: Devices, limits: Limits, go_on: Callable[[Hop], Connection]) -> None:
        self._devices = devices
        self._names = list(devices)
        self._limits = limits
        self._go_on = go_on
        self._opening = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._ending: list[threading.Thread] = []
        self._blocks = Addresses[_Block]()
        # The function of --init may have registered a driver of its own.
        if devices and not _core.device_attribute(_core.Device(_KIND, 0), 0):
            register_device_memory(_KIND, self)

    @property
    def by_name(self) -> Mapping[str, Session]:
        """The session with each device by the owner's name; opened when it is asked for."""
        return _ByName(self._names, self._session)

    def close(self) -> None:
        """End the sessions with the devices, and wait for the programs that were started for them."""
        for session in self._sessions.values():
            session.close()
        for ending in self._ending:
            ending.join()

    # ---- the driver's methods

    def attribute(self, index: int, name: str, /) -> int | float | str | None:
        """Whether the owner named so many devices; else what the device says of its own memory."""
        exists = 0 <= index < len(self._names)
        if name == "exist" or not exists:
            return int(exists) if name == "exist" else None
        if name == "device_name":
            return self._names[index]
        with self._naming(index, f"the attribute {name}"):
            value = getattr(self._session(index).cpu(), name) if name in DEVICE_ATTRIBUTES else None
            return value if isinstance(value, int | float | str) else None

    def allocate(self, index: int, nbytes: int, /) -> int:
        """Allocate on the device."""
        with self._naming(index, f"an allocation of {nbytes} bytes"):
            session = self._session(index)
            return self._blocks.add(nbytes, _Block(index, session, session.empty(nbytes, "uint8")))

    def release(self, index: int, address: int, /) -> None:
        """Release the device's tensor."""
        self._blocks.remove(address)

    def write(self, index: int, address: int, data: memoryview, /) -> None:
        """Copy from this process to the device."""
        with self._naming(index, "a copy"):
            _core.copy_to_remote(self._bytes(index, address, data.nbytes), data)

    def read(self, index: int, address: int, out: memoryview, /) -> None:
        """Copy from the device to this process."""
        with self._naming(index, "a copy"):
            out[:] = memoryview(_core.fetch_remote(self._bytes(index, address, out.nbytes)))

    def copy(self, index: int, to: int, source: int, nbytes: int, /) -> None:
        """Copy on the device."""
        with self._naming(index, "a copy"):
            _core.copy_among_remote(self._bytes(index, source, nbytes), self._bytes(index, to, nbytes))

    def synchronize(self, index: int, /) -> None:
        """Do nothing: each method waits for the device's answer."""

    # ---- functions

    def function(self, device: Device, name: str) -> Function:
        """The function that the device exports as ``name``. Its tensors are those of the device.

        Raises:
            PermissionDeniedError: the owner named no such device.
            MissingFunctionError: the device exports no such function.
        """
        index = self._index(device)
        found: dict[Session, Function] = {}

        def find() -> tuple[Session, Function]:
            session = self._session(index)
            if session not in found:
                found.clear()
                found[session] = session.get_function(name)
            return session, found[session]

        with self._naming(index, f"`{name}`"):
            find()
        return self._forward(index, name, find)

    def module(self, device: Device, path: Path) -> Module:
        """Load a library on the device.

        Args:
            device: one of ``hexagon:N``.
            path: of the file on this machine.

        Raises:
            PermissionDeniedError: the owner named no such device.
        """
        index = self._index(device)
        with self._naming(index, path.name):
            session = self._session(index)
            module = session.load_module(path)
            functions: dict[str, Callable[..., Any]] = {
                name: self._forward(index, name, self._only(session, module[name])) for name in module
            }
        return _core.new_module("device", functions)

    def _only(self, session: Session, function: Function) -> Callable[[], tuple[Session, Function]]:
        """For a function that ends with its session."""

        def find() -> tuple[Session, Function]:
            if session.closed:
                raise RemoteError("it is lost with the session that it belonged to; load it again")
            return session, function

        return find

    def _forward(self, index: int, name: str, find: Callable[[], tuple[Session, Function]]) -> Function:
        def call(*args: Any) -> Any:
            with self._naming(index, f"`{name}`"):
                session, function = find()
                return self._back(index, name, session, function(*[self._there(index, one) for one in args]))

        return _core.Function(call)

    def _there(self, index: int, value: Any) -> Any:
        """An argument of this process as one of the device."""
        if isinstance(value, tuple | list):
            return [self._there(index, one) for one in value]
        if not isinstance(value, _core.Tensor):
            return value
        if value.device != _core.Device(_KIND, index):
            raise ValueError(
                f"a function of {_KIND}:{index} takes tensors of that device, this one is on {value.device}; "
                f"copy it there first: session.tensor(x, '{_KIND}:{index}')"
            )
        block, offset = self._find(index, value.data_ptr(), _nbytes(value))
        return _core.remote_view(block.tensor, tuple(value.shape), value.strides, offset, value.dtype)

    def _back(self, index: int, name: str, session: Session, value: Any) -> Any:
        """A result of the device as one of this process."""
        if isinstance(value, tuple | list):
            return [self._back(index, name, session, one) for one in value]
        if isinstance(value, _core.Function):
            return self._forward(index, f"result of {name}", self._only(session, value))
        if isinstance(value, _core.RemoteRef):
            way = f'via=["device:{self._names[index]}"]'
            raise TypeError(f"its result is an object that stays on the device; a session {way} can use it")
        if not is_remote(value):
            return value
        address = self._blocks.add(_nbytes(value), _Block(index, session, value))
        return _core.device_tensor(_core.Device(_KIND, index), address, tuple(value.shape), value.dtype)

    # ---- memory and sessions

    def _find(self, index: int, address: int, nbytes: int) -> tuple[_Block, int]:
        """The memory at an address, and its offset in the device's tensor."""
        found = self._blocks.find(address, nbytes)
        if found is None or found[0].device != index:
            raise IndexError(f"{nbytes} bytes at {address:#x} are not inside a tensor of {_KIND}:{index}")
        if found[0].session.closed:
            raise RemoteError("the tensor is lost with the session that it belonged to; make it again")
        return found

    def _bytes(self, index: int, address: int, nbytes: int) -> Tensor:
        block, offset = self._find(index, address, nbytes)
        return _core.remote_view(block.tensor, (nbytes,), (1,), offset, "uint8")

    def _index(self, device: Device) -> int:
        if device.dlpack_device_type() != _TYPE or not self.attribute(device.index, "exist"):
            raise no_device(str(device), self._devices)
        return device.index

    def _session(self, index: int) -> Session:
        """The session with a device, opened at its first use, and again after it was lost."""
        with self._opening:
            session = self._sessions.get(index)
            if session is None or session.closed:
                if session is not None:
                    self._end(session)
                hop = Hop(f"device:{self._names[index]}")
                connection = self._go_on(hop)
                connection.address = parse_address(hop.url)  # clients need not learn where the owner has it
                timeout = self._limits.call_seconds * _PATIENCE or None
                session = Session(connection, self._limits.relay_seconds, timeout)
                self._sessions[index] = session
            return session

    def _end(self, session: Session) -> None:
        """Free what a lost session leaves. A device that hangs gets seconds to end; nobody waits for it."""
        self._ending.append(threading.Thread(target=session.close))
        self._ending[-1].start()

    @contextlib.contextmanager
    def _naming(self, index: int, what: str) -> Iterator[None]:
        """Name the hop in errors, and what was done. The end of the device's session is not that of ours."""
        try:
            yield
        except Exception as error:
            said, hop = str(error), f"hop 2 (device:{self._names[index]})"
            lost = isinstance(error, ConnectionLostError | WorkerCrashedError)
            text = said if said.startswith(hop) else f"{hop}: {'' if what in said else f'{what}: '}{said}"
            raise _another(RemoteError if lost else type(error), text) from error


def _another(kind: type[Exception], text: str) -> Exception:
    try:
        return kind(text)
    except TypeError:  # a kind of Python's that is made from more than a text
        return RemoteError(text)


def _nbytes(tensor: Tensor) -> int:
    return (tensor.numel() * tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
