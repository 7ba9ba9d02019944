"""Operators of com.microsoft, which onnxruntime's tools write, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from farcall.errors import UnsupportedOperatorError

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
    check([Case("QLinearSoftmax", [*rows, *result(dtype, 1 / 256, low)], {"axis": -1, "opset": 13})], 1)


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
    a, b, scales = narrow(9, 16), narrow(16, 33, dtype=I8, seed=1), narrow(33, seed=2).astype(np.float32) / 4
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
    a, b = narrow(4, 9), narrow(9, 6, dtype=I8, seed=1)
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


def test_an_operator_without_a_definition_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"com\.microsoft::Nonsense"):
        whole_region(Case("Nonsense", [floats(3)]).model([floats(3)]))
