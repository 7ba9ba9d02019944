"""Modules on a server: loaded, imported, inspected, and returned by calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import RemoteModule, Server, Session, connect

from ..waiting import SECONDS


@pytest.fixture
def module(session: Session, kernels: Path) -> RemoteModule:
    return session.load_module(kernels)


def test_what_a_module_says_of_itself(session: Session, module: RemoteModule) -> None:
    assert module.kind == "library"
    assert module.function_names() == ["add_one", "crash"]
    assert module.inspect_source() == ""
    assert module.get_function_metadata("add_one") is None
    assert module.name == "kernels.so"
    assert module["add_one"].name == "add_one"
    assert "test.add" in session.function_names()


def test_a_module_is_a_mapping_of_names_to_functions(module: RemoteModule) -> None:
    assert "add_one" in module
    assert "add_on" not in module
    assert 3 not in module
    assert [*module] == [*module.keys()] == ["add_one", "crash"]
    assert len(module) == 2
    assert dict(module.items())["add_one"] is module["add_one"]
    assert len(module.values()) == 2
    for unknown in (KeyError, AttributeError):
        with pytest.raises(unknown, match="has no function `add_on`"):
            module["add_on"]


def test_the_truth_of_a_module_and_its_view_ask_no_server(session: Session, module: RemoteModule) -> None:
    before = session.stats.round_trips
    assert module
    assert "module kernels.so on" in module._repr_html_()
    assert session.stats.round_trips == before


def test_modules_as_arguments_and_results(session: Session, module: RemoteModule) -> None:
    same = session.get_function("test.echo")(module)
    assert isinstance(same, RemoteModule)
    x, out = session.tensor(np.arange(3, dtype="float32")), session.empty((3,))
    del module
    same["add_one"](x, out)
    np.testing.assert_array_equal(out.numpy(), [1, 2, 3])


def test_imports(session: Session, module: RemoteModule) -> None:
    outer = session.get_function("test.module")()
    assert outer.kind == "test"
    assert outer["answer"]() == 42
    assert not outer.implements_function("add_one", query_imports=True)
    outer.import_module(module)
    assert outer.implements_function("add_one", query_imports=True)
    assert outer.get_function("add_one", query_imports=True).name == "add_one"
    assert not outer.implements_function("add_one")  # as on a local module
    assert "add_one" not in outer
    with pytest.raises(KeyError):
        outer["add_one"]
    with pytest.raises(RuntimeError, match="cyclic"):
        module.import_module(outer)


def test_the_system_library(session: Session) -> None:
    library = session.system_lib()
    assert library.kind == "library"
    with pytest.raises(AttributeError, match="the system library"):
        library["nothing"]


def test_a_module_outlives_its_session_object(server: Server, kernels: Path) -> None:
    module = connect(server.url, key="k", timeout=SECONDS).load_module(kernels)
    assert module.implements_function("add_one")
    other = connect(server.url, key="k", timeout=SECONDS)
    with pytest.raises(ValueError, match="another session"):
        other.get_function("test.echo")(module)
    other.close()


def test_a_module_is_released(session: Session) -> None:
    make = session.get_function("test.module")
    for _ in range(300):
        make()
    assert session.get_function("test.add")(1, 1) == 2


# ---- files


def test_a_file_that_is_there_is_not_sent_again(server: Server) -> None:
    data = np.random.default_rng(3).bytes(3 << 20)
    with connect(server.url, key="k", timeout=SECONDS) as first:
        first.upload(data, "a.bin")
        before = first.stats.bytes_out
        first.upload(data, "folder/b.bin")
        assert first.stats.bytes_out - before < 2000
        assert first.download("folder/b.bin") == data
    with connect(server.url, key="k", timeout=SECONDS) as second:
        before = second.stats.bytes_out
        second.upload(data, "c.bin")
        assert second.stats.bytes_out - before < 2000
        assert second.download("c.bin") == data
        changed = bytearray(data)
        changed[len(data) // 2] ^= 1  # the ends are the same
        second.upload(bytes(changed), "d.bin")
        assert second.download("d.bin") == changed
        assert second.download("c.bin") == data


def test_a_file_that_its_session_changed_is_sent_again(server: Server) -> None:
    data = np.random.default_rng(4).bytes(1 << 20)
    with connect(server.url, key="k", timeout=SECONDS) as first:
        first.upload(data, "a.bin")
        first.get_function("test.scribble")("a.bin")  # in place, as native code could
        with connect(server.url, key="k", timeout=SECONDS) as second:
            second.upload(data, "b.bin")
            assert second.download("b.bin") == data


@pytest.mark.parametrize("hint", ["", "../x", "1-" + "g" * 32, "x" * 100, "1-" + "a" * 33])
def test_hints_that_are_none(session: Session, hint: str) -> None:
    for name in ("known", "have", "share"):
        args = {"known": (hint,), "have": ("x", "0" * 64, hint), "share": ("x", hint)}[name]
        session.upload(b"x", "x")
        with pytest.raises(fc.UsageError, match="no hint"):
            session.get_function(f"farcall.rpc.{name}")(*args)


# ---- the session


def test_session_timeout(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS, session_timeout=0.2) as session:
        wait = session.get_function("test.wait_for")
        with pytest.raises(fc.errors.DeadlineExceededError, match=r"0\.2 s are over"):
            wait("never")
    for wrong in (0, -1, float("nan"), 1e10):
        with pytest.raises(fc.UsageError, match="session_timeout"):
            connect(server.url, key="k", session_timeout=wrong)


def test_stats_and_features(session: Session) -> None:
    assert {"callbacks", "promises", "files", "trace"} <= session.features
    assert session.server_limits["handles"] > 0
    before = session.stats
    session.get_function("test.add")(1, 2)
    after = session.stats
    assert after.calls == before.calls + 1
    assert after.round_trips == before.round_trips + 2
    assert after.bytes_in > before.bytes_in
    assert after.bytes_out > before.bytes_out


def test_forty_sessions_at_once(server: Server) -> None:
    sessions = [connect(server.url, key="k", timeout=SECONDS) for _ in range(40)]
    adds = [session.get_function("test.add") for session in sessions]
    assert [add(i, 1) for i, add in enumerate(adds)] == list(range(1, 41))
    for session in sessions:
        session.close()


def test_functions_of_an_artifact_have_their_signatures(session: Session, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    fc.partition(tmp_path / "m.onnx").build().save(tmp_path / "m.so")
    main = session.load_module(tmp_path / "m.so")["main"]
    assert str(main.signature) == "(x: float32[n, 3]) -> float32[n, 3]"
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(main(x=session.tensor(x)).numpy(), 2 * x)
    before = session.stats
    with pytest.raises(TypeError, match=r"argument 1 `x` of `main`: expected float32\[n, 3\], got float64"):
        main(x.astype("float64"))
    assert session.stats == before  # nothing travelled
