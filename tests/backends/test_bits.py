"""Shifts, bitwise logic and BitCast against the reference evaluator."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from .cases import Case, check

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def bits(dtype: str) -> np.ndarray:
    """Both ends of the range, and numbers around 0."""
    info = np.iinfo(dtype)
    return np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1, 5, 77], dtype)


def test_shifts_by_any_distance() -> None:
    cases = []
    for dtype in INTEGERS:
        width = np.iinfo(dtype).bits
        distances = np.array([[0], [1], [width - 1], [width], [np.iinfo(dtype).max]], dtype)
        if dtype.startswith("int"):
            distances = np.append(distances, np.array([[-1], [np.iinfo(dtype).min]], dtype), 0)
        cases += [
            Case("BitShift", [bits(dtype), distances], {"direction": way}, opset=28)
            for way in ("LEFT", "RIGHT")
        ]
    check(cases)


def test_bitwise_logic() -> None:
    cases = [Case("BitwiseNot", [bits(dtype)]) for dtype in INTEGERS]
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        cases += [Case(op, [bits(dtype), bits(dtype)[:, None]]) for dtype in INTEGERS]
    check(cases)


def test_the_same_bits_as_another_type() -> None:
    pairs = [("float32", "uint32"), ("int32", "float32"), ("float64", "int64"), ("uint64", "float64")]
    pairs += [("int8", "uint8"), ("uint16", "int16"), ("bool", "int8"), ("float32", "float32")]
    cases = []
    for source, target in pairs:
        data = np.frombuffer(bytes(range(1, 49)) if source != "bool" else bytes([0, 1, 1]), source)
        to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        cases.append(Case("BitCast", [data], {"to": to}, opset=26, symbolic={0: ["n"]}, rtol=0, atol=0))
    half = np.float16([1.5, -2, np.inf])
    cases += [
        Case("BitCast", [data], {"to": to}, opset=26)
        for data, to in ((half, TensorProto.INT16), (half.view(np.uint16), TensorProto.BFLOAT16))
    ]
    check(cases)
