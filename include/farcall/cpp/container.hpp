/*
 * farcall/cpp/container.hpp - Array; std::vector, std::array, std::pair and std::tuple as arguments and results.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_CONTAINER_HPP_
#define FARCALL_CPP_CONTAINER_HPP_

#include <farcall/cpp/tensor_alloc.hpp>

#include <iterator>
#include <tuple>

namespace farcall {

namespace detail {

/* The body of Array and List, and a maker of Arrays that need no runtime: the layout is the ABI's. */
struct ArrayObject {
  TVMFFIObject header;
  TVMFFISeqCell seq;

  static void destroy(void* handle, int flags) {
    auto* self = static_cast<ArrayObject*>(handle);
    if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
      auto* items = static_cast<TVMFFIAny*>(self->seq.data);
      for (int64_t i = self->seq.size; i-- > 0;) any_release(items[i]);
      if (self->seq.data_deleter) self->seq.data_deleter(self->seq.data);
    }
    if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) std::free(handle);
  }

  /* Empty, with room for `capacity` items. */
  static ArrayObject* make(size_t capacity) {
    auto* object = static_cast<ArrayObject*>(std::malloc(sizeof(ArrayObject) + capacity * sizeof(TVMFFIAny)));
    if (!object) throw std::bad_alloc();
    object_init(&object->header, kTVMFFIArray, destroy);
    object->seq = {object + 1, 0, static_cast<int64_t>(capacity), nullptr};
    return object;
  }

  void push(const TVMFFIAny& owned) noexcept { static_cast<TVMFFIAny*>(seq.data)[seq.size++] = owned; }
};

inline const TVMFFISeqCell& seq_of(const TVMFFIAny& any) noexcept { return *TVMFFISeqGetCellPtr(any.v_obj); }
inline const TVMFFIAny& item_of(const TVMFFISeqCell& seq, int64_t i) noexcept {
  return static_cast<const TVMFFIAny*>(seq.data)[i];
}
inline bool is_seq(const TVMFFIAny& any) noexcept {
  return any.type_index == kTVMFFIArray || any.type_index == kTVMFFIList;
}

/* The index of the first item that is not a T, or the size. */
template <class T>
int64_t first_misfit(const TVMFFISeqCell& seq) noexcept {
  int64_t i = 0;
  while (i < seq.size && Traits<T>::accepts(item_of(seq, i))) ++i;
  return i;
}

template <class T>
struct SeqTraits : TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept {
    return is_seq(any) && first_misfit<T>(seq_of(any)) == seq_of(any).size;
  }
  static std::string name() { return text("list[", Traits<T>::name(), "]"); }
  static std::string schema() { return schema_of("ffi.Array", Traits<T>::schema()); }
  static std::string got(const TVMFFIAny& any) {
    if (!is_seq(any)) return describe(any);
    int64_t i = first_misfit<T>(seq_of(any));
    return text("a list whose item ", i + 1, " is ", Traits<T>::got(item_of(seq_of(any), i)));
  }
};

}  // namespace detail

namespace detail {

/* Read access to Array and List. Items are converted as they are read. */
template <class T>
class SeqReader : public ObjectRef {
 public:
  using ObjectRef::ObjectRef;
  explicit SeqReader(ObjectRef ref) noexcept : ObjectRef(std::move(ref)) {}

  int64_t size() const noexcept { return object_ ? seq().size : 0; }
  bool empty() const noexcept { return size() == 0; }
  /* IndexError when there is no such item; TypeError when an untyped list holds another type there. */
  T operator[](int64_t i) const { return convert(i); }
  /* The same; a negative index counts from the end. */
  T at(int64_t i) const { return convert(checked_index(i, size(), "item")); }
  T front() const { return at(0); }
  T back() const { return at(-1); }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = int64_t;
    using pointer = const T*;
    using reference = T;
    Iterator(const SeqReader* list, int64_t at) noexcept : list_(list), at_(at) {}
    T operator*() const { return (*list_)[at_]; }
    Iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept { return at_ == other.at_; }
    bool operator!=(const Iterator& other) const noexcept { return at_ != other.at_; }

   private:
    const SeqReader* list_;
    int64_t at_;
  };
  Iterator begin() const noexcept { return {this, 0}; }
  Iterator end() const noexcept { return {this, size()}; }

 protected:
  TVMFFISeqCell& seq() const noexcept { return *TVMFFISeqGetCellPtr(object_); }

 private:
  T convert(int64_t i) const {
    FARCALL_CHECK(i >= 0 && i < size(), "IndexError", "item ", i, " is out of range: there are ", size());
    return AnyView(item_of(seq(), i)).template cast<T>();
  }
};

}  // namespace detail

/* An immutable list, which copies share; changing one of them copies the list first. */
template <class T = Any>
class Array : public detail::SeqReader<T> {
 public:
  Array() : Array(static_cast<const T*>(nullptr), static_cast<const T*>(nullptr)) {}
  explicit Array(ObjectRef ref) noexcept : detail::SeqReader<T>(std::move(ref)) {}
  Array(std::initializer_list<T> items) : Array(items.begin(), items.end()) {}
  Array(const std::vector<T>& items) : Array(items.begin(), items.end()) {}
  template <class Iterator, class = typename std::iterator_traits<Iterator>::iterator_category>
  Array(Iterator first, Iterator last) {
    auto* array = detail::ArrayObject::make(static_cast<size_t>(std::distance(first, last)));
    this->object_ = &array->header; /* from here on, an exception releases what is in it */
    for (; first != last; ++first) array->push(Traits<T>::own(T(*first)));
  }

  void push_back(T item) {
    Any value(std::move(item));
    own(this->size() + 1);
    static_cast<TVMFFIAny*>(this->seq().data)[this->seq().size++] = value.release();
  }
  /* Replaces an item; a negative index counts from the end. */
  void Set(int64_t i, T item) {
    int64_t at = detail::checked_index(i, this->size(), "item");
    Any value(std::move(item));
    own(this->size());
    Any old = Any::adopt(std::exchange(static_cast<TVMFFIAny*>(this->seq().data)[at], value.release()));
  }

 private:
  /* From here on nobody else sees this list, and there is room in it. */
  void own(int64_t room) {
    if (this->use_count() == 1 && this->seq().capacity >= room) return;
    int64_t twice = 2 * this->size();
    auto* array = detail::ArrayObject::make(static_cast<size_t>(room > twice ? room : twice));
    ObjectRef copy = ObjectRef::adopt(array);
    for (int64_t i = 0; i < this->size(); ++i) {
      array->push(Any(AnyView(detail::item_of(this->seq(), i))).release());
    }
    ObjectRef::operator=(std::move(copy));
  }
};

template <class T>
struct Traits<Array<T>> : detail::SeqTraits<T> {
  static Array<T> get(const TVMFFIAny& any) noexcept { return Array<T>(ObjectRef::share(any.v_obj)); }
  static TVMFFIAny view(const Array<T>& value) noexcept { return detail::any_object(value.get()); }
  static TVMFFIAny own(Array<T> value) noexcept { return detail::any_object(value.release()); }
};

template <class T>
struct Traits<std::vector<T>> : detail::SeqTraits<T> {
  static constexpr bool kBorrows = false;
  static std::vector<T> get(const TVMFFIAny& any) {
    const TVMFFISeqCell& seq = detail::seq_of(any);
    std::vector<T> out;
    out.reserve(static_cast<size_t>(seq.size));
    for (int64_t i = 0; i < seq.size; ++i) out.push_back(Traits<T>::get(detail::item_of(seq, i)));
    return out;
  }
  static TVMFFIAny own(const std::vector<T>& value) { return Traits<Array<T>>::own(Array<T>(value)); }
};

/* ---- tuples: lists of a fixed length, each item of its own type ---- */

namespace detail {

template <class Tuple, class... T>
struct TupleTraits : TraitsBase {
  static constexpr bool kBorrows = false;
  using Index = std::index_sequence_for<T...>;
  static bool accepts(const TVMFFIAny& any) noexcept { return accepts(any, Index()); }
  static Tuple get(const TVMFFIAny& any) { return get(seq_of(any), Index()); }
  static TVMFFIAny own(Tuple value) { return own(std::move(value), Index()); }
  static std::string name() { return text("tuple[", join(Traits<T>::name()...), "]"); }
  static std::string schema() { return schema_of("Tuple", join(Traits<T>::schema()...)); }

 private:
  template <size_t... I>
  static bool accepts(const TVMFFIAny& any, std::index_sequence<I...>) noexcept {
    return is_seq(any) && seq_of(any).size == sizeof...(T) && (Traits<T>::accepts(item_of(seq_of(any), I)) && ...);
  }
  template <size_t... I>
  static Tuple get(const TVMFFISeqCell& seq, std::index_sequence<I...>) {
    return Tuple(Traits<T>::get(item_of(seq, I))...);
  }
  template <size_t... I>
  static TVMFFIAny own(Tuple value, std::index_sequence<I...>) {
    ArrayObject* array = ArrayObject::make(sizeof...(T));
    ObjectRef guard = ObjectRef::adopt(array);
    (array->push(Traits<T>::own(std::get<I>(std::move(value)))), ...);
    return any_object(guard.release());
  }
  template <class... S>
  static std::string join(const S&... parts) {
    std::string out;
    ((out.append(out.empty() ? "" : ", ").append(parts)), ...);
    return out;
  }
};

}  // namespace detail

template <class... T>
struct Traits<std::tuple<T...>> : detail::TupleTraits<std::tuple<T...>, T...> {};
template <class A, class B>
struct Traits<std::pair<A, B>> : detail::TupleTraits<std::pair<A, B>, A, B> {};

}  // namespace farcall

#endif  // FARCALL_CPP_CONTAINER_HPP_
