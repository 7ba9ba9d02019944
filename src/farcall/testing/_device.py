"""The contract of a remote device: the properties that callers need, as rules that test any server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from farcall.testing._rules import Contract

if TYPE_CHECKING:
    import numpy as np

    from farcall._core import Tensor
    from farcall.rpc import Session

MakeSession = Callable[[], "AbstractContextManager[Session]"]

_KIB = 1 << 10
_END_SECONDS = 2.0  # until a session's process has ended: the client does not wait for that
_DTYPES = ("bool", "int8", "uint16", "int32", "float32", "int64", "float64", "complex64")
_SHAPES = ((), (1,), (7,), (0, 3), (3, 5), (2, 3, 4), (1, 65, 1))


def check_device(
    make_session: MakeSession,
    device: str = "ext_dev:0",
    *,
    rules: Iterable[str] | None = None,
    bulk_bytes: int = 4 << 20,
) -> None:
    """Check that a device's memory keeps its contract, through sessions with its server.

    ::

        def test_my_accelerator():
            check_device(lambda: farcall.connect(server.url), "ext_dev:0")

    Args:
        make_session: opens a session with the server, as a context manager. The server may run in this
            process: register the driver in its ``--init`` (:func:`farcall.ffi.register_device_memory`).
        device: the device, by the server's numbers.
        rules: the rules to check, of :data:`DEVICE_RULES`; all by default.
        bulk_bytes: size of the largest transfer; the device must have room for four such blocks.

    Raises:
        AssertionError: a rule is broken; the message names it.
    """
    _CONTRACT.check(rules, make_session, device, bulk_bytes)


_CONTRACT: Contract[[MakeSession, str, int]] = Contract("device")
_rule = _CONTRACT.rule


def _noise(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray[Any, Any]:
    import numpy as np

    made = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 120, shape)
    return made.astype(dtype)


def _same(tensor: Tensor, expected: np.ndarray[Any, Any]) -> None:
    import numpy as np

    assert tuple(tensor.shape) == expected.shape, f"shape {tensor.shape}, expected {expected.shape}"
    np.testing.assert_array_equal(tensor.numpy(), expected)


def _bytes(session: Session, device: str, size: int, seed: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
    data = _noise((size,), "uint8", seed)
    return session.tensor(data, device), data


def _expect(kind: type[Exception], work: Callable[[], object]) -> None:
    try:
        result = work()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


# ---- the rules


@_rule("the device exists, and one far behind it does not")
def _exists(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    del bulk_bytes
    with make_session() as session:
        assert session.device(device).exist
        kind = device.partition(":")[0]
        assert not session.device(f"{kind}:97").exist
        _expect(ValueError, lambda: session.empty((1,), "uint8", f"{kind}:97"))


@_rule("new memory is zero, also where other memory was before")
def _zeroed(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    with make_session() as session:
        for _ in range(3):
            tensor = session.empty((bulk_bytes,), "uint8", device)
            assert not tensor.numpy().any()
            session.copy(_noise((bulk_bytes,), "uint8", 1), tensor)
            del tensor


@_rule("numbers come back as they went, for every dtype and shape")
def _round_trip(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    del bulk_bytes
    with make_session() as session:
        for seed, dtype in enumerate(_DTYPES):
            for shape in _SHAPES:
                data = _noise(shape, dtype, seed)
                _same(session.tensor(data, device), data)


@_rule("a large transfer arrives whole")
def _bulk(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    with make_session() as session:
        tensor, data = _bytes(session, device, bulk_bytes, 3)
        _same(tensor, data)


@_rule("allocations do not overlap")
def _apart(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    del bulk_bytes
    with make_session() as session:
        pairs = [
            _bytes(session, device, size, size) for size in (1, 63, 64, 65, 4095, 64 * _KIB) for _ in range(4)
        ]
        for tensor, data in pairs:
            _same(tensor, data)


@_rule("a copy into a part changes nothing else")
def _parts(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    del bulk_bytes
    with make_session() as session:
        tensor, data = _bytes(session, device, 1000, 4)
        for begin, end in ((0, 1), (1, 64), (63, 65), (500, 1000), (999, 1000), (7, 7)):
            part = _noise((end - begin,), "uint8", begin + 5)
            session.copy(part, session.view(tensor, slice(begin, end)))
            data[begin:end] = part
            _same(tensor, data)


@_rule("a part can be read by itself")
def _read_part(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    del bulk_bytes
    with make_session() as session:
        tensor, data = _bytes(session, device, 1000, 6)
        for begin, end in ((0, 1), (1, 64), (500, 1000)):
            _same(session.view(tensor, slice(begin, end)), data[begin:end])


@_rule("a copy between tensors of the device moves the bytes")
def _among(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    with make_session() as session:
        source, data = _bytes(session, device, bulk_bytes, 7)
        target = session.empty((bulk_bytes,), "uint8", device)
        session.copy(source, target)
        _same(target, data)
        _same(source, data)


@_rule("a copy goes to the server's CPU, and back")
def _to_cpu(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    with make_session() as session:
        source, data = _bytes(session, device, bulk_bytes, 8)
        middle = session.empty((bulk_bytes,), "uint8", "cpu:0")
        target = session.empty((bulk_bytes,), "uint8", device)
        session.copy(source, middle)
        _same(middle, data)
        session.copy(middle, target)
        _same(target, data)
        _same(source, data)


@_rule("too large an allocation is refused, and the device works on")
def _too_large(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    del bulk_bytes
    with make_session() as session:
        total = session.device(device).total_global_memory or 1 << 60
        _expect(MemoryError, lambda: session.empty((total + 1,), "uint8", device))
        tensor, data = _bytes(session, device, 1000, 9)
        _same(tensor, data)


@_rule("memory that was freed can be allocated again")
def _freed(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    with make_session() as session:
        free = session.device(device).available_global_memory
        rounds = 64 if free is None else min(4 * free // bulk_bytes + 1, 4096)
        for _ in range(rounds):
            session.empty((bulk_bytes,), "uint8", device)


@_rule("synchronizing returns")
def _sync(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    del bulk_bytes
    with make_session() as session:
        session.device(device).sync()


@_rule("the end of a session frees what it held")
def _end(make_session: MakeSession, device: str, bulk_bytes: int) -> None:
    if device.startswith("cpu"):
        return  # the CPU's free memory is the machine's, which other programs use too
    with make_session() as session:
        before = session.device(device).available_global_memory
        held = [session.empty((bulk_bytes,), "uint8", device) for _ in range(3)]
    del held
    with make_session() as session:
        until = time.monotonic() + _END_SECONDS
        while (free := session.device(device).available_global_memory) != before:
            assert time.monotonic() < until, f"{free} bytes are free, {before} were before the last session"
            time.sleep(_END_SECONDS / 100)


DEVICE_RULES: tuple[str, ...] = tuple(_CONTRACT.rules)
"""The names of the rules of :func:`check_device`."""
