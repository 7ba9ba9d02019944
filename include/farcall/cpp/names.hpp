/*
 * farcall/cpp/names.hpp - dtypes, devices and values as text.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_NAMES_HPP_
#define FARCALL_CPP_NAMES_HPP_

#include <farcall/cpp/chars.hpp>

namespace farcall {

namespace detail {

struct DeviceName {
  const char* name;
  int type;
};

/* The first name of a type is the one that is printed. */
inline constexpr DeviceName kDeviceNames[] = {
    {"cpu", kDLCPU},
    {"cuda", kDLCUDA},
    {"cuda_host", kDLCUDAHost},
    {"opencl", kDLOpenCL},
    {"vulkan", kDLVulkan},
    {"metal", kDLMetal},
    {"mps", kDLMetal},
    {"vpi", kDLVPI},
    {"rocm", kDLROCM},
    {"rocm_host", kDLROCMHost},
    {"ext_dev", kDLExtDev},
    {"cuda_managed", kDLCUDAManaged},
    {"oneapi", kDLOneAPI},
    {"webgpu", kDLWebGPU},
    {"wgpu", kDLWebGPU},
    {"hexagon", kDLHexagon},
    {"maia", kDLMAIA},
    {"trn", kDLTrn},
};

inline bool parse_index(std::string_view digits, int32_t* out) noexcept {
  int64_t value = 0;
  if (digits.empty() || digits.size() > 9) return false;
  for (char c : digits) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
  }
  *out = static_cast<int32_t>(value);
  return true;
}

inline DLDevice make_device(int type, int32_t index) noexcept { return {static_cast<DLDeviceType>(type), index}; }

/* farcall numbers the devices of its first session with a server from here, of the next from 256, ... */
inline constexpr int kSession = 128;
inline bool is_remote(DLDevice device) noexcept { return static_cast<int>(device.device_type) >= kSession; }

}  // namespace detail

FARCALL_COLD inline std::string dtype_name(DLDataType dtype) {
  TVMFFIAny out{};
  if (dtype.code == kDLOpaqueHandle && dtype.bits == 0 && dtype.lanes == 0) return "void"; /* the runtime says "" */
  if (TVMFFIDataTypeToString(&dtype, &out) == 0) return String(Any::adopt(out)).str();
  TVMFFIObjectHandle unknown = nullptr; /* some runtimes have no name for complex types */
  TVMFFIErrorMoveFromRaised(&unknown);
  ObjectRef::adopt(unknown);
  if (dtype.code == kDLComplex) return text("complex", dtype.bits);
  return text("dtype(", dtype.code, ", ", dtype.bits, ")");
}

inline DLDataType parse_dtype(std::string_view name) {
  TVMFFIByteArray array = detail::bytes_of(name);
  DLDataType out{};
  detail::check_call(TVMFFIDataTypeFromString(&array, &out), "TVMFFIDataTypeFromString");
  return out;
}

FARCALL_COLD inline std::string device_name(DLDevice device) {
  if (detail::is_remote(device)) {
    int type = static_cast<int>(device.device_type);
    int session = type / detail::kSession;
    return text("remote[", session - 1, "]/",
                device_name(detail::make_device(type % detail::kSession, device.device_id)));
  }
  for (const detail::DeviceName& known : detail::kDeviceNames) {
    if (known.type == static_cast<int>(device.device_type)) return text(known.name, ":", device.device_id);
  }
  return text("device(", static_cast<int>(device.device_type), "):", device.device_id);
}

inline DLDevice parse_device(std::string_view name) {
  size_t colon = name.find(':');
  int32_t index = 0;
  bool good = colon == std::string_view::npos || detail::parse_index(name.substr(colon + 1), &index);
  for (const detail::DeviceName& known : detail::kDeviceNames) {
    if (good && name.substr(0, colon) == known.name) return detail::make_device(known.type, index);
  }
  throw Error("ValueError", text("unknown device `", name, "`; expected a name such as `cpu` or `cuda:0`"));
}

namespace detail {

inline std::string describe_tensor(const DLTensor& tensor) {
  std::string dims;
  for (int32_t i = 0; i < tensor.ndim; ++i) dims += text(i ? ", " : "", tensor.shape[i]);
  std::string out = text(dtype_name(tensor.dtype), "[", dims, "]");
  if (tensor.device.device_type != kDLCPU) out += text(" on ", device_name(tensor.device));
  return out;
}

/* Bounds the length of a text that an error shows: callers may have put anything into it. */
inline std::string quoted(std::string_view value) {
  constexpr size_t kLimit = 40;
  return text("\"", value.substr(0, kLimit), value.size() > kLimit ? "\"..." : "\"");
}

inline const char* object_name(int32_t type_index) noexcept {
  static constexpr const char* kNames[] = {
      "Object",        "str",    "bytes", "Error",          "Function",
      "Shape",         "Tensor", "list",  "dict",           "Module",
      "Python object", "list",   "dict",  "VisitInterrupt", "int of more than 64 bits"};
  int32_t i = type_index - kTVMFFIStaticObjectBegin;
  return i >= 0 && i < static_cast<int32_t>(sizeof kNames / sizeof *kNames) ? kNames[i] : nullptr;
}

inline std::string describe_object(const TVMFFIAny& any) {
  int32_t t = any.type_index;
  if (t == kTVMFFITensor) return text("Tensor ", describe_tensor(*TVMFFITensorGetDLTensorPtr(any.v_obj)));
  if (t == kTVMFFIArray || t == kTVMFFIList) return text("list of ", TVMFFISeqGetCellPtr(any.v_obj)->size);
  const char* known = object_name(t);
  return known ? known : text("object of type ", t);
}

FARCALL_COLD inline std::string describe(const TVMFFIAny& any) {
  std::string_view chars;
  if (read_chars(any, false, &chars)) return text("str ", quoted(chars));
  if (read_chars(any, true, &chars)) return text("bytes of length ", chars.size());
  switch (any.type_index) {
    case kTVMFFINone: return "None";
    case kTVMFFIInt: return text("int ", any.v_int64);
    case kTVMFFIBool: return any.v_int64 ? "bool True" : "bool False";
    case kTVMFFIFloat: return text("float ", any.v_float64);
    case kTVMFFIOpaquePtr: return "void*";
    case kTVMFFIDataType: return text("dtype ", dtype_name(any.v_dtype));
    case kTVMFFIDevice: return text("Device ", device_name(any.v_device));
    case kTVMFFIDLTensorPtr: return text("borrowed Tensor ", describe_tensor(*static_cast<DLTensor*>(any.v_ptr)));
    default: return is_object(any) && any.v_obj ? describe_object(any) : text("a value of type index ", any.type_index);
  }
}

}  // namespace detail
}  // namespace farcall

#endif  // FARCALL_CPP_NAMES_HPP_
