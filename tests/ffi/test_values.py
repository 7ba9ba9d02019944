"""Arguments and results that are not tensors."""

from __future__ import annotations

import copy
import ctypes
import enum
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest

from farcall import ffi

NONE, INT, BOOL, FLOAT, POINTER, DTYPE, DEVICE = range(7)
RAW_STR, BYTE_ARRAY, STR, FUNCTION, ARRAY = 8, 9, 65, 68, 71


class Color(enum.IntEnum):
    RED = 7


def shown(value: object) -> str:
    """A name for a case, the same in every process."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


class Index:
    def __index__(self) -> int:
        return 12


@pytest.mark.parametrize(
    ("value", "tag"),
    [
        (None, NONE),
        (True, BOOL),
        (np.True_, BOOL),
        (3, INT),
        (-(2**63), INT),
        (2**63 - 1, INT),
        (Color.RED, INT),
        (np.int8(-3), INT),
        (np.uint64(2**40), INT),
        (Index(), INT),
        (1.5, FLOAT),
        (np.float32(1.5), FLOAT),
        (np.float64(1.5), FLOAT),
        (ctypes.c_void_p(16), POINTER),
        ("text", RAW_STR),
        ("nul\0inside", STR),
        (b"bytes", BYTE_ARRAY),
        (bytearray(b"bytes"), BYTE_ARRAY),
        (memoryview(b"bytes"), BYTE_ARRAY),
        (ffi.dtype("int8"), DTYPE),
        (np.dtype("float16"), DTYPE),
        (np.float32, DTYPE),
        (ffi.Device("cuda:1"), DEVICE),
        (print, FUNCTION),
        (int, FUNCTION),
        ([1, "two", None], ARRAY),
        ((), ARRAY),
    ],
    ids=shown,
)
def test_each_kind_arrives_with_its_tag(kernels: ffi.Module, value: Any, tag: int) -> None:
    assert kernels["tag"](value) == tag


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        2**30,
        -(2**30),
        2**62,
        -(2**63),
        2**63 - 1,
        0.0,
        -2.5,
        math.inf,
        "",
        "a",
        "seven77",
        "eight888",
        "ümlaut",
        "nul\x00nul",
        "x" * 1000,
        b"",
        b"\x00\x01",
        b"y" * 1000,
        (),
        (1, 2.0, "three", (None, (b"deep",))),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_values_come_back_equal_and_of_their_type(kernels: ffi.Module, value: Any) -> None:
    back = kernels["echo"](value)
    assert back == value
    assert type(back) is type(value)


def test_nan_comes_back(kernels: ffi.Module) -> None:
    assert math.isnan(kernels["echo"](math.nan))


def test_bytearray_comes_back_as_bytes(kernels: ffi.Module) -> None:
    assert kernels["echo"](bytearray(b"abcdefghij")) == b"abcdefghij"


def test_pointer_comes_back(kernels: ffi.Module) -> None:
    back = kernels["echo"](ctypes.c_void_p(4096))
    assert isinstance(back, ctypes.c_void_p)
    assert back.value == 4096


def test_module_travels_as_itself(kernels: ffi.Module) -> None:
    assert kernels["echo"](kernels) is kernels


@pytest.mark.parametrize("count", [0, 1, 8, 9, 64, 1000])
def test_any_number_of_arguments(kernels: ffi.Module, count: int) -> None:
    assert kernels["count"](*range(count)) == count
    assert kernels["count"](*["text\0" + str(i) for i in range(count)]) == count


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70, np.uint64(2**64 - 1)], ids=repr)
def test_int_that_is_too_big(kernels: ffi.Module, value: int) -> None:
    with pytest.raises(OverflowError, match="argument 2 of `add`: the int needs more than 64 bits"):
        kernels["add"](1, value)


@pytest.mark.parametrize("value", [{1}, object(), range(3), iter(())], ids=shown)
def test_a_kind_that_cannot_be_passed(kernels: ffi.Module, value: Any) -> None:
    with pytest.raises(TypeError, match="argument 3 of `count`: a value of type"):
        kernels["count"](1, 2, value)


def test_bad_element_of_a_list_names_the_argument(kernels: ffi.Module) -> None:
    with pytest.raises(TypeError, match="argument 1 of `count`"):
        kernels["count"]([1, ["x" * 100, {2}]])


def nested(depth: int) -> tuple[Any, ...]:
    return (nested(depth - 1),) if depth > 1 else ()


def test_deep_lists(kernels: ffi.Module) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for bad in (endless, nested(201)):
        with pytest.raises(RecursionError, match="nested deeper than 200 levels"):
            kernels["count"](bad)
    for _ in range(3):
        assert kernels["echo"](nested(200)) == nested(200)


def test_text_that_is_no_unicode(kernels: ffi.Module) -> None:
    with pytest.raises(UnicodeEncodeError):
        kernels["count"]("\ud800")


def test_keywords_are_refused(kernels: ffi.Module) -> None:
    with pytest.raises(TypeError, match="`add` takes positional arguments only"):
        kernels["add"](1, b=2)


def test_an_exception_of_user_code_passes_unchanged(kernels: ffi.Module) -> None:
    class Bad:
        def __index__(self) -> int:
            raise LookupError("mine")

    with pytest.raises(LookupError, match=r"^mine\b") as caught:
        kernels["count"](0, Bad())
    assert caught.value.__notes__ == ["while converting argument 2 of `count`"]


class TestDtype:
    @pytest.mark.parametrize(
        "name",
        [
            "int8",
            "int64",
            "uint16",
            "float16",
            "float32",
            "float64",
            "bfloat16",
            "bool",
            "complex64",
            "handle",
            "float8_e4m3fn",
            "float8_e5m2fnuz",
            "float6_e2m3fn",
            "float4_e2m1fnx2",
            "float32x4",
            "int4",
            "void",
        ],
    )
    def test_prints_as_it_is_parsed(self, kernels: ffi.Module, name: str) -> None:
        assert str(ffi.dtype(name)) == name
        assert kernels["echo"](ffi.dtype(name)) == name
        assert kernels["name_dtype"](ffi.dtype(name)) == ("" if name == "void" else name)  # as in TVM FFI

    def test_parts(self) -> None:
        x = ffi.dtype("uint8x4")
        assert (x.code, x.bits, x.lanes, x.itemsize) == (1, 8, 4, 4)
        assert repr(x) == "farcall.dtype('uint8x4')"

    @pytest.mark.parametrize("alias", ["f32", "float", "float32", np.float32, np.dtype("float32")], ids=repr)
    def test_equal_to_its_aliases(self, alias: Any) -> None:
        assert ffi.dtype("float32") == alias
        assert ffi.dtype(alias) == ffi.dtype("float32")
        assert ffi.dtype("float64") != alias
        assert hash(ffi.dtype(alias)) == hash(ffi.dtype("float32"))

    @pytest.mark.parametrize("bad", ["flot32", "int0", "int256", "float32x0", "float32 ", "x", "int8x70000"])
    def test_unknown_name(self, bad: str) -> None:
        with pytest.raises(ValueError, match="unknown dtype"):
            ffi.dtype(bad)

    @pytest.mark.parametrize(
        ("short", "name"),
        [
            ("fp8_e4m3fn", "float8_e4m3fn"),
            ("f6_e3m2fn", "float6_e3m2fn"),
            ("fp4_e2m1fn_x2", "float4_e2m1fnx2"),
        ],
    )
    def test_short_names_of_small_floats(self, short: str, name: str) -> None:
        assert str(ffi.dtype(short)) == name

    @pytest.mark.parametrize("name", ["float32", "float8_e5m2x4", "void", "int4", "float4_e2m1fnx2"])
    def test_copies_and_pickles(self, name: str) -> None:
        x = ffi.dtype(name)
        assert copy.deepcopy(x) == x == pickle.loads(pickle.dumps(x))  # noqa: S301 - made here

    def test_numpy_takes_it(self) -> None:
        assert np.zeros(2, dtype=ffi.dtype("int16")).dtype == np.int16
        assert np.dtype(ffi.dtype("bfloat16")).name == "bfloat16"
        with pytest.raises(TypeError, match="numpy has no dtype for float32x4"):
            np.dtype(ffi.dtype("float32x4"))

    def test_not_equal_to_something_else(self) -> None:
        assert ffi.dtype("int8") != 3
        assert ffi.dtype("int8") != "what"

    @pytest.mark.parametrize(("text", "lanes"), [("int32xvscalex4", -4), ("boolxvscalex8", -8)])
    def test_scalable_vectors(self, kernels: ffi.Module, text: str, lanes: int) -> None:
        """At run time the machine multiplies these lanes; DLPack writes them as negative numbers."""
        x = ffi.dtype(text)
        assert (str(x), x.lanes, str(kernels["echo"](x))) == (text, lanes, text)
        with pytest.raises(ValueError, match=f"{text} has no itemsize"):
            _ = x.itemsize
        with pytest.raises(ValueError, match="scalable"):
            ffi.empty(3, text)

    @pytest.mark.parametrize(
        "text",
        ["int32xvscalex", "int32xvscalex0", "int32xvscale4", "int32xvscalex70000", "float8_e4m3xvscalex4x2"],
    )
    def test_what_is_no_scalable_vector(self, text: str) -> None:
        with pytest.raises(ValueError, match="unknown dtype"):
            ffi.dtype(text)

    @pytest.mark.parametrize(
        ("triple", "text"),
        [
            ((3, 64, 1), "handle"),
            ((3, 32, 1), "handle"),
            ((3, 0, 1), "handle"),
            ((3, 64, 2), "handle"),
            ((3, 0, 0), "void"),
        ],
    )
    def test_a_handle_whatever_its_size(
        self, kernels: ffi.Module, triple: tuple[int, int, int], text: str
    ) -> None:
        x = type("Handle", (), {"__dlpack_data_type__": lambda self: triple})()
        assert str(kernels["echo"](x)) == text

    def test_numpy_dtype_without_counterpart(self, kernels: ffi.Module) -> None:
        with pytest.raises(TypeError, match="has no counterpart"):
            kernels["tag"](np.dtype("datetime64[s]"))
        with pytest.raises(TypeError, match="native byte order"):
            ffi.dtype(np.dtype(">f4"))


class TestDevice:
    @pytest.mark.parametrize(("text", "parts"), [("cpu", (1, 0)), ("cuda:3", (2, 3)), ("mps", (8, 0))])
    def test_names(self, kernels: ffi.Module, text: str, parts: tuple[int, int]) -> None:
        device = ffi.Device(text)
        assert (device.dlpack_device_type(), device.index) == parts
        assert kernels["echo"](device) == device == text

    def test_ways_to_say_it(self) -> None:
        assert ffi.Device("cuda", 1) == ffi.Device("cuda:1") == ffi.Device(2, 1) == (2, 1)
        assert str(ffi.Device("wgpu")) == "webgpu:0"
        assert ffi.Device("cpu") != 1
        assert len({ffi.Device("cpu"), ffi.Device("cpu:0"), ffi.Device("cuda")}) == 2

    @pytest.mark.parametrize("index", [None, 0, np.int32(0)], ids=repr)
    def test_index_beside_the_name(self, index: Any) -> None:
        assert ffi.Device("cuda", index) == ffi.Device("cuda", index=index) == ffi.Device("cuda:0")
        assert ffi.Device("cuda:1", 1) == ffi.Device("cuda:1")

    @pytest.mark.parametrize(
        ("args", "kind", "message"),
        [
            (("cuda", -1), ValueError, "between 0 and"),
            (("cuda", 2**40), ValueError, "between 0 and"),
            (("cuda:1", 2), ValueError, "1 by name, and 2 beside it"),
            (("cuda", "1"), TypeError, "integer"),
        ],
    )
    def test_wrong_index(self, args: tuple[Any, Any], kind: type[Exception], message: str) -> None:
        with pytest.raises(kind, match=message):
            ffi.Device(*args)

    def test_copies_and_pickles(self) -> None:
        for x in (ffi.Device("cuda", 2), ffi.Device((99, 1)), ffi.Device((1 + 128 * 3, 2))):
            assert copy.deepcopy(x) == x == pickle.loads(pickle.dumps(x))  # noqa: S301 - made here

    def test_behind_a_session(self) -> None:
        device = ffi.Device((1 + 128 * 3, 2))
        assert (str(device), device.type) == ("remote[2]/cpu:2", "remote[2]/cpu")

    @pytest.mark.parametrize(
        ("text", "name"), [("cuda:1", "cuda"), ("mps", "metal"), ("cuda_host", "cuda_host")]
    )
    def test_its_kind_has_a_name(self, text: str, name: str) -> None:
        device = ffi.Device(text)
        assert device.type == name
        assert ffi.Device(device.type, device.index) == device

    @pytest.mark.parametrize("bad", ["gpu", "cuda:", "cuda:x", "cpu:0 x", ""])
    def test_unknown_name(self, bad: str) -> None:
        with pytest.raises(ValueError, match="unknown device"):
            ffi.Device(bad)


class TestContainers:
    @pytest.mark.parametrize(
        "value",
        [{}, {"a": 1}, {1: "x", "b": {"c": (1, 2.5, None)}, 2.5: b"y"}, {str(i): i for i in range(1000)}],
        ids=["empty", "one", "nested", "many"],
    )
    def test_dict(self, kernels: ffi.Module, value: dict[Any, Any]) -> None:
        back = kernels["echo"](value)
        assert back == value
        assert list(back) == list(value)

    def test_what_a_dict_cannot_hold(self, kernels: ffi.Module) -> None:
        with pytest.raises(TypeError, match="argument 1 of `echo`: a value of type `set`"):
            kernels["echo"]({"a": [{"b": {1}}]})

    def test_dict_in_itself(self, kernels: ffi.Module) -> None:
        value: dict[str, Any] = {}
        value["x"] = value
        with pytest.raises(RecursionError):
            kernels["echo"](value)

    def test_dict_that_changes_while_it_is_read(self, kernels: ffi.Module) -> None:
        value: dict[Any, Any] = {}

        class Odd:
            def __index__(self) -> int:
                value.clear()
                return 5

        value.update({i: Odd() for i in range(10)})
        assert kernels["echo"](value) == dict.fromkeys(range(10), 5)

    def test_shape(self, kernels: ffi.Module) -> None:
        shape = ffi.Shape([2, np.int64(3)])
        assert (shape, shape.numel(), ffi.Shape()) == ((2, 3), 6, ())
        back = kernels["echo"](shape)
        assert type(back) is ffi.Shape
        assert (back, repr(back)) == (shape, "farcall.Shape([2, 3])")
        assert kernels["tag"](shape) == 69
        assert type(ffi.empty((4, 5)).shape) is ffi.Shape
        with pytest.raises(TypeError):
            ffi.Shape([1.5])  # type: ignore[list-item]
        with pytest.raises(OverflowError, match="needs more than 64 bits"):
            ffi.Shape([2**63])


def test_convert() -> None:
    assert type(ffi.convert(np.ones(3))) is ffi.Tensor
    assert type(ffi.convert(print)) is ffi.Function
    assert ffi.convert([1, (2, {"a": np.int8(3)})]) == (1, (2, {"a": 3}))
    with pytest.raises(TypeError, match="a value of type `set`"):
        ffi.convert({1})


def test_any_object_travels_as_a_reference() -> None:
    marker = object()
    assert ffi.convert(ffi.Opaque(marker)) is marker
    assert ffi.Function(lambda x: x is marker)(ffi.Opaque(marker))
    assert ffi.convert([ffi.Opaque(marker)]) == (marker,)
    assert ffi.Opaque(marker).value is marker
    assert repr(ffi.Opaque(3)) == "farcall.Opaque(3)"
