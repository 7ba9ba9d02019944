"""Functions of JIT compilers: an address, and an owner that must stay alive."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from farcall import ffi

SOURCE = r"""
#include <farcall/c_api.h>
FARCALL_VISIBLE int plain(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  if (self || n != 2) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "two numbers, and no self");
    return -1;
  }
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = args[0].v_int64 - args[1].v_int64};
  return 0;
}
FARCALL_VISIBLE void packed(void** p) {
  *(int*)p[4] = plain(*(void**)p[0], *(const TVMFFIAny**)p[1], *(int32_t*)p[2], *(TVMFFIAny**)p[3]);
}
"""
MAKERS = {
    "plain": ffi.Function.__from_extern_c__,
    "packed": ffi.Function.__from_mlir_packed_safe_call__,
}


class Engine:
    """The owner of the code."""


@pytest.fixture(scope="module")
def engine(compile_kernels: Callable[[str, str], Path]) -> ctypes.CDLL:
    path = compile_kernels("engine", SOURCE)
    ffi.load_library(path)  # its imports are bound
    return ctypes.CDLL(str(path))


def address(engine: ctypes.CDLL, name: str) -> int:
    found = ctypes.cast(getattr(engine, name), ctypes.c_void_p).value
    assert found is not None
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_a_call(engine: ctypes.CDLL, kernels: ffi.Module, name: str) -> None:
    function = MAKERS[name](address(engine, name))
    assert function(50, 8) == 42
    assert kernels["call"](function, 50, 8) == 42
    with pytest.raises(ValueError, match="two numbers"):
        function(1)


@pytest.mark.parametrize("name", MAKERS)
def test_the_owner_lives_as_long_as_the_function(engine: ctypes.CDLL, name: str) -> None:
    owner = Engine()
    gone = weakref.ref(owner)
    function = MAKERS[name](address(engine, name), keep_alive_object=owner)
    del owner
    gc.collect()
    assert gone() is not None
    ffi.register_global_func("addresses.kept", function)
    del function
    gc.collect()
    assert gone() is not None
    ffi.remove_global_func("addresses.kept")
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_address(name: str) -> None:
    with pytest.raises(ValueError, match="got 0"):
        MAKERS[name](0)
    with pytest.raises(OverflowError):
        MAKERS[name](2**70)
    with pytest.raises(TypeError):
        MAKERS[name](1.5)  # type: ignore[arg-type]
