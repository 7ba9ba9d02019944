"""Opsets: models of old ones are read, and :func:`farcall.graph.convert_opset` writes any other."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from farcall.errors import ModelError, UsageError
from farcall.graph import convert_opset, save_model
from farcall.graph._opset_table import DOWN, UP

from ..backends.harness import compile_regions, whole_region
from ..backends.onnx_nodes import cases_of, check_case, model_of

NEWEST = onnx.defs.onnx_opset_version()
RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)


HEAD, OUT = "float[2, 3, 4] x", "float[?, ?, ?] y"


def text(body: str, opset: int, head: str = HEAD, out: str = OUT) -> onnx.ModelProto:
    top = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    return parser.parse_model(f"{top} g ({head}) => ({out}) {{ {body} }}")


# Dtypes of tensors that onnxruntime's Python API neither takes nor returns.
_NARROW = {
    kind
    for name, kind in TensorProto.DataType.items()
    if name.startswith("FLOAT8") or name in ("FLOAT4E2M1", "INT4", "UINT4", "INT2", "UINT2")
}


def run(model: ir.Model | onnx.ModelProto, *feeds: np.ndarray) -> list[np.ndarray]:
    """By onnxruntime, or by the reference evaluator where that lacks the opset or a dtype."""
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    onnx.checker.check_model(proto)
    names, arrays = [item.name for item in proto.graph.input], [np.asarray(item) for item in feeds]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    ends = {item.type.tensor_type.elem_type for item in (*proto.graph.input, *proto.graph.output)}
    session: Any = None
    if _NARROW.isdisjoint(ends):
        with contextlib.suppress(Exception):
            session = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    session = session or ReferenceEvaluator(proto)
    return [np.asarray(item) for item in session.run(None, dict(zip(names, arrays, strict=True)))]


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# Models of opsets before 7, which no other runtime here reads, and what they compute.
OLD: dict[str, tuple[onnx.ModelProto, list[np.ndarray], Callable[..., np.ndarray]]] = {
    "broadcast": (
        text("y = Add <broadcast = 1, axis = 1> (x, b)", 6, "float[2, 3, 4] x, float[3] b"),
        [X, numbers(3)],
        lambda x, b: x + b[:, None],
    ),
    "broadcast at the end": (
        text("y = Mul <broadcast = 1> (x, b)", 1, "float[2, 3, 4] x, float[3, 4] b"),
        [X, numbers(3, 4)],
        lambda x, b: x * b,
    ),
    "consumed inputs": (text("y = Relu <consumed_inputs = [0]> (x)", 1), [X], lambda x: np.maximum(x, 0)),
    "a slope for each channel": (
        text("y = PRelu (x, s)", 6, "float[2, 3, 4] x, float[3] s"),
        [X, numbers(3)],
        lambda x, s: np.where(x < 0, x * s[:, None], x),
    ),
    "no upper limit": (text("y = Clip <min = 0.0> (x)", 1), [X * np.inf], lambda x: np.maximum(x, 0)),
    "shape as an attribute": (
        text("y = Reshape <shape = [4, 0, -1]> (x)", 1),
        [X],
        lambda x: x.reshape(4, 3, 2),
    ),
    "dtype as text": (
        text('y = Cast <to = "INT64"> (x)', 1, out="int64[?, ?, ?] y"),
        [X * 9],
        lambda x: x.astype(np.int64),
    ),
    "paddings": (
        text("y = Pad <paddings = [0, 0, 1, 0, 0, 2], value = 3.0> (x)", 1),
        [X],
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), constant_values=3),
    ),
    "axis of 1": (text("y = Concat (x, x)", 3), [X], lambda x: np.concatenate([x, x], 1)),
    "dropout in inference": (text("y = Dropout <is_test = 1> (x)", 6), [X], lambda x: x),
    "all axes from one on": (
        text("y = Softmax (x)", 1),
        [X],
        lambda x: np.exp(x) / np.exp(x).sum((1, 2), keepdims=True),
    ),
    "scales of images": (
        text(
            "y = Upsample <height_scale = 2.0, width_scale = 1.0> (x)",
            1,
            "float[1, 2, 3, 4] x",
            "float[?, ?, ?, ?] y",
        ),
        [numbers(1, 2, 3, 4)],
        lambda x: x.repeat(2, 2),
    ),
    "a product with broadcast": (
        text(
            "y = Gemm <broadcast = 1> (x, b, c)",
            1,
            "float[2, 3] x, float[3, 4] b, float[4] c",
            "float[2, 4] y",
        ),
        [numbers(2, 3), numbers(3, 4), numbers(4)],
        lambda x, b, c: x @ b + c,
    ),
}


@pytest.mark.filterwarnings("ignore:invalid value")
def test_models_of_the_oldest_opsets_compute_what_they_mean() -> None:
    regions = [whole_region(model, name=f"c_{k}") for k, (model, _, _) in enumerate(OLD.values())]
    compiled = compile_regions(regions, flags=("-O1",))
    for (name, (model, feeds, meant)), region in zip(OLD.items(), compiled, strict=True):
        named = dict(zip([item.name for item in model.graph.input], feeds, strict=True))
        (found,) = region(*(named[value.name or ""] for value in region.region.inputs))
        np.testing.assert_allclose(found, meant(*feeds), rtol=1e-5, atol=1e-6, err_msg=name)
        for opset in (7, 13, NEWEST):
            (other,) = run(convert_opset(model, opset), *feeds)
            np.testing.assert_allclose(other, meant(*feeds), rtol=1e-5, atol=1e-6, err_msg=f"{name}: {opset}")


INDICES = np.array([[0, -1], [2, -3]], np.int64)
# What means something else, or is written in another way, in some opset: body, opset, inputs, other opsets.
CHANGED: list[tuple[str, int, str, Sequence[np.ndarray], Sequence[int]]] = [
    ("y = Softmax <axis = 1> (x)", 13, HEAD, [X], (7, 12, NEWEST)),
    ("y = Softmax <axis = 1> (x)", 11, HEAD, [X], (9, 13, NEWEST)),
    ("y = LogSoftmax <axis = -2> (x)", 12, "float[n, k, m] x", [X], (7, 13)),
    ("y = Hardmax <axis = 0> (x)", 13, "float[n, 3, 4] x", [X], (11,)),
    (
        "y = Clip (x, a, b)",
        13,
        "float[2, 3, 4] x, float a, float b",
        [X, np.float32(-1), np.float32(0.5)],
        (9, 10),
    ),
    ("a = Constant <value = float {0.5}> () y = Clip (x, a)", 13, HEAD, [X], (7, 12)),
    ("y = Clip <min = -0.5> (x)", 7, HEAD, [X], (11, NEWEST)),
    (
        "t = Gather <axis = 1> (x, i) y = ReduceMax <axes = [-1], keepdims = 0> (t)",
        13,
        "float[2, 3, 4] x, int64[2, 2] i",
        [X, INDICES],
        (9, 10, 18),
    ),
    ("y = ReduceSum <axes = [-2]> (x)", 11, HEAD, [X], (7, 13, 18)),
    ("a = Constant <value = int64[1] {-2}> () y = ReduceMean (x, a)", 18, HEAD, [X], (7, 13, NEWEST)),
    (
        "a = Constant <value = int64[0] {}> () y = ReduceSumSquare <noop_with_empty_axes = 1> (x, a)",
        18,
        HEAD,
        [X],
        (7, 13),
    ),
    (
        "a = Constant <value = int64[1] {-1}> () u = Unsqueeze (x, a) y = Squeeze (u, a)",
        13,
        HEAD,
        [X],
        (7, 11),
    ),
    (
        "a, b = Split <axis = -1, num_outputs = 2> (x) y = Concat <axis = -1> (b, a)",
        18,
        HEAD,
        [X],
        (7, 11, 13),
    ),
    ("a, b = Split <axis = 2, split = [1, 3]> (x) y = Concat <axis = 2> (b, a)", 11, HEAD, [X], (13, NEWEST)),
    ("a, b = Split <axis = 2> (x) y = Concat <axis = 2> (b, a)", 13, HEAD, [X], (11, 18)),
    (
        "s = Constant <value = int64[1] {-3}> () e = Constant <value = int64[1] {9}> ()"
        " a = Constant <value = int64[1] {-1}> () y = Slice (x, s, e, a)",
        13,
        HEAD,
        [X],
        (7, 10),
    ),
    ("y = Slice <starts = [1], ends = [-1], axes = [2]> (x)", 9, HEAD, [X], (10, NEWEST)),
    ("y, i = TopK <k = 2, axis = -1> (x)", 9, HEAD, [X], (10, 11, NEWEST)),
    ("k = Constant <value = int64[1] {2}> () y, i = TopK <axis = -1> (x, k)", 11, HEAD, [X], (7, 10)),
    (
        "p = Constant <value = int64[4] {1, 0, 0, 2}> () v = Constant <value = float {1.5}> ()"
        " a = Constant <value = int64[2] {-1, 0}> () y = Pad (x, p, v, a)",
        18,
        HEAD,
        [X],
        (7, 11, 19),
    ),
    ('y = Pad <pads = [0, 1, 0, 0, 0, 2], mode = "edge"> (x)', 10, HEAD, [X], (11, NEWEST)),
    ("y = Dropout <ratio = 0.25> (x)", 10, HEAD, [X], (7, 12, 22)),
    ("s = Shape <start = 1> (x) y = Reshape (x, s)", 15, "float[1, 3, 4] x", [X[:1]], (10, 13)),
    ("y = CastLike (x, l)", 19, "float[2, 3, 4] x, int32[1] l", [X * 9, np.ones(1, np.int32)], (9, 13)),
    (
        "y = LayerNormalization (x, s, b)",
        17,
        "float[n, m, 4] x, float[4] s, float[4] b",
        [X, numbers(4), numbers(4)],
        (9, 13, 16),
    ),
    ("y = RMSNormalization (x, s)", 23, "float[n, m, 4] x, float[4] s", [X, numbers(4)], (13, 18)),
    ("y = Gelu (x)", 20, "float[n, m, k] x", [X], (9, 14)),
    ("a = HardSwish (x) b = Mish (a) y = Celu (b)", 18, HEAD, [X], (10, 13)),
    ("y = GreaterOrEqual (x, z)", 16, "float[2, 3, 4] x, float z", [X, np.float32(0)], (11,)),
    (
        'y = Upsample <mode = "nearest"> (x, s)',
        9,
        "float[2, 3, 4] x, float[3] s",
        [X, np.float32([1, 1, 2])],
        (10,),
    ),
    (
        "s = Constant <value = float[3] {1.0, 2.0, 3.0}> () y = Upsample (x, s)",
        9,
        HEAD,
        [X],
        (7, 10, 11, 13, NEWEST),
    ),
    (
        "s = Constant <value = float[4] {1.0, 1.0, 0.5, 0.6}> ()"
        ' r = Resize <mode = "linear"> (x, s) y = Squeeze (r)',
        10,
        "float[1, 2, 4, 5] x",
        [numbers(1, 2, 4, 5)],
        (11, 18, NEWEST),
    ),
    (
        's = Constant <value = float[1] {2.0}> () y = Resize <axes = [2], mode = "linear"> (x, , s)',
        18,
        HEAD,
        [X],
        (13,),
    ),
    (
        "y = Scatter <axis = 1> (x, i, u)",
        9,
        "float[2, 3] x, int64[2, 2] i, float[2, 2] u",
        [numbers(2, 3), np.array([[0, 2], [1, 0]]), numbers(2, 2)],
        (11, NEWEST),
    ),
    (
        "y = ScatterElements <axis = 1> (x, i, u)",
        13,
        "float[2, 3] x, int64[2, 2] i, float[2, 2] u",
        [numbers(2, 3), np.array([[0, -1], [1, -3]]), numbers(2, 2)],
        (10,),
    ),
    (
        "d = Constant <value = int64 {3}> () v = Constant <value = float[2] {0.0, 1.0}> ()"
        " y = OneHot (i, d, v)",
        11,
        "int64[2, 2] i",
        [INDICES],
        (9, 10, NEWEST),
    ),
    (
        "y = DequantizeLinear <axis = 0> (x, s)",
        21,
        "int8[3] x, float[3] s",
        [np.array([1, -2, 3], np.int8), np.array([0.5, 1, 2], np.float32)],
        (13, 19, NEWEST),
    ),
    (
        "t = If (c) <then_branch = p () => (float[2, 3, 4] a) { a = Softmax <axis = 1> (x) },"
        " else_branch = q () => (float[2, 3, 4] b) { b = LayerNormalization (x, s) }> y = Identity (t)",
        17,
        "float[2, 3, 4] x, float[4] s, bool c",
        [X, numbers(4), np.bool_(False)],
        (11, 13, 18),
    ),
]


@pytest.mark.parametrize("case", CHANGED, ids=lambda case: f"{case[0].split('(')[0][:40]}, {case[1]}")
def test_a_model_computes_the_same_in_another_opset(
    case: tuple[str, int, str, Sequence[np.ndarray], Sequence[int]],
) -> None:
    body, opset, head, feeds, targets = case
    model = onnx.shape_inference.infer_shapes(text(body, opset, head, "y"))
    before = run(model, *feeds)
    for target in targets:
        converted = convert_opset(model, target)
        assert dict(converted.opset_imports) == {"": target}
        for ours, theirs in zip(run(converted, *feeds), before, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=f"opset {target}")


REFUSED = [
    (
        "y = Trilu (x)",
        14,
        13,
        "node `y` (Trilu of opset 14) cannot be written in opset 13: the"
        " operator does not exist there; expected opset 14 or newer",
    ),
    (
        "k = Constant <value = int64[1] {2}> () y, n = TopK <largest = 0> (x, k)",
        13,
        10,
        "the attribute largest = 0 has no counterpart there; expected opset 11 or newer",
    ),
    ("y = Dropout <is_test = 0> (x)", 6, 13, "is_test = 0 is training, and has no counterpart there"),
    ("r = Relu (i) y = Cast <to = 1> (r)", 14, 13, "input 0 (`i`) is tensor(int8), which"),
    ("a = Constant <value = int64[1] {1}> () y = ReduceMax (x, a)", 18, 99, "opset 99 cannot be written"),
    (
        "y = ReduceMax (x, j)",
        18,
        13,
        "the axes must be constant there, and `j` is computed when the model runs",
    ),
    ('y = Resize <antialias = 1, mode = "linear"> (x, , s)', 18, 13, "the attribute antialias = 1"),
    ('y = Pad <mode = "wrap"> (x, p)', 19, 18, "the mode wrap has no counterpart there"),
    ('y = ScatterElements <reduction = "add"> (x, j3, x)', 16, 13, "the attribute reduction = add"),
    ('y = Einsum <equation = "ijk->kij"> (x)', 12, 11, "the operator does not exist there"),
    ("y = Relu (x)", 13, 6, "opset 6 cannot be written; expected one from 7 to"),
]


@pytest.mark.parametrize(("body", "opset", "target", "says"), REFUSED, ids=lambda item: str(item)[:40])
def test_what_has_no_counterpart_is_refused(body: str, opset: int, target: int, says: str) -> None:
    head = "float[2, 3, 4] x, int8[2, 3, 4] i, int64[1] j, int64[2, 3, 4] j3, float[3] s, int64[6] p"
    with pytest.raises(UsageError) as caught:
        convert_opset(text(body, opset, head), target)
    assert says in str(caught.value)


def test_functions_of_other_opsets_are_read() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 12, "own" : 1]>
        g (float[2, 3, 4] x) => (float[2, 3, 4] y) { a = Softmax <axis = 1> (x)  y = own.last(a) }
        <domain: "own", opset_import: ["" : 18]> last (v) => (w)
        { n = Constant <value = int64[1] {-1}> () m = ReduceMax (v, n)
          s = Softmax <axis = 1> (v) w = Add(s, m) }""")
    rows = np.exp(X) / np.exp(X).sum((1, 2), keepdims=True)
    meant = np.exp(rows) / np.exp(rows).sum(1, keepdims=True) + rows.max(-1, keepdims=True)
    (found,) = run(convert_opset(model, 13), X)
    np.testing.assert_allclose(found, meant, rtol=1e-5)
    (region,) = compile_regions([whole_region(model)], flags=("-O1",))
    np.testing.assert_allclose(region(X)[0], meant, rtol=1e-5)


def test_weights_and_names_are_kept(tmp_path: Path) -> None:
    weights = numbers(300, 4)
    model = text("p = MatMul(x, w) y = Softmax <axis = 1> (p)", 11, "float[2, 3, 300] x", "float[2, 3, 4] y")
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    model.graph.input.append(helper.make_tensor_value_info("w", 1, [300, 4]))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    (tmp_path / "new").mkdir()
    save_model(convert_opset(tmp_path / "m.onnx", 21), tmp_path / "new" / "m.onnx")
    new = onnx.load(tmp_path / "new" / "m.onnx")
    assert [item.name for item in new.graph.input] == ["x"]
    x = numbers(2, 3, 300)
    meant = x @ weights
    meant = np.exp(meant) / np.exp(meant).sum((1, 2), keepdims=True)
    np.testing.assert_allclose(run(new, x)[0], meant, rtol=1e-4)


def test_every_rule_is_of_a_version() -> None:
    versions = {(item.name, item.since_version) for item in onnx.defs.get_all_schemas_with_history()}
    assert UP.keys() <= versions and DOWN.keys() <= versions


def _passes(case: Any, model: ir.Model | onnx.ModelProto) -> bool:
    with warnings.catch_warnings(action="ignore"):
        try:
            check_case(case, lambda *feeds: run(model, *feeds))
        except Exception:
            return False
    return True


# What draws random numbers, or what the evaluators fail in some opset as the case is.
_OWN_FAULTS = (
    "bernoulli",
    "training_dropout",
    "BFLOAT16",
    "bfloat16",
    "optional",
    "if_opt",
    "string_concat",
    "strnormalizer",
)


@pytest.mark.slow
@pytest.mark.parametrize("target", [7, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 23, NEWEST])
def test_onnx_node_tests_in_another_opset(target: int) -> None:
    """What onnxruntime or the evaluator compute rightly, they compute rightly in another opset."""
    wrong, right = [], 0
    for case in cases_of("node"):
        model = model_of(case)
        if not any(item.domain == "" for item in model.opset_import):
            continue
        try:
            converted = convert_opset(model, target)
        except ModelError as error:
            assert "; expected" in str(error), case.name
            continue
        if _passes(case, converted):
            right += 1
        elif not any(word in case.name for word in _OWN_FAULTS) and _passes(case, model):
            wrong.append(case.name)
    assert not wrong
    assert right > 300
