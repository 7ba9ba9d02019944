/*
 * farcall/cpp/chars.hpp - text and bytes: String, Bytes, and what the standard library has for them.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_CHARS_HPP_
#define FARCALL_CPP_CHARS_HPP_

#include <farcall/cpp/value.hpp>

namespace farcall {

namespace detail {

/* An owned, immutable run of characters: in place up to 7, shared above. */
template <bool kBytes>
class Chars {
 public:
  Chars() noexcept { value_ = Any::adopt(any_int(kBytes ? kTVMFFISmallBytes : kTVMFFISmallStr, 0)); }
  Chars(std::string_view value) : value_(Any::adopt(own_chars(value, kBytes))) {}
  Chars(const std::string& value) : Chars(std::string_view(value)) {}
  Chars(const char* value) : Chars(std::string_view(value)) {}
  Chars(const char* data, size_t size) : Chars(std::string_view(data, size)) {}
  explicit Chars(Any value) noexcept : value_(std::move(value)) {}

  /* Valid while this lives and is not assigned to. A NUL follows the last character. */
  const char* data() const noexcept { return view().data(); }
  const char* c_str() const noexcept { return data(); }
  size_t size() const noexcept { return view().size(); }
  bool empty() const noexcept { return size() == 0; }
  std::string_view view() const noexcept { return chars_of(value_.raw(), kBytes); }
  std::string str() const { return std::string(view()); }
  operator std::string_view() const noexcept { return view(); }
  const Any& any() const noexcept { return value_; }

  friend bool operator==(const Chars& a, const Chars& b) noexcept { return a.view() == b.view(); }
  friend bool operator!=(const Chars& a, const Chars& b) noexcept { return a.view() != b.view(); }
  friend bool operator<(const Chars& a, const Chars& b) noexcept { return a.view() < b.view(); }

 private:
  Any value_;
};

/* What all types of characters share. */
template <bool kBytes>
struct CharsTraits : TraitsBase {
  static bool accepts(const TVMFFIAny& any) noexcept { return is_chars(any, kBytes); }
  static std::string name() { return kBytes ? "bytes" : "str"; }
  static std::string schema() { return schema_of(kBytes ? "ffi.Bytes" : "ffi.String"); }
};

}  // namespace detail

using String = detail::Chars<false>;
using Bytes = detail::Chars<true>;

template <bool kBytes>
struct Traits<detail::Chars<kBytes>> : detail::CharsTraits<kBytes> {
  using T = detail::Chars<kBytes>;
  static T get(const TVMFFIAny& any) { return T(Any(AnyView(any))); }
  static TVMFFIAny view(const T& value) noexcept { return value.any().raw(); }
  static TVMFFIAny own(const T& value) noexcept { return Any(value.any()).release(); }
};

/* Borrowed by a parameter, copied by a result. */
template <>
struct Traits<std::string_view> : detail::CharsTraits<false> {
  static constexpr bool kBorrows = false; /* it may hold a NUL, and no borrowed tag can */
  static std::string_view get(const TVMFFIAny& any) noexcept { return detail::chars_of(any, false); }
  static TVMFFIAny own(std::string_view value) { return detail::own_chars(value, false); }
};

template <>
struct Traits<std::string> : Traits<std::string_view> {
  static std::string get(const TVMFFIAny& any) { return std::string(detail::chars_of(any, false)); }
  static TVMFFIAny own(const std::string& value) { return detail::own_chars(value, false); }
};

template <>
struct Traits<const char*> : detail::CharsTraits<false> {
  /* A text with a NUL inside is refused: a reader that stops there would use less than was checked, as of a path. */
  static const char* get(const TVMFFIAny& any) {
    std::string_view chars = detail::chars_of(any, false);
    bool whole = any.type_index == kTVMFFIRawStr || std::memchr(chars.data(), 0, chars.size()) == nullptr;
    FARCALL_CHECK(whole, "ValueError", "the text contains a NUL, where a `const char*` would end");
    return chars.data();
  }
  static TVMFFIAny view(const char* value) noexcept {
    return value ? detail::any_pointer(kTVMFFIRawStr, value) : detail::any_none();
  }
  static TVMFFIAny own(const char* value) { return value ? detail::own_chars(value, false) : detail::any_none(); }
};

template <>
struct Traits<char*> : Traits<const char*> {};

}  // namespace farcall

#endif  // FARCALL_CPP_CHARS_HPP_
