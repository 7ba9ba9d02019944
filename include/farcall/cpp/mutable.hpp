/*
 * farcall/cpp/mutable.hpp - List and Dict: shared, and changed in place.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_MUTABLE_HPP_
#define FARCALL_CPP_MUTABLE_HPP_

#include <farcall/cpp/map.hpp>

namespace farcall {

/*
 * A list that all its holders in native code share: each sees the others' changes. It has no lock; code that shares
 * one between threads must lock. A Python list is copied when it arrives, and copied again when it returns to Python.
 */
template <class T = Any>
class List : public detail::SeqReader<T> {
 public:
  List() : List(make()) {}
  explicit List(ObjectRef ref) noexcept : detail::SeqReader<T>(std::move(ref)) {}
  List(std::initializer_list<T> items) : List() {
    for (const T& item : items) push_back(item);
  }
  List(const std::vector<T>& items) : List() {
    for (const T& item : items) push_back(item);
  }

  void push_back(const T& item) {
    static const detail::RuntimeFunction append = "ffi.ListAppend";
    append(*this, item);
  }
  /* Negative indices count from the end. An index out of range raises IndexError. */
  void insert(int64_t i, const T& item) {
    static const detail::RuntimeFunction insert = "ffi.ListInsert";
    insert(*this, i == this->size() ? i : place(i), item);
  }
  void Set(int64_t i, const T& item) {
    static const detail::RuntimeFunction set = "ffi.ListSetItem";
    set(*this, place(i), item);
  }
  void erase(int64_t i) {
    static const detail::RuntimeFunction erase = "ffi.ListErase";
    erase(*this, place(i));
  }
  void clear() {
    static const detail::RuntimeFunction clear = "ffi.ListClear";
    clear(*this);
  }

 private:
  int64_t place(int64_t i) const { return detail::checked_index(i, this->size(), "item"); }
  static ObjectRef make() {
    static const detail::RuntimeFunction list = "ffi.List";
    return list().template cast<ObjectRef>();
  }
};

template <class T>
struct Traits<List<T>> : detail::SeqTraits<T> {
  static List<T> get(const TVMFFIAny& any) {
    if (any.type_index == kTVMFFIList) return List<T>(ObjectRef::share(any.v_obj));
    List<T> copy;
    for (const T& item : Array<T>(ObjectRef::share(any.v_obj))) copy.push_back(item);
    return copy;
  }
  static TVMFFIAny view(const List<T>& value) noexcept { return detail::any_object(value.get()); }
  static TVMFFIAny own(List<T> value) noexcept { return detail::any_object(value.release()); }
  static std::string name() { return text("List[", Traits<T>::name(), "]"); }
  static std::string schema() { return detail::schema_of("ffi.List", Traits<T>::schema()); }
};

/* A dict that all its holders in native code share. A Python dict is copied when it arrives. */
template <class K = Any, class V = Any>
class Dict : public detail::MapReader<K, V> {
 public:
  Dict() : Dict(make()) {}
  explicit Dict(ObjectRef ref) noexcept : detail::MapReader<K, V>(std::move(ref)) {}
  Dict(std::initializer_list<std::pair<K, V>> items) : Dict() {
    for (const auto& [key, value] : items) Set(key, value);
  }

  void Set(const K& key, const V& value) {
    static const detail::RuntimeFunction set = "ffi.DictSetItem";
    set(*this, key, value);
  }
  /* Removes a key. Returns whether it was there. */
  bool erase(const K& key) {
    static const detail::RuntimeFunction erase = "ffi.DictErase";
    bool there = this->contains(key);
    if (there) erase(*this, key);
    return there;
  }
  void clear() {
    static const detail::RuntimeFunction clear = "ffi.DictClear";
    clear(*this);
  }

 private:
  static ObjectRef make() {
    static const detail::RuntimeFunction dict = "ffi.Dict";
    return dict().template cast<ObjectRef>();
  }
};

template <class K, class V>
struct Traits<Dict<K, V>> : detail::MapTraits<K, V> {
  static Dict<K, V> get(const TVMFFIAny& any) {
    if (any.type_index == kTVMFFIDict) return Dict<K, V>(ObjectRef::share(any.v_obj));
    Dict<K, V> copy;
    for (const auto& [key, value] : Map<K, V>(ObjectRef::share(any.v_obj))) copy.Set(key, value);
    return copy;
  }
  static TVMFFIAny view(const Dict<K, V>& value) noexcept { return detail::any_object(value.get()); }
  static TVMFFIAny own(Dict<K, V> value) noexcept { return detail::any_object(value.release()); }
  static std::string name() { return text("Dict[", Traits<K>::name(), ", ", Traits<V>::name(), "]"); }
  static std::string schema() {
    return detail::schema_of("ffi.Dict", text(Traits<K>::schema(), ",", Traits<V>::schema()));
  }
};

}  // namespace farcall

#endif  // FARCALL_CPP_MUTABLE_HPP_
