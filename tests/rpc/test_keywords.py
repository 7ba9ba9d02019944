"""Parameters by name: a function of a library on a server takes them as its local twin does."""

from __future__ import annotations

import gc
import inspect
import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall import _core
from farcall.rpc import RemoteModule, Server, Session, connect
from farcall.rpc.client._module import _metadata

from ..ffi.test_params import INT, TENSOR, metadata
from ..waiting import SECONDS

SOURCE = """
#include <farcall/kernel.hpp>
static int64_t weigh(int64_t a, int64_t b, int64_t c) { return a * 100 + b * 10 + c; }
static double total(farcall::ConstTensorView x, double by) {
  double sum = 0;
  for (int64_t i = 0; i < x.size(0); ++i) sum += static_cast<const float*>(x.data_ptr())[i];
  return sum * by;
}
static void fill(farcall::TensorView out, double value) {
  for (int64_t i = 0; i < out.size(0); ++i) static_cast<float*>(out.data_ptr())[i] = (float)value;
}
static int64_t packed(farcall::PackedArgs args) { return args.size(); }
FARCALL_EXPORT(weigh, weigh, farcall::required("a", "left"), farcall::required("b"), farcall::arg("c", 7));
FARCALL_EXPORT(total, total, farcall::required("x"), farcall::arg("by", 2.0));
FARCALL_EXPORT(fill, fill, farcall::required("out"), farcall::required("value"));
FARCALL_EXPORT(packed, packed);
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    (folder / "named.cpp").write_text(SOURCE)
    return Path(fc.cpp.build("named", sources=[str(folder / "named.cpp")], extra_cflags=["-O0"]))


@pytest.fixture
def far(session: Session, library: Path) -> RemoteModule:
    return session.load_module(library)


def test_calls_by_name(far: RemoteModule) -> None:
    weigh = far["weigh"]
    assert weigh(1, 2, 3) == weigh(1, b=2, c=3) == weigh(c=3, b=2, a=1) == 123
    assert weigh(1, 2) == weigh(b=2, a=1) == 127
    x = np.arange(4, dtype="float32")
    assert far["total"](x=x) == 12
    assert far["total"](by=0.5, x=x) == 3


def test_a_signature_is_that_of_the_local_twin(far: RemoteModule, library: Path) -> None:
    local = fc.load_module(library)
    for name in ("weigh", "total", "fill"):
        assert inspect.signature(far[name]) == inspect.signature(local[name])
    assert str(inspect.signature(far["weigh"])) == "(a: 'int', b: 'int', c: 'int' = 7) -> 'int'"
    assert "Args:\n    a: left" in str(far["weigh"].__doc__)
    with pytest.raises(ValueError, match="not supported"):
        inspect.signature(far["packed"])


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {"a": 1}), ((1, 2), {"a": 3}), ((1, 2), {"d": 3}), ((1, 2, 3, 4), {"a": 1})],
)
def test_mistakes_say_the_same_as_local_ones(
    far: RemoteModule, library: Path, args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    local, remote = fc.load_module(library)["weigh"], far["weigh"]
    with pytest.raises(TypeError) as here:
        local(*args, **kwargs)
    with pytest.raises(TypeError) as there:
        remote(*args, **kwargs)
    assert str(there.value) == str(here.value)


def test_names_are_fetched_once_and_only_when_needed(session: Session, far: RemoteModule) -> None:
    weigh, total = far["weigh"], far["total"]

    def trips(action: Any) -> int:
        before = session.stats.round_trips
        action()
        return session.stats.round_trips - before

    def ask() -> None:
        assert (repr(weigh), weigh.__doc__, weigh.signature) == (
            f"<farcall.Function weigh on {session.url}>",
            None,
            None,
        )

    assert trips(ask) == 0
    assert trips(lambda: weigh(1, 2, 3)) == 1
    assert trips(lambda: weigh(1, 2, c=3)) == 3  # finds the server's helper, asks it, calls
    assert trips(lambda: weigh(a=1, b=2)) == 1
    assert trips(lambda: inspect.signature(weigh)) == 0
    assert trips(lambda: inspect.signature(total)) == 1
    assert trips(lambda: inspect.signature(far["total"])) == 0


def test_knowing_the_names_changes_nothing_in_how_tensors_travel(session: Session, far: RemoteModule) -> None:
    frozen = np.zeros(3, "float32")
    frozen.flags.writeable = False
    out = session.empty((3,))
    for fill in (far["fill"], far["fill"]):
        fill(frozen, 1.0)  # a copy travels
        fill(out, 2.0)
        assert out.numpy().tolist() == [2, 2, 2]
        inspect.signature(fill)
    far["fill"](value=3.0, out=out)
    assert out.numpy().tolist() == [3, 3, 3]


def test_without_names_it_stays_positional(session: Session, far: RemoteModule, kernels: Path) -> None:
    for function in (
        far["packed"],
        session.load_module(kernels)["add_one"],
        session.get_function("test.add"),
    ):
        for _ in range(2):
            with pytest.raises(
                TypeError, match=f"`{function.name}` takes positional arguments only: its library does"
            ):
                function(x=1)
    assert far["packed"](1, 2, 3) == 3


def test_a_server_of_tvm_tells_the_names_too(tvm: Session, library: Path) -> None:
    weigh = tvm.load_module(library)["weigh"]
    assert weigh(b=2, a=1) == 127
    assert list(inspect.signature(weigh).parameters) == ["a", "b", "c"]


def test_a_server_that_knows_no_metadata(session: Session, far: RemoteModule) -> None:
    class Older:
        def helper_or_none(self, name: str) -> None:
            assert name == "ffi.ModuleGetFunctionMetadata"

    function = session.get_function("test.add")
    _core.describe_by(function, lambda: _metadata(Older(), far, "weigh", False))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes positional arguments only: its library does not name"):
        function(a=1)
    assert function(1, 2) == 3


def test_a_function_without_its_module_still_knows_its_names(session: Session, library: Path) -> None:
    far = session.load_module(library)
    weigh, gone = far["weigh"], weakref.ref(far)
    gc.disable()
    try:
        del far
        assert gone() is None  # the function does not refer to it
    finally:
        gc.enable()
    assert weigh(b=2, a=1) == 127


def test_through_a_relay(servers: list[Server], library: Path) -> None:
    first, second, _ = servers
    with connect(second.url, key="second", via=[(first.url, "k")], timeout=SECONDS) as session:
        assert session.load_module(library)["weigh"](b=2, a=1) == 127


def test_an_imported_function_is_described_too(session: Session, far: RemoteModule) -> None:
    outer = session.get_function("test.module")()
    outer.import_module(far)
    assert outer.get_function("weigh", query_imports=True)(b=2, a=1) == 127


def test_a_lost_connection_is_an_error_of_the_call(server: Server, library: Path) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        weigh = session.load_module(library)["weigh"]
    for _ in range(2):
        with pytest.raises(fc.errors.ConnectionLostError):
            weigh(b=1, a=2)


DEEP = "[" * 100_000
HOSTILE = [
    "",
    DEEP,
    json.dumps({"type_schema": DEEP}),
    json.dumps({"type_schema": "[]"}),
    json.dumps([]),
    metadata([INT], INT, ["x"]),
    metadata([INT], INT, [{"name": 3}]),
    metadata([INT], INT, [{"name": ["x"]}]),
    metadata([{"type": 3}], INT, [{"name": "x"}]),
    metadata([{"type": "Optional", "args": 5}], INT, [{"name": "x"}]),
    metadata([INT, INT], INT, [{"name": "x"}]),
    metadata("xy", INT, [{"name": "x"}, {"name": "y"}]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_metadata_describes_nothing(session: Session, text: str) -> None:
    function = session.get_function("test.add")
    _core.describe_by(function, lambda: text)
    with pytest.raises(TypeError, match="takes positional arguments only"):
        function(x=1)
    with pytest.raises(ValueError, match="not supported"):
        inspect.signature(function)
    assert function(1, 2) == 3


def test_two_parameters_of_one_name(session: Session) -> None:
    function = session.get_function("test.add")
    _core.describe_by(function, lambda: metadata([INT, TENSOR], INT, [{"name": "x"}, {"name": "x"}]))
    with pytest.raises(TypeError, match=r"argument 2 `x` .* is missing"):
        function(x=1)
    with pytest.raises(ValueError, match="duplicate"):
        inspect.signature(function)
    assert function(1, 2) == 3


def test_a_source_that_fails_is_asked_again(session: Session) -> None:
    function, answers = (
        session.get_function("test.add"),
        iter([OSError("busy"), metadata([INT, INT], INT, [{"name": "x"}, {"name": "y"}])]),
    )

    def source() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    _core.describe_by(function, source)
    with pytest.raises(OSError, match="busy"):
        function(x=1, y=2)
    assert function(y=1, x=2) == 3
