/*
 * farcall/cpp/map.hpp - Map: a dict as an argument and a result; std::map and its like.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_MAP_HPP_
#define FARCALL_CPP_MAP_HPP_

#include <farcall/cpp/map_layout.hpp>

namespace farcall {

namespace detail {

/* Read access to Map and Dict, in the order of insertion. Keys and values are converted as they are read. */
template <class K, class V>
class MapReader : public ObjectRef {
 public:
  MapReader() noexcept = default;
  explicit MapReader(ObjectRef ref) noexcept : ObjectRef(std::move(ref)) {}

  size_t size() const noexcept { return object_ ? map_of(object_).size : 0; }
  bool empty() const noexcept { return size() == 0; }
  bool contains(const K& key) const { return map_find(*this, Any(key).raw()).has_value(); }
  size_t count(const K& key) const { return contains(key); }
  Optional<V> find(const K& key) const {
    Optional<Any> found = map_find(*this, Any(key).raw());
    if (!found) return std::nullopt;
    return found->template cast<V>();
  }
  /* KeyError if the key is missing. */
  V at(const K& key) const {
    Optional<V> found = find(key);
    FARCALL_CHECK(found, "KeyError", describe(Any(key).raw()));
    return *std::move(found);
  }
  V operator[](const K& key) const { return at(key); }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::pair<K, V>;
    using difference_type = int64_t;
    using pointer = const value_type*;
    using reference = value_type;
    explicit Iterator(const TVMFFIObject* map) noexcept : cursor_(map) {}
    value_type operator*() const {
      const MapItem& item = cursor_.item();
      return {AnyView(item.key).template cast<K>(), AnyView(item.value).template cast<V>()};
    }
    Iterator& operator++() noexcept {
      cursor_.next();
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept { return cursor_.left() == other.cursor_.left(); }
    bool operator!=(const Iterator& other) const noexcept { return !(*this == other); }

   private:
    MapCursor cursor_;
  };
  Iterator begin() const noexcept { return Iterator(object_); }
  Iterator end() const noexcept { return Iterator(nullptr); }
};

/* A value for a key, in a list of keys and values in turn. */
inline void put(std::vector<Any>& flat, Any key, Any value) {
  size_t i = 0;
  while (i < flat.size() && !same_key(flat[i].raw(), key.raw())) i += 2;
  if (i == flat.size()) flat.resize(i + 2);
  flat[i] = std::move(key);
  flat[i + 1] = std::move(value);
}

/* Of few items, those with the same key are found here; of many, by the runtime. The later one counts. */
template <class Items>
std::vector<Any> flatten(const Items& items) {
  std::vector<Any> flat;
  bool few = items.size() <= kMaxSmall;
  flat.reserve(2 * items.size());
  for (const auto& [key, value] : items) {
    if (few) {
      put(flat, Any(key), Any(value));
    } else {
      flat.emplace_back(key);
      flat.emplace_back(value);
    }
  }
  return flat;
}

}  // namespace detail

/* An immutable dict, which copies share. */
template <class K = Any, class V = Any>
class Map : public detail::MapReader<K, V> {
 public:
  Map() : Map(std::vector<std::pair<K, V>>()) {}
  explicit Map(ObjectRef ref) noexcept : detail::MapReader<K, V>(std::move(ref)) {}
  Map(std::initializer_list<std::pair<K, V>> items) : Map(std::vector<std::pair<K, V>>(items)) {}
  /* Of two items with the same key, the later one counts. */
  explicit Map(const std::vector<std::pair<K, V>>& items) : Map(detail::make_map(detail::flatten(items))) {}

  /* This Map from now on has `value` for `key`; others that shared it do not. Each call copies: to build a large
   * Map, collect its items in a std::vector or a Dict. */
  void Set(const K& key, const V& value) {
    std::vector<Any> flat = items();
    detail::put(flat, Any(key), Any(value));
    ObjectRef::operator=(detail::make_map(flat));
  }
  /* Removes a key; returns whether it was there. */
  bool erase(const K& key) {
    Any wanted(key);
    std::vector<Any> flat = items();
    for (size_t i = 0; i < flat.size(); i += 2) {
      if (!detail::same_key(flat[i].raw(), wanted.raw())) continue;
      flat.erase(flat.begin() + static_cast<std::ptrdiff_t>(i), flat.begin() + static_cast<std::ptrdiff_t>(i + 2));
      ObjectRef::operator=(detail::make_map(flat));
      return true;
    }
    return false;
  }

 private:
  std::vector<Any> items() const {
    std::vector<Any> flat;
    flat.reserve(2 * this->size() + 2);
    for (detail::MapCursor cursor(this->object_); !cursor.done(); cursor.next()) {
      flat.emplace_back(AnyView(cursor.item().key));
      flat.emplace_back(AnyView(cursor.item().value));
    }
    return flat;
  }
};

/* ---- as arguments and results ---- */

namespace detail {

inline bool is_map(const TVMFFIAny& any) noexcept {
  return any.type_index == kTVMFFIMap || any.type_index == kTVMFFIDict;
}

template <class K, class V>
struct MapTraits : TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept { return is_map(any) && !misfit(any); }
  static std::string name() { return text("dict[", Traits<K>::name(), ", ", Traits<V>::name(), "]"); }
  static std::string schema() { return schema_of("ffi.Map", text(Traits<K>::schema(), ",", Traits<V>::schema())); }
  static std::string got(const TVMFFIAny& any) {
    if (!is_map(any)) return describe(any);
    const MapItem* item = misfit(any);
    if (!item) return "a dict";
    return text("a dict with ", Traits<K>::got(item->key), ": ", Traits<V>::got(item->value));
  }

 private:
  static const MapItem* misfit(const TVMFFIAny& any) noexcept {
    for (MapCursor cursor(any.v_obj); !cursor.done(); cursor.next()) {
      const MapItem& item = cursor.item();
      if (!Traits<K>::accepts(item.key) || !Traits<V>::accepts(item.value)) return &item;
    }
    return nullptr;
  }
};

/* std::map, std::unordered_map and whatever looks like them; their headers are the user's to include. */
template <class T, class = void>
struct IsStdMap : std::false_type {};
template <class T>
struct IsStdMap<T, std::void_t<typename T::mapped_type, typename T::key_type, typename T::node_type>> : std::true_type {
};

}  // namespace detail

template <class K, class V>
struct Traits<Map<K, V>> : detail::MapTraits<K, V> {
  static Map<K, V> get(const TVMFFIAny& any) noexcept { return Map<K, V>(ObjectRef::share(any.v_obj)); }
  static TVMFFIAny view(const Map<K, V>& value) noexcept { return detail::any_object(value.get()); }
  static TVMFFIAny own(Map<K, V> value) noexcept { return detail::any_object(value.release()); }
};

template <class T>
struct Traits<T, std::enable_if_t<detail::IsStdMap<T>::value>>
    : detail::MapTraits<typename T::key_type, typename T::mapped_type> {
  static constexpr bool kBorrows = false;
  static T get(const TVMFFIAny& any) {
    T out;
    for (detail::MapCursor cursor(any.v_obj); !cursor.done(); cursor.next()) {
      out.emplace(Traits<typename T::key_type>::get(cursor.item().key),
                  Traits<typename T::mapped_type>::get(cursor.item().value));
    }
    return out;
  }
  static TVMFFIAny own(const T& value) {
    return detail::any_object(detail::make_map(detail::flatten(value)).release());
  }
};

}  // namespace farcall

#endif  // FARCALL_CPP_MAP_HPP_
