"""Views of remote tensors, read and written: any strides, as in numpy; elements between stay unchanged."""

from __future__ import annotations

from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farcall import _core
from farcall.rpc import Session
from farcall.rpc.client import _views as views

DTYPES = [
    "int8",
    "bool",
    "float16",
    "bfloat16",
    "int32",
    "float8_e4m3fn",
    "complex64",
    "float64",
    "complex128",
]
MEMORY = 640  # bytes
many = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, int, tuple[int, ...], tuple[int, ...]]:
    """dtype, byte offset, shape and strides (in elements) of a part of MEMORY bytes: any that fits."""
    dtype = draw(st.sampled_from(DTYPES))
    itemsize = numpy_dtype(dtype).itemsize
    shape, strides, low, high = [], [], 0, 0
    for _ in range(draw(st.integers(0, 4))):
        n, stride = draw(st.integers(0, 5)), draw(st.integers(-12, 12))
        reach = (n - 1) * stride if n else 0
        if (high - low + abs(reach) + 1) * itemsize > MEMORY - 16:
            continue
        shape.append(n)
        strides.append(stride)
        low, high = low + min(reach, 0), high + max(reach, 0)
    spare = MEMORY - (high - low + 1) * itemsize
    return dtype, -low * itemsize + draw(st.integers(0, spare)), tuple(shape), tuple(strides)


def strided(memory: np.ndarray[Any, Any], layout: tuple[str, int, tuple[int, ...], tuple[int, ...]]) -> Any:
    """The same part of an array of bytes."""
    name, offset, shape, strides = layout
    dtype = numpy_dtype(name)
    steps = tuple(s * dtype.itemsize for s in strides)
    return np.ndarray(shape, dtype, memory, offset, steps)


def overlaps(array: np.ndarray[Any, Any]) -> bool:
    """Whether two elements share a byte."""
    places = np.zeros(1, int)
    for n, step in zip(array.shape, array.strides, strict=True):
        places = np.add.outer(places, np.arange(n) * step).ravel()
    return bool((np.diff(np.sort(places)) < array.itemsize).any())


def raw(memory: np.ndarray[Any, Any], layout: Any) -> Any:
    """As raw bytes, which numpy copies unchanged (a NaN keeps its payload)."""
    array = strided(memory, layout)
    return np.ndarray(array.shape, f"V{array.itemsize}", memory, layout[1], array.strides)


def some_bytes(chance: Any, layout: Any, size: int) -> np.ndarray[Any, Any]:
    data = np.frombuffer(chance.randbytes(size + 1)[:-1], "uint8").copy()
    return data % 2 if layout[0] == "bool" else data


def part_there(session: Session, memory: np.ndarray[Any, Any], layout: Any) -> tuple[Any, Any]:
    """All of the memory on the server, and the part of it."""
    dtype, offset, shape, strides = layout
    there = session.tensor(memory.view(numpy_dtype(dtype)))
    return there, _core.remote_view(there, shape, strides, offset)


@given(layouts(), st.sampled_from([-(1 << 40), 1 << 40]), st.randoms(use_true_random=False))
@many
def test_any_layout_is_read(session: Session, layout: Any, run_costs: int, chance: Any) -> None:
    memory = some_bytes(chance, layout, MEMORY)
    expected = strided(memory, layout)
    _, part = part_there(session, memory, layout)
    with mock.patch.object(views, "_RUN_COSTS", run_costs):
        seen = part.numpy()
        here = np.zeros_like(expected)
        session.copy(part, here)
    assert (seen.dtype, seen.shape) == (expected.dtype, expected.shape)
    assert seen.tobytes() == here.tobytes() == expected.tobytes()


@given(layouts(), st.booleans(), st.randoms(use_true_random=False))
@many
def test_any_layout_is_written(session: Session, layout: Any, by_runs: bool, chance: Any) -> None:
    memory = some_bytes(chance, layout, MEMORY)
    target = raw(memory, layout)
    there, part = part_there(session, memory, layout)
    data = some_bytes(chance, layout, target.nbytes)
    if overlaps(target):  # which of several values stays is not said
        data[:] = 1
    source = data.view(numpy_dtype(layout[0])).reshape(target.shape)
    before = session.stats
    limits = {"RUNS_MAX": 1 << 40 if by_runs else -1, "_RUN_LARGE": 1 << 40}
    with mock.patch.multiple(views, **limits):
        session.copy(source, part)
    after = session.stats
    target[...] = data.view(target.dtype).reshape(target.shape)
    assert there.numpy().tobytes() == memory.tobytes()
    if by_runs:  # nothing between the elements was read, or sent
        assert after.copied_in - before.copied_in == source.nbytes
        assert after.copied_out == before.copied_out


def test_rows_are_written_in_few_round_trips(session: Session) -> None:
    x = np.zeros((1000, 300), "float32")
    there = session.tensor(x)
    before = session.stats
    session.copy(np.ones((1000, 200), "float32"), session.view(there, np.s_[:, 50:250]))
    column = session.view(there, np.s_[:, 7])
    assert column.numpy().tolist() == [0] * 1000  # not by the 1.2 MB that lie between
    after = session.stats
    x[:, 50:250] = 1
    np.testing.assert_array_equal(there.numpy(), x)
    assert after.copied_in - before.copied_in == 800_000
    assert after.copied_out - before.copied_out == 4000
    assert after.round_trips - before.round_trips == 8


def test_large_rows(session: Session) -> None:
    x = np.arange(40 * 100_000, dtype="int32").reshape(40, 100_000)
    there = session.tensor(x)
    part = session.view(there, np.s_[::-2, 5:-5])
    np.testing.assert_array_equal(part.numpy(), x[::-2, 5:-5])
    session.copy(-part.numpy(), part)
    x[::-2, 5:-5] *= -1
    np.testing.assert_array_equal(there.numpy(), x)


def test_very_many_small_runs_go_at_once(session: Session) -> None:
    x = np.zeros((300, 300), "float32")
    there = session.tensor(x)
    before = session.stats.round_trips
    session.copy(np.ones((150, 150), "float32"), session.view(there, np.s_[::2, ::2]))
    assert session.stats.round_trips - before == 2  # read, and written back
    x[::2, ::2] = 1
    np.testing.assert_array_equal(there.numpy(), x)


@pytest.mark.parametrize("runs", [3, 1000])
def test_runs_beyond_the_memory(session: Session, runs: int) -> None:
    """Each is refused separately, and all replies are read."""
    there = session.tensor(np.arange(1000, dtype="int64"))
    beyond = _core.remote_view(there, (runs, 2), (999, 1), 0)
    for copy in (beyond.numpy, lambda: session.copy(np.ones((runs, 2), "int64"), beyond)):
        with (
            mock.patch.object(views, "_RUN_COSTS", -(1 << 40)),
            pytest.raises(ValueError, match="beyond the all"),
        ):
            copy()
    assert there.numpy()[2] == 2


def test_remote_to_remote_and_frameworks(session: Session) -> None:
    torch = pytest.importorskip("torch")
    x = np.arange(24, dtype="float32").reshape(4, 6)
    there = session.tensor(x)
    session.copy(session.view(there, np.s_[:, ::2]), session.view(there, np.s_[:, 1::2]))
    x[:, 1::2] = x[:, ::2]
    np.testing.assert_array_equal(there.numpy(), x)
    half = session.tensor(torch.arange(8, dtype=torch.bfloat16))
    odd, here = session.view(half, np.s_[1::2]), torch.zeros(4, dtype=torch.bfloat16)
    session.copy(odd, here)
    assert here.tolist() == [1, 3, 5, 7]
    session.copy(-here, odd)
    assert half.numpy().astype(float).tolist() == [0, -1, 2, -3, 4, -5, 6, -7]


def test_packed_types(session: Session) -> None:
    there = session.tensor(np.array([1, -2, 3], ml_dtypes.int4))
    here = np.zeros(3, ml_dtypes.int4)
    session.copy(there, here)
    assert here.astype(int).tolist() == [1, -2, 3]
    with pytest.raises(ValueError, match="no whole bytes; it cannot be viewed in part"):
        session.view(there, np.s_[::2])
    with pytest.raises(ValueError, match=r"on a session already; session\.copy"):
        session.tensor(there)
