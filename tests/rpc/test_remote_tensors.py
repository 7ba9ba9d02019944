"""Views of remote tensors, copies among tensors, dtypes, devices and streams."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import farcall as fc
from farcall.rpc import Server, Session, connect

from ..waiting import SECONDS

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    """A shape, and an index that numpy takes."""
    shape = draw(SHAPES)
    index: list[Any] = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        ints = [st.integers(-n, n - 1)] if n else []
        index.append(draw(st.one_of(st.slices(n), *ints)))
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), None)
    if draw(st.booleans()):
        index.append(...)
    return shape, tuple(index)


@given(indexed())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_views_are_as_numpy_s(session: Session, case: tuple[tuple[int, ...], Any]) -> None:
    shape, index = case
    x = np.arange(np.prod(shape, dtype=int), dtype="int32").reshape(shape)
    there = session.tensor(x)
    view, expected = session.view(there, index), x[index]
    assert tuple(view.shape) == expected.shape
    np.testing.assert_array_equal(view.numpy(), expected)
    session.copy(np.full(expected.shape, -1, "int32"), view)
    x[index] = -1
    np.testing.assert_array_equal(there.numpy(), x)


def test_a_view_of_a_view_and_in_a_call(session: Session) -> None:
    x = np.arange(24, dtype="float32").reshape(4, 6)
    rows = session.view(session.tensor(x), np.s_[1:])
    assert session.get_function("test.sum")(session.view(rows, np.s_[1:3])) == x[2:4].sum()
    with pytest.raises(ValueError, match="contiguous to travel"):
        session.get_function("test.sum")(session.view(rows, np.s_[:, ::2]))


def test_a_view_keeps_its_tensor(session: Session) -> None:
    view = session.view(session.tensor(np.arange(9)), np.s_[3:5])
    session.get_function("test.nop")()  # would carry the release
    assert view.numpy().tolist() == [3, 4]


@pytest.mark.parametrize("index", [[0, 1], np.array([True, False, True]), "a", 1.5])
def test_indices_that_pick_elements(session: Session, index: Any) -> None:
    with pytest.raises(IndexError):
        session.view(session.tensor(np.zeros(3)), index)


def test_indices_out_of_bounds(session: Session) -> None:
    there = session.tensor(np.zeros((2, 3)))
    for index in (2, -3, (0, 3), (0, 0, 0)):
        with pytest.raises(IndexError):
            session.view(there, index)
    with pytest.raises(ValueError, match="of this session"):
        session.view(fc.ffi.empty((3,)), 0)


def test_copies_into_tensors_that_exist(session: Session) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    first, second, here = session.empty((2, 3)), session.empty((2, 3)), np.zeros((2, 3), "float32")
    session.copy(x, first)
    session.copy(first, second)
    session.copy(second, here)
    np.testing.assert_array_equal(here, x)
    session.copy(session.view(first, np.s_[:, ::-1]), second)  # strided there
    np.testing.assert_array_equal(second.numpy(), x[:, ::-1])
    session.copy(x.T.copy().T, first)  # strided here
    session.copy(session.view(first, np.s_[:, 1:]), here[:, :2].copy())
    np.testing.assert_array_equal(first.numpy(), x)


def test_copies_that_do_not_fit(session: Session, server: Server) -> None:
    there = session.empty((2, 3), "float32")
    for wrong in (np.zeros((3, 2), "float32"), np.zeros((2, 3), "float64"), np.zeros(6, "float32")):
        for pair in ((wrong, there), (there, wrong), (session.tensor(wrong), there)):
            with pytest.raises(ValueError, match="must agree"):
                session.copy(*pair)
    for fixed in (np.frombuffer(bytes(24), "float32").reshape(2, 3), np.broadcast_to(np.float32(1), (2, 3))):
        for source in (there, session.view(session.empty((2, 6)), np.s_[:, ::2])):
            with pytest.raises(ValueError, match="read-only"):
                session.copy(source, fixed)
    with pytest.raises(ValueError, match="neither"):
        session.copy(np.zeros(1), np.zeros(1))
    with connect(server.url, key="k", timeout=SECONDS) as other:
        foreign = other.empty((2, 3))
        with pytest.raises(ValueError, match="different sessions"):
            session.copy(foreign, there)


DTYPES = [
    "bfloat16",
    "float8_e4m3fn",
    "complex64",
    "complex128",
    "int4",
    "uint1",
    "float16x4",
    "int64",
    "bool",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 7, 8])
def test_any_dtype_travels(session: Session, dtype: str, n: int) -> None:
    there = session.empty((n,), dtype)
    bits = there.dtype.bits * there.dtype.lanes
    data = bytes(range(1, (n * bits + 7) // 8 + 1))
    local = fc.ffi.empty((n,), dtype)
    source = (np.frombuffer(data, "uint8") if data else np.zeros(0, "uint8")).copy()
    raw = fc.from_dlpack(source)
    assert str(there.dtype) == dtype
    there = session.tensor(local)
    back = fc._core.fetch_remote(there)
    assert (str(back.dtype), tuple(back.shape)) == (dtype, (n,))
    assert raw.numel() == len(data)


def test_64_mib_up_and_down(session: Session) -> None:
    x = np.random.default_rng(7).integers(0, 255, 64 << 20, dtype="uint8")
    there = session.tensor(x)
    before = session.stats
    back = there.numpy()
    after = session.stats
    assert bytes(back[::4097]) == bytes(x[::4097])
    assert (back == x).all()
    assert (after.copied_out - before.copied_out, after.round_trips - before.round_trips) == (64 << 20, 1)


def test_a_copy_is_one_round_trip(session: Session) -> None:
    there, x = session.empty((256,)), np.zeros(256, "float32")
    for copy in (lambda: session.copy(x, there), lambda: session.copy(there, x), there.numpy):
        before = session.stats.round_trips
        copy()
        assert session.stats.round_trips == before + 1


# ---- devices


def test_devices(session: Session) -> None:
    assert session.cpu(0).exist
    assert not session.cpu(1).exist
    assert not session.device("cuda:0").exist
    cpu = session.device("cpu")
    assert cpu.max_threads_per_block is None
    assert cpu.name is None
    with pytest.raises(AttributeError, match="max_clock_rate"):
        _ = cpu.colour
    np.testing.assert_array_equal(session.tensor(np.ones(3), cpu).numpy(), np.ones(3))
    assert session.empty((2,), "int8", cpu).shape == (2,)
    with pytest.raises(ValueError, match="no device cuda:0"):
        session.empty((2,), device=session.device("cuda:0"))


def test_devices_are_values(session: Session, server: Server) -> None:
    echo, device = session.get_function("test.echo"), session.tensor(np.zeros(1)).device
    assert echo(session.cpu(0)) == echo(device) == echo(fc.Device("cpu", 0)) == device
    assert echo(session.device("cuda:1")).index == 1
    assert session.device(device).exist
    assert session.empty((2,), "int8", device).device == device
    with connect(server.url, key="k", timeout=SECONDS) as other:
        for named in (device, session.cpu(0)):
            for use in (other.get_function("test.echo"), lambda d: other.empty((2,), "int8", d)):
                with pytest.raises(
                    ValueError, match=r"belongs to another session, not to the one with tcp://"
                ):
                    use(named)
        with pytest.raises(ValueError, match="belongs to another session"):
            other.device(device)


def test_memory_of_the_cpu(session: Session) -> None:
    cpu = session.cpu(0)
    assert cpu.total_global_memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < cpu.available_global_memory <= cpu.total_global_memory
    assert session.cpu(1).total_global_memory is None
    assert cpu.warp_size is None


def test_streams(session: Session) -> None:
    cpu = session.cpu()
    cpu.set_current()
    cpu.sync()
    with cpu.stream() as stream:
        with stream.use():
            assert cpu.current_stream == stream.handle
        stream.sync()
    stream.free()
    with pytest.raises(ValueError, match="no device"):
        session.device("cuda:0").stream()
