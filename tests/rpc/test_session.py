"""Sessions without errors, with a real server process."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import farcall as fc
from farcall.rpc import Limits, Server, Session, connect

from ..waiting import SECONDS

VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.5,
    float("inf"),
    "",
    "ab",
    "seven77",
    "eight888",
    "\u00e4\U0001f600",
    b"",
    b"a\0b",
    b"x" * 7,
    b"y" * 8,
    b"z" * 100_000,
    "t" * 100_000,
]
DTYPES = [
    "float32",
    "float64",
    "float16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_values_travel_both_ways(session: Session, value: object) -> None:
    result = session.get_function("test.echo")(value)
    assert result == value
    assert type(result) is type(value)


def test_dtypes_travel(session: Session) -> None:
    assert session.get_function("test.echo")(fc.dtype("float16x4")) == fc.dtype("float16x4")


def test_calls_by_name(session: Session) -> None:
    assert session.get_function("test.add")(1, 2) == 3
    assert session.get_function("test.count")(*range(40)) == 40
    assert session.get_function("test.nop")() is None


def test_no_such_function(session: Session) -> None:
    with pytest.raises(AttributeError, match=r"exports no function `test\.missing`"):
        session.get_function("test.missing")
    for name in ("os.system", "builtins.eval", "exec", ""):
        with pytest.raises(AttributeError):
            session.get_function(name)


def test_text_with_nul_is_refused_here(session: Session) -> None:
    with pytest.raises(ValueError, match=r"argument 1 of remote `test\.echo`.*NUL"):
        session.get_function("test.echo")("a\0b")
    assert session.get_function("test.add")(1, 1) == 2


@pytest.mark.parametrize("kind", [ValueError, KeyError, TypeError, OSError])
def test_exceptions_keep_their_class_and_text(session: Session, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="reason: 42"):
        session.get_function("test.fail")(kind.__name__, "reason: 42")
    assert session.get_function("test.add")(1, 1) == 2


def test_system_exit_of_a_function_is_its_error_only(session: Session) -> None:
    with pytest.raises(Exception, match="3"):
        session.get_function("test.leave")()
    assert session.get_function("test.add")(1, 1) == 2


def test_objects_stay_there_and_can_be_passed_back(session: Session) -> None:
    there = session.get_function("test.object")()
    assert isinstance(there, fc.rpc.RemoteObject)
    assert there.type_name == "ffi.Map"
    assert session.get_function("test.length")(there) == 1
    with pytest.raises(TypeError, match="it cannot be made"):
        fc.rpc.RemoteObject()


# ---- functions as values


def test_functions_come_back_and_can_be_passed(session: Session) -> None:
    adder = session.get_function("test.adder")(5)
    assert adder(1) == 6
    assert session.get_function("test.call")(adder, 10) == 15


# ---- tensors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (3, 0, 2), (1, 2, 1, 7)], ids=str)
def test_tensors_up_and_down(session: Session, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    there = session.tensor(x)
    assert (there.shape, str(there.dtype)) == (shape, dtype)
    here = there.numpy()
    assert here.dtype == x.dtype
    np.testing.assert_array_equal(here, x)


def test_a_large_tensor(session: Session) -> None:
    x = np.random.default_rng(1).integers(0, 255, 9_999_999, dtype="uint8")
    np.testing.assert_array_equal(session.tensor(x).numpy(), x)


def test_strided_tensors_are_packed(session: Session) -> None:
    x = np.arange(60, dtype="int32").reshape(3, 4, 5)
    for view in (x.T, x[::2, ::-1], x[:, 1:3, ::2], np.broadcast_to(x[0, 0], (3, 5))):
        np.testing.assert_array_equal(session.tensor(view).numpy(), view)


def test_local_tensors_are_copied_for_a_call(session: Session) -> None:
    total = session.get_function("test.sum")
    assert total(np.ones((3, 4), dtype="float32")) == 12
    assert total(np.arange(16, dtype="float64").reshape(4, 4).T[::2]) == pytest.approx(56)


def test_results_stay_there(session: Session) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    result = session.get_function("test.scale")(x, 3.0)
    assert isinstance(result, fc.Tensor)
    assert result.device.dlpack_device_type() > 128
    np.testing.assert_array_equal(result.numpy(), x * 3)
    np.testing.assert_array_equal(session.get_function("test.scale")(result, 2.0).numpy(), x * 6)


def test_a_result_that_is_not_contiguous(session: Session) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(session.get_function("test.transpose")(x).numpy(), x.T)


def test_several_results(session: Session) -> None:
    x = np.arange(4, dtype="float32")
    same, number, text, twice = session.get_function("test.several")(session.tensor(x))
    assert (number, text) == (7, "text")
    np.testing.assert_array_equal(same.numpy(), x)
    np.testing.assert_array_equal(twice.numpy(), x * 2)


def test_a_result_outlives_the_argument(session: Session) -> None:
    x = session.tensor(np.arange(4, dtype="float32"))
    same = session.get_function("test.echo")(x)
    del x
    gc.collect()
    session.get_function("test.nop")()  # carries the release
    np.testing.assert_array_equal(same.numpy(), np.arange(4, dtype="float32"))


def test_a_tensor_of_another_session_is_refused(session: Session, server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as other:
        x = other.tensor(np.zeros(3))
        with pytest.raises(ValueError, match="another session"):
            session.get_function("test.sum")(x)
        assert other.get_function("test.sum")(x) == 0


def test_dlpack_of_a_remote_tensor_is_a_copy_here(session: Session) -> None:
    there = session.tensor(np.arange(3, dtype="float32"))
    np.testing.assert_array_equal(np.from_dlpack(there), [0, 1, 2])


@given(st.lists(st.integers(0, 5), max_size=5).map(tuple), st.sampled_from(DTYPES), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_view_of_a_tensor(
    session: Session, shape: tuple[int, ...], dtype: str, data: st.DataObject
) -> None:
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    slices = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in shape)
    view = np.asarray(x[slices]).transpose(data.draw(st.permutations(range(len(shape)))))
    np.testing.assert_array_equal(session.tensor(view).numpy(), view)


# ---- files and modules


def test_files(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0\1\2")
    assert session.upload(tmp_path / "a.bin") == "a.bin"
    session.upload(b"more", "folder/b.txt")
    assert session.listdir() == ["a.bin", "folder"]
    assert session.listdir("folder") == ["b.txt"]
    assert session.download("a.bin") == b"\0\1\2"
    session.remove("a.bin")
    with pytest.raises(FileNotFoundError, match=r"a\.bin"):
        session.download("a.bin")
    for name in ("../x", "/tmp/x", "a/../../x"):  # noqa: S108
        with pytest.raises(fc.UsageError, match="file name"):
            session.upload(b"x", name)


def test_a_large_file(session: Session) -> None:
    data = os.urandom(5_000_001)
    session.upload(data, "big")
    assert session.download("big") == data


def test_each_session_has_its_own_folder(session: Session, server: Server) -> None:
    session.upload(b"x", "mine")
    with connect(server.url, key="k", timeout=SECONDS) as other:
        assert other.listdir() == []
        folder = Path(other.get_function("test.here")())
        assert folder != Path(session.get_function("test.here")())
    assert session.listdir() == ["mine"]


def test_modules(session: Session, kernels: Path) -> None:
    module = session.load_module(kernels)
    x, out = session.tensor(np.arange(5, dtype="float32")), session.empty((5,), "float32")
    module["add_one"](x, out)
    np.testing.assert_array_equal(out.numpy(), [1, 2, 3, 4, 5])
    assert module["add_one"] is module["add_one"]
    assert module.implements_function("crash")
    with pytest.raises(AttributeError, match=r"kernels\.so .* has no function `nothing`"):
        module["nothing"]
    with pytest.raises(TypeError, match="two tensors"):
        module["add_one"](x)


def test_a_kernel_that_crashes(server: Server, kernels: Path) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        crash = session.load_module(kernels)["crash"]
        with pytest.raises(fc.errors.WorkerCrashedError, match=r"SIGSEGV.* in `crash`"):
            crash()


def test_what_is_no_library(session: Session, tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(fc.errors.ArtifactError):
        session.load_module(tmp_path / "model.so")
    with pytest.raises(fc.UsageError, match=r"nowhere\.so"):
        session.load_module(tmp_path / "nowhere.so")
    assert session.get_function("test.add")(1, 1) == 2


# ---- life


def test_releases_travel_with_later_requests(session: Session) -> None:
    keep = session.get_function("test.nop")
    for _ in range(3):
        tensors = [session.empty((10,)) for _ in range(300)]  # more than one batch of releases
        del tensors
    gc.collect()
    keep()
    assert session.get_function("test.add")(1, 1) == 2


def test_more_is_released_than_one_request_takes_along() -> None:
    with Server(limits=Limits(tensor_bytes=1000)) as server, connect(server.url, timeout=SECONDS) as session:
        held = [session.empty((1,), "uint8") for _ in range(1000)]
        with pytest.raises(MemoryError):
            session.empty((1,), "uint8")
        held.clear()
        assert session.empty((1000,), "uint8").shape == (1000,)


def test_after_close(server: Server) -> None:
    session = connect(server.url, key="k", timeout=SECONDS)
    add, x = session.get_function("test.add"), session.tensor(np.zeros(3))
    assert "closed" not in repr(session)
    session.close()
    session.close()
    assert session.closed
    assert "closed" in repr(session)
    for use in (lambda: add(1, 2), x.numpy, lambda: session.get_function("test.add")):
        with pytest.raises(fc.errors.ConnectionLostError, match="closed; connect again"):
            use()


def test_what_a_session_gave_out_keeps_it_open(server: Server) -> None:
    add = connect(server.url, key="k", timeout=SECONDS).get_function("test.add")
    gc.collect()
    assert add(1, 2) == 3


def test_one_session_in_many_threads(session: Session) -> None:
    add, failures = session.get_function("test.add"), []

    def work(n: int) -> None:
        for i in range(50):
            x = session.tensor(np.full(n + 1, i, dtype="int32"))
            if add(n, i) != n + i or x.numpy().sum() != i * (n + 1):
                failures.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert failures == []


def test_many_sessions_at_once(server: Server) -> None:
    sessions = [connect(server.url, key="k", timeout=SECONDS) for _ in range(5)]
    pids = {session.get_function("test.pid")() for session in sessions}
    assert len(pids) == 5
    for session in sessions:
        session.close()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_no_time_to_connect(server: Server, seconds: float) -> None:
    with pytest.raises(fc.UsageError, match="timeout: expected a positive number"):
        connect(server.url, "k", timeout=seconds)


def test_more_arguments_than_a_call_takes(session: Session) -> None:
    count = session.get_function("test.count")
    most = session.server_limits["values"] - 2
    assert count(*range(most)) == most
    with session.pipeline() as p:
        assert p(count, *range(most)).result() == most
    for many in (most + 1, 100_000):
        with pytest.raises(ValueError, match=f"given {many} arguments; .* takes at most {most}"):
            count(*range(many))
    assert count(1) == 1  # the session goes on


def test_sizes_beyond_any_memory(session: Session) -> None:
    for shape in ((1 << 40,), (1 << 62, 8)):
        with pytest.raises(MemoryError, match=r"^[0-9]+ bytes: the session has allocated"):
            session.empty(shape)
