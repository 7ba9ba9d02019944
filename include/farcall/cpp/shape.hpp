/*
 * farcall/cpp/shape.hpp - shapes: borrowed (ShapeView) and owned (Shape).
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_SHAPE_HPP_
#define FARCALL_CPP_SHAPE_HPP_

#include <farcall/cpp/value.hpp>

#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace farcall {

namespace detail {

/* A negative index counts from the end, as in Python. */
inline int64_t checked_index(int64_t index, int64_t size, const char* what) {
  int64_t i = index < 0 ? index + size : index;
  FARCALL_CHECK(i >= 0 && i < size, "IndexError", what, " ", index, " is out of range: there are ", size);
  return i;
}

}  // namespace detail

/* Borrowed integers: dims or strides. Valid as long as their owner. */
class ShapeView {
 public:
  ShapeView() noexcept = default;
  ShapeView(const int64_t* data, size_t size) noexcept : data_(data), size_(size) {}
  /* For arguments only: the list lives until the call ends. */
  ShapeView(std::initializer_list<int64_t> dims) noexcept : ShapeView(std::data(dims), dims.size()) {}
  ShapeView(const std::vector<int64_t>& dims) noexcept : ShapeView(dims.data(), dims.size()) {}

  const int64_t* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const int64_t* begin() const noexcept { return data_; }
  const int64_t* end() const noexcept { return data_ + size_; }
  /* Not checked. */
  int64_t operator[](size_t i) const noexcept { return data_[i]; }
  /* Checked; a negative index counts from the end. */
  int64_t at(int64_t i) const { return data_[detail::checked_index(i, static_cast<int64_t>(size_), "dimension")]; }
  int64_t front() const { return at(0); }
  int64_t back() const { return at(-1); }
  /* The product of all dims; 1 if there are none. */
  int64_t numel() const noexcept {
    int64_t n = 1;
    for (int64_t dim : *this) n *= dim;
    return n;
  }
  std::vector<int64_t> vec() const { return std::vector<int64_t>(begin(), end()); }

  friend bool operator==(ShapeView a, ShapeView b) noexcept {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i) {
      if (a.data_[i] != b.data_[i]) return false;
    }
    return true;
  }
  friend bool operator!=(ShapeView a, ShapeView b) noexcept { return !(a == b); }

 protected:
  const int64_t* data_ = nullptr;
  size_t size_ = 0;
};

/* The strides of a tensor: borrowed from it, or computed if it is row-major and has none. */
class Strides : public ShapeView {
 public:
  explicit Strides(ShapeView borrowed) noexcept : ShapeView(borrowed) {}
  explicit Strides(std::vector<int64_t> computed) noexcept : computed_(std::move(computed)) { point(); }
  Strides(const Strides& other) : ShapeView(other), computed_(other.computed_) { point(); }
  Strides& operator=(const Strides&) = delete;

  static std::vector<int64_t> row_major(ShapeView shape) {
    std::vector<int64_t> out(shape.size());
    int64_t step = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      out[i] = step;
      step *= shape[i] > 1 ? shape[i] : 1;
    }
    return out;
  }

 private:
  void point() noexcept {
    if (computed_.empty()) return;
    data_ = computed_.data();
    size_ = computed_.size();
  }
  std::vector<int64_t> computed_;
};

/* An owned shape, as an object: Python gives and gets a tuple of ints. */
class Shape : public ObjectRef {
 public:
  Shape() : Shape(ShapeView()) {}
  explicit Shape(ObjectRef ref) noexcept : ObjectRef(std::move(ref)) {}
  Shape(ShapeView dims) : ObjectRef(make(dims)) {}
  Shape(std::initializer_list<int64_t> dims) : Shape(ShapeView(dims)) {}

  ShapeView view() const noexcept {
    if (!object_) return {};
    const TVMFFIShapeCell* cell = TVMFFIShapeGetCellPtr(object_);
    return {cell->data, cell->size};
  }
  operator ShapeView() const noexcept { return view(); }
  size_t size() const noexcept { return view().size(); }
  int64_t operator[](size_t i) const noexcept { return view()[i]; }
  int64_t at(int64_t i) const { return view().at(i); }
  int64_t numel() const noexcept { return view().numel(); }
  const int64_t* begin() const noexcept { return view().begin(); }
  const int64_t* end() const noexcept { return view().end(); }

 private:
  struct Object {
    TVMFFIObject header;
    TVMFFIShapeCell cell;
  };
  static void free_object(void* self, int flags) {
    if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) std::free(self);
  }
  static ObjectRef make(ShapeView dims) {
    auto* object = static_cast<Object*>(std::malloc(sizeof(Object) + dims.size() * sizeof(int64_t)));
    if (!object) throw std::bad_alloc();
    auto* data = reinterpret_cast<int64_t*>(object + 1);
    for (size_t i = 0; i < dims.size(); ++i) data[i] = dims[i];
    detail::object_init(&object->header, kTVMFFIShape, free_object);
    object->cell = {data, dims.size()};
    return adopt(object);
  }
};

/* Accepts a list of ints, too. */
template <>
struct Traits<Shape> : detail::TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    if (any.type_index == kTVMFFIShape) return true;
    if (any.type_index != kTVMFFIArray && any.type_index != kTVMFFIList) return false;
    const TVMFFISeqCell* seq = TVMFFISeqGetCellPtr(any.v_obj);
    for (int64_t i = 0; i < seq->size; ++i) {
      if (static_cast<const TVMFFIAny*>(seq->data)[i].type_index != kTVMFFIInt) return false;
    }
    return true;
  }
  static Shape get(const TVMFFIAny& any) {
    if (any.type_index == kTVMFFIShape) return Shape(ObjectRef::share(any.v_obj));
    const TVMFFISeqCell* seq = TVMFFISeqGetCellPtr(any.v_obj);
    std::vector<int64_t> dims(static_cast<size_t>(seq->size));
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<const TVMFFIAny*>(seq->data)[i].v_int64;
    return Shape(dims);
  }
  static TVMFFIAny view(const Shape& value) noexcept { return detail::any_object(value.get()); }
  static TVMFFIAny own(Shape value) noexcept { return detail::any_object(value.release()); }
  static std::string name() { return "Shape"; }
  static std::string schema() { return detail::schema_of("ffi.Shape"); }
};

/* As a result only: the values are copied into a Shape. */
template <>
struct Traits<ShapeView> : Traits<Shape> {
  static constexpr bool kBorrows = false;
  static ShapeView get(const TVMFFIAny&) = delete;
  static TVMFFIAny own(ShapeView value) { return Traits<Shape>::own(Shape(value)); }
};

}  // namespace farcall

#endif  // FARCALL_CPP_SHAPE_HPP_
