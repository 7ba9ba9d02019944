/*
 * farcall/cpp/env.hpp - the environment of a call: streams and signals; and statically linked libraries.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_ENV_HPP_
#define FARCALL_CPP_ENV_HPP_

#include <farcall/cpp/error.hpp>

/*
 * Registers a symbol of a library that is linked in statically. The name is copied. Weak, because it is called
 * before main: in a library that is loaded, the runtime's functions may not be there yet, nor are they needed.
 */
extern "C" __attribute__((weak)) int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* symbol);

namespace farcall {

/* The current stream of the caller's framework on this device; NULL is the device's default stream. */
inline TVMFFIStreamHandle EnvGetStream(DLDevice device) noexcept {
  return TVMFFIEnvGetStream(static_cast<int32_t>(device.device_type), device.device_id);
}
/* The same as the device library's type: `EnvGetStream<cudaStream_t>(x.device())`. */
template <class Stream>
Stream EnvGetStream(DLDevice device) noexcept {
  return static_cast<Stream>(EnvGetStream(device));
}

/* Sets this thread's stream on a device, and restores the previous one at the end of the scope. */
class StreamScope {
 public:
  StreamScope(DLDevice device, TVMFFIStreamHandle stream) : device_(device) {
    detail::check_call(TVMFFIEnvSetStream(static_cast<int32_t>(device.device_type), device.device_id, stream, &before_),
                       "TVMFFIEnvSetStream");
  }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;
  ~StreamScope() {
    (void)TVMFFIEnvSetStream(static_cast<int32_t>(device_.device_type), device_.device_id, before_, nullptr);
  }

 private:
  DLDevice device_;
  TVMFFIStreamHandle before_ = nullptr;
};

/* For long loops: throws when the user interrupted the host (Ctrl-C), so that the call ends. */
inline void EnvCheckSignals() {
  if (__builtin_expect(TVMFFIEnvCheckSignals() == 0, 1)) return;
  /* The host has the exception already; an error of this kind says so (tvm_ffi's convention). */
  throw Error("EnvErrorAlreadySet", "the caller was interrupted");
}

namespace detail {

struct SystemLibSymbol {
  SystemLibSymbol(const char* name, void* symbol) noexcept {
    /* In a constructor of the program: an exception would end it, so an error waits in the slot. */
    if (TVMFFIEnvModRegisterSystemLibSymbol) (void)TVMFFIEnvModRegisterSystemLibSymbol(name, symbol);
  }
};

}  // namespace detail
}  // namespace farcall

/*
 * Makes an exported function part of the system library, for programs that link kernels and runtime statically:
 * `FARCALL_SYSTEM_LIB(add)` after `FARCALL_EXPORT(add, ...)`.
 */
#define FARCALL_SYSTEM_LIB(name)                                                                         \
  static const ::farcall::detail::SystemLibSymbol farcall_system_lib_##name(FARCALL_SYMBOL_PREFIX #name, \
                                                                            reinterpret_cast<void*>(__tvm_ffi_##name))

#endif  // FARCALL_CPP_ENV_HPP_
