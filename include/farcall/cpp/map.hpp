/*
 * farcall/cpp/map.hpp - Map: a dict as an argument and a result.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_MAP_HPP_
#define FARCALL_CPP_MAP_HPP_

#include <farcall/cpp/function.hpp>

namespace farcall {

namespace detail {

struct MapItem {
  TVMFFIAny key;
  TVMFFIAny value;
};

/* The body of Map and Dict. Up to 4 items stand in a row; more are hashed, in blocks, with a list through them. */
struct MapCell {
  void* data;
  uint64_t size;
  uint64_t slots; /* with kSmallMap: room in the row */
  void (*data_deleter)(void* data);
};
struct DenseMapCell {
  MapCell cell;
  uint32_t fib_shift;
  uint64_t list_head;
  uint64_t list_tail;
};
static_assert(sizeof(MapCell) == 32 && offsetof(DenseMapCell, list_head) == 40, "the layout of a Map is the ABI's");

inline constexpr uint64_t kSmallMap = uint64_t{1} << 63;
inline constexpr size_t kMaxSmall = 4;

/* A slot of a dense map: the item, and its neighbours in the order of insertion. */
struct DenseSlot {
  MapItem item;
  uint64_t previous;
  uint64_t next;
};

inline const MapCell& map_of(const TVMFFIObject* object) noexcept {
  return *reinterpret_cast<const MapCell*>(object + 1);
}

inline const DenseSlot& dense_slot(const MapCell& map, uint64_t i) noexcept {
  constexpr size_t kBlock = 16; /* slots, behind as many bytes of metadata */
  const char* block = static_cast<const char*>(map.data) + i / kBlock * (kBlock + kBlock * sizeof(DenseSlot));
  return reinterpret_cast<const DenseSlot*>(block + kBlock)[i % kBlock];
}

/* Goes over the items of a map in the order in which they were put in. */
class MapCursor {
 public:
  explicit MapCursor(const TVMFFIObject* object) noexcept
      : map_(object ? &map_of(object) : nullptr), left_(map_ ? map_->size : 0) {
    if (left_ && !small()) at_ = reinterpret_cast<const DenseMapCell*>(map_)->list_head;
  }
  bool done() const noexcept { return left_ == 0; }
  const MapItem& item() const noexcept {
    return small() ? static_cast<const MapItem*>(map_->data)[at_] : dense_slot(*map_, at_).item;
  }
  void next() noexcept {
    at_ = small() ? at_ + 1 : dense_slot(*map_, at_).next;
    --left_;
  }
  uint64_t left() const noexcept { return left_; }

 private:
  bool small() const noexcept { return (map_->slots & kSmallMap) != 0; }
  const MapCell* map_;
  uint64_t at_ = 0;
  uint64_t left_;
};

/* Equal as keys: text and bytes by content, all else by all bytes. */
inline bool same_key(const TVMFFIAny& a, const TVMFFIAny& b) noexcept {
  std::string_view x, y;
  for (bool bytes : {false, true}) {
    if (read_chars(a, bytes, &x)) return read_chars(b, bytes, &y) && x == y;
  }
  return a.type_index == b.type_index && a.v_uint64 == b.v_uint64;
}

/* The value of a key, or NULL. In a row that is what the runtime does, too. */
inline const TVMFFIAny* map_find_linear(const TVMFFIObject* object, const TVMFFIAny& key) noexcept {
  for (MapCursor cursor(object); !cursor.done(); cursor.next()) {
    if (same_key(cursor.item().key, key)) return &cursor.item().value;
  }
  return nullptr;
}

/* A hashed map is the runtime's to search: its hash is no business of a kernel. */
inline Optional<Any> map_find(const ObjectRef& map, const TVMFFIAny& key) {
  static const Optional<Function>* const get = new Optional<Function>(Function::GetGlobal("ffi.MapGetItem"));
  static const Optional<Function>* const count = new Optional<Function>(Function::GetGlobal("ffi.MapCount"));
  bool row = !map || (map_of(map.get()).slots & kSmallMap);
  if (row || !*get || !*count) {
    const TVMFFIAny* found = map_find_linear(map.get(), key);
    if (!found) return std::nullopt;
    return Any(AnyView(*found));
  }
  if ((**count)(map, AnyView(key)).cast<int64_t>() == 0) return std::nullopt;
  return (**get)(map, AnyView(key));
}

struct MapObject {
  TVMFFIObject header;
  MapCell cell;

  static void destroy(void* handle, int flags) {
    if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
      for (MapCursor cursor(static_cast<TVMFFIObject*>(handle)); !cursor.done(); cursor.next()) {
        any_release(cursor.item().key);
        any_release(cursor.item().value);
      }
    }
    if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) std::free(handle);
  }

  /* All room for a row is there: another library may put in more. */
  static ObjectRef make(const std::vector<Any>& flat) {
    auto* object = static_cast<MapObject*>(std::malloc(sizeof(MapObject) + kMaxSmall * sizeof(MapItem)));
    if (!object) throw std::bad_alloc();
    object_init(&object->header, kTVMFFIMap, destroy);
    object->cell = {object + 1, flat.size() / 2, kMaxSmall | kSmallMap, nullptr};
    auto* items = static_cast<TVMFFIAny*>(object->cell.data);
    for (size_t i = 0; i < flat.size(); ++i) items[i] = Any(flat[i]).release();
    return ObjectRef::adopt(object);
  }
};

static_assert(offsetof(MapObject, cell) == 24 && sizeof(MapObject) == 56, "the layout of a Map is the ABI's");

inline ObjectRef make_map(const std::vector<Any>& flat) {
  if (flat.size() <= 2 * kMaxSmall) return MapObject::make(flat);
  std::vector<TVMFFIAny> args;
  for (const Any& any : flat) args.push_back(any.raw());
  Function make = Function::GetGlobalRequired("ffi.Map");
  return make.call_packed(args.data(), static_cast<int32_t>(args.size())).cast<ObjectRef>();
}

}  // namespace detail

/* An immutable dict, in the order of insertion. Keys and values are converted as they are read. */
template <class K = Any, class V = Any>
class Map : public ObjectRef {
 public:
  Map() : Map(std::vector<std::pair<K, V>>()) {}
  explicit Map(ObjectRef ref) noexcept : ObjectRef(std::move(ref)) {}
  Map(std::initializer_list<std::pair<K, V>> items) : Map(std::vector<std::pair<K, V>>(items)) {}
  /* Of two items with the same key, the later one counts. */
  explicit Map(const std::vector<std::pair<K, V>>& items) : ObjectRef(detail::make_map(flatten(items))) {}

  size_t size() const noexcept { return object_ ? detail::map_of(object_).size : 0; }
  bool empty() const noexcept { return size() == 0; }
  bool contains(const K& key) const { return find(key).has_value(); }
  size_t count(const K& key) const { return contains(key); }
  Optional<V> find(const K& key) const {
    Any owned = key;
    Optional<Any> found = detail::map_find(*this, owned.raw());
    if (!found) return std::nullopt;
    return found->template cast<V>();
  }
  /* KeyError when there is no such key. */
  V at(const K& key) const {
    Optional<V> found = find(key);
    FARCALL_CHECK(found, "KeyError", detail::describe(Any(key).raw()));
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
      const detail::MapItem& item = cursor_.item();
      return {AnyView(item.key).template cast<K>(), AnyView(item.value).template cast<V>()};
    }
    Iterator& operator++() noexcept {
      cursor_.next();
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept { return cursor_.left() == other.cursor_.left(); }
    bool operator!=(const Iterator& other) const noexcept { return !(*this == other); }

   private:
    detail::MapCursor cursor_;
  };
  Iterator begin() const noexcept { return Iterator(object_); }
  Iterator end() const noexcept { return Iterator(nullptr); }

 private:
  static std::vector<Any> flatten(const std::vector<std::pair<K, V>>& items) {
    std::vector<Any> flat;
    for (const auto& [key, value] : items) {
      Any k = key;
      size_t i = items.size() > detail::kMaxSmall ? flat.size() : 0; /* the runtime finds its own duplicates */
      while (i < flat.size() && !detail::same_key(flat[i].raw(), k.raw())) i += 2;
      if (i == flat.size()) flat.resize(i + 2);
      flat[i] = std::move(k);
      flat[i + 1] = value;
    }
    return flat;
  }
};

template <class K, class V>
struct Traits<Map<K, V>> : detail::ObjectTraits<Map<K, V>, kTVMFFIMap, kTVMFFIDict> {
  static bool accepts(const TVMFFIAny& any) noexcept {
    return (any.type_index == kTVMFFIMap || any.type_index == kTVMFFIDict) && !misfit(any);
  }
  static std::string name() { return text("dict[", Traits<K>::name(), ", ", Traits<V>::name(), "]"); }
  static std::string schema() {
    return detail::schema_of("ffi.Map", text(Traits<K>::schema(), ",", Traits<V>::schema()));
  }
  static std::string got(const TVMFFIAny& any) {
    if (any.type_index != kTVMFFIMap && any.type_index != kTVMFFIDict) return detail::describe(any);
    const detail::MapItem* item = misfit(any);
    if (!item) return "a dict";
    return text("a dict with ", Traits<K>::got(item->key), ": ", Traits<V>::got(item->value));
  }

 private:
  static const detail::MapItem* misfit(const TVMFFIAny& any) noexcept {
    for (detail::MapCursor cursor(any.v_obj); !cursor.done(); cursor.next()) {
      const detail::MapItem& item = cursor.item();
      if (!Traits<K>::accepts(item.key) || !Traits<V>::accepts(item.value)) return &item;
    }
    return nullptr;
  }
};

}  // namespace farcall

#endif  // FARCALL_CPP_MAP_HPP_
