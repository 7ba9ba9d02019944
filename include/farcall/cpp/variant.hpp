/*
 * farcall/cpp/variant.hpp - Variant: a value of one of several types.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_VARIANT_HPP_
#define FARCALL_CPP_VARIANT_HPP_

#include <farcall/cpp/tensor.hpp>

#include <variant>

namespace farcall {

/* The type is the standard one: std::get<T>(x), std::holds_alternative<T>(x), std::visit(f, x). */
template <class... T>
using Variant = std::variant<T...>;

namespace detail {

/* Whether a value is a T as it stands, without a conversion such as that from int to float. */
template <class T>
bool is_exactly(const TVMFFIAny& any) noexcept {
  int32_t t = any.type_index;
  if constexpr (std::is_same_v<T, bool>) {
    if (t != kTVMFFIBool) return false;
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    if (t != kTVMFFIInt) return false;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (t != kTVMFFIFloat) return false;
  } else if constexpr (std::is_same_v<T, DLDataType>) {
    if (t != kTVMFFIDataType) return false;
  } else if constexpr (std::is_same_v<T, DLDevice>) {
    if (t != kTVMFFIDevice) return false;
  }
  return Traits<T>::accepts(any);
}

}  // namespace detail

/* The first alternative that is the value's own type; where there is none, the first that it converts to. */
template <class... T>
struct Traits<std::variant<T...>> : detail::TraitsBase {
  using Value = std::variant<T...>;
  static constexpr bool kBorrows = (Traits<T>::kBorrows && ...);
  static constexpr bool kReadOnly = (Traits<T>::kReadOnly && ...);
  static bool accepts(const TVMFFIAny& any) noexcept { return (Traits<T>::accepts(any) || ...); }
  static Value get(const TVMFFIAny& any) { return get(any, std::index_sequence_for<T...>()); }
  static TVMFFIAny view(const Value& value) {
    return std::visit([](const auto& held) { return Traits<detail::Plain<decltype(held)>>::view(held); }, value);
  }
  static TVMFFIAny own(Value value) {
    return std::visit([](auto&& held) { return Traits<detail::Plain<decltype(held)>>::own(std::move(held)); },
                      std::move(value));
  }
  static std::string name() {
    std::string out;
    ((out += out.empty() ? Traits<T>::name() : text(" | ", Traits<T>::name())), ...);
    return out;
  }
  static std::string schema() {
    std::string args;
    ((args += args.empty() ? Traits<T>::schema() : text(",", Traits<T>::schema())), ...);
    return detail::schema_of("Variant", args);
  }

 private:
  template <size_t... I>
  static Value get(const TVMFFIAny& any, std::index_sequence<I...>) {
    std::optional<Value> out;
    (void)((detail::is_exactly<T>(any) && (out.emplace(std::in_place_index<I>, Traits<T>::get(any)), true)) || ...);
    if (!out)
      (void)((Traits<T>::accepts(any) && (out.emplace(std::in_place_index<I>, Traits<T>::get(any)), true)) || ...);
    return *std::move(out);
  }
};

}  // namespace farcall

#endif  // FARCALL_CPP_VARIANT_HPP_
