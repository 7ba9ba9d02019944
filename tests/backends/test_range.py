"""Range, whose length is inferred before the model runs, or declared."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import Case, check
from .harness import compile_regions, whole_region


def _case(start: object, limit: object, delta: object, length: int, dtype: str) -> Case:
    numbers = [np.array(item, dtype) for item in (start, limit, delta)]
    return Case("Range", numbers, shapes={0: [length]})


def test_numbers_in_equal_steps() -> None:
    check(
        [
            _case(1, 11, 3, 4, "int64"),
            _case(10, -5, -4, 4, "int32"),
            _case(3, 3, 1, 0, "int64"),
            _case(3, 9, -1, 0, "int16"),
            _case(0.5, 2.1, 0.25, 7, "float32"),
            _case(2, -1, -0.5, 6, "float64"),
        ]
    )


def test_operands_that_give_another_length_or_none() -> None:
    case = _case(0, 4, 1, 4, "int64")
    (range_,) = compile_regions([whole_region(case.model())])
    assert range_(*case.operands)[0].tolist() == [0, 1, 2, 3]
    top, least = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    far = [np.array(item) for item in (least, top, top // 2 + 1)]  # numpy counts in floats here
    assert range_(*far)[0].tolist() == [least, least // 2, 0, top // 2 + 1]
    for numbers in ((0, 5, 1), (0, 3, 1), (4, 0, 1), (0, 4, 0)):
        with pytest.raises(RuntimeError):
            range_(*(np.array(item, "int64") for item in numbers))
