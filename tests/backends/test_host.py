"""onnxruntime, or ONNX's reference, computes what no other backend takes, where the artifact is loaded."""

from __future__ import annotations

import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import farcall as fc
from farcall.errors import ArtifactError, BackendError, UnsupportedOperatorError, UsageError

ort = pytest.importorskip("onnxruntime")

DETECTOR = """<ir_version: 10, opset_import: ["" : 22]>
 g (float[1, n, 4] boxes, float[1, 1, n] scores) => (float[k, 1, 4] y, float[1, n, 4] z)
 <int64[1] most = {3}, float[1] iou = {0.5}, float[1] least = {0.1}, int64[1] two = {2}, int64[1] zero = {0}>
 { r = Relu (boxes)
   [nms] s = NonMaxSuppression (r, scores, most, iou, least)
   i = Gather <axis = 1> (s, two)
   z = Exp (boxes)
   b = Squeeze (r, zero)
   g = Gather (b, i)
   y = Neg (g) }"""
NO_LOOPS = """<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>
 g (float[n, 4] x) => (float[n, 4] y) { e = Exp (x) [echo] a = com.microsoft.SampleOp (e) y = Neg (a) }"""
SEQUENCE = """<ir_version: 10, opset_import: ["" : 22]>
 g (float[n, 4] x) => (float[n, k] y) <int64 zero = {0}>
 { s = SplitToSequence <axis = 1> (x)
   a = SequenceAt (s, zero)
   [between] r = Relu (a)
   t = SequenceInsert (s, r)
   w = ConcatFromSequence <axis = 1> (t)
   y = Neg (w) }"""
BRANCH = """<ir_version: 10, opset_import: ["" : 22]>
 g (float[n] x, bool c) => (float[n] y)
 { s = Exp (x)
   t = If (c) <then_branch = a () => (float[n] r) { r = Neg (s) },
               else_branch = b () => (float[n] q) { q = Abs (s) }>
   y = Relu (t) }"""
X = np.float32([[-1, 2, -3, 4], [5, -6, 7, -8]])


def small(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> g {graph}')


def same_as_onnxruntime(main: Any, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    got = main(*feeds.values())
    expected = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    for one, other in zip(got if isinstance(got, list | tuple) else [got], expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-6)


def detections(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {"boxes": rng.random((1, n, 4), np.float32), "scores": rng.random((1, 1, n), np.float32)}


def test_outputs_of_any_shape_here_in_threads_and_on_a_server(tmp_path: Path) -> None:
    model = parser.parse_model(DETECTOR)
    no_loops = fc.partition(model, ["c", "onnxruntime"], exclude={"c": ["nms"]})
    path = no_loops.build().save(tmp_path / "m.so")
    main = fc.load_module(path)["main"]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: same_as_onnxruntime(main, model, detections(n)), [7, 1, 0, 5, 6, 9]))
    with fc.rpc.Server() as server, fc.connect(server.url) as session:
        far = session.load_module(path)["main"]
        feeds = detections(6)
        for one, other in zip(far(*feeds.values()), main(*feeds.values()), strict=True):
            np.testing.assert_array_equal(one.numpy(), np.asarray(other))


@pytest.mark.parametrize("text", [SEQUENCE, BRANCH, NO_LOOPS])
def test_control_flow_sequences_and_other_domains(text: str) -> None:
    model = parser.parse_model(text)
    feeds = {"x": X[0], "c": np.array(True)} if text is BRANCH else {"x": X}
    plan = fc.partition(model, ["c", "onnxruntime"], exclude={"control": ["If*"]} if text is BRANCH else None)
    same_as_onnxruntime(plan.build().load()["main"], model, feeds)
    assert any(region.backend == "onnxruntime" for region in plan.regions)


def test_the_reference_evaluator_computes_too() -> None:
    model = parser.parse_model(DETECTOR)
    plan = fc.partition(model, ["c", "reference"], exclude={"c": ["nms"]})
    main = plan.build().load()["main"]
    for n in (5, 0):
        same_as_onnxruntime(main, model, detections(n))


@pytest.mark.parametrize("backend", ["onnxruntime", "reference"])
def test_large_constants_are_the_artifacts(backend: str) -> None:
    model = small("(float[n, 64] x) => (float[n, 50] y) { y = MatMul (x, w) }")
    weights = np.random.default_rng(0).random((64, 50), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    artifact = fc.partition(model, [backend]).build()
    assert artifact.manifest.constants.bytes == weights.nbytes
    (module,) = artifact.manifest.modules
    assert module.bytes < 1000
    same_as_onnxruntime(artifact.load()["main"], model, {"x": np.ones((3, 64), np.float32)})


def test_the_plan_says_what_is_computed_there_and_why() -> None:
    plan = fc.partition(parser.parse_model(NO_LOOPS), ["c", "onnxruntime"])
    text = (
        "2 of 3 nodes are computed by onnxruntime in the process that loads the artifact: SampleOp (c: the C"
    )
    assert text in str(plan)
    assert "c            refused: the C backend has no loops for SampleOp" in str(plan.why("echo"))


def test_the_refusal_of_c_alone_names_the_fallback() -> None:
    with pytest.raises(
        UnsupportedOperatorError, match=r'such as onnxruntime \(backends=\["c", "onnxruntime"\]\)'
    ):
        fc.partition(parser.parse_model(NO_LOOPS))


def test_another_kind_of_machine_is_refused_by_name() -> None:
    plan = fc.partition(parser.parse_model(NO_LOOPS), ["c", "onnxruntime"])
    with pytest.raises(
        BackendError, match=r"`onnxruntime_0`, nodes `echo` \(SampleOp\).*not aarch64-linux-musl"
    ):
        plan.build(target="aarch64-linux-musl")
    with pytest.raises(BackendError, match="which a static library cannot load"):
        plan.build(link="static")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = fc.partition(parser.parse_model(NO_LOOPS), ["c", "onnxruntime"]).build()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ArtifactError, match=r"need the package onnxruntime, .*pip install onnxruntime"):
        artifact.load()
    with pytest.raises(
        UnsupportedOperatorError, match="onnxruntime is not installed; pip install onnxruntime"
    ):
        fc.partition(parser.parse_model(NO_LOOPS), ["c", "onnxruntime"])


def test_an_error_names_the_region_and_the_backend() -> None:
    model = small("(float[n] x, int64[m] i) => (float[m] y) { y = Gather (x, i) }")
    main = fc.partition(model, ["onnxruntime"]).build().load()["main"]
    with pytest.raises(RuntimeError, match="indices element out of data bounds") as caught:
        main(X[0], np.int64([9]))
    where = "".join(traceback.format_exception(caught.value))
    assert "region `onnxruntime_0` of backend `onnxruntime`" in where


def test_threads_are_an_option() -> None:
    plan = fc.partition(parser.parse_model(NO_LOOPS), [fc.backend("onnxruntime", threads=2)])
    same_as_onnxruntime(plan.build().load()["main"], parser.parse_model(NO_LOOPS), {"x": X})
    with pytest.raises(UsageError, match="option `threads`: expected 1 or more, got 0"):
        fc.partition(parser.parse_model(NO_LOOPS), [fc.backend("onnxruntime", threads=0)]).build()
