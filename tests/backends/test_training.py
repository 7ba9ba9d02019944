"""Optimizers and Dropout in training mode against the reference evaluator."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from farcall.backends.c import CBackend
from farcall.graph import load_model

from .cases import Case, check, refusal
from .harness import compile_regions, whole_region

DOMAIN = "ai.onnx.preview.training"
SHAPES = {"x": [2, 3], "z": ["n"]}


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def optimizer(op: str, kind: int = onnx.TensorProto.FLOAT, **attributes: object) -> onnx.ModelProto:
    """A model that trains two tensors, one of them of a symbolic size."""
    states = {"Momentum": "v", "Adagrad": "h", "Adam": "vh"}[op]
    names = [f"{part}{name}" for part in ("", "g", *states) for name in SHAPES]
    outs = [f"new_{part}{name}" for part in ("", *states) for name in SHAPES]
    node = helper.make_node(op, ["r", "t", *names], outs, domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("r", kind, []),
            helper.make_tensor_value_info("t", onnx.TensorProto.INT64, []),
            *(helper.make_tensor_value_info(name, kind, SHAPES[name[-1]]) for name in names),
        ],
        [helper.make_tensor_value_info(name, kind, SHAPES[name[-1]]) for name in outs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(DOMAIN, 1)], ir_version=10)


def test_optimizers() -> None:
    momentum = {"alpha": 0.9, "beta": 0.7, "norm_coefficient": 0.01}
    double = onnx.TensorProto.DOUBLE
    models = [
        optimizer("Momentum", mode="standard", **momentum),
        optimizer("Momentum", mode="nesterov", **momentum),
        optimizer("Adagrad"),
        optimizer("Adagrad", double, decay_factor=0.3, epsilon=0.1, norm_coefficient=0.2),
        optimizer("Adam"),
        optimizer("Adam", alpha=0.5, beta=0.8, epsilon=0.1, norm_coefficient=0.2, norm_coefficient_post=0.1),
    ]
    compiled = compile_regions([whole_region(model, name=f"c_{i}") for i, model in enumerate(models)])
    for model, region in zip(models, compiled, strict=True):
        dtype = np.float64 if model.graph.input[0].type.tensor_type.elem_type == double else np.float32
        for step, n in product((0, 1, 7), (0, 5)):
            feeds = {
                item.name: np.abs(normal(*((2, 3) if item.name[-1] == "x" else (n,)), seed=i, dtype=dtype))
                for i, item in enumerate(model.graph.input)
            } | {"r": np.asarray(0.1, dtype), "t": np.int64(step)}
            expected = ReferenceEvaluator(model).run(None, feeds)
            for got, wanted in zip(region(*feeds.values()), expected, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_optimizers_that_are_refused() -> None:
    model = optimizer("Momentum", mode="magic", alpha=0.9, beta=0.7, norm_coefficient=0.0)
    (node,) = load_model(model).graph
    assert "mode=magic; expected standard or nesterov" in str(CBackend().check(node))


def test_dropout_in_training() -> None:
    x, flag = normal(3, 700), np.bool_(True)
    cases = [
        Case("Dropout", [x, np.float32(ratio), np.bool_(train)], {"seed": seed}, opset=22, outputs=outputs)
        for ratio, train, seed, outputs in (
            (0.3, True, 0, 2), (0.75, True, 2**32 - 1, 1), (0.5, False, 7, 2), (0, True, 7, 2),
        )
    ]  # fmt: skip
    cases.append(
        Case("Dropout", [x.astype(np.float64), np.float64(0.5), flag], {"seed": 5}, opset=13, outputs=2)
    )
    region = check(cases)[0]
    same = [region(x, np.float32(0.3), flag)[1] for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert 0.25 < 1 - same[0].mean() < 0.35


def test_dropout_of_float16() -> None:
    """The reference gives float32."""
    x = normal(200).astype(np.float16)
    case = Case("Dropout", [x, np.float32(0.25), np.bool_(True)], {"seed": 5}, opset=13)
    (region,) = compile_regions([whole_region(case.model())])
    kept = np.random.RandomState(5).uniform(size=200) >= 0.25
    expected = np.where(kept, x.astype(np.float32) / np.float32(0.75), 0)
    np.testing.assert_allclose(region(*case.operands)[0], expected, rtol=1e-3)


def test_random_numbers_without_a_generator_are_refused_with_the_cure() -> None:
    x, flag = normal(3), np.bool_(True)
    assert "give it the attribute `seed`" in refusal(Case("Dropout", [x, np.float32(0.5), flag]))
    assert "32 bits" in refusal(Case("Dropout", [x, np.float32(0.5), flag], {"seed": -1}))
    message = refusal(Case("RandomUniformLike", [x]))
    assert "no generator for the random numbers of RandomUniformLike" in message
    assert "add the backend `onnxruntime`" in message


@pytest.mark.parametrize("seed", [0, 1, 4357])
def test_the_generator_is_that_of_numpy(seed: int) -> None:
    """More numbers than the generator makes at once."""
    case = Case(
        "Dropout", [np.ones(3000, np.float32), np.float32(0.5), np.bool_(True)], {"seed": seed}, outputs=2
    )
    (region,) = compile_regions([whole_region(case.model())])
    (_, mask) = region(*case.operands)
    np.testing.assert_array_equal(mask, np.random.RandomState(seed).uniform(size=3000) >= 0.5)
