/*
 * farcall/cuda.hpp - what a CUDA kernel needs around its launch: the device, the stream, and errors that are seen.
 *
 *     void scale(farcall::TensorView x, float by) {
 *       farcall::CudaDeviceGuard device(x.device());
 *       auto stream = farcall::EnvGetStream<cudaStream_t>(x.device());
 *       scale_kernel<<<blocks, threads, 0, stream>>>(x.data_ptr<float>(), x.numel(), by);
 *       FARCALL_CUDA_CHECK(cudaGetLastError());
 *     }
 *
 * Only where the CUDA toolkit's headers are found; FARCALL_HAS_CUDA says whether they are. Link with -lcudart.
 */
#ifndef FARCALL_CUDA_HPP_
#define FARCALL_CUDA_HPP_

#include <farcall/kernel.hpp>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#define FARCALL_HAS_CUDA 1

namespace farcall {

namespace detail {

/* `text` is the call as it was written, and the place is the caller's. */
FARCALL_COLD inline void throw_cuda(cudaError_t status, const char* text, const char* file, int line,
                                    const char* function) {
  const char* kind = status == cudaErrorMemoryAllocation ? "MemoryError" : "RuntimeError";
  std::string message = farcall::text(text, ": ", cudaGetErrorName(status), ", ", cudaGetErrorString(status));
  throw Error(kind, message, file, line, function);
}

}  // namespace detail

/*
 * A CUDA error as an exception: MemoryError where memory is short, else RuntimeError. A launch that fails says so only
 * to who asks: FARCALL_CUDA_CHECK(cudaGetLastError()) behind each.
 */
#define FARCALL_CUDA_CHECK(call)                                                                                    \
  do {                                                                                                              \
    cudaError_t farcall_status = (call);                                                                            \
    if (__builtin_expect(farcall_status != cudaSuccess, 0)) {                                                       \
      ::farcall::detail::throw_cuda(farcall_status, #call, __FILE__, __LINE__, static_cast<const char*>(__func__)); \
    }                                                                                                               \
  } while (0)

/* Makes a device the current one, and the one before again at the end of the scope. */
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
