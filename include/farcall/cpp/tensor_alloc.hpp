/*
 * farcall/cpp/tensor_alloc.hpp - how tensors are made: by the caller's framework, by an allocator, as a view.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_TENSOR_ALLOC_HPP_
#define FARCALL_CPP_TENSOR_ALLOC_HPP_

#include <farcall/cpp/tensor.hpp>

#include <cstddef>

namespace farcall {

namespace detail {

/* A tensor that this library makes. Alloc frees the data; shape and strides stand behind the object. */
template <class Alloc>
struct TensorObject {
  TVMFFIObject header;
  DLTensor dl;
  Alloc alloc;

  TensorObject(Alloc&& from, ShapeView shape, ShapeView strides, DLDataType dtype, DLDevice device)
      : alloc(std::move(from)) {
    auto* dims = reinterpret_cast<int64_t*>(reinterpret_cast<char*>(this) + dims_at());
    object_init(&header, kTVMFFITensor, destroy);
    dl = {nullptr, device, static_cast<int32_t>(shape.size()), dtype, dims, dims + shape.size(), 0};
    for (size_t i = 0; i < shape.size(); ++i) {
      dims[i] = shape[i];
      dims[shape.size() + i] = strides[i];
    }
  }

  /* Behind the object, aligned for int64_t. */
  static constexpr size_t dims_at() {
    return (sizeof(TensorObject) + alignof(int64_t) - 1) / alignof(int64_t) * alignof(int64_t);
  }

  static void destroy(void* handle, int flags) {
    auto* self = static_cast<TensorObject*>(handle);
    if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
      self->alloc.FreeData(&self->dl);
      self->alloc.~Alloc();
    }
    if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) std::free(handle);
  }

  static TensorObject* make(Alloc from, ShapeView shape, ShapeView strides, DLDataType dtype, DLDevice device) {
    static_assert(alignof(TensorObject) <= alignof(std::max_align_t), "an allocator with a usual alignment");
    void* memory = std::malloc(dims_at() + 2 * shape.size() * sizeof(int64_t));
    if (!memory) throw std::bad_alloc();
    return new (memory) TensorObject(std::move(from), shape, strides, dtype, device);
  }
};

/* Frees nothing but its reference: for views of another tensor. */
struct Borrow {
  ObjectRef base;
  void FreeData(DLTensor*) noexcept { base = ObjectRef(); }
};

inline void check_layout(ShapeView shape, ShapeView strides) {
  FARCALL_CHECK(shape.size() == strides.size(), "ValueError", "a shape of ", shape.size(), " dims with ",
                strides.size(), " strides; expected one stride for each dim");
  for (int64_t dim : shape) FARCALL_CHECK(dim >= 0, "ValueError", "a dimension is ", dim, "; expected 0 or more");
}

/* From the first to the last element that dims and strides reach, both included. */
inline int64_t reach(ShapeView shape, ShapeView strides) {
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    FARCALL_CHECK(strides[i] >= 0, "ValueError", "stride ", strides[i], " of dimension ", i,
                  "; expected 0 or more: an allocation has nothing before its first element");
    if (shape[i] == 0) return 0;
    int64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last)) {
      throw Error("MemoryError", "the tensor's size does not fit in 64 bits");
    }
  }
  return last + 1;
}

}  // namespace detail

/* What an allocator must supply for a tensor: from its first to its last element, rounded up to bytes. */
inline int64_t storage_nbytes(const DLTensor& tensor) {
  auto ndim = static_cast<size_t>(tensor.ndim);
  int64_t bits = 0;
  if (__builtin_mul_overflow(detail::reach({tensor.shape, ndim}, {tensor.strides, ndim}),
                             int64_t{tensor.dtype.bits} * tensor.dtype.lanes, &bits)) {
    throw Error("MemoryError", "the tensor's size does not fit in 64 bits");
  }
  return bits / 8 + (bits % 8 != 0);
}

inline Tensor Tensor::FromEnvAlloc(EnvAlloc alloc, ShapeView shape, DLDataType dtype, DLDevice device) {
  for (int64_t dim : shape) {
    FARCALL_CHECK(dim >= 0, "ValueError", "a dimension is ", dim, "; expected 0 or more");
  }
  DLTensor prototype{nullptr, device, static_cast<int32_t>(shape.size()), dtype, const_cast<int64_t*>(shape.data()),
                     nullptr, 0};
  TVMFFIObjectHandle out = nullptr;
  detail::check_call(alloc(&prototype, &out), "TVMFFIEnvTensorAlloc");
  return Tensor(adopt(out));
}

inline Tensor Tensor::FromEnvAllocStrided(EnvAlloc alloc, ShapeView shape, ShapeView strides, DLDataType dtype,
                                          DLDevice device) {
  detail::check_layout(shape, strides);
  return FromEnvAlloc(alloc, {detail::reach(shape, strides)}, dtype, device).as_strided(shape, strides);
}

template <class Alloc, class... Extra>
Tensor Tensor::FromNDAllocStrided(Alloc alloc, ShapeView shape, ShapeView strides, DLDataType dtype, DLDevice device,
                                  Extra&&... extra) {
  detail::check_layout(shape, strides);
  using Object = detail::TensorObject<Alloc>;
  Object* object = Object::make(std::move(alloc), shape, strides, dtype, device);
  try {
    object->alloc.AllocData(&object->dl, std::forward<Extra>(extra)...);
  } catch (...) {
    object->alloc.~Alloc(); /* without FreeData: nothing was allocated */
    std::free(object);
    throw;
  }
  return Tensor(adopt(object));
}

inline Tensor Tensor::as_strided(ShapeView shape, ShapeView strides, int64_t offset) const {
  detail::check_layout(shape, strides);
  int64_t bits = offset * dtype().bits * dtype().lanes;
  FARCALL_CHECK(offset >= 0 && bits % 8 == 0, "ValueError", "offset ", offset,
                " is negative, or not at the beginning of a byte");
  using Object = detail::TensorObject<detail::Borrow>;
  Object* object = Object::make({*this}, shape, strides, dtype(), device());
  object->dl.data = dl().data;
  object->dl.byte_offset = dl().byte_offset + static_cast<uint64_t>(bits / 8);
  if (detail::has_addresses(device()) && object->dl.data) { /* many readers forget the offset */
    object->dl.data = static_cast<char*>(object->dl.data) + object->dl.byte_offset;
    object->dl.byte_offset = 0;
  }
  return Tensor(adopt(object));
}

}  // namespace farcall

#endif  // FARCALL_CPP_TENSOR_ALLOC_HPP_
