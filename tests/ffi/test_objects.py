"""Objects without a Python class, and classes that define how they are passed."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall import ffi

SOURCE = r"""
#include <farcall/c_api.h>
#include <string.h>
static int alive;
static void drop(void* handle) { (void)handle, --alive; }

FARCALL_KERNEL(make) {
  TVMFFIByteArray key = {"test.Thing", 10};
  int32_t index = TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, 64);
  TVMFFIObjectHandle out;
  if (TVMFFIObjectCreateOpaque((void*)(intptr_t)args[0].v_int64, index, drop, &out) != 0) return -1;
  ++alive;
  *result = (TVMFFIAny){.type_index = index, .v_obj = out};
  return 0;
}
FARCALL_KERNEL(number) {
  *result = (TVMFFIAny){.type_index = kTVMFFIInt,
                        .v_int64 = (intptr_t)TVMFFIOpaqueObjectGetCellPtr(args[0].v_obj)->handle};
  return 0;
}
FARCALL_KERNEL(alive) {
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = alive};
  return 0;
}
FARCALL_KERNEL(big) { return TVMFFIBigIntFromByteArray((const TVMFFIByteArray*)args[0].v_ptr, result); }
FARCALL_KERNEL(register_it) {
  static const char about[] = "{\"type_schema\": \"{\\\"type\\\": \\\"Any\\\"}\", \"note\": 5}";
  TVMFFIMethodInfo info = {.name = {args[0].v_c_str, strlen(args[0].v_c_str)},
                           .metadata = {about, sizeof about - 1}, .method = args[1]};
  return TVMFFIFunctionSetGlobalFromMethodInfo(&info, 0);
}
"""


@pytest.fixture(scope="module")
def things(compile_kernels: Callable[[str, str], Path]) -> ffi.Module:
    return ffi.load_library(compile_kernels("things", SOURCE))


class TestObject:
    def test_it_is_held_and_passed_back(self, things: ffi.Module, kernels: ffi.Module) -> None:
        before = things.alive()
        thing = things.make(7)
        assert type(thing) is ffi.Object
        assert thing.type_key == "test.Thing"
        assert repr(thing).startswith("<farcall.Object test.Thing at 0x")
        assert things.number(thing) == 7
        assert kernels["call"](lambda x: x, thing) == thing
        assert kernels["echo"]([thing, {"x": thing}]) == (thing, {"x": thing})
        assert things.alive() == before + 1
        del thing
        gc.collect()
        assert things.alive() == before

    def test_equal_is_the_same(self, things: ffi.Module, kernels: ffi.Module) -> None:
        one, other = things.make(1), things.make(1)
        again = kernels["echo"](one)
        assert again == one
        assert again != other
        assert {one, again, other} == {one, other}
        assert one != 1

    def test_only_native_code_makes_one(self) -> None:
        with pytest.raises(TypeError):
            ffi.Object()


@given(st.integers(-(2**200), 2**200))
def test_long_integers(things: ffi.Module, number: int) -> None:
    size = (number.bit_length() // 64 + 1) * 8
    assert things.big(number.to_bytes(size, sys.byteorder, signed=True)) == number


class Says:
    """An instance of a class that has one method, which gives ``value``."""

    def __new__(cls, method: str, value: Any) -> Any:
        return type("Says", (), {method: lambda self: value})()


PASSED = [
    ("__tvm_ffi_object__", ffi.Shape((2, 3)), ffi.Shape((2, 3))),
    ("__tvm_ffi_object__", Says("__tvm_ffi_value__", "inner"), "inner"),
    ("__tvm_ffi_value__", [1, "a text of some length"], (1, "a text of some length")),
    ("__tvm_ffi_value__", Says("__tvm_ffi_int__", 3), 3),
    ("__tvm_ffi_int__", 2**40, 2**40),
    ("__tvm_ffi_float__", 2.5, 2.5),
    ("__tvm_ffi_float__", 2, 2.0),
    ("__dlpack_data_type__", (2, 16, 1), ffi.dtype("float16")),
    ("__dlpack_device__", (2, 1), ffi.Device("cuda:1")),
]
POINTERS = [("__tvm_ffi_opaque_ptr__", 4096), ("__cuda_stream__", (0, 4096)), ("cuda_stream", None)]


class TestProtocols:
    @pytest.mark.parametrize(("method", "value", "expected"), PASSED)
    def test_what_the_method_gives_is_passed(
        self, kernels: ffi.Module, method: str, value: Any, expected: Any
    ) -> None:
        for echo in (kernels["echo"], ffi.convert):
            got = echo(Says(method, value))
            assert got == expected
            assert type(got) is type(expected)
        assert kernels["echo"]([Says(method, value)]) == (expected,)

    @pytest.mark.parametrize(("method", "value"), POINTERS)
    def test_pointers(self, kernels: ffi.Module, method: str, value: Any) -> None:
        """The last is torch's attribute; the others are methods."""
        stream = Says(method, value) if value else type("Stream", (), {"cuda_stream": 4096})()
        got = kernels["echo"](stream)
        assert isinstance(got, ctypes.c_void_p)
        assert got.value == 4096

    def test_a_tensor_of_the_methods_lives_for_the_call(self, kernels: ffi.Module) -> None:
        wrapped = type("Wrapped", (), {"__tvm_ffi_value__": lambda self: np.arange(4.0)})()
        for function in (kernels["echo"], kernels["copy"]):
            np.testing.assert_array_equal(function(wrapped), np.arange(4.0))
        many = [wrapped] * 8
        np.testing.assert_array_equal(np.array(kernels["echo"](many)), np.array([np.arange(4.0)] * 8))
        assert kernels["count"](*many) == 8

    @pytest.mark.parametrize(
        ("method", "value", "error", "text"),
        [
            (
                "__tvm_ffi_int__",
                "x",
                TypeError,
                r"argument 1 of `echo`: __tvm_ffi_int__\(\) returned a `str`",
            ),
            ("__tvm_ffi_float__", None, TypeError, r"__tvm_ffi_float__\(\) returned a `NoneType`"),
            ("__dlpack_data_type__", 3, TypeError, "must return a tuple of ints, got `int`"),
            ("__dlpack_device__", (1,), TypeError, "exactly 2"),
            ("__cuda_stream__", (), IndexError, "out of range"),
            ("__tvm_ffi_opaque_ptr__", "x", TypeError, "int"),
            ("__tvm_ffi_value__", {1}, TypeError, "a value of type `set` cannot be passed"),
        ],
    )
    def test_what_cannot_be(
        self, kernels: ffi.Module, method: str, value: Any, error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            kernels["echo"](Says(method, value))

    def test_a_method_that_goes_round(self, kernels: ffi.Module) -> None:
        loop = type("Loop", (), {"__tvm_ffi_value__": lambda self: self})()
        with pytest.raises((RecursionError, RuntimeError)):
            kernels["echo"](loop)
        with pytest.raises(RecursionError):
            kernels["echo"]([loop])

    def test_what_a_method_raises_arrives(self, kernels: ffi.Module) -> None:
        def fail(self: object) -> None:
            raise LookupError("not today")

        with pytest.raises(LookupError, match="not today"):
            kernels["echo"](type("Fails", (), {"__tvm_ffi_object__": fail})())

    def test_references_stay_flat(self, kernels: ffi.Module) -> None:
        inner = np.ones(3)
        outer = Says("__tvm_ffi_value__", inner)
        before = sys.getrefcount(inner)
        for _ in range(100):
            kernels["echo"](outer)
            with pytest.raises(TypeError):
                kernels["echo"]([outer, {1}])
        assert sys.getrefcount(inner) == before

    def test_dtypes_of_jax(self, kernels: ffi.Module) -> None:
        jnp = pytest.importorskip("jax.numpy")
        assert kernels["echo"](jnp.float32) == "float32"
        assert kernels["echo"](jnp.bfloat16) == "bfloat16"


def test_metadata_of_the_registry(things: ffi.Module) -> None:
    things.register_it("objects.described", ffi.Function(lambda: 1))
    about = ffi.get_global_func_metadata("objects.described")
    assert about == {"type_schema": json.dumps({"type": "Any"}), "note": 5}
    ffi.register_global_func("objects.silent", print)
    assert ffi.get_global_func_metadata("objects.silent") is None
    for name in ("objects.described", "objects.silent"):
        ffi.remove_global_func(name)
    with pytest.raises(ValueError, match=r"no global function `objects\.described`"):
        ffi.get_global_func_metadata("objects.described")
    with pytest.raises(TypeError, match="is a str"):
        ffi.get_global_func_metadata(3)  # type: ignore[arg-type]


class TestIdentity:
    """Each result is a new wrapper, so `is` has no meaning: two wrappers of one native object are equal."""

    @pytest.fixture(params=["function", "tensor", "module", "object"])
    def twins(
        self, request: pytest.FixtureRequest, things: ffi.Module, kernels: ffi.Module
    ) -> tuple[Any, Any, Any]:
        """Two wrappers of one native object, and one of another of its kind."""
        make: Callable[[], Any] = {
            "function": lambda: ffi.Function(lambda: None),
            "tensor": lambda: ffi.empty(2),
            "module": lambda: ffi.new_module("kind", {}),
            "object": lambda: things["make"](1),
        }[request.param]
        first = make()
        return first, kernels["echo"](first), make()

    def test_one_native_object_is_equal_to_itself(self, twins: tuple[Any, Any, Any]) -> None:
        first, again, other = twins
        assert first == again
        assert not first != again  # noqa: SIM202 - both operators are looked at
        assert first != other
        assert (first.same_as(again), first.same_as(other), first.same_as(None)) == (True, False, False)

    def test_it_is_one_key_of_a_dict(self, twins: tuple[Any, Any, Any]) -> None:
        first, again, other = twins
        assert {first: "first", other: "other"}[again] == "first"
        assert len({first, again, other}) == 2

    def test_it_has_no_order_and_equals_nothing_else(self, twins: tuple[Any, Any, Any]) -> None:
        assert twins[0] != 0
        with pytest.raises(TypeError, match="not supported"):
            assert twins[0] < twins[1]

    def test_a_registered_function(self) -> None:
        ffi.register_global_func("test.identity", lambda: None)
        try:
            assert ffi.get_global_func("test.identity") == ffi.get_global_func("test.identity")
        finally:
            ffi.remove_global_func("test.identity")

    def test_a_lent_tensor_that_has_expired(self, borrowing_call: ffi.Function) -> None:
        kept: list[ffi.Tensor] = []
        borrowing_call(kept.append, np.ones(2))
        assert kept[0] == kept[0]
        assert kept[0] != ffi.empty(2)
        with pytest.raises(TypeError, match="no longer refers to a native object"):
            hash(kept[0])
