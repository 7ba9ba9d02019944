"""Gathering and scattering by computed indices, against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import Case, check, compare, refusal

REDUCTIONS = ("none", "add", "mul", "max", "min")


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-5, 6, shape).astype(dtype)


def places(*shape: int, below: int, seed: int = 1) -> np.ndarray:
    """Indices, negative ones too."""
    return np.random.default_rng(seed).integers(-below, below, shape)


def apart(*shape: int, below: int) -> np.ndarray:
    """Different indices along the last axis: the order of two equal ones is not defined."""
    order = np.random.default_rng(2).permuted(
        np.broadcast_to(np.arange(below), (*shape[:-1], below)), axis=-1
    )
    return order[..., : shape[-1]]


def test_elements() -> None:
    x = numbers(3, 4, 5)
    cases = [Case("GatherElements", [x, places(3, 4, size, below=5)], {"axis": 2}) for size in (6, 0)]
    cases += [
        Case("GatherElements", [x, places(7, 4, 5, below=3).astype("int32")]),
        Case("GatherElements", [x > 0, places(3, 2, 5, below=4)], {"axis": 1}),
        Case("ScatterElements", [x, apart(3, 2, 4, below=5), numbers(3, 2, 4, seed=3)], {"axis": -1}),
        Case("ScatterElements", [x, apart(1, 4, 5, below=5) % 3, numbers(1, 4, 5)], opset=11),
    ]
    cases += [
        Case("ScatterElements", [numbers(4, 3, dtype=kind), places(9, 3, below=4), numbers(9, 3, dtype=kind)],
             {"reduction": how})
        for how in REDUCTIONS[1:]
        for kind in ("float32", "int8", "uint64", "bool")
    ]  # fmt: skip
    check(cases)


def test_slices() -> None:
    x = numbers(3, 4, 5)
    cases = [
        Case("GatherND", [x, places(6, 2, below=3)]),
        Case("GatherND", [x, places(3, 6, 1, below=4)], {"batch_dims": 1}),
        Case("GatherND", [x.astype("int16"), places(3, 4, 1, below=5)], {"batch_dims": 2}),
        Case("GatherND", [x, places(0, 3, below=3)]),
        Case("ScatterND", [x, np.int64([[2], [-3]]), numbers(2, 4, 5, seed=5)], opset=11),
        Case("ScatterND", [x, places(0, 2, below=3), numbers(0, 5)]),
    ]
    cases += [
        Case("ScatterND", [numbers(3, 4, dtype=kind), places(9, 2, below=3), numbers(9, dtype=kind)],
             {"reduction": how})
        for how in REDUCTIONS[1:]
        for kind in ("float64", "int32", "uint8")
    ]  # fmt: skip
    check(cases)


def test_caches() -> None:
    cache, update = numbers(2, 3, 8, 4), numbers(2, 3, 5, 4, seed=9)
    starts = np.int64([3, 1])
    cases = [
        Case("TensorScatter", [cache, update], opset=24),
        Case("TensorScatter", [cache, update, starts], opset=24),
        Case("TensorScatter", [cache, update, np.int64([-9, 2**40 + 6])], {"mode": "circular"}, opset=24),
        Case("TensorScatter", [cache, cache[..., 1:3] + 9, starts - 1], {"axis": -1}, opset=24),
    ]
    *_, region = check(
        [
            *cases,
            Case(
                "TensorScatter",
                [cache, update, starts],
                opset=24,
                symbolic={0: ["b", "h", "s", 4], 1: ["b", "h", "t", 4], 2: ["b"]},
            ),
        ]
    )
    for wrong in ([0, 4], [-1, 0], [2**62, 0]):
        with pytest.raises(RuntimeError):
            region(cache, update, np.int64(wrong))
    with pytest.raises(RuntimeError):
        region(update, cache, starts * 0)


def test_symbolic_sizes_and_wrong_indices() -> None:
    elements = Case(
        "GatherElements", [numbers(3, 4), places(3, 4, below=3)], symbolic={0: ["a", "b"], 1: ["c", "d"]}
    )
    add = Case(
        "ScatterElements",
        [numbers(3, 4), places(3, 4, below=3), numbers(3, 4)],
        {"reduction": "add"},
        symbolic={0: ["a", "b"], 1: ["c", "d"], 2: ["e", "f"]},
    )
    slices = Case(
        "GatherND",
        [numbers(3, 4), places(3, 1, below=4)],
        {"batch_dims": 1},
        symbolic={0: ["a", "b"], 1: ["c", 1]},
    )
    replace = Case(
        "ScatterND",
        [numbers(3, 4), np.int64([[1], [2]]), numbers(2, 4)],
        symbolic={0: ["a", "b"], 1: ["c", 1], 2: ["d", "e"]},
    )
    cases = [elements, add, slices, replace]
    regions = check(cases)
    for case, region, operands in zip(
        cases,
        regions,
        (
            [numbers(2, 9), places(7, 9, below=2)],
            [numbers(2, 9), places(7, 4, below=2), numbers(7, 4)],
            [numbers(5, 2), places(5, 1, below=2)],
            [numbers(5, 2), np.int64([[-1]]), numbers(1, 2)],
        ),
        strict=True,
    ):
        compare(case, region(*operands), case.expected(operands))
        for wrong in (operands[0].shape[0] + 9, -99, 2**63 - 1, -(2**63)):
            with pytest.raises(RuntimeError):
                region(operands[0], np.full_like(operands[1], wrong), *operands[2:])
    table, fewer = numbers(2, 9), places(7, 4, below=2)  # the reference wants 9 columns; ONNX does not
    np.testing.assert_array_equal(regions[0](table, fewer)[0], np.take_along_axis(table[:, :4], fewer, 0))
    wider = [numbers(3, 4), places(3, 5, below=3), numbers(3, 5)]
    for region, operands in (
        (regions[0], wider[:2]),
        (regions[1], wider),
        (regions[1], [*wider[:2], numbers(3, 4)]),
        (regions[2], [numbers(3, 4), places(4, 1, below=4)]),
        (regions[3], [numbers(3, 4), np.int64([[1]]), numbers(1, 5)]),
    ):
        with pytest.raises(RuntimeError):
            region(*operands)


def test_refusals() -> None:
    x = numbers(3, 4)
    for op, more in (("GatherElements", []), ("ScatterElements", [x])):
        case = Case(op, [x, places(3, 4, below=3), *more], {"axis": 2})
        assert "axis 2 is outside of rank 2" in refusal(case)
    assert "indices for 5 of the 4 elements" in refusal(Case("GatherElements", [x, places(2, 5, below=3)]))
    wrong = Case("ScatterElements", [x, places(3, 4, below=3), x[:2]])
    assert refusal(wrong) == "the dims of the updates are [2, 4] instead of [3, 4]"
