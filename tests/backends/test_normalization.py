"""Normalizations and RotaryEmbedding against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import Case, check, compare, refusal


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_layer_normalization() -> None:
    x = normal(2, 3, 5, 37) + 100  # the variance of a large mean
    cases = []
    for axis in range(-4, 4):
        tail = x.shape[axis:]
        cases.append(
            Case("LayerNormalization", [x, normal(*tail), normal(*tail, seed=1)], {"axis": axis}, outputs=3)
        )
    cases += [
        Case("LayerNormalization", [x, normal(3, 1, 37), normal(5, 37)], {"axis": 2, "epsilon": 0.1}),
        Case("LayerNormalization", [x, normal(3, 1, 1)], {"axis": 2}),
        Case("LayerNormalization", [normal(0, 4), normal(4)], outputs=3),
        Case("RMSNormalization", [x, normal(5, 37)], {"axis": -2}, opset=23),
        Case("RMSNormalization", [x.astype(np.float64), normal(1, dtype=np.float64)], opset=23),
    ]
    for case in cases:
        case.rtol, case.atol = 2e-4, 2e-4
    check(cases)


def test_group_and_instance_normalization() -> None:
    x = normal(2, 6, 7, 3) * 3 + 1
    cases = [
        Case("GroupNormalization", [x, normal(6), normal(6, seed=1)], {"num_groups": groups})
        for groups in (1, 2, 6)
    ]
    cases += [
        Case("GroupNormalization", [normal(2, 4), normal(4), normal(4)], {"num_groups": 2}),
        Case("InstanceNormalization", [x, normal(6), normal(6, seed=1)], {"epsilon": 1e-3}),
        Case("InstanceNormalization", [normal(1, 2, 5), normal(2), normal(2)]),
    ]
    for case in cases:
        case.rtol, case.atol = 1e-4, 1e-5
        case.shapes = {0: case.operands[0].shape}  # ONNX infers nothing for groups
    check(cases)
    assert "4 groups of 6 channels" in refusal(
        Case("GroupNormalization", [x, normal(6), normal(6)], {"num_groups": 4}, shapes={0: x.shape})
    )


def test_symbolic_sizes() -> None:
    cases = [
        Case("LayerNormalization", [normal(2, 3, 40), normal(40)], symbolic={0: ["b", "s", 40]}, outputs=2),
        Case(
            "GroupNormalization", [normal(2, 4, 5), normal(4), normal(4)], {"num_groups": 2},
            symbolic={0: ["b", 4, "n"]}, shapes={0: ["b", 4, "n"]},
        ),
        Case("LpNormalization", [normal(2, 3, 5)], {"axis": 1}, symbolic={0: ["b", "c", "n"]}),
    ]  # fmt: skip
    for case, item in zip(cases, check(cases), strict=True):
        for batch, size in ((1, 1), (3, 70), (0, 5), (2, 0)):
            shape = [batch, size, 40] if case.op == "LayerNormalization" else [batch, 4, size]
            operands = [normal(*shape, seed=2), *case.operands[1:]]
            if 0 in shape and case.op == "GroupNormalization":  # the reference cannot
                assert item(*operands)[0].size == 0
                continue
            compare(case, item(*operands), case.expected(operands))


def test_lp_normalization_of_any_axis() -> None:
    x = np.abs(normal(3, 70, 5))  # for p=1 the reference forgets the absolute value
    x[1] = 0
    regions = check(
        [Case("LpNormalization", [x], {"axis": axis, "p": p}) for axis in (0, 1, -1) for p in (1, 2)]
        + [Case("LpNormalization", [x[:, :, 0].astype(kind)], {"p": p}) for kind in "fd" for p in (1, 2)]
    )
    np.testing.assert_allclose(regions[0](-x)[0], -regions[0](x)[0])


def test_batch_normalization_in_training() -> None:
    x = normal(3, 5, 7, 2) + 10
    operands = [x, normal(5), normal(5, seed=1), normal(5, seed=2), np.abs(normal(5, seed=3))]
    cases = [
        Case(
            "BatchNormalization",
            operands,
            {"training_mode": 1, "momentum": m},
            outputs=3,
            rtol=1e-4,
            atol=1e-4,
        )
        for m in (0.9, 0.5)
    ]
    check(cases)


def test_rotary_embedding() -> None:
    cache = [normal(50, 4), normal(50, 4, seed=1)]
    positions = np.random.default_rng(0).integers(0, 50, (2, 7))
    cases = [
        Case("RotaryEmbedding", [x, *cache, positions], {"interleaved": i, **extra}, opset=23)
        for i in (0, 1)
        for x, extra in (
            (normal(2, 3, 7, 8), {}),
            (normal(2, 7, 24), {"num_heads": 3}),
            (normal(2, 3, 7, 11), {"rotary_embedding_dim": 8}),
        )
    ]
    cases.append(Case("RotaryEmbedding", [normal(2, 3, 7, 8), normal(2, 7, 4), normal(2, 7, 4)], opset=23))
    symbolic = {0: ["b", 3, "s", 8], 1: [50, 4], 2: [50, 4], 3: ["b", "s"]}
    cases.append(
        Case("RotaryEmbedding", [normal(2, 3, 7, 8), *cache, positions], symbolic=symbolic, opset=23)
    )
    *_, region = check(cases)
    for wrong in (-1, 50):
        with pytest.raises(RuntimeError):
            region(normal(1, 3, 1, 8), *cache, np.int64([[wrong]]))


def test_activations() -> None:
    x = np.append(normal(50) * 3, np.float32([0, np.nan, np.inf, -np.inf, 100, -100]))
    cases = [
        Case(op, [x], attributes, opset=24, rtol=1e-4)
        for op, attributes in (
            ("Celu", {}), ("Celu", {"alpha": 0.3}), ("ThresholdedRelu", {"alpha": 0.7}),
            ("Shrink", {"lambd": 0.9, "bias": 0.2}),
        )
    ]  # fmt: skip
    finite = x[np.isfinite(x)]
    cases += [Case("Mish", [finite], opset=22, rtol=1e-4), Case("Swish", [finite], {"alpha": 1.7}, opset=24)]
    cases += [Case("Shrink", [np.int32([-5, -1, 0, 2, 9])], {"lambd": 1.5, "bias": 2.0})]
    check(cases)
