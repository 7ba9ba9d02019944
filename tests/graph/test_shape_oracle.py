"""Symbolic shapes against ONNX's own cases: each dim of the inputs made a symbol, then bound to its size."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from farcall.errors import ModelError
from farcall.graph import load_model
from farcall.graph._constraints import constraints
from farcall.graph.dims import evaluate, try_dims

_OPERATORS = """
Conv MaxPool AveragePool GlobalAveragePool BatchNormalization Gemm MatMul Add Sub Mul Div Pow Sqrt Exp Log
Tanh Sigmoid Relu LeakyRelu Clip Neg Abs Erf Softmax Reshape Flatten Transpose Concat Squeeze Unsqueeze
Identity ReduceSum ReduceMean ReduceMax ReduceMin Shape Gather Slice Split Pad Where Tile ArgMax
LayerNormalization
"""


@cache
def cases() -> dict[str, list[TestCase]]:
    """ONNX's node tests of one node, by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, about what ONNX casts on purpose
        found = load_model_tests(kind="node")
    result: dict[str, list[TestCase]] = {}
    for case in found:
        if len(case.model.graph.node) == 1:
            result.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return result


def is_operand(position: int, array: np.ndarray[Any, Any]) -> bool:
    """Axes, shapes, pads: initializers in a real model, inputs in ONNX's tests."""
    return position > 0 and array.dtype == np.int64 and array.ndim <= 1


def make_symbolic(case: TestCase, arrays: Sequence[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """The case's model with a symbol for each dim of its inputs, and the arrays of those inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    left = []
    inputs = list(graph.input)
    del graph.input[:], graph.value_info[:]
    for position, (info, array) in enumerate(zip(inputs, arrays, strict=False)):
        if is_operand(position, array):
            graph.initializer.append(numpy_helper.from_array(array, info.name))
            continue
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.Clear()
            dim.dim_param = f"d{position}_{axis}"
        graph.input.append(info)
        left.append(array)
    for output in graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()
    return model, left


def is_plain(case: TestCase) -> bool:
    inputs, outputs = case.data_sets[0]
    types = [
        info.type.HasField("tensor_type") for info in (*case.model.graph.input, *case.model.graph.output)
    ]
    return all(types) and all(isinstance(item, np.ndarray) for item in (*inputs, *outputs))


@pytest.mark.parametrize("operator", _OPERATORS.split())
def test_symbolic_dims_evaluate_to_the_real_ones(operator: str) -> None:
    checked = 0
    for case in filter(is_plain, cases()[operator]):
        arrays, expected = case.data_sets[0]
        proto, arrays = make_symbolic(case, arrays)
        try:
            model = load_model(proto)
        except ModelError as error:
            pytest.fail(f"{case.name}: {error}")
        sizes: dict[str, int] = {}
        if not bind(model.graph.inputs, arrays, sizes):
            continue  # a dim of 1 is broadcast that a symbol stands for: refused at entry
        for left, right in constraints(model):
            assert evaluate(left, sizes) == evaluate(right, sizes), case.name
        for value, array in zip(model.graph.outputs, expected, strict=True):
            found = try_dims(value)
            assert found is not None, f"{case.name}: {value.name} is not known"
            assert tuple(evaluate(dim, sizes) for dim in found) == array.shape, case.name
            checked += 1
    assert checked > 0


def bind(inputs: Sequence[Any], arrays: Sequence[Any], sizes: dict[str, int]) -> bool:
    """Bind the symbols; False when the arrays do not fit the dims that the model now has."""
    for value, array in zip(inputs, arrays, strict=True):
        known = try_dims(value)
        assert known is not None
        for dim, size in zip(known, array.shape, strict=True):
            if isinstance(dim, int):
                if dim != size:
                    return False
            elif sizes.setdefault(str(dim), size) != size:
                return False
    return True
