"""ArgMax, ArgMin, Hardmax, CumSum and CumProd against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import Case, check, compare, refusal
from .harness import NATIVE

NAN = np.float32([[3, np.nan, 5, np.nan, 5], [np.inf, 1, np.inf, -np.inf, 0]])


def ties(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Few different numbers, so that the largest is there more than once."""
    return np.random.default_rng(sum(shape)).integers(0, 4, shape).astype(dtype)


def test_the_first_and_the_last_extreme() -> None:
    x = ties(3, 7, 70)
    cases = [
        Case(op, [x], {"axis": axis, "keepdims": keep, "select_last_index": last})
        for op in ("ArgMax", "ArgMin")
        for axis in (0, 1, -1)
        for keep, last in ((0, 1), (1, 0))
    ]
    cases += [
        Case(op, [NAN], {"axis": 1, "select_last_index": i}) for op in ("ArgMax", "ArgMin") for i in (0, 1)
    ]
    cases += [Case("ArgMax", [ties(4, 5, dtype=kind)]) for kind in ("int8", "uint16", "int64", "float64")]
    cases += [Case("ArgMin", [x], {"axis": 2}, opset=version) for version in (6, 11, 12)]
    cases += [Case("ArgMax", [x[:, :0]], {"axis": 2}), Case("ArgMax", [np.float32(3).reshape(())])]
    check(cases)


def test_extremes_of_symbolic_sizes() -> None:
    case = Case("ArgMax", [ties(2, 3, 4)], {"axis": 1}, symbolic={0: ["a", "b", "c"]})
    (region,) = check([case])
    for shape in ((1, 9, 130), (0, 5, 2), (3, 0, 0)):
        compare(
            case,
            region(ties(*shape)),
            [np.argmax(ties(*shape), 1, keepdims=True)]
            if 0 not in shape
            else [np.zeros((shape[0], 1, shape[2]), np.int64)],
        )
    with pytest.raises(RuntimeError):
        region(ties(2, 0, 4))
    assert refusal(Case("ArgMin", [ties(0, 4)])) == "an axis without elements"


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_long_rows_are_searched_in_lanes(op: str) -> None:
    """Equal elements and NaN in several lanes, at the ends of a row, and behind the last whole lanes."""
    rng = np.random.default_rng(7)
    rows = [rng.integers(-40, 40, (40, length)).astype(np.float32) for length in (63, 64, 65, 95, 96, 200)]
    for row in rows:
        row[::4, rng.integers(0, row.shape[1], 3)] = np.nan
        row[1, [0, -1]] = row[2, [5, -1]] = 99 if op == "ArgMax" else -99
    whole = [row[1::2].astype(dtype) for row in rows[3:] for dtype in (np.int8, np.int64, np.float64)]
    cases = [
        Case(op, [x], {"axis": 1, "select_last_index": last}) for x in (*rows, *whole) for last in (0, 1)
    ]
    check(cases, ["-O3", *NATIVE])


def test_hardmax() -> None:
    x = ties(3, 4, 66)
    cases = [Case("Hardmax", [x], {"axis": axis}) for axis in (0, 1, -1)]
    cases += [Case("Hardmax", [NAN]), Case("Hardmax", [x[:0].astype("float64")])]
    check(cases)
    (old,) = check([Case("Hardmax", [x[:, :1, :5]], {"axis": 2}, opset=11)])
    (flat,) = check([Case("Hardmax", [x[0, :1]], {"axis": 1}, opset=11)])
    assert old(x[:, :1, :5])[0].sum() == 3 and flat(x[0, :1])[0].sum() == 1


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_cumulation(op: str) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (2, 5, 3))
    cases = [
        Case(
            op,
            [x.astype(dtype), np.array(axis, "int64")],
            {"exclusive": exclusive, "reverse": reverse},
            [1],
            26,
        )
        for dtype, axis in (("float32", 0), ("int32", 1), ("uint64", -1))
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ]
    cases += [Case(op, [x[:, :0], np.array(axis, "int32")], {"exclusive": 1}, opset=26) for axis in (0, 1)]
    late = Case(op, [x, np.array(1, "int64")], {"reverse": 1}, opset=26, symbolic={0: ["a", "b", "c"]})
    region = check([*cases, late])[-1]
    for axis in (-3, -1, 2):
        operands = [x[:1], np.array(axis, "int64")]
        compare(late, region(*operands), late.expected(operands))
    for wrong in (3, -4, 2**62):
        with pytest.raises(RuntimeError):
            region(x, np.array(wrong, "int64"))
