/*
 * farcall/cpp/map_layout.hpp - the memory layout of Map and Dict; the runtime searches hashed ones.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_MAP_LAYOUT_HPP_
#define FARCALL_CPP_MAP_LAYOUT_HPP_

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

/* The value of a key, or NULL, by linear search, as the runtime does in a row. */
inline const TVMFFIAny* map_find_linear(const TVMFFIObject* object, const TVMFFIAny& key) noexcept {
  for (MapCursor cursor(object); !cursor.done(); cursor.next()) {
    if (same_key(cursor.item().key, key)) return &cursor.item().value;
  }
  return nullptr;
}

/* Only the runtime searches a hashed map, so that kernels need not compute its hash. */
inline Optional<Any> map_find(const ObjectRef& map, const TVMFFIAny& key) {
  if (!map || (map_of(map.get()).slots & kSmallMap)) {
    const TVMFFIAny* found = map_find_linear(map.get(), key);
    if (!found) return std::nullopt;
    return Any(AnyView(*found));
  }
  static const RuntimeFunction count[] = {"ffi.MapCount", "ffi.DictCount"};
  static const RuntimeFunction get[] = {"ffi.MapGetItem", "ffi.DictGetItem"};
  bool dict = map.get()->type_index == kTVMFFIDict;
  if (count[dict](map, AnyView(key)).cast<int64_t>() == 0) return std::nullopt;
  return get[dict](map, AnyView(key));
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

  /* Allocates the full row, because another library may add items. */
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

/* A Map of keys and values in turn, no key twice. */
inline ObjectRef make_map(const std::vector<Any>& flat) {
  if (flat.size() <= 2 * kMaxSmall) return MapObject::make(flat);
  std::vector<TVMFFIAny> args;
  for (const Any& any : flat) args.push_back(any.raw());
  static const RuntimeFunction make = "ffi.Map";
  return make.get().call_packed(args.data(), static_cast<int32_t>(args.size())).cast<ObjectRef>();
}

}  // namespace detail
}  // namespace farcall

#endif  // FARCALL_CPP_MAP_LAYOUT_HPP_
