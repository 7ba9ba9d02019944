"""Streams: the stream that a kernel gets when it asks for one."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farcall import ffi

# A framework with DLPack's exchange API whose tensors are on cuda:0 and cuda:1 in turn, and whose streams are
# 1000 + the device's index; it knows no third device.
FRAMEWORK = """
#include <farcall/c_api.h>
#include <string.h>

static int64_t shape[1] = {2}, strides[1] = {1};
static int turn;

static int view(void* object, DLTensor* out) {
  (void)object;
  *out = (DLTensor){(void*)64, {kDLCUDA, turn++ & 1}, 1, {kDLFloat, 32, 1}, shape, strides, 0};
  return 0;
}

static int manage(void* object, DLManagedTensorVersioned** out) {
  (void)object, (void)out;
  return -1;
}

static int current_stream(DLDeviceType type, int32_t id, void** out) {
  if (type != kDLCUDA || id > 1) return -1;
  *out = (void*)(intptr_t)(1000 + id);
  return 0;
}

FARCALL_VISIBLE DLPackExchangeAPI api = {
    .header = {.version = {1, 3}},
    .managed_tensor_from_py_object_no_sync = manage,
    .dltensor_from_py_object_no_sync = view,
    .current_work_stream = current_stream,
};

/* The streams of cuda:0, cuda:1, cuda:2 and rocm:0, in one number. */
FARCALL_KERNEL(streams) {
  int64_t sum = 0;
  (void)args, (void)num_args;
  for (int i = 0; i < 3; ++i) sum = sum * 10000 + (int64_t)(intptr_t)TVMFFIEnvGetStream(kDLCUDA, i);
  result->type_index = kTVMFFIInt;
  result->v_int64 = sum * 10000 + (int64_t)(intptr_t)TVMFFIEnvGetStream(kDLROCM, 0);
  return 0;
}
"""


@pytest.fixture(scope="module")
def framework(compile_kernels: Callable[[str, str], Path]) -> tuple[Any, ffi.Module]:
    path = compile_kernels("framework", FRAMEWORK)
    module = ffi.load_library(path)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api = ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(str(path)), "api"))

    class Array:
        __dlpack_c_exchange_api__ = make(api, b"dlpack_exchange_api", None)

    return Array, module


@pytest.mark.parametrize("views", [True, False])
def test_the_frameworks_streams_of_every_device(framework: Any, views: bool) -> None:
    array, module = framework
    streams = module["streams"]
    streams.views = views
    assert streams(array(), array()) == 1000_1001_0000_0000
    assert streams() == 0


def test_a_stream_that_was_set_comes_first(framework: Any) -> None:
    array, module = framework
    with ffi.use_stream("cuda:0", 7) as handle:
        assert handle == 7
        assert module["streams"]() == 7_0000_0000_0000
        assert module["streams"](array()) == 7_1001_0000_0000
        with ffi.use_stream(ffi.Device("rocm"), 8):
            assert module["streams"]() == 7_0000_0000_0008
            assert ffi.get_stream("rocm") == 8
    assert module["streams"]() == 0


def test_after_an_exception_it_is_as_before() -> None:
    with pytest.raises(KeyError), ffi.use_stream("cuda:1", 5):
        raise KeyError
    assert ffi.get_stream("cuda:1") == 0


def test_each_thread_has_its_own() -> None:
    seen: list[int] = []
    with ffi.use_stream("cuda:0", 5):
        thread = threading.Thread(target=lambda: seen.append(ffi.get_stream("cuda:0")))
        thread.start()
        thread.join()
    assert seen == [0]


def test_objects_that_have_a_handle() -> None:
    class Torch:
        cuda_stream = 11

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 12)

    for stream, handle in ((Torch(), 11), (Protocol(), 12), (None, 0)):
        with ffi.use_stream("cuda", stream):
            assert ffi.get_stream("cuda:0") == handle
    with (
        pytest.raises(TypeError, match=r"use_stream: expected a stream handle .*got `str`"),
        ffi.use_stream("cuda", "x"),
    ):
        pass
    with pytest.raises(ValueError, match="unknown device"), ffi.use_stream("toaster", 1):
        pass
