"""With the real Apache TVM: every dtype and size, libraries, timing, chunks, many sessions, and their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farcall.rpc import Server, Session, connect

from ..programs import hiding_torch, output_of
from ..waiting import SECONDS
from . import exports
from .tvm_processes import HERE, needs_tvm, seen_by

pytestmark = needs_tvm
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]


@pytest.fixture(scope="module")
def built_by_tvm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tvm") / "kernels.so"
    output_of(HERE / "tvm_build.py", path, env=hiding_torch())
    return path


def sweep(server: Server, key: str, size: int, *libraries: Path) -> dict[str, Any]:
    return seen_by("tvm_sweep.py", server.host, server.port, key, size, *libraries)


@pytest.fixture(scope="module")
def seen(server: Server, kernels: Path, built_by_tvm: Path) -> dict[str, Any]:
    """The results of a TVM client of a farcall server."""
    return sweep(server, "k", 64 << 20, kernels, built_by_tvm)


def test_every_dtype_and_size(seen: dict[str, Any]) -> None:
    assert seen["wrong"] == []
    assert seen["large"]


def test_their_client_cuts_text_at_a_nul(seen: dict[str, Any]) -> None:
    assert seen["cut at NUL"] == "a"  # it does so before it sends (facts: A.5); ours refuses such text


def test_a_library_of_ours_is_loaded_and_timed(seen: dict[str, Any]) -> None:
    assert seen["library"] == {"add_one": [1, 2, 3, 4, 5], "times": 4, "same": True}


def test_a_library_of_theirs_is_loaded_and_timed(seen: dict[str, Any]) -> None:
    own = seen["own library"]
    assert (own["add_one"], own["times"], own["same"], own["answer"]) == ([1, 2, 3, 4, 5], 4, True, 42)
    assert "Mismatched" in own["wrong dtype"]
    assert "Expected 2 arguments" in own["wrong number"]


def test_a_library_of_theirs_between_our_ends(server: Server, built_by_tvm: Path) -> None:
    with connect(server.url, "k", timeout=SECONDS) as session:
        module = session.load_module(built_by_tvm)
        x, out = session.tensor(np.arange(5, dtype="float32")), session.empty((5,), "float32")
        module["add_one"](x, out)
        assert (out.numpy().tolist(), module["answer"]()) == ([1, 2, 3, 4, 5], 42)
        with pytest.raises(TypeError, match="Mismatched"):
            module["add_one"](x, session.empty((5,), "int32"))


def test_as_many_sessions_as_a_tvm_client_can_have(seen: dict[str, Any]) -> None:
    assert seen["many"] == [i + 1 for i in range(30)]


def test_the_end_of_a_session_is_known_to_their_client(seen: dict[str, Any]) -> None:
    assert seen["timeout"].startswith("RPCSessionTimeoutError")


def test_chunks_of_the_size_that_a_server_asks_for(kernels: Path, built_by_tvm: Path) -> None:
    with Server(init=f"{exports.__name__}:register_with_small_packets") as small:
        seen = sweep(small, "", 1 << 20, kernels, built_by_tvm)
        assert (seen["wrong"], seen["large"]) == ([], True)
        with connect(small.url, timeout=SECONDS) as session:
            x = np.arange(1000, dtype="int16")
            np.testing.assert_array_equal(session.tensor(x).numpy(), x)
            np.testing.assert_array_equal(session.view(session.tensor(x), slice(100, None)).numpy(), x[100:])


# ---- our client of a TVM server


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_size_at_their_server(tvm: Session, dtype: str) -> None:
    for size in (0, 1, 3, 1001):
        x = (np.arange(size) % 2).astype(dtype)
        back = tvm.tensor(x).numpy()
        assert back.dtype == x.dtype
        np.testing.assert_array_equal(back, x)


def test_a_view_has_its_own_bytes_at_their_server(tvm: Session) -> None:
    far = tvm.tensor(np.arange(8, dtype="float32"))
    half = tvm.view(far, slice(4, None))
    assert half.numpy().tolist() == [4, 5, 6, 7]  # TVM's own client reads 0 to 3 here (facts: A.10)
    assert tvm.get_function("test.sum")(half) == 22


def test_text_with_a_nul_is_refused_not_cut(tvm: Session) -> None:
    with pytest.raises(ValueError, match="NUL"):
        tvm.get_function("test.echo")("a\0b")


def test_a_library_at_their_server(tvm: Session, kernels: Path) -> None:
    module = tvm.load_module(kernels)
    x, out = tvm.tensor(np.arange(5, dtype="float32")), tvm.empty((5,), "float32")
    module["add_one"](x, out)
    assert out.numpy().tolist() == [1, 2, 3, 4, 5]
    timing = module.benchmark("add_one", x, out, number=3, repeat=4)
    assert len(timing.results) == 4
    assert timing.min > 0
