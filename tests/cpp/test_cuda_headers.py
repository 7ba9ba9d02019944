"""farcall/cuda.hpp and the device allocators, against a toolkit of a few lines that can refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farcall.cpp import load_inline
from farcall.ffi import Module

TOOLKIT = """
#pragma once
#include <cstdlib>
typedef enum { cudaSuccess = 0, cudaErrorInvalidDevice = 101, cudaErrorMemoryAllocation = 2 } cudaError_t;
typedef struct CUstream_st* cudaStream_t;
inline int& current() { static int device = 0; return device; }
inline int& live() { static int count = 0; return count; }
inline const char* cudaGetErrorName(cudaError_t e) {
  return e == cudaErrorInvalidDevice ? "invalidDevice" : "memory";
}
inline const char* cudaGetErrorString(cudaError_t) { return "the toolkit says so"; }
inline cudaError_t cudaGetDevice(int* out) { *out = current(); return cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) {
  if (device > 3) return cudaErrorInvalidDevice;
  current() = device;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** out, size_t size) {
  if (size > 4096) return cudaErrorMemoryAllocation;
  *out = std::malloc(size + 1);
  ++live();
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* data) { std::free(data); --live(); return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return current() == 2 ? cudaErrorInvalidDevice : cudaSuccess; }
"""
NVSHMEM = """
#pragma once
#include <cstdlib>
inline void* nvshmem_malloc(size_t size) { return size > 4096 ? nullptr : std::malloc(size); }
inline void nvshmem_free(void* data) { std::free(data); }
"""
KERNELS = """
#include <farcall/allocators.hpp>
using namespace farcall;
#if !defined(FARCALL_HAS_CUDA) || !defined(FARCALL_HAS_NVSHMEM)
#error "the toolkit is there"
#endif
int64_t allocated(int64_t n, int64_t device) {
  DLDevice on{kDLCUDA, static_cast<int32_t>(device)};
  Tensor x = Tensor::FromNDAlloc(CudaAllocator(), {n}, dtype_of<float>, on);
  FARCALL_CHECK(current() == 0, "RuntimeError", "the device before is the current one again");
  return live();
}
int64_t still_live() { return live(); }
bool symmetric(int64_t n) {
  return Tensor::FromNDAlloc(NvshmemAllocator(), {n}, dtype_of<float>, {kDLCUDA, 0}).data_ptr() != nullptr;
}
int64_t launch(int64_t device) {
  CudaDeviceGuard guard({kDLCUDA, static_cast<int32_t>(device)});
  FARCALL_CUDA_CHECK(cudaGetLastError());
  return current();
}
int64_t device_now() { return current(); }
void on(TensorView x) { CudaDeviceGuard guard(x.device()); }
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Module:
    folder: Path = tmp_path_factory.mktemp("toolkit")
    (folder / "cuda_runtime_api.h").write_text(TOOLKIT)
    (folder / "nvshmem.h").write_text(NVSHMEM)
    names = ["allocated", "still_live", "symmetric", "launch", "device_now", "on"]
    include = [str(folder)]
    return load_inline(
        "toolkit", cpp_sources=KERNELS, functions=names, extra_include_paths=include, extra_cflags=["-O0"]
    )


def test_memory_is_freed_with_its_tensor(kernels: Module) -> None:
    assert kernels["allocated"](100, 3) == 1
    assert kernels["still_live"]() == 0
    assert kernels["symmetric"](100) is True


def test_what_the_toolkit_refuses_is_an_exception(kernels: Module) -> None:
    with pytest.raises(MemoryError, match=r"cudaMalloc\(.*\): memory, the toolkit says so"):
        kernels["allocated"](10_000, 0)
    with pytest.raises(RuntimeError, match=r"cudaSetDevice\(.*\): invalidDevice"):
        kernels["allocated"](1, 7)
    with pytest.raises(MemoryError, match="no symmetric memory for 40000 bytes"):
        kernels["symmetric"](10_000)
    assert (kernels["still_live"](), kernels["device_now"]()) == (0, 0)


def test_a_failed_launch_is_not_silent(kernels: Module) -> None:
    assert kernels["launch"](1) == 1
    with pytest.raises(RuntimeError, match=r"cudaGetLastError\(\): invalidDevice"):
        kernels["launch"](2)
    assert kernels["device_now"]() == 0, "the device before, after an error too"


def test_a_tensor_of_another_device_is_refused(kernels: Module) -> None:
    with pytest.raises(ValueError, match="expected a tensor of CUDA, got one on cpu:0"):
        kernels["on"](np.zeros(3))
