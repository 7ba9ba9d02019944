/*
 * farcall/allocators.hpp - allocators for Tensor::FromNDAlloc, for use and as examples.
 *
 *     Tensor y = Tensor::FromNDAlloc(CpuAllocator(), x.sizes(), x.dtype(), {kDLCPU, 0});
 *
 * CudaAllocator exists where the CUDA toolkit's headers are found (link with -lcudart), NvshmemAllocator where
 * NVSHMEM's headers are too. For memory that the caller's framework owns, use Tensor::FromEnvAlloc instead.
 */
#ifndef FARCALL_ALLOCATORS_HPP_
#define FARCALL_ALLOCATORS_HPP_

#include <farcall/cuda.hpp>

#if defined(FARCALL_HAS_CUDA) && __has_include(<nvshmem.h>)
#include <nvshmem.h>
#define FARCALL_HAS_NVSHMEM 1
#endif

namespace farcall {

/* Memory of the C library, aligned to 64 bytes, as vector instructions and DLPack prefer. */
struct CpuAllocator {
  static constexpr size_t kAlignment = 64;

  void AllocData(DLTensor* tensor) const {
    auto wanted = static_cast<size_t>(storage_nbytes(*tensor));
    size_t rounded = (wanted + kAlignment - 1) / kAlignment * kAlignment; /* as aligned_alloc requires */
    tensor->data = std::aligned_alloc(kAlignment, rounded ? rounded : kAlignment);
    if (!tensor->data) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) const noexcept { std::free(tensor->data); }
};

#ifdef FARCALL_HAS_CUDA

/* Memory of a CUDA device. Freeing waits for the device: in frequent calls, use the caller's allocator. */
struct CudaAllocator {
  void AllocData(DLTensor* tensor) const {
    CudaDeviceGuard scope(tensor->device);
    FARCALL_CUDA_CHECK(cudaMalloc(&tensor->data, static_cast<size_t>(storage_nbytes(*tensor))));
  }
  void FreeData(DLTensor* tensor) const noexcept { (void)cudaFree(tensor->data); } /* in a destructor: no errors */
};

#endif  // FARCALL_HAS_CUDA

#ifdef FARCALL_HAS_NVSHMEM

/*
 * Symmetric memory: every process of the job must make, and free, the same tensors in the same order. The current
 * device must be the one that NVSHMEM was initialised with.
 */
struct NvshmemAllocator {
  void AllocData(DLTensor* tensor) const {
    auto wanted = static_cast<size_t>(storage_nbytes(*tensor));
    tensor->data = nvshmem_malloc(wanted ? wanted : 1);
    if (!tensor->data) throw Error("MemoryError", text("nvshmem_malloc: no symmetric memory for ", wanted, " bytes"));
  }
  void FreeData(DLTensor* tensor) const noexcept { nvshmem_free(tensor->data); }
};

#endif  // FARCALL_HAS_NVSHMEM

}  // namespace farcall

#endif  // FARCALL_ALLOCATORS_HPP_
