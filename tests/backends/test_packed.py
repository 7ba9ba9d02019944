"""Elements of 4 and 2 bits: packed at every border, and equal to the reference's after each operator."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.errors import UnsupportedOperatorError
from farcall.rpc import Session

from .cases import Case, check

INTEGERS = {
    TensorProto.INT4: np.dtype(ml_dtypes.int4),
    TensorProto.UINT4: np.dtype(ml_dtypes.uint4),
    TensorProto.INT2: np.dtype(ml_dtypes.int2),
    TensorProto.UINT2: np.dtype(ml_dtypes.uint2),
}
FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)
PACKED = {**INTEGERS, TensorProto.FLOAT4E2M1: FLOAT4}


def codes(dtype: np.dtype, count: int) -> np.ndarray:
    """Every element of a dtype, again and again."""
    bits = 2 if dtype.name.endswith("int2") else 4
    numbers = np.arange(count) % 2**bits
    if dtype == FLOAT4:
        return numbers.astype(np.uint8).view(dtype)
    low = 0 if dtype.name.startswith("u") else -(2 ** (bits - 1))
    return (numbers + low).astype(dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_code_is_read_and_every_number_becomes_one() -> None:
    quarters = np.arange(-36, 37, dtype=np.float32) / 4
    floats = np.concatenate(
        [quarters, np.float32([1e9, -1e9, 1e-9, -0.0]), np.nextafter(quarters, np.float32(9))]
    )
    cases = []
    for number, dtype in PACKED.items():
        for to in (
            TensorProto.FLOAT,
            TensorProto.FLOAT16,
            TensorProto.INT8,
            TensorProto.INT32,
            TensorProto.BOOL,
        ):
            if to != TensorProto.INT8 or dtype != FLOAT4:
                cases.append(Case("Cast", [codes(dtype, 17)], {"to": to}, opset=25))
        small = floats if dtype == FLOAT4 else np.trunc(floats[np.abs(floats) < 100])
        cases.append(Case("Cast", [small], {"to": number}, opset=25))
        cases.append(Case("Cast", [small.astype(np.float16)], {"to": number}, opset=25))
        cases.append(Case("Cast", [np.arange(-300, 301, dtype=np.int32)], {"to": number}, opset=25))
    for case in cases:
        case.rtol = case.atol = 0
    check(cases)


def test_operators_that_move_elements() -> None:
    cases = []
    for dtype, count in product(PACKED.values(), (0, 1, 2, 3, 8, 13)):
        x = codes(dtype, 3 * count).reshape(3, count)
        cases += [
            Case("Identity", [x], opset=25),
            Case("Transpose", [x], {"perm": [1, 0]}, opset=25, symbolic={0: ("a", "b")}),
            Case("Reshape", [x, np.int64([-1])], constants=[1], opset=25),
            Case("Pad", [x, np.int64([1, 0, 0, 1]), codes(dtype, 2)[1]], constants=[1, 2], opset=25),
            Case("Squeeze", [x.reshape(1, 3, count), np.int64([0])], constants=[1], opset=25),
        ]
    check(cases, flags=["-O0"])


def test_integers_are_quantized_and_dequantized() -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((4, 7)) * 30).astype(np.float32)
    scale = np.float32([0.5, 1, 2, 3])
    cases = []
    for dtype in INTEGERS.values():
        zero, axis = codes(dtype, 4), {"axis": 0}
        q = codes(dtype, 28).reshape(4, 7)
        cases += [
            Case("QuantizeLinear", [x, scale, zero], axis, constants=[1, 2], opset=25),
            Case("QuantizeLinear", [x, scale, zero], axis, opset=25),
            Case("DequantizeLinear", [q, scale, zero], axis, constants=[1, 2], opset=25),
            Case("DequantizeLinear", [q, scale[0], zero[0]], opset=25),
            Case("DequantizeLinear", [q, scale], axis, opset=25),
        ]
    floats = [np.float32(2), np.zeros((), FLOAT4)]
    cases.append(Case("QuantizeLinear", [x, *floats], constants=[2], opset=25))
    cases.append(Case("DequantizeLinear", [codes(FLOAT4, 16), *floats], constants=[2], opset=25))
    check(cases)


def test_a_large_constant_stays_packed() -> None:
    weights = codes(INTEGERS[TensorProto.INT4], 1001)
    case = Case("DequantizeLinear", [weights, np.float32(0.25)], constants=[0], opset=25)
    (item,) = check([case])
    assert [data.nbytes for data in item.code.constants.values()] == [501]


def test_a_loop_that_carries_packed_integers_is_refused() -> None:
    model = Case("Cast", [np.float32([1])], {"to": TensorProto.INT4}, opset=25).model()
    node = helper.make_node("Loop", ["n", "go", "y0"], ["out"], body=_body())
    model.graph.node.append(node)
    model.graph.initializer.append(helper.make_tensor("n", TensorProto.INT64, [], [2]))
    model.graph.initializer.append(helper.make_tensor("go", TensorProto.BOOL, [], [True]))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("out", TensorProto.INT4, [1]))
    with pytest.raises(UnsupportedOperatorError, match="elements of less than a byte"):
        fc.partition(model, backends=["c"])


def _body() -> onnx.GraphProto:
    value = helper.make_tensor_value_info
    return helper.make_graph(
        [
            helper.make_node("Identity", ["inside"], ["after"]),
            helper.make_node("Identity", ["go_in"], ["go_out"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("go_in", TensorProto.BOOL, []),
            value("inside", TensorProto.INT4, [1]),
        ],
        [value("go_out", TensorProto.BOOL, []), value("after", TensorProto.INT4, [1])],
    )


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """Quantizes, moves and dequantizes int4, which are inputs, outputs and constants."""
    value = helper.make_tensor_value_info
    int4 = codes(INTEGERS[TensorProto.INT4], 3)
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], axis=1),
            helper.make_node("Transpose", ["q"], ["y"], perm=[1, 0]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], axis=1),
            helper.make_node("Pad", ["i", "pads"], ["p"]),
        ],
        "packed",
        [value("x", TensorProto.FLOAT, ["n", 3]), value("i", TensorProto.INT4, ["m", 3])],
        [
            value("y", TensorProto.INT4, [3, "n"]),
            value("d", TensorProto.FLOAT, ["n", 3]),
            value("p", TensorProto.INT4, ["k", 3]),
            value("zero", TensorProto.INT4, [3]),
        ],
        [
            helper.make_tensor("scale", TensorProto.FLOAT, [3], [0.5, 1, 2]),
            onnx.numpy_helper.from_array(int4, "zero"),
            helper.make_tensor("pads", TensorProto.INT64, [4], [1, 0, 2, 0]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def feeds(n: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32) * 4
    return x, codes(INTEGERS[TensorProto.INT4], 3 * n).reshape(n, 3)


def test_an_artifact_here_and_on_a_server(
    model: onnx.ModelProto, tmp_path: Path, farcall_session: Session
) -> None:
    artifact = fc.partition(model, backends=["c"]).build()
    main, path = artifact.load()["main"], artifact.save(tmp_path / "packed.so")
    assert str(main.signature).endswith("-> (int4[3, n], float32[n, 3], int4[m + 3, 3], int4[3])")
    remote = farcall_session.load_module(path)["main"]
    for n in (0, 1, 2, 5):
        x, i = feeds(n)
        expected = ReferenceEvaluator(model).run(None, {"x": x, "i": i})
        for results in (main(x, i), remote(x, i)):
            for got, want in zip(map(np.asarray, results), expected, strict=True):
                assert got.dtype == want.dtype
                assert got.shape == want.shape
                assert (got == want).all()
