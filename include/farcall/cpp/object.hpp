/*
 * farcall/cpp/object.hpp - references to objects, and the value in which everything travels.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_OBJECT_HPP_
#define FARCALL_CPP_OBJECT_HPP_

#include <farcall/c_api.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#define FARCALL_COLD __attribute__((noinline, cold))
#define FARCALL_INLINE inline __attribute__((always_inline))

namespace farcall {

/*
 * How a C++ type travels. A specialisation has
 *
 *     static constexpr bool kBorrows;                   // view() keeps no memory of its own
 *     static bool accepts(const TVMFFIAny& any);        // whether get() may be called
 *     static T get(const TVMFFIAny& any);
 *     static TVMFFIAny view(const T& value);            // where kBorrows: valid while `value` lives
 *     static TVMFFIAny own(T value);                    // an owned reference, for results and containers
 *     static std::string name();                        // for people, as in Python: "int", "list[str]"
 *     static std::string schema();                      // for programs: JSON, with TVM FFI's type keys
 *
 * and inherits the rest from detail::TraitsBase. Specialise it for types of your own.
 */
template <class T, class Enable = void>
struct Traits;

namespace detail {

template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <class T, class = void>
struct Travels : std::false_type {};
template <class T>
struct Travels<T, std::void_t<decltype(Traits<Plain<T>>::kBorrows)>> : std::true_type {};

/* Strong to 0; see TVMFFIObject in c_api.h for the two counts. */
FARCALL_COLD inline void release_last(TVMFFIObject* object, uint64_t old) noexcept {
  constexpr uint64_t kBothOne = 0x100000001ULL, kWeakOne = 0x100000000ULL;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (old == kBothOne) {
    if (object->deleter) object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskBoth);
    return;
  }
  if (object->deleter) object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskStrong);
  if (__atomic_fetch_sub(&object->combined_ref_count, kWeakOne, __ATOMIC_RELEASE) != kWeakOne) return;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (object->deleter) object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskWeak);
}

inline void retain(TVMFFIObject* object) noexcept {
  __atomic_fetch_add(&object->combined_ref_count, 1, __ATOMIC_RELAXED);
}

inline void release(TVMFFIObject* object) noexcept {
  uint64_t old = __atomic_fetch_sub(&object->combined_ref_count, 1, __ATOMIC_RELEASE);
  if (static_cast<uint32_t>(old) == 1) release_last(object, old);
}

inline void object_init(TVMFFIObject* object, int32_t type_index, void (*deleter)(void*, int)) noexcept {
  object->combined_ref_count = 0x100000001ULL;
  object->type_index = type_index;
  object->__padding = 0;
  object->deleter = deleter;
}

inline TVMFFIAny any_none() noexcept { return TVMFFIAny{}; }

inline TVMFFIAny any_int(int32_t type_index, int64_t value) noexcept {
  TVMFFIAny any{};
  any.type_index = type_index;
  any.v_int64 = value;
  return any;
}

inline TVMFFIAny any_pointer(int32_t type_index, const void* value) noexcept {
  TVMFFIAny any{};
  any.type_index = type_index;
  any.v_ptr = const_cast<void*>(value);
  return any;
}

/* None for NULL, else a value with the object's own type index. */
inline TVMFFIAny any_object(TVMFFIObject* object) noexcept {
  return object ? any_pointer(object->type_index, object) : any_none();
}

inline bool is_object(const TVMFFIAny& any) noexcept { return any.type_index >= kTVMFFIStaticObjectBegin; }

inline void any_release(const TVMFFIAny& any) noexcept {
  if (is_object(any) && any.v_obj) release(any.v_obj);
}

[[noreturn]] void throw_raised(const char* what);

}  // namespace detail

/* A strong reference to an object of any type, or to nothing. Copies share it. */
class ObjectRef {
 public:
  ObjectRef() noexcept = default;
  ObjectRef(const ObjectRef& other) noexcept : object_(other.object_) {
    if (object_) detail::retain(object_);
  }
  ObjectRef(ObjectRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ObjectRef& operator=(ObjectRef other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~ObjectRef() {
    if (object_) detail::release(object_);
  }

  /* Takes ownership of the reference that `handle` holds. */
  static ObjectRef adopt(TVMFFIObjectHandle handle) noexcept {
    ObjectRef ref;
    ref.object_ = static_cast<TVMFFIObject*>(handle);
    return ref;
  }
  /* Takes a new reference. */
  static ObjectRef share(TVMFFIObjectHandle handle) noexcept {
    if (handle) detail::retain(static_cast<TVMFFIObject*>(handle));
    return adopt(handle);
  }

  TVMFFIObject* get() const noexcept { return object_; }
  /* Gives up the reference; the caller owns it. */
  TVMFFIObject* release() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool same_as(const ObjectRef& other) const noexcept { return object_ == other.object_; }
  /* The number of strong references, with this one. Another thread may change it at any time. */
  uint32_t use_count() const noexcept {
    return object_ ? static_cast<uint32_t>(__atomic_load_n(&object_->combined_ref_count, __ATOMIC_RELAXED)) : 0;
  }

 protected:
  TVMFFIObject* object_ = nullptr;
};

class Any;

/* A borrowed value of any type, such as a function's argument. */
class AnyView {
 public:
  AnyView() noexcept = default;
  explicit AnyView(const TVMFFIAny& raw) noexcept : raw_(raw) {}
  AnyView(const Any& any) noexcept;

  int32_t type_index() const noexcept { return raw_.type_index; }
  bool is_none() const noexcept { return raw_.type_index == kTVMFFINone; }
  const TVMFFIAny& raw() const noexcept { return raw_; }

  /* The value as a T. TypeError (or OverflowError) if it is not a T; the error names both types. */
  template <class T>
  T cast() const;
  /* The value as a T, or nothing. */
  template <class T>
  std::optional<T> try_cast() const {
    if (!Traits<T>::accepts(raw_)) return std::nullopt;
    return Traits<T>::get(raw_);
  }

 private:
  TVMFFIAny raw_{};
};

/* An owned value of any type. */
class Any {
 public:
  Any() noexcept = default;
  Any(std::nullptr_t) noexcept {}
  Any(std::nullopt_t) noexcept {}
  /* Text and bytes are copied; other objects are shared. */
  explicit Any(AnyView view) {
    if (TVMFFIAnyViewToOwnedAny(&view.raw(), &raw_) != 0) detail::throw_raised("TVMFFIAnyViewToOwnedAny");
  }
  template <class T, class = std::enable_if_t<detail::Travels<std::decay_t<T>>::value &&
                                              !std::is_same_v<detail::Plain<T>, Any> &&
                                              !std::is_same_v<detail::Plain<T>, AnyView>>>
  Any(T&& value) : raw_(Traits<std::decay_t<T>>::own(std::forward<T>(value))) {}
  Any(const Any& other) noexcept : raw_(other.raw_) {
    if (detail::is_object(raw_) && raw_.v_obj) detail::retain(raw_.v_obj);
  }
  Any(Any&& other) noexcept : raw_(std::exchange(other.raw_, detail::any_none())) {}
  Any& operator=(Any other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Any() { detail::any_release(raw_); }

  /* Takes ownership of `raw`. */
  static Any adopt(const TVMFFIAny& raw) noexcept {
    Any any;
    any.raw_ = raw;
    return any;
  }
  /* Gives up the value; the caller owns it. */
  TVMFFIAny release() noexcept { return std::exchange(raw_, detail::any_none()); }

  int32_t type_index() const noexcept { return raw_.type_index; }
  bool is_none() const noexcept { return raw_.type_index == kTVMFFINone; }
  const TVMFFIAny& raw() const noexcept { return raw_; }
  template <class T>
  T cast() const {
    return AnyView(raw_).cast<T>();
  }
  template <class T>
  std::optional<T> try_cast() const {
    return AnyView(raw_).try_cast<T>();
  }

 private:
  TVMFFIAny raw_{};
};

static_assert(sizeof(Any) == sizeof(TVMFFIAny) && sizeof(AnyView) == sizeof(TVMFFIAny), "a value has 16 bytes");
static_assert(sizeof(ObjectRef) == sizeof(void*), "a reference has 8 bytes");

inline AnyView::AnyView(const Any& any) noexcept : raw_(any.raw()) {}

/* Whether it is empty: None, or a reference without an object. */
inline bool operator==(AnyView value, std::nullptr_t) noexcept { return value.is_none(); }
inline bool operator!=(AnyView value, std::nullptr_t) noexcept { return !value.is_none(); }
inline bool operator==(const ObjectRef& ref, std::nullptr_t) noexcept { return !ref; }
inline bool operator!=(const ObjectRef& ref, std::nullptr_t) noexcept { return static_cast<bool>(ref); }

}  // namespace farcall

#endif  // FARCALL_CPP_OBJECT_HPP_
