"""Numbers, text, bytes, dtypes, devices and optional values, in and out of C++."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farcall.ffi import Device, Module, dtype


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("add", (1, 2), 3),
        ("add", (True, np.int32(5)), 6),  # int <- bool
        ("narrow", (-128, 65535), 65407),
        ("unsigned64", (2**63 - 1,), 2**63 - 1),
        ("mean", (1, 2.0), 1.5),  # float <- int
        ("mean", (True, False), 0.5),  # float <- bool
        ("flip", (True,), False),
        ("flip", (0,), True),  # bool <- int
        ("join", ("a", "b" * 20, "c"), "a" + "b" * 20 + "c"),
        ("join", ("", "héllo", "\U0001f600"), "héllo\U0001f600"),
        ("length", ("abcdefgh", b"1234567"), 807),  # a heap string, bytes in place
        ("length", ("", b"x" * 100), 100),
        ("reversed", (b"a\0b",), b"b\0a"),
        ("next_color", (1,), 2),  # an enum
        ("nothing", (), None),
        ("pointer", (None,), True),  # void* <- None
        ("half", (None,), None),
        ("half", (8,), 4),
        ("half", (7,), None),
        ("kinds", ("int8", "cuda:2"), "int8 cuda:2"),  # dtype and Device <- str
        ("kinds", (np.dtype("float16"), Device("cpu")), "float16 cpu:0"),
        ("same", (2.5,), 2.5),
        ("same", ("a text of more than 7 bytes",), "a text of more than 7 bytes"),
        ("same", (b"tiny",), b"tiny"),
        ("same", (None,), None),
        ("same", (dtype("bfloat16"),), dtype("bfloat16")),
        ("same", ([1, ["a", None]],), (1, ("a", None))),
        ("count_all", (1, "b", None, 2.0), 4),
    ],
)
def test_values_travel(kernels: Module, name: str, args: tuple[Any, ...], expected: Any) -> None:
    result = kernels[name](*args)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("name", "args", "bounds"),
    [
        ("narrow", (128, 0), "[-128, 127], got int 128"),
        ("narrow", (-129, 0), "[-128, 127], got int -129"),
        ("narrow", (0, 65536), "[0, 65535], got int 65536"),
        ("add", (0, 2**31), "[-2147483648, 2147483647], got int 2147483648"),
        ("unsigned64", (-1,), "[0, 18446744073709551615], got int -1"),
    ],
)
def test_an_int_that_does_not_fit_is_an_overflow(
    kernels: Module, name: str, args: tuple[int, ...], bounds: str
) -> None:
    with pytest.raises(OverflowError) as caught:
        kernels[name](*args)
    assert f"expected int in {bounds}" in str(caught.value)


def test_a_result_of_64_bits_without_a_sign_is_never_minus_one(kernels: Module) -> None:
    with pytest.raises(OverflowError, match="18446744073709551615"):
        kernels["most"]()


def test_defaults_fill_what_is_left_out(kernels: Module) -> None:
    assert kernels["add"](1) == 11
    assert kernels["kinds"]() == "float32 cpu:0"
    assert kernels["options"](3) == "3a much longer texttrue-1"
    assert kernels["options"](3, "m", 0.5, 9) == "3mfalse9"


def test_parameters_by_keyword(kernels: Module) -> None:
    assert kernels["add"](b=3, a=1) == 4
    assert kernels["options"](3, limit=5) == "3a much longer texttrue5"
    with pytest.raises(TypeError, match="`c`"):
        kernels["add"](1, c=2)
