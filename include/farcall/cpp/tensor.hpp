/*
 * farcall/cpp/tensor.hpp - tensors: TensorView and ConstTensorView borrow, Tensor owns.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_TENSOR_HPP_
#define FARCALL_CPP_TENSOR_HPP_

#include <farcall/cpp/names.hpp>
#include <farcall/cpp/shape.hpp>

namespace farcall {

/*
 * The dtype of a C++ type. Specialise it for types of your own:
 * `template <> struct farcall::DTypeOf<__half> { static constexpr DLDataType value{kDLFloat, 16, 1}; };`
 */
template <class T, class Enable = void>
struct DTypeOf;
template <>
struct DTypeOf<bool> {
  static constexpr DLDataType value{kDLBool, 8, 1};
};
template <class T>
struct DTypeOf<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static constexpr DLDataType value{std::is_signed_v<T> ? kDLInt : kDLUInt, sizeof(T) * 8, 1};
};
template <class T>
struct DTypeOf<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static constexpr DLDataType value{kDLFloat, sizeof(T) * 8, 1};
};

template <class T>
inline constexpr DLDataType dtype_of = DTypeOf<std::remove_cv_t<T>>::value;

namespace detail {

/* Where `data` is an address that can be added to, also when this process cannot read there. */
inline bool has_addresses(DLDevice device) noexcept {
  switch (static_cast<int>(device.device_type)) {
    case kDLCPU:
    case kDLCUDA:
    case kDLCUDAHost:
    case kDLCUDAManaged:
    case kDLROCM:
    case kDLROCMHost:
    case kDLOneAPI: return true;
    default: return false;
  }
}

inline bool is_tensor(const TVMFFIAny& any) noexcept {
  return any.type_index == kTVMFFIDLTensorPtr || any.type_index == kTVMFFITensor;
}

inline const DLTensor* tensor_of(const TVMFFIAny& any) noexcept {
  return any.type_index == kTVMFFITensor ? TVMFFITensorGetDLTensorPtr(any.v_obj)
                                         : static_cast<const DLTensor*>(any.v_ptr);
}

/* A view is a copy of the argument's description: the same dims at the same place. */
class WrongTensor : public Misfit {
 public:
  WrongTensor(std::string_view kind, const std::string& expected, const DLTensor& tensor, const std::string& cure)
      : Misfit(kind, text("expected a tensor ", expected, ", got ", describe_tensor(tensor), cure)), tensor_(tensor) {}
  int32_t find(const TVMFFIAny* args, int32_t n) const noexcept override {
    int32_t i = 0;
    while (i < n && !is_same(args[i])) ++i;
    return i < n ? i : -1;
  }

 private:
  bool is_same(const TVMFFIAny& any) const noexcept {
    return is_tensor(any) && tensor_of(any)->data == tensor_.data && tensor_of(any)->shape == tensor_.shape;
  }
  DLTensor tensor_;
};

[[noreturn]] FARCALL_COLD inline void throw_wrong_tensor(DLDataType expected, const DLTensor& tensor) {
  if (is_remote(tensor.device)) {
    throw WrongTensor("ValueError", "in the memory of this machine", tensor,
                      ", in the memory of a server; pass its .numpy(), a copy");
  }
  std::string dtype = dtype_name(expected);
  throw WrongTensor("TypeError", "of " + dtype, tensor, "; convert it, for example with x.astype(\"" + dtype + "\")");
}

/* The methods of all tensors, with at::Tensor's names and meanings. Derived has `const DLTensor& dl() const`. */
template <class Derived>
class TensorMethods {
 public:
  int64_t dim() const noexcept { return dl().ndim; }
  ShapeView sizes() const noexcept { return {dl().shape, static_cast<size_t>(dl().ndim)}; }
  /* Of one axis; a negative one counts from the end. */
  int64_t size(int64_t axis) const { return dl().shape[checked_index(axis, dim(), "dimension")]; }
  /* In elements. Those of row-major order if the tensor has none. */
  Strides strides() const {
    if (dl().strides || dim() == 0) return Strides(ShapeView(dl().strides, static_cast<size_t>(dl().ndim)));
    return Strides(Strides::row_major(sizes()));
  }
  int64_t stride(int64_t axis) const {
    int64_t i = checked_index(axis, dim(), "dimension");
    return dl().strides ? dl().strides[i] : Strides::row_major(sizes())[static_cast<size_t>(i)];
  }
  int64_t numel() const noexcept { return sizes().numel(); }
  DLDevice device() const noexcept { return dl().device; }
  DLDataType dtype() const noexcept { return dl().dtype; }
  /* Already part of data_ptr(), on every device whose memory has addresses. */
  uint64_t byte_offset() const noexcept { return dl().byte_offset; }
  /* The bytes of the elements, without gaps; elements smaller than a byte stand side by side. */
  int64_t nbytes() const noexcept { return (numel() * dtype().bits * dtype().lanes + 7) / 8; }
  bool is_contiguous() const noexcept {
    if (!dl().strides) return true;
    int64_t step = 1;
    bool row_major = true;
    for (int32_t i = dl().ndim - 1; i >= 0; --i) {
      if (dl().shape[i] == 0) return true; /* an empty tensor has no layout */
      if (dl().shape[i] != 1 && dl().strides[i] != step) row_major = false;
      step *= dl().shape[i];
    }
    return row_major;
  }
  /* The names that TVM FFI uses. */
  int32_t ndim() const noexcept { return dl().ndim; }
  ShapeView shape() const noexcept { return sizes(); }
  bool IsContiguous() const noexcept { return is_contiguous(); }

 protected:
  const DLTensor& dl() const noexcept { return static_cast<const Derived*>(this)->dl(); }
  void* first() const noexcept {
    char* data = static_cast<char*>(dl().data);
    return has_addresses(dl().device) && data ? data + dl().byte_offset : data;
  }
  template <class T>
  T* first_as() const {
    constexpr DLDataType expected = dtype_of<T>;
    if (__builtin_expect(dl().dtype != expected || is_remote(dl().device), 0)) throw_wrong_tensor(expected, dl());
    return static_cast<T*>(first());
  }
};

}  // namespace detail

class Tensor;

/*
 * A borrowed tensor, for parameters: accepts any tensor without a copy or an allocation. It is valid until the
 * function returns. Use ConstTensorView for a parameter that the function only reads.
 */
class TensorView : public detail::TensorMethods<TensorView> {
 public:
  explicit TensorView(const DLTensor* tensor) noexcept : dl_(*tensor) {}
  TensorView(const Tensor& tensor) noexcept;
  TensorView(Tensor&& tensor) = delete;       /* the view would outlive the tensor */

  const DLTensor& dl() const noexcept { return dl_; }
  /* The first element. */
  void* data_ptr() const noexcept { return first(); }
  /* The same; TypeError unless the elements are T, ValueError for a tensor on a server. */
  template <class T>
  T* data_ptr() const {
    return first_as<T>();
  }

 private:
  DLTensor dl_;
};

static_assert(sizeof(TensorView) == sizeof(DLTensor), "a view is a DLTensor");

/* A TensorView for reading only. Accepts read-only arrays, too. */
class ConstTensorView : public detail::TensorMethods<ConstTensorView> {
 public:
  explicit ConstTensorView(const DLTensor* tensor) noexcept : dl_(*tensor) {}
  ConstTensorView(const TensorView& view) noexcept : dl_(view.dl()) {}
  ConstTensorView(const Tensor& tensor) noexcept;
  ConstTensorView(Tensor&& tensor) = delete;

  const DLTensor& dl() const noexcept { return dl_; }
  const void* data_ptr() const noexcept { return first(); }
  template <class T>
  const T* data_ptr() const {
    return first_as<T>();
  }

 private:
  DLTensor dl_;
};

/* An owned tensor: it may be kept, returned, and put into containers. Copies share the memory. */
class Tensor : public ObjectRef, public detail::TensorMethods<Tensor> {
 public:
  Tensor() noexcept = default;
  explicit Tensor(ObjectRef ref) noexcept : ObjectRef(std::move(ref)) {}

  const DLTensor& dl() const noexcept { return *TVMFFITensorGetDLTensorPtr(object_); }
  void* data_ptr() const noexcept { return first(); }
  template <class T>
  T* data_ptr() const {
    return first_as<T>();
  }

  using EnvAlloc = int (*)(DLTensor* prototype, TVMFFIObjectHandle* out);

  /*
   * A new tensor from the caller's framework: `FromEnvAlloc(TVMFFIEnvTensorAlloc, {2, 3}, dtype, device)` gives
   * torch's memory to a caller that passed torch tensors. Its elements are not set.
   */
  static Tensor FromEnvAlloc(EnvAlloc alloc, ShapeView shape, DLDataType dtype, DLDevice device);
  /* The same with strides, in elements: not negative, and no gaps before the first element. */
  static Tensor FromEnvAllocStrided(EnvAlloc alloc, ShapeView shape, ShapeView strides, DLDataType dtype,
                                    DLDevice device);

  /*
   * A new tensor from your own allocator: `alloc.AllocData(DLTensor*, extra...)` sets `data` now, and
   * `alloc.FreeData(DLTensor*)` frees it when the last reference goes. `alloc` is copied into the tensor. Both
   * are code of this library, so it must not be unloaded before.
   */
  template <class Alloc, class... Extra>
  static Tensor FromNDAlloc(Alloc alloc, ShapeView shape, DLDataType dtype, DLDevice device, Extra&&... extra) {
    return FromNDAllocStrided(std::move(alloc), shape, Strides::row_major(shape), dtype, device,
                              std::forward<Extra>(extra)...);
  }
  template <class Alloc, class... Extra>
  static Tensor FromNDAllocStrided(Alloc alloc, ShapeView shape, ShapeView strides, DLDataType dtype, DLDevice device,
                                   Extra&&... extra);

  /*
   * A tensor around another's memory, which is released with the last reference. An alignment of 0 takes any
   * address. Refused, with the ownership left where it was: another layout where `contiguous`, an address that
   * is not aligned, another major version of DLPack, and sub-byte elements that are padded to bytes.
   */
  static Tensor FromDLPack(DLManagedTensor* tensor, size_t alignment = 0, bool contiguous = false) {
    TVMFFIObjectHandle out = nullptr;
    detail::check_call(TVMFFITensorFromDLPack(tensor, static_cast<int32_t>(alignment), contiguous, &out),
                       "TVMFFITensorFromDLPack");
    return Tensor(adopt(out));
  }
  static Tensor FromDLPackVersioned(DLManagedTensorVersioned* tensor, size_t alignment = 0, bool contiguous = false) {
    if (tensor->version.major != DLPACK_MAJOR_VERSION) {
      throw Error("RuntimeError", text("the tensor is described by DLPack ", tensor->version.major, ".",
                                       tensor->version.minor, "; expected ", DLPACK_MAJOR_VERSION, ".x"));
    }
    TVMFFIObjectHandle out = nullptr;
    detail::check_call(TVMFFITensorFromDLPackVersioned(tensor, static_cast<int32_t>(alignment), contiguous, &out),
                       "TVMFFITensorFromDLPackVersioned");
    return Tensor(adopt(out));
  }

  /*
   * A description that shares the memory; its `deleter` must be called once. RuntimeError where the first element is
   * not at a multiple of `alignment`, or, with `contiguous`, where there are gaps: for receivers that need that.
   */
  DLManagedTensor* ToDLPack(size_t alignment = 0, bool contiguous = false) const {
    check_fits(alignment, contiguous);
    DLManagedTensor* out = nullptr;
    detail::check_call(TVMFFITensorToDLPack(object_, &out), "TVMFFITensorToDLPack");
    return out;
  }
  DLManagedTensorVersioned* ToDLPackVersioned(size_t alignment = 0, bool contiguous = false) const {
    check_fits(alignment, contiguous);
    DLManagedTensorVersioned* out = nullptr;
    detail::check_call(TVMFFITensorToDLPackVersioned(object_, &out), "TVMFFITensorToDLPackVersioned");
    return out;
  }
  /* DLPACK_FLAG_BITMASK_*: whether the tensor is read-only, or was copied. Allocates memory. */
  uint64_t flags() const {
    DLManagedTensorVersioned* managed = ToDLPackVersioned();
    uint64_t flags = managed->flags;
    if (managed->deleter) managed->deleter(managed);
    return flags;
  }

  /* A tensor in the same memory, `offset` elements on, with other dims and strides. Does not check the size. */
  Tensor as_strided(ShapeView shape, ShapeView strides, int64_t offset = 0) const;

 private:
  /* Memory without addresses has its first element at the offset. */
  void check_fits(size_t alignment, bool contiguous) const {
    FARCALL_CHECK(!contiguous || is_contiguous(), "RuntimeError", "the tensor has gaps; expected a contiguous one");
    uint64_t at = detail::has_addresses(device()) ? reinterpret_cast<uintptr_t>(data_ptr()) : byte_offset();
    FARCALL_CHECK(alignment == 0 || at % alignment == 0, "RuntimeError", "the first element is not at a multiple of ",
                  alignment, " bytes");
  }
};

inline TensorView::TensorView(const Tensor& tensor) noexcept : dl_(tensor.dl()) {}
inline ConstTensorView::ConstTensorView(const Tensor& tensor) noexcept : dl_(tensor.dl()) {}

/* ---- how they travel ---- */

namespace detail {

/* A view can be passed to another function; it cannot be kept. */
template <class View>
struct ViewTraits : TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept { return is_tensor(any); }
  static View get(const TVMFFIAny& any) noexcept { return View(tensor_of(any)); }
  static TVMFFIAny view(const View& value) noexcept { return any_pointer(kTVMFFIDLTensorPtr, &value.dl()); }
  static TVMFFIAny own(const View&) {
    static_assert(sizeof(View) == 0, "a view ends with the call: return or keep a Tensor");
    return any_none();
  }
  static std::string name() { return "Tensor"; }
  static std::string schema() { return schema_of("DLTensor*"); }
};

}  // namespace detail

template <>
struct Traits<TensorView> : detail::ViewTraits<TensorView> {};
template <>
struct Traits<ConstTensorView> : detail::ViewTraits<ConstTensorView> {
  static constexpr bool kReadOnly = true;
};
template <>
struct Traits<DLTensor*> : detail::ViewTraits<TensorView> {
  static DLTensor* get(const TVMFFIAny& any) noexcept { return const_cast<DLTensor*>(detail::tensor_of(any)); }
  static TVMFFIAny view(DLTensor* value) noexcept { return detail::any_pointer(kTVMFFIDLTensorPtr, value); }
};

template <>
struct Traits<Tensor> : detail::ObjectTraits<Tensor, kTVMFFITensor> {
  static std::string name() { return "Tensor"; }
  static std::string schema() { return detail::schema_of("ffi.Tensor"); }
  static std::string got(const TVMFFIAny& any) {
    bool borrowed = any.type_index == kTVMFFIDLTensorPtr;
    return text(detail::describe(any),
                borrowed ? ", which the function cannot keep; declare the parameter as a TensorView" : "");
  }
};

}  // namespace farcall

#endif  // FARCALL_CPP_TENSOR_HPP_
