/*
 * farcall/cpp/value.hpp - the plain values: numbers, dtypes, devices, pointers, optional values.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_VALUE_HPP_
#define FARCALL_CPP_VALUE_HPP_

#include <farcall/cpp/error.hpp>

#include <limits>

inline bool operator==(const DLDataType& a, const DLDataType& b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline bool operator!=(const DLDataType& a, const DLDataType& b) noexcept { return !(a == b); }
inline bool operator==(const DLDevice& a, const DLDevice& b) noexcept {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}
inline bool operator!=(const DLDevice& a, const DLDevice& b) noexcept { return !(a == b); }

namespace farcall {

/* "float32" and so on, and back. */
std::string dtype_name(DLDataType dtype);
DLDataType parse_dtype(std::string_view name);
/* "cuda:1" and so on, and back. */
std::string device_name(DLDevice device);
DLDevice parse_device(std::string_view name);

namespace detail {

/* For messages: describes a value in Python's terms. */
std::string describe(const TVMFFIAny& any);

/* The text of tags 8, 11 and 65, or the bytes of 9, 12 and 66; borrows from `any`. */
inline bool read_chars(const TVMFFIAny& any, bool bytes, std::string_view* out) noexcept {
  if (any.type_index == (bytes ? kTVMFFISmallBytes : kTVMFFISmallStr)) {
    *out = {any.v_bytes, any.small_str_len};
  } else if (any.type_index == (bytes ? kTVMFFIBytes : kTVMFFIStr)) {
    *out = view_of(*TVMFFIBytesGetByteArrayPtr(any.v_obj));
  } else if (bytes && any.type_index == kTVMFFIByteArrayPtr) {
    *out = view_of(*static_cast<const TVMFFIByteArray*>(any.v_ptr));
  } else if (!bytes && any.type_index == kTVMFFIRawStr) {
    *out = any.v_c_str;
  } else {
    return false;
  }
  return true;
}

inline bool is_chars(const TVMFFIAny& any, bool bytes) noexcept {
  int32_t t = any.type_index;
  return bytes ? t == kTVMFFISmallBytes || t == kTVMFFIBytes || t == kTVMFFIByteArrayPtr
               : t == kTVMFFISmallStr || t == kTVMFFIStr || t == kTVMFFIRawStr;
}

inline std::string_view chars_of(const TVMFFIAny& any, bool bytes) noexcept {
  std::string_view out;
  read_chars(any, bytes, &out);
  return out;
}

inline TVMFFIAny own_chars(std::string_view value, bool bytes) {
  TVMFFIByteArray array = bytes_of(value);
  TVMFFIAny out{};
  check_call(bytes ? TVMFFIBytesFromByteArray(&array, &out) : TVMFFIStringFromByteArray(&array, &out),
             "TVMFFIStringFromByteArray");
  return out;
}

inline std::string schema_of(std::string_view key) { return text("{\"type\":\"", key, "\"}"); }
inline std::string schema_of(std::string_view key, std::string_view args) {
  return text("{\"type\":\"", key, "\",\"args\":[", args, "]}");
}

/* The defaults of a specialisation of Traits. */
struct TraitsBase {
  static constexpr bool kBorrows = true;
  static constexpr bool kReadOnly = false; /* a parameter of this type never writes to the tensor */
  static std::string got(const TVMFFIAny& any) { return describe(any); }
};

/* Why `any` is not a T: "expected int, got ..."; sets `kind` to the kind of the error. */
template <class T>
FARCALL_COLD std::string mismatch_text(const TVMFFIAny& any, const char** kind) {
  *kind = "TypeError";
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (any.type_index == kTVMFFIInt || any.type_index == kTVMFFIBigInt) {
      using Limits = std::numeric_limits<T>;
      *kind = "OverflowError";
      return text("expected int in [", Limits::min() + 0, ", ", Limits::max() + 0, "], got ", describe(any));
    }
  }
  return text("expected ", Traits<T>::name(), ", got ", Traits<T>::got(any));
}

/* The same as an exception. `what` says of what, and ends in ": ". */
template <class T>
[[noreturn]] FARCALL_COLD void throw_mismatch(const TVMFFIAny& any, const std::string& what) {
  const char* kind;
  std::string why = mismatch_text<T>(any, &kind);
  throw Error(kind, text(what, why));
}

/* A value whose place nobody has noted; one of the arguments, by its number; what a function gave. */
class WrongArgument : public Misfit {
 public:
  WrongArgument(const char* kind, const std::string& why, int32_t i) : Misfit(kind, why), i_(i) {}
  WrongArgument(const char* kind, const std::string& why, const std::string& expected, int32_t i)
      : WrongArgument(kind, i < 0 ? why : text(why, "; pass ", expected), i) {}
  int32_t find(const TVMFFIAny*, int32_t) const noexcept override { return i_; }

 private:
  int32_t i_;
};

class WrongResult : public Misfit {
 public:
  WrongResult(const char* kind, const std::string& why, const std::string& expected, const TVMFFIObject* function)
      : Misfit(kind, text("its result: ", why, "; let it return ", expected)), function_(function) {}
  int32_t find(const TVMFFIAny* args, int32_t n) const noexcept override {
    int32_t i = 0;
    while (i < n && !(args[i].type_index == kTVMFFIFunction && args[i].v_obj == function_)) ++i;
    return i < n ? i : -1;
  }

 private:
  const TVMFFIObject* function_;
};

/* `where` is an argument's number, or the function whose result the value is. */
template <class T, class Wrong, class Where>
FARCALL_INLINE T cast_as(const TVMFFIAny& any, Where where) {
  if (__builtin_expect(!Traits<T>::accepts(any), 0)) {
    const char* kind;
    std::string why = mismatch_text<T>(any, &kind);
    throw Wrong(kind, why, Traits<T>::name(), where);
  }
  return Traits<T>::get(any);
}

}  // namespace detail

template <class T>
T AnyView::cast() const {
  return detail::cast_as<T, detail::WrongArgument>(raw_, -1);
}

/* ---- numbers ---- */

template <>
struct Traits<bool> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    return any.type_index == kTVMFFIBool || any.type_index == kTVMFFIInt;
  }
  static bool get(const TVMFFIAny& any) noexcept { return any.v_int64 != 0; }
  static TVMFFIAny view(bool value) noexcept { return detail::any_int(kTVMFFIBool, value); }
  static TVMFFIAny own(bool value) noexcept { return view(value); }
  static std::string name() { return "bool"; }
  static std::string schema() { return detail::schema_of("bool"); }
};

/* Integers of any width; one that does not fit is an OverflowError. */
template <class T>
struct Traits<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    if (any.type_index != kTVMFFIInt && any.type_index != kTVMFFIBool) return false;
    if constexpr (sizeof(T) == 8) return std::is_signed_v<T> || any.v_int64 >= 0;
    return any.v_int64 == static_cast<int64_t>(static_cast<T>(any.v_int64));
  }
  static T get(const TVMFFIAny& any) noexcept { return static_cast<T>(any.v_int64); }
  static TVMFFIAny view(T value) {
    if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>) {
      FARCALL_CHECK(value <= static_cast<T>(std::numeric_limits<int64_t>::max()), "OverflowError",
                    "an int has 64 bits with a sign, got ", value);
    }
    return detail::any_int(kTVMFFIInt, static_cast<int64_t>(value));
  }
  static TVMFFIAny own(T value) { return view(value); }
  static std::string name() { return "int"; }
  static std::string schema() { return detail::schema_of("int"); }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_floating_point_v<T>>> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    return any.type_index == kTVMFFIFloat || any.type_index == kTVMFFIInt || any.type_index == kTVMFFIBool;
  }
  static T get(const TVMFFIAny& any) noexcept {
    return any.type_index == kTVMFFIFloat ? static_cast<T>(any.v_float64) : static_cast<T>(any.v_int64);
  }
  static TVMFFIAny view(T value) noexcept {
    TVMFFIAny any{};
    any.type_index = kTVMFFIFloat;
    any.v_float64 = static_cast<double>(value);
    return any;
  }
  static TVMFFIAny own(T value) noexcept { return view(value); }
  static std::string name() { return "float"; }
  static std::string schema() { return detail::schema_of("float"); }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_enum_v<T>>> : Traits<std::underlying_type_t<T>> {
  using Base = Traits<std::underlying_type_t<T>>;
  static T get(const TVMFFIAny& any) noexcept { return static_cast<T>(Base::get(any)); }
  static TVMFFIAny view(T value) { return Base::view(static_cast<std::underlying_type_t<T>>(value)); }
  static TVMFFIAny own(T value) { return view(value); }
};

/* ---- pointers, dtypes, devices ---- */

/* An address that only its maker understands, such as a stream. None is NULL. */
template <>
struct Traits<void*> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    return any.type_index == kTVMFFIOpaquePtr || any.type_index == kTVMFFINone;
  }
  static void* get(const TVMFFIAny& any) noexcept { return any.type_index == kTVMFFINone ? nullptr : any.v_ptr; }
  static TVMFFIAny view(void* value) noexcept { return detail::any_pointer(kTVMFFIOpaquePtr, value); }
  static TVMFFIAny own(void* value) noexcept { return view(value); }
  static std::string name() { return "void*"; }
  static std::string schema() { return detail::schema_of("void*"); }
};

template <>
struct Traits<std::nullptr_t> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept { return any.type_index == kTVMFFINone; }
  static std::nullptr_t get(const TVMFFIAny&) noexcept { return nullptr; }
  static TVMFFIAny view(std::nullptr_t) noexcept { return detail::any_none(); }
  static TVMFFIAny own(std::nullptr_t) noexcept { return detail::any_none(); }
  static std::string name() { return "None"; }
  static std::string schema() { return detail::schema_of("None"); }
};

namespace detail {

/* Text that names no dtype or device is an error of its own, which says what the name was. */
template <class T, T (*kParse)(std::string_view)>
bool parses(const TVMFFIAny& any) noexcept {
  std::string_view name;
  if (!read_chars(any, false, &name)) return false;
  try {
    kParse(name);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace detail

/* Also accepts the name as text. */
template <>
struct Traits<DLDataType> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    return any.type_index == kTVMFFIDataType || detail::parses<DLDataType, parse_dtype>(any);
  }
  static DLDataType get(const TVMFFIAny& any) {
    return any.type_index == kTVMFFIDataType ? any.v_dtype : parse_dtype(detail::chars_of(any, false));
  }
  static TVMFFIAny view(DLDataType value) noexcept {
    TVMFFIAny any{};
    any.type_index = kTVMFFIDataType;
    any.v_dtype = value;
    return any;
  }
  static TVMFFIAny own(DLDataType value) noexcept { return view(value); }
  static std::string name() { return "dtype"; }
  static std::string schema() { return detail::schema_of("DataType"); }
};

template <>
struct Traits<DLDevice> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    return any.type_index == kTVMFFIDevice || detail::parses<DLDevice, parse_device>(any);
  }
  static DLDevice get(const TVMFFIAny& any) {
    return any.type_index == kTVMFFIDevice ? any.v_device : parse_device(detail::chars_of(any, false));
  }
  static TVMFFIAny view(DLDevice value) noexcept {
    TVMFFIAny any{};
    any.type_index = kTVMFFIDevice;
    any.v_device = value;
    return any;
  }
  static TVMFFIAny own(DLDevice value) noexcept { return view(value); }
  static std::string name() { return "Device"; }
  static std::string schema() { return detail::schema_of("Device"); }
};

/* ---- values of any type ---- */

template <>
struct Traits<AnyView> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny&) noexcept { return true; }
  static AnyView get(const TVMFFIAny& any) noexcept { return AnyView(any); }
  static TVMFFIAny view(const AnyView& value) noexcept { return value.raw(); }
  static TVMFFIAny own(const AnyView& value) { return Any(value).release(); }
  static std::string name() { return "Any"; }
  static std::string schema() { return detail::schema_of("Any"); }
};

template <>
struct Traits<Any> : Traits<AnyView> {
  /* A borrowed tensor cannot be kept. */
  static bool accepts(const TVMFFIAny& any) noexcept { return any.type_index != kTVMFFIDLTensorPtr; }
  static Any get(const TVMFFIAny& any) { return Any(AnyView(any)); }
  static TVMFFIAny view(const Any& value) noexcept { return value.raw(); }
  static TVMFFIAny own(Any value) noexcept { return value.release(); }
};

/* An object of any type. */
template <>
struct Traits<ObjectRef> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept { return any.type_index == kTVMFFINone || detail::is_object(any); }
  static ObjectRef get(const TVMFFIAny& any) noexcept {
    return ObjectRef::share(any.type_index == kTVMFFINone ? nullptr : any.v_obj);
  }
  static TVMFFIAny view(const ObjectRef& value) noexcept { return detail::any_object(value.get()); }
  static TVMFFIAny own(ObjectRef value) noexcept { return detail::any_object(value.release()); }
  static std::string name() { return "Object"; }
  static std::string schema() { return detail::schema_of("ffi.Object"); }
};

namespace detail {

/* A class that derives from ObjectRef, for objects of one tag. T(ObjectRef) makes it. */
template <class T, int32_t kIndex, int32_t kOther = kIndex>
struct ObjectTraits : TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept { return any.type_index == kIndex || any.type_index == kOther; }
  static T get(const TVMFFIAny& any) noexcept { return T(ObjectRef::share(any.v_obj)); }
  static TVMFFIAny view(const T& value) noexcept { return any_object(value.get()); }
  static TVMFFIAny own(T value) noexcept { return any_object(value.release()); }
};

}  // namespace detail

/* An error as a value: it is passed, not thrown. */
template <>
struct Traits<Error> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept { return any.type_index == kTVMFFIError; }
  static Error get(const TVMFFIAny& any) noexcept { return Error(ObjectRef::share(any.v_obj)); }
  static TVMFFIAny view(const Error& value) noexcept { return detail::any_object(value.object().get()); }
  static TVMFFIAny own(const Error& value) noexcept { return detail::any_object(ObjectRef(value.object()).release()); }
  static std::string name() { return "Error"; }
  static std::string schema() { return detail::schema_of("ffi.Error"); }
};

/* ---- values that may be absent ---- */

/* None or a T. The type is the standard one: has_value(), value(), value_or(), *x. */
template <class T>
using Optional = std::optional<T>;

template <class T>
struct Traits<std::optional<T>> : detail::TraitsBase {
  static constexpr bool kBorrows = Traits<T>::kBorrows;
  static constexpr bool kReadOnly = Traits<T>::kReadOnly;
  static bool accepts(const TVMFFIAny& any) noexcept {
    return any.type_index == kTVMFFINone || Traits<T>::accepts(any);
  }
  static std::optional<T> get(const TVMFFIAny& any) {
    if (any.type_index == kTVMFFINone) return std::nullopt;
    return Traits<T>::get(any);
  }
  static TVMFFIAny view(const std::optional<T>& value) { return value ? Traits<T>::view(*value) : detail::any_none(); }
  static TVMFFIAny own(std::optional<T> value) {
    return value ? Traits<T>::own(*std::move(value)) : detail::any_none();
  }
  static std::string name() { return text("Optional[", Traits<T>::name(), "]"); }
  static std::string schema() { return detail::schema_of("Optional", Traits<T>::schema()); }
  static std::string got(const TVMFFIAny& any) { return Traits<T>::got(any); }
};

template <>
struct Traits<std::nullopt_t> : Traits<std::nullptr_t> {
  static TVMFFIAny view(std::nullopt_t) noexcept { return detail::any_none(); }
  static TVMFFIAny own(std::nullopt_t) noexcept { return detail::any_none(); }
};

}  // namespace farcall

#endif  // FARCALL_CPP_VALUE_HPP_
