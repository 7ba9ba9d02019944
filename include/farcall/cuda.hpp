/*
 * farcall/cuda.hpp - device, stream and error checks around the launch of a CUDA kernel.
 *
 *     void scale(farcall::TensorView x, float by) {
 *       farcall::CudaDeviceGuard device(x.device());
 *       auto stream = farcall::EnvGetStream<cudaStream_t>(x.device());
 *       scale_kernel<<<blocks, threads, 0, stream>>>(x.data_ptr<float>(), x.numel(), by);
 *       FARCALL_CUDA_CHECK(cudaGetLastError());
 *     }
 *
 * FARCALL_HAS_CUDA is defined where the CUDA toolkit's headers are found; elsewhere this header is empty. Link with
 * -lcudart.
 */
#ifndef FARCALL_CUDA_HPP_
#define FARCALL_CUDA_HPP_

#include <farcall/kernel.hpp>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#define FARCALL_HAS_CUDA 1

namespace farcall {

namespace detail {

/* `text` is the source text of the call; file, line and function are the caller's. */
FARCALL_COLD inline void throw_cuda(cudaError_t status, const char* text, const char* file, int line,
                                    const char* function) {
  const char* kind = status == cudaErrorMemoryAllocation ? "MemoryError" : "RuntimeError";
  std::string message = farcall::text(text, ": ", cudaGetErrorName(status), ", ", cudaGetErrorString(status));
  throw Error(kind, message, file, line, function);
}

}  // namespace detail

/*
 * Throws a CUDA error as a MemoryError (cudaErrorMemoryAllocation) or a RuntimeError. A launch reports failure only
 * by cudaGetLastError: write FARCALL_CUDA_CHECK(cudaGetLastError()) after each.
 */
#define FARCALL_CUDA_CHECK(call)                                                                                    \
  do {                                                                                                              \
    cudaError_t farcall_status = (call);                                                                            \
    if (__builtin_expect(farcall_status != cudaSuccess, 0)) {                                                       \
      ::farcall::detail::throw_cuda(farcall_status, #call, __FILE__, __LINE__, static_cast<const char*>(__func__)); \
    }                                                                                                               \
  } while (0)

/* Makes a device current, and restores the previous one at the end of the scope. */
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(DLDevice device) {
    FARCALL_CHECK(
        device.device_type == kDLCUDA || device.device_type == kDLCUDAHost || device.device_type == kDLCUDAManaged,
        "ValueError", "expected a tensor of CUDA, got one on ", device_name(device));
    FARCALL_CUDA_CHECK(cudaGetDevice(&before_));
    changed_ = before_ != device.device_id;
    if (changed_) FARCALL_CUDA_CHECK(cudaSetDevice(device.device_id));
  }
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;
  ~CudaDeviceGuard() {
    if (changed_) (void)cudaSetDevice(before_); /* in a destructor: no errors */
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace farcall

#endif  // __has_include(<cuda_runtime_api.h>)

#endif  // FARCALL_CUDA_HPP_
