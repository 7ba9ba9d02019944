"""Operators of com.microsoft, which onnxruntime's tools write, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import farcall as fc
from farcall.errors import UnsupportedOperatorError

from ..exact_bytes import seven_bits
from .harness import compile_regions, whole_region

ort = pytest.importorskip("onnxruntime")

I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)


@dataclass
class Case:
    """A node, the data of its operands, and which of them are constants of the model."""

    op: str
    operands: Sequence[np.ndarray | None]
    attributes: Mapping[str, object] = field(default_factory=dict)
    constants: Sequence[int] = ()
    outputs: Sequence[str] = ("y",)
    opset: int = 17

    def model(self, results: Sequence[np.ndarray] = ()) -> onnx.ModelProto:
        """The model; its outputs have the types of ``results``, or none, which only onnxruntime accepts."""
        names = [f"x{i}" if item is not None else "" for i, item in enumerate(self.operands)]
        node = helper.make_node(
            self.op, names, self.outputs, name="node", domain="com.microsoft", **self.attributes
        )
        inputs = [
            helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(item.dtype), item.shape)
            for i, item in enumerate(self.operands)
            if item is not None and i not in self.constants
        ]
        data = [numpy_helper.from_array(np.asarray(self.operands[i]), names[i]) for i in self.constants]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        for info, item in zip(outputs, results, strict=False):
            info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(item.dtype)
        graph = helper.make_graph([node], "g", inputs, outputs, data)
        versions = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9)

    def feeds(self) -> dict[str, np.ndarray]:
        return {
            f"x{i}": item
            for i, item in enumerate(self.operands)
            if item is not None and i not in self.constants
        }

    def expected(self) -> list[np.ndarray]:
        session = ort.InferenceSession(self.model().SerializeToString(), providers=["CPUExecutionProvider"])
        results: list[np.ndarray] = session.run(None, self.feeds())
        return results


def check(cases: Sequence[Case], atol: float = 0) -> None:
    """Compare with onnxruntime: each bit, unless a tolerance is given."""
    expected = [case.expected() for case in cases]
    models = [case.model(results) for case, results in zip(cases, expected, strict=True)]
    regions = [whole_region(model, name=f"c_{i}") for i, model in enumerate(models)]
    compiled = compile_regions(regions, flags=("-O1",))
    for case, item, wanted in zip(cases, compiled, expected, strict=True):
        feeds = case.feeds()
        results = item(*(feeds[str(value.name)] for value in item.region.inputs))
        got = dict(zip([value.name for value in item.region.outputs], results, strict=True))
        for name, theirs in zip([name for name in case.outputs if name], wanted, strict=True):
            what = f"{case.op} {dict(case.attributes)} {name}"
            assert got[name].dtype == theirs.dtype, what
            assert got[name].shape == theirs.shape, what
            np.testing.assert_allclose(got[name], theirs, rtol=atol, atol=atol, err_msg=what)


def narrow(*shape: int, dtype: np.dtype = U8, seed: int = 0) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scale(number: float) -> np.ndarray:
    return np.array(number, np.float32)


def quantized(value: np.ndarray, number: float, origin: int) -> list[np.ndarray]:
    return [value, scale(number), np.array(origin, value.dtype)]


def result(dtype: np.dtype, number: float, origin: int) -> list[np.ndarray]:
    return [scale(number), np.array(origin, dtype)]


@pytest.mark.parametrize("dtype", [U8, I8])
def test_sums_and_products(dtype: np.dtype) -> None:
    """The scales have few digits, so that many results are halfway between two integers."""
    cases = []
    for a, b in [((3, 4, 35), (3, 4, 35)), ((5, 41), (41,)), ((2, 3, 33), (3, 1))]:
        left, right = narrow(*a, dtype=dtype), narrow(*b, dtype=dtype, seed=1)
        operands = [*quantized(left, 0.75, 7), *quantized(right, 1.25, 100)]
        cases.append(Case("QLinearAdd", [*operands, *result(dtype, 1.5, 11)], constants=(1, 2, 4, 5, 6, 7)))
        cases.append(Case("QLinearMul", [*operands, *result(dtype, 90, 11)]))
    check(cases)


@pytest.mark.parametrize("dtype", [U8, I8])
def test_operands_that_repeat_are_added_first(dtype: np.dtype) -> None:
    """As onnxruntime does: the order of a sum decides how results near halves are rounded."""
    shapes = [((7, 1), (7, 300)), ((), (2, 300)), ((5, 1, 60), (1, 7, 60)), ((1, 3, 1), (50, 3, 1))]
    cases = []
    for a, b in [*shapes, *((b, a) for a, b in shapes)]:
        left, right = narrow(*a, dtype=dtype), narrow(*b, dtype=dtype, seed=1)
        operands = [*quantized(left, 0.166, 3), *quantized(right, 0.252, 1)]
        cases.append(Case("QLinearAdd", [*operands, *result(dtype, 0.124, 1)]))
    check(cases)


@pytest.mark.parametrize("dtype", [U8, I8])
def test_functions_of_one_element(dtype: np.dtype) -> None:
    x, low = quantized(narrow(300, dtype=dtype), 0.05, 3), np.iinfo(dtype).min
    check(
        [
            Case("QLinearSigmoid", [*x, *result(dtype, 1 / 256, low)]),
            Case("QLinearLeakyRelu", [*x, *result(dtype, 0.04, 9)], {"alpha": 0.1}),
            Case("QLinearConcat", [*result(dtype, 0.07, 5), *x, *quantized(x[0], 0.2, 1)], {"axis": 0}),
        ]
    )
    rows = quantized(narrow(3, 50, dtype=dtype), 0.05, 3)
    cases = [
        Case("QLinearSoftmax", [*rows, *result(dtype, step, low)], {"axis": axis, "opset": 13})
        for step in (1 / 256, 0.0039, 0.01)
        for axis in (-1, 0)
    ]
    check(
        [
            *cases,
            Case("QLinearSoftmax", [*rows, *result(dtype, 0.0041, 3)], {"axis": 1, "opset": 11}, opset=11),
        ]
    )


@pytest.mark.parametrize("dtype", [U8, I8])
def test_pools(dtype: np.dtype) -> None:
    x, out = quantized(narrow(2, 3, 7, 6, dtype=dtype), 0.75, 7), result(dtype, 0.5, 3)
    window = {"kernel_shape": [3, 2], "strides": [2, 1]}
    check(
        [
            Case("QLinearGlobalAveragePool", [*x, *out], {"channels_last": 0}),
            Case("QLinearGlobalAveragePool", [*x, *out], {"channels_last": 1}),
            Case("QLinearAveragePool", [*x, *out], window),
        ]
    )


def test_gemm() -> None:
    a, b, scales = narrow(9, 16), seven_bits(16, 33, seed=1), narrow(33, seed=2).astype(np.float32) / 4
    left, bias = quantized(a, 0.75, 7), narrow(33, seed=3).astype(np.int32) * 16 - 2000
    right, out = [b, scales, np.zeros(33, I8)], result(U8, 50000, 100)
    turned = [b.T.copy(), scale(0.5), np.array(3, I8)]
    other = [a.T.copy(), *left[1:]]
    check(
        [
            Case("QGemm", [*left, *right, bias, *out], {"alpha": 1.5}, constants=range(3, 9)),
            Case("QGemm", [*left, *right, bias, *out], {"alpha": 1.5}),
            Case("QGemm", [*other, *turned, None, *out], {"transA": 1, "transB": 1}),
            Case("QGemm", [*left, *turned, bias], {"transB": 1}, constants=(3, 4, 5, 6)),
        ],
        1e-6,
    )


def test_products_of_dynamic_and_float_results() -> None:
    a, b = narrow(4, 9), seven_bits(9, 6, seed=1)
    to_float = [a, b, scale(0.25), scale(0.5), np.array(9, U8), np.array(3, I8), floats(6)]
    columns = [a, b, scale(0.25), np.abs(floats(6, seed=3)), np.array(9, U8), np.zeros(6, I8)]
    dynamic = [floats(2, 4, 9), b, scale(0.25), np.array(3, I8), floats(6)]
    check(
        [
            Case("MatMulIntegerToFloat", to_float),
            Case("MatMulIntegerToFloat", columns, constants=(1, 3, 5)),
            Case("DynamicQuantizeMatMul", dynamic),
            Case("DynamicQuantizeMatMul", dynamic[:3], constants=(1, 2)),
        ],
        1e-5,
    )


def test_linear_operators_of_this_domain() -> None:
    zero = np.array(-200, np.int16)
    check(
        [
            Case("QuantizeLinear", [floats(4, 5), scale(0.001), zero], opset=13),
            Case("DequantizeLinear", [narrow(4, 5, dtype=np.dtype(np.int16)), scale(0.01), zero], opset=13),
        ]
    )


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_float_operators(opset: int) -> None:
    a, b, rows, row = floats(2, 3, 5), floats(2, 5, 4, seed=1), floats(2, 3, 8), floats(8, seed=2)
    turned = {"transA": 1, "transB": 1, "alpha": 0.5}
    gamma, beta, bias = floats(8, seed=3), floats(8, seed=4), floats(8, seed=5)
    cases = [
        Case("FusedMatMul", [a, b], {"alpha": 2.0}),
        Case("FusedMatMul", [a.swapaxes(1, 2).copy(), b.swapaxes(1, 2).copy()], turned),
        Case("FusedMatMul", [floats(2, 3, 4), floats(4, 2, 5, seed=1)], {"transBatchB": 1}),
        Case("FusedMatMul", [floats(3, 2, 4), floats(4, 2, 5, seed=1)], {"transBatchA": 1, "transBatchB": 1}),
        Case("FusedMatMul", [floats(4, 2, 6, 3), floats(2, 6, 4, 5)], {"transA": 1, "transBatchA": 1}),
        Case("Gelu", [rows]),
        Case("BiasGelu", [rows, row]),
        Case("FastGelu", [rows]),
        Case("FastGelu", [rows, row]),
        Case("QuickGelu", [rows], {"alpha": 1.5}),
        Case("SkipLayerNormalization", [rows, floats(2, 3, 8, seed=6), gamma, beta, bias], {"epsilon": 1e-6}),
        Case("SkipLayerNormalization", [rows, rows, gamma], outputs=("y", "", "", "sum")),
        Case("SkipSimplifiedLayerNormalization", [rows, floats(2, 3, 8, seed=6), gamma]),
    ]
    for case in cases:
        case.opset = opset
    check(cases, 1e-5)


@pytest.mark.parametrize("opset", [13, 17])
def test_embeddings(opset: int) -> None:
    words, kinds = np.int32([[1, 4, 2], [0, 3, 3]]), np.int32([[0, 0, 1], [0, 1, 1]])
    tables = [floats(5, 8), floats(6, 8, seed=1), floats(2, 8, seed=2), floats(8, seed=3), floats(8, seed=4)]
    mask, outputs = np.int32([[1, 1, 0], [1, 1, 1]]), ("y", "counts")
    cases = [
        Case("EmbedLayerNormalization", [words, kinds, *tables, mask], outputs=outputs),
        Case("EmbedLayerNormalization", [words, None, *tables[:2], None, *tables[3:]], outputs=outputs),
    ]
    for case in cases:
        case.opset = opset
    check(cases, 1e-5)


def test_attention() -> None:
    """With masks of each kind, a past, biases, and parts of other sizes."""
    batch, length, past, heads, each = 2, 5, 3, 2, 4
    width = heads * each
    x, weight, bias = (
        floats(batch, length, width),
        floats(width, 3 * width, seed=1),
        floats(3 * width, seed=2),
    )
    mask = np.int32([[1, 1, 0, 1, 1, 0, 1, 1], [1] * 8])
    cache = floats(2, batch, heads, past, each, seed=3)
    parts = [floats(batch, length, width, seed=seed) for seed in (4, 5, 6)]
    wide = floats(width, 4 * width, seed=7), floats(4 * width, seed=8)
    small = narrow(batch, length, width, dtype=U8), seven_bits(width, 3 * width)
    zeros = np.array(120, np.uint8), np.array(0, np.int8)
    one, names = {"num_heads": heads}, ("y", "keys", "values")
    cases = [
        Case("Attention", [x, weight, bias, np.int32([3, 5])], one),
        Case("Attention", [x, weight, bias, mask, cache], one | {"unidirectional": 1}, outputs=("y", "past")),
        Case("Attention", [x, weight, bias, None, None, floats(1, heads, 5, 5)], one | {"scale": 0.3}),
        Case("Attention", [x, *wide], one | {"qkv_hidden_sizes": [width, width, 2 * width]}),
        Case("QAttention", [*small, bias, scale(0.02), scale(0.01), None, *zeros], one),
        Case("MultiHeadAttention", [*parts, bias, None, floats(batch, 1, 5, 5)], one | {"unidirectional": 1}),
        Case("MultiHeadAttention", [*parts, None, mask, None, *cache], one, outputs=names),
        Case("MultiHeadAttention", [x, *cache], one),
    ]
    check(cases, 1e-5)


def test_lengths_of_rows_whose_count_has_a_name_of_its_own() -> None:
    """onnxruntime's optimizer makes them of a mask, whose sizes have other names than those of the ids."""
    x, weight, lengths = floats(2, 3, 4), floats(4, 12, seed=1), np.int32([2, 3])
    case = Case("Attention", [x, weight, floats(12, seed=2), lengths], {"num_heads": 2}, [1, 2])
    model = case.model([x])
    for info, name in zip(model.graph.input, ("batch", "masks"), strict=True):
        info.type.tensor_type.shape.dim[0].dim_param = name
    (expected,) = ort.InferenceSession(model.SerializeToString()).run(None, case.feeds())
    main = fc.partition(model, backends=["c"]).build().load()["main"]
    np.testing.assert_allclose(main(x, lengths), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"equal sizes, or a 1, fit"):
        main(x, np.int32([2, 3, 1]))


def test_groups_of_queries() -> None:
    """A first prompt, a row after others, and packed rows; rotated, in a window, with a soft cap."""
    batch, length, past, heads, each = 2, 5, 3, 2, 16
    x, first = floats(batch, length, heads * each), floats(batch, length, each, seed=1)
    empty, cache = floats(batch, 1, 0, each), [floats(batch, 1, past, each, seed=seed) for seed in (2, 3)]
    row, packed = floats(batch, 1, heads * each, seed=4), floats(batch, 1, (heads + 2) * each, seed=5)
    tables = [floats(32, each // 2, seed=seed) for seed in (6, 7)]
    start = [np.int32([length - 1] * 2), np.array(length, np.int32)]
    after = [np.int32([past] * 2), np.array(past + 1, np.int32)]
    both, rotated = (
        {"num_heads": heads, "kv_num_heads": 1},
        {"num_heads": heads, "kv_num_heads": 1, "do_rotary": 1},
    )
    turned = rotated | {"rotary_interleaved": 1, "softcap": 5.0}
    cases = [
        Case("GroupQueryAttention", [x, first, first, empty, empty, *start], both | {"local_window_size": 2}),
        Case("GroupQueryAttention", [row, first[:, :1], first[:, 1:2], *cache, *after, *tables], rotated),
        Case("GroupQueryAttention", [packed, None, None, *cache, *after, *tables], turned),
    ]
    for case in cases:
        case.constants, case.outputs = [6], ("y", "keys", "values")
    check(cases, 1e-5)


def test_an_operator_that_onnxruntime_writes_in_the_domain_of_onnx() -> None:
    case = Case("SimplifiedLayerNormalization", [floats(2, 3, 8), floats(8, seed=1)], {"epsilon": 1e-6})
    model = case.model([floats(2, 3, 8)])
    model.graph.node[0].domain = ""
    (compiled,) = compile_regions([whole_region(model)])
    (theirs,) = ort.InferenceSession(model.SerializeToString()).run(None, case.feeds())
    np.testing.assert_allclose(compiled(*case.operands)[0], theirs, rtol=1e-5, atol=1e-6)


def test_a_model_that_does_not_import_the_domain() -> None:
    """As onnxruntime's optimiser for transformers holds its models in memory; onnxruntime runs them."""
    case = Case("BiasGelu", [floats(2, 8), floats(8, seed=1)])
    model = case.model([floats(2, 8)])
    del model.opset_import[[item.domain for item in model.opset_import].index("com.microsoft")]
    (compiled,) = compile_regions([whole_region(model)])
    (theirs,) = ort.InferenceSession(model.SerializeToString()).run(None, case.feeds())
    np.testing.assert_allclose(compiled(*case.operands)[0], theirs, rtol=1e-5, atol=1e-6)


def test_rotary_embeddings() -> None:
    tables, places = (
        [floats(9, 2, seed=seed) for seed in (1, 2)],
        np.random.default_rng(0).integers(0, 9, (2, 5)),
    )
    check(
        [
            Case("RotaryEmbedding", [floats(2, 5, 8), np.int64([3]), *tables]),
            Case("RotaryEmbedding", [floats(2, 5, 8), places, *tables], {"interleaved": 1}),
            Case("RotaryEmbedding", [floats(2, 3, 5, 4), places, *tables]),
            Case(
                "RotaryEmbedding",
                [floats(2, 5, 16), places, *tables],
                {"num_heads": 2, "rotary_embedding_dim": 4},
            ),
        ],
        1e-5,
    )


def test_weights_of_few_bits() -> None:
    small = np.random.default_rng(0).integers(0, 256, (6, 3, 16)).astype(np.uint8)
    x, scales, sizes = floats(3, 40), floats(18, seed=1) / 64, {"K": 40, "N": 6, "block_size": 16}
    four = np.ascontiguousarray(small[..., :8])
    check(
        [
            Case("MatMulNBits", [x, four, scales], sizes | {"bits": 4}, [1, 2]),
            Case(
                "MatMulNBits",
                [x, four, scales, small.reshape(-1)[:12], None, floats(6)],
                sizes | {"bits": 4},
                [1, 2, 3],
            ),
            Case("MatMulNBits", [x, four, scales, floats(18, seed=2)], sizes | {"bits": 4}),
            Case("MatMulNBits", [x, small, scales], sizes | {"bits": 8}, [1, 2]),
        ],
        1e-5,
    )
    weights = [seven_bits(1, 6, 16), seven_bits(1, 4, 16, seed=1)]
    scales_of = [np.float32([0.01]), np.int8([0]), np.float32([0.01]), np.int8([3])]
    operands = [floats(5, 2, 6), *weights, floats(1, 32), *[None] * 4, *scales_of]
    check(
        [Case("DynamicQuantizeLSTM", operands, {"hidden_size": 4}, [1, 2, 8, 9, 10, 11], ("y", "h", "c"))],
        2e-2,
    )


def test_fused_operators() -> None:
    image, weight, bias = floats(2, 3, 6, 6), floats(4, 3, 3, 3, seed=1), floats(4, seed=2)
    clip = {"activation": "Clip", "activation_params": [-0.2, 0.3]}
    hard = {"activation": "HardSigmoid", "activation_params": [0.1, 0.3], "pads": [1, 1, 1, 1]}
    leaky = {"activation": "LeakyRelu", "activation_alpha": 0.1}
    check(
        [
            Case(
                "FusedConv", [image, weight, bias, floats(2, 4, 4, 4, seed=3)], {"activation": "Relu"}, [1, 2]
            ),
            Case("FusedConv", [image, weight, bias], clip, [1, 2]),
            Case("FusedConv", [image, weight], hard, [1]),
            Case("FusedGemm", [floats(3, 4), floats(4, 5, seed=1), floats(5, seed=2)], leaky),
            Case("Trilu", [floats(3, 4)], {"upper": 0}),
            Case("ExpandDims", [floats(3, 4), np.array(1, np.int32)], constants=[1]),
        ],
        1e-5,
    )


def test_channels_that_are_last() -> None:
    image = narrow(1, 6, 6, 3, dtype=U8)
    weight = quantized(narrow(4, 3, 3, 3, dtype=I8), 0.1, 0)
    chosen = [
        np.arange(5) % 2 == 0,
        *quantized(narrow(3, 5, dtype=U8), 0.1, 3),
        *quantized(image[0, 0, 0], 0.2, 30),
    ]
    chosen[4] = narrow(5, dtype=U8)
    check(
        [
            Case(
                "QLinearConv",
                [*quantized(image, 0.1, 3), *weight, *result(U8, 0.9, 120)],
                {"channels_last": 1},
                range(1, 8),
            ),
            Case("NhwcMaxPool", [image], {"kernel_shape": [2, 2], "strides": [2, 2]}),
            Case("QLinearWhere", [*chosen, *result(U8, 0.3, 9)]),
        ]
    )


def test_an_operator_without_a_definition_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"com\.microsoft::Nonsense"):
        whole_region(Case("Nonsense", [floats(3)]).model([floats(3)]))


def test_a_refusal_tells_that_a_definition_is_for_others() -> None:
    """Weights of 3 bits."""
    case = Case("MatMulNBits", [floats(2, 32), narrow(4, 1, 12), floats(4)], {"K": 32, "N": 4, "bits": 3})
    text = r"com\.microsoft::MatMulNBits, .*\n.*no loops for MatMulNBits\n +its definition .* is not for such"
    with pytest.raises(UnsupportedOperatorError, match=text):
        whole_region(case.model([floats(2, 4)]))


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_quantised_operands_broadcast_in_some_calls(op: str) -> None:
    """A shorter operand was read behind its end."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]>
    g (int8[a, b, 1] x, int8[c, 1, 1] y) => (int8[?, ?, ?] z) <float s = {{0.2}}, int8 o = {{1}}>
    {{ z = com.microsoft.{op} (x, s, o, y, s, o, s, o) }}""")
    main = fc.partition(model).build().load()["main"]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for left, right in (((8, 7, 1), (1, 1, 1)), ((1, 7, 1), (8, 1, 1)), ((8, 7, 1), (8, 1, 1))):
        x, y = (rng.integers(-9, 9, shape).astype(np.int8) for shape in (left, right))
        (expected,) = session.run(None, {"x": x, "y": y})
        np.testing.assert_array_equal(np.from_dlpack(main(x, y)), expected)
    with pytest.raises(
        ValueError, match=f"{op} .*: axis 0 of its result has 8 elements by `x`, and 7 by `y`"
    ):
        main(np.zeros((8, 7, 1), np.int8), np.zeros((7, 1, 1), np.int8))
