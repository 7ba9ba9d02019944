"""Pad and CenterCropPad against the reference evaluator, and against numpy's rules where it has none."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import Case, check, compare, refusal
from .harness import compile_regions, whole_region

MODES = ("constant", "reflect", "edge", "wrap")


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def ints(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


def test_modes() -> None:
    x = normal(2, 1, 3, 4)
    far = ints(0, 2, 7, 9, 1, 1, 8, 13)  # longer than the axes: reflected and wrapped several times
    near, none = ints(1, 0, 0, 2, 0, 0, 1, 0), ints(*[0] * 8)
    cases = [Case("Pad", [x, pads], {"mode": mode}, [1]) for mode in MODES for pads in (far, near, none)]
    value = np.float32(7).reshape(())
    cases += [
        Case("Pad", [x, ints(1, 3, 2, 0), value, ints(-1, 1)], {}, [1, 3]),
        Case("Pad", [x, ints(2, 1), None, np.int64([2])], {"mode": "reflect"}, [1, 3]),
        Case("Pad", [x > 0, ints(1, 2, 3, 4), None, ints(0, 3)], {"mode": "wrap"}, [1, 3]),
        Case("Pad", [(x * 9).astype(np.int8), far, np.int8(-3).reshape(())], {}, [1]),
        Case("Pad", [x], {"pads": far.tolist(), "mode": "edge"}, opset=10),
        Case("Pad", [x], {"pads": near.tolist(), "value": 2.5}, opset=6),
        Case("Pad", [x.astype(np.float16)], {"pads": near.tolist(), "value": 2.5}, opset=10),
        Case("Pad", [x[:, :0], near], {"mode": "edge"}, [1]),
        Case("Pad", [x[:0], near], {}, [1]),
    ]
    check(cases)


def test_cut_off_elements() -> None:
    """A mirror stands at the end of the input, also where elements are cut off."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows, columns = np.arange(-1, 3), np.arange(2, 9)
    chosen = {
        "constant": np.pad(x[:3, 2:], ((1, 0), (0, 3))),
        "edge": x[np.ix_(rows.clip(0), columns.clip(0, 5))],
        "wrap": x[np.ix_(rows % 4, columns % 6)],
        "reflect": x[np.ix_(abs(rows), 5 - abs(5 - columns))],
    }
    cases = [
        Case("Pad", [x, ints(1, -2, -1, 3)], {"mode": mode}, [1], symbolic={0: ["n", 6]}) for mode in MODES
    ]

    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for mode, region in zip(MODES, regions, strict=True):
        np.testing.assert_array_equal(region(x)[0], chosen[mode])


def test_computed_pads() -> None:
    x = normal(3, 4)
    fixed = Case("Pad", [x, ints(1, 0, 0, 5), np.float32([2]).reshape(())], shapes={0: [4, 9]})
    some = Case(
        "Pad",
        [x, ints(0, 3), None, ints(-2)],
        {"mode": "reflect"},
        symbolic={0: ["a", "b"]},
        shapes={0: ["a + 3", "b"]},
    )
    first, second = check([fixed, some])
    compare(some, second(x, ints(2, 1), ints(0)), some.expected([x, ints(2, 1), None, ints(0)]))
    for pads in (
        ints(1, 0, 0, 4),
        ints(0, 0, 0, 5),
        ints(2**63 - 1, 0, -(2**63), 5),
        ints(2**60, 0, -(2**60), 5),
    ):
        with pytest.raises(RuntimeError):
            first(x, pads, np.float32(0).reshape(()))
    for pads, axis in ((ints(2, 1), 1), (ints(2, 1), 2), (ints(2, 1), -3), (ints(2, 2), 0)):
        with pytest.raises(RuntimeError):
            second(x, pads, ints(axis))
    with pytest.raises(RuntimeError):
        second(x[:0], ints(2, 1), ints(0))  # nothing to reflect


def test_centered_windows() -> None:
    x = normal(7, 4, 9)
    cases = [
        Case("CenterCropPad", [x, ints(*size)], {}, [1], opset=18)
        for size in ((4, 9, 2), (8, 3, 10), (7, 4, 0))
    ]
    cases += [
        Case(
            "CenterCropPad",
            [x, np.int32([12, 5])],
            {"axes": [-1, 0]},
            [1],
            opset=18,
            symbolic={0: ["a", "b", "c"]},
        )
    ]
    late = Case("CenterCropPad", [x, ints(3)], {"axes": [1]}, opset=18, shapes={0: [7, 3, 9]})
    region = check([*cases, late])[-1]
    for wrong in (4, -3):
        with pytest.raises(RuntimeError):
            region(x, ints(wrong))


def test_a_pad_that_no_memory_holds() -> None:
    assert "beyond 2**60" in refusal(Case("Pad", [normal(3)], {"pads": [2**62, -(2**62)]}, opset=10))
