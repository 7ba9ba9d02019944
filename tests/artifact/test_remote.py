"""The backend remote: regions that are computed behind a session."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import farcall as fc
from farcall.errors import ArtifactError, BackendError, ConnectError, ConnectionLostError, UsageError
from farcall.library._far import KIND, Source, pack, unpack
from farcall.rpc import Server, Session, Stats, connect

from ..waiting import SECONDS

FAR = ["Add", "Relu", "Tanh", "MatMul", "Concat"]  # what the tests send away


def model(body: str, signature: str = "(float[n, 3] p, float[n, 3] q) => (float[n, 3] y)") -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {signature} {{ {body} }}')


SKIP = model("s = Add(p, q) r = Relu(s) e = Exp(r) t = Tanh(e) y = Add(t, s)")  # s goes around Exp
P, Q = np.float32([[1, -2, 3], [0, 4, -6]]), np.float32([[3, 1, 1], [-2, 5, 0.5]])


@pytest.fixture(scope="module")
def far() -> Iterator[Server]:
    with Server() as server:
        yield server


def planned(proto: onnx.ModelProto, on: Any, **options: Any) -> fc.Plan:
    return fc.partition(
        proto, backends=[fc.backend("remote", **{"on": on, "operators": FAR, **options}), "c"]
    )


def here(proto: onnx.ModelProto) -> Any:
    return fc.partition(proto, backends=["c"]).build().load()["main"]


@pytest.fixture(scope="module")
def artifact(far: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planned(SKIP, far.url).build().save(tmp_path_factory.mktemp("far") / "skip.so")


# ---- results


@pytest.mark.parametrize(
    ("proto", "args"),
    [
        (SKIP, (P, Q)),
        (
            model(
                "w = Constant<value = float[3, 2] {1, 2, 3, 4, 5, 6}>()"
                "m = MatMul(x, w) y = Exp(m) z = Relu(m)",
                "(float[batch, 3] x) => (float[batch, 2] y, float[batch, 2] z)",
            ),
            (P,),
        ),
        (  # an input of the second region has the size 2*n, which no input of the model has
            model(
                "c = Concat<axis = 0>(p, q) e = Exp(c) y = Add(e, c)",
                "(float[n, 3] p, float[n, 3] q) => (float[m, 3] y)",
            ),
            (P, Q),
        ),
        (model("e = Exp(p) y = Add(e, q)"), (P[:0], Q[:0])),
        (model("e = Relu(p) y = Exp(e)", "(float p) => (float y)"), (np.float32(2),)),
    ],
    ids=["skip", "weights", "twice the batch", "empty", "scalar"],
)
def test_the_results_are_those_of_the_backend_c(far: Server, proto: onnx.ModelProto, args: Any) -> None:
    plan = planned(proto, far.url)
    assert {region.backend for region in plan.regions} == {"remote", "c"}
    main, same = plan.build().load()["main"], here(proto)
    for got, expected in zip(all_of(main(*args)), all_of(same(*args)), strict=True):
        np.testing.assert_array_equal(got, expected)


def all_of(results: Any) -> Any:
    return results if isinstance(results, tuple) else (results,)


def test_threads_share_the_session(artifact: Path) -> None:
    main, same = fc.load_module(artifact)["main"], here(SKIP)
    inputs = [np.full((1 + i % 3, 3), i / 7, "float32") for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        for x, got in zip(inputs, pool.map(main, inputs, inputs), strict=True):
            np.testing.assert_array_equal(got, same(x, x))


def difference(session: Session, main: Any, *args: Any) -> Stats:
    """What a call adds to the counters of a session."""
    before = session.stats
    main(*args)
    return Stats(*(after - was for after, was in zip(session.stats, before, strict=True)))


def test_a_call_takes_one_round_trip_a_region_and_values_between_regions_stay(far: Server) -> None:
    """In SKIP, `s` goes from the first region to the second; only `r`, which `c` takes, comes here."""
    with connect(far.url, timeout=SECONDS) as session:
        module = planned(SKIP, session).build().load()
        np.testing.assert_array_equal(module["main"](P, Q), here(SKIP)(P, Q))  # the far memory is there now
        for rows in (P, P[:1]):
            stats = difference(session, module["main"], rows, rows)
            assert (stats.calls, stats.round_trips) == (2, 2)
            assert stats.copied_in == 3 * rows.nbytes  # p, q and the result of Exp
            assert stats.copied_out == 2 * rows.nbytes  # r and y
        total, _ = module["remote_0"](P, Q)  # alone, a region takes and gives tensors of this process
        np.testing.assert_array_equal(total, P + Q)
        np.testing.assert_allclose(module["remote_1"](P, Q), np.tanh(P) + Q, rtol=1e-5)


SHARED = model("s = Add(p, q) e = Exp(s) t = Tanh(e) y = Add(t, s)")  # c takes s, and the second region


@pytest.mark.parametrize("outputs", ["y", "y, s"])
def test_a_value_that_is_read_here_is_not_sent_back(far: Server, outputs: str) -> None:
    proto = onnx.ModelProto.FromString(SHARED.SerializeToString())
    if "s" in outputs:
        proto.graph.output.append(onnx.helper.make_tensor_value_info("s", 1, ["n", 3]))
    with connect(far.url, timeout=SECONDS) as session:
        main = planned(proto, session).build().load()["main"]
        for got, expected in zip(all_of(main(P, Q)), all_of(here(proto)(P, Q)), strict=True):
            np.testing.assert_array_equal(got, expected)
        stats = difference(session, main, P, Q)
        assert stats.copied_in == 3 * P.nbytes  # p, q and the result of Exp
        assert stats.copied_out == 2 * P.nbytes  # s and y
        assert stats.round_trips == 2


SEVERAL = model(
    "s = Add(p, q) t = Tanh(s) r = Relu(s) e = Exp(r) u = Add(e, s) y = Add(u, t)"
)  # s and t go around Exp


def test_several_values_stay(far: Server) -> None:
    with connect(far.url, timeout=SECONDS) as session:
        main = planned(SEVERAL, session).build().load()["main"]
        np.testing.assert_array_equal(main(P, Q), here(SEVERAL)(P, Q))
        stats = difference(session, main, P, Q)
        assert stats.copied_in == 3 * P.nbytes and stats.copied_out == 2 * P.nbytes
        assert stats.round_trips == stats.calls


def test_a_region_is_a_function_of_its_own(artifact: Path) -> None:
    total, positive = fc.load_module(artifact)["remote_0"](P, Q)
    np.testing.assert_array_equal(total, P + Q)
    np.testing.assert_array_equal(positive, np.maximum(P + Q, 0))


# ---- places


def test_a_session_is_used_as_it_is(far: Server) -> None:
    with connect(far.url, timeout=SECONDS) as session:
        main = planned(SKIP, session).build().load()["main"]
        calls = session.stats.calls
        np.testing.assert_array_equal(main(P, Q), here(SKIP)(P, Q))
        assert session.stats.calls - calls == 2


@pytest.mark.parametrize("as_url", [True, False])
def test_a_device_is_named_and_given_at_load(far: Server, tmp_path: Path, as_url: bool) -> None:
    path = planned(SKIP, "dsp0").build().save(tmp_path / "named.so")
    with connect(far.url, timeout=SECONDS) as session:
        module = fc.load_module(path, devices={"dsp0": far.url if as_url else session})
        np.testing.assert_array_equal(module["main"](P, Q), here(SKIP)(P, Q))


def test_each_load_of_a_file_has_its_own_places(far: Server, tmp_path: Path) -> None:
    path = planned(SKIP, "dsp0").build().save(tmp_path / "named.so")
    with connect(far.url, timeout=SECONDS) as one, connect(far.url, timeout=SECONDS) as other:
        mains = [fc.load_module(path, devices={"dsp0": session})["main"] for session in (one, other)]
        one.close()
        np.testing.assert_array_equal(mains[1](P, Q), here(SKIP)(P, Q))
        with pytest.raises(ConnectionLostError):
            mains[0](P, Q)


def test_all_regions_of_a_place_are_one_module(far: Server, artifact: Path) -> None:
    (info,) = fc.library.inspect(artifact).modules
    assert (info.kind, info.regions) == (KIND, ("remote_0", "remote_1"))


def test_what_the_server_has_is_not_sent_again(far: Server, tmp_path: Path) -> None:
    weights = np.random.default_rng(3).random((128, 256), "float32")
    proto = model("m = MatMul(x, w) y = Exp(m)", "(float[n, 128] x) => (float[n, 256] y)")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = planned(proto, "dsp0").build().save(tmp_path / "large.so")
    sent = []
    for _ in range(2):
        with connect(far.url, timeout=SECONDS) as session:
            fc.load_module(path, devices={"dsp0": session})
            sent.append(session.stats.bytes_out)
    assert sent[0] > weights.nbytes > 10 * sent[1]


def test_the_inner_backend_and_its_target(far: Server) -> None:
    plan = planned(SKIP, far.url, target="aarch64-linux-musl", inner="c")
    text = plan.source("remote_0")
    assert f"{far.url}, aarch64-linux-musl" in text and "Add, Relu" in text
    with pytest.raises(ArtifactError, match=r"regions `remote_0`, `remote_1` on tcp://.*built for aarch64"):
        plan.build().load()


def test_regions_on_two_devices_and_here(far: Server, tmp_path: Path) -> None:
    """`s` goes from dsp0 to dsp1 by way of this process, and dsp0 keeps it for its second region."""
    backends = [
        fc.backend("remote", called="dsp0", on="dsp0", operators=["Add"]),
        fc.backend("remote", called="dsp1", on="dsp1", operators=["Relu", "Tanh"]),
        "c",
    ]
    plan = fc.partition(SKIP, backends)
    assert [region.name for region in plan.regions] == ["dsp0_0", "dsp1_0", "c_0", "dsp1_1", "dsp0_1"]
    path = plan.build(devices={"dsp1": "host"}).save(tmp_path / "two.so")
    with connect(far.url, timeout=SECONDS) as one, connect(far.url, timeout=SECONDS) as two:
        main = fc.load_module(path, devices={"dsp0": one, "dsp1": two})["main"]
        np.testing.assert_array_equal(main(P, Q), here(SKIP)(P, Q))
        before = two.stats
        stats = difference(one, main, P, Q)
        assert (stats.calls, stats.round_trips) == (2, 2)
        assert (stats.copied_in, stats.copied_out) == (3 * P.nbytes, 2 * P.nbytes)  # p, q, t; s, y
        assert two.stats.round_trips - before.round_trips == 2
        two.close()
        with pytest.raises(ConnectionLostError, match="backend `dsp1`, region `dsp1_0` on dsp1: "):
            main(P, Q)


def test_two_backends_of_one_name() -> None:
    twice = [fc.backend("remote", on=on) for on in ("dsp0", "dsp1")]
    with pytest.raises(BackendError, match=r'fc\.backend\("remote", called="\.\.\."\)'):
        fc.partition(SKIP, twice)
    with pytest.raises(BackendError, match="expected a short C identifier"):
        fc.backend("remote", called="a b")
    with pytest.raises(BackendError, match="farcall's own backend for If, Loop and Scan; choose another"):
        fc.backend("remote", called="control")


# ---- errors


def test_a_place_is_needed() -> None:
    with pytest.raises(UsageError, match="option `on`: expected a URL, a Session or the name of a device"):
        fc.partition(SKIP, backends=["remote", "c"]).build()


def test_a_device_that_nobody_named(far: Server, tmp_path: Path) -> None:
    path = planned(SKIP, "dsp0").build().save(tmp_path / "named.so")
    with pytest.raises(
        ArtifactError, match=r"regions `remote_0`, .*'dsp0', none is known; say where it is: load_module"
    ):
        fc.load_module(path)
    with pytest.raises(ArtifactError, match=r"'dsp0', known are 'gpu'"):
        fc.load_module(path, devices={"gpu": far.url})


def test_a_file_starts_no_program(tmp_path: Path) -> None:
    path = planned(SKIP, f"pipe:touch {tmp_path}/started").build().save(tmp_path / "pipe.so")
    with pytest.raises(ArtifactError, match="say where it is: load_module"):
        fc.load_module(path)
    assert not (tmp_path / "started").exists()


def test_targets_of_devices_are_for_devices_of_the_plan() -> None:
    with pytest.raises(UsageError, match="no backend of the plan is on `dsp1`; did you mean `dsp0`"):
        planned(SKIP, "dsp0").build(devices={"dsp1": "aarch64-linux-musl"})


def test_the_server_ends_between_calls(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/far.sock"
    path = planned(SKIP, url).build().save(tmp_path / "unix.so")
    with pytest.raises(ConnectError, match=r"regions `remote_0`, `remote_1` on unix:.*; start it, or give"):
        fc.load_module(path)
    with Server(urls=[url]):
        main = fc.load_module(path)["main"]
        np.testing.assert_array_equal(main(P, Q), here(SKIP)(P, Q))
    for _ in range(2):
        with pytest.raises(ConnectionLostError) as caught:
            main(P, Q)
        assert f"backend `remote`, region `remote_0` on {url}: " in str(caught.value)
        assert "; load the artifact again" in str(caught.value)
    with Server(urls=[url]):
        np.testing.assert_array_equal(fc.load_module(path)["main"](P, Q), here(SKIP)(P, Q))


def test_a_size_that_only_the_whole_model_knows(far: Server) -> None:
    """The region alone does not know n, the size of its output: there, its own artifact computes it."""
    proto = model(
        "s = Shape(p) r = Expand(q, s) y = Exp(r)", "(float[n, 3] p, float[1, 3] q) => (float[n, 3] y)"
    )
    main = planned(proto, far.url, operators=["Expand"]).build().load()["main"]
    np.testing.assert_array_equal(main(P, Q[:1]), here(proto)(P, Q[:1]))


GOOD = pack(
    "dsp0",
    "remote",
    "x",
    {"a": Source(1, b"one"), "b": Source(2, b"two"), "c": Source(1, b"one")},
)


def test_equal_artifacts_are_stored_once() -> None:
    head, parts = unpack(GOOD)
    assert parts == [b"one", b"two"]
    assert [(head.regions[name].inputs, head.regions[name].part) for name in "abc"] == [
        (1, 0),
        (2, 1),
        (1, 0),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"x",
        GOOD.replace(b'"part":1', b'"part":2'),
        GOOD.replace(b'"inputs":2', b'"inputs":"2"'),
        GOOD.replace(b'"inputs":2', b'"inputs":-2'),
        GOOD.replace(b"[3,3]", b"[9,-3]"),
        b"\xff\n",
        b"[]\n",
    ],
)
def test_damaged_data_is_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="damaged"):
        unpack(data)
