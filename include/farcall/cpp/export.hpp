/*
 * farcall/cpp/export.hpp - FARCALL_EXPORT, and the metadata that goes with an exported function.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_EXPORT_HPP_
#define FARCALL_CPP_EXPORT_HPP_

#include <farcall/cpp/function.hpp>

/*
 * The layouts that a library was compiled with, for its loader: one symbol a library, whichever file it comes from.
 */
extern "C" FARCALL_VISIBLE __attribute__((weak)) const uint32_t __farcall_abi_version;
const uint32_t __farcall_abi_version = FARCALL_ABI_VERSION;

namespace farcall {
namespace detail {

/* `{"name": "x", "default": 2.0, "read_only": true, "doc": "..."}`: what TVM FFI's schema has no place for. */
inline std::string parameter_json(const Parameter& parameter, bool read_only) {
  std::string value, out = text("{\"name\":", json_string(parameter.name));
  if (parameter.has_default) {
    out += !parameter.own_default && json_value(parameter.value.raw(), &value) ? text(",\"default\":", value)
                                                                               : ",\"optional\":true";
  }
  if (read_only) out += ",\"read_only\":true";
  if (!parameter.doc.empty()) out += text(",\"doc\":", json_string(parameter.doc));
  return out + "}";
}

FARCALL_COLD inline std::string parameters_json(const Callee& callee) {
  const Options& options = callee.get_options();
  std::string out;
  for (size_t i = 0; i < callee.info->arity; ++i) {
    Parameter unnamed;
    unnamed.name = parameter_name(options, i);
    const Parameter& parameter = i < options.parameters.size() ? options.parameters[i] : unnamed;
    out += text(i ? "," : "", parameter_json(parameter, callee.info->parameters[i].read_only));
  }
  return out;
}

/* `,"shape_like":"x"`, or nothing. */
FARCALL_COLD inline std::string like_json(const Options& options) {
  const std::string& like = options.shape_like;
  bool named = like.empty();
  for (const Parameter& parameter : options.parameters) named = named || parameter.name == like;
  FARCALL_CHECK(named, "ValueError", "farcall::like(\"", like, "\") names no parameter");
  return like.empty() ? like : text(",\"shape_like\":", json_string(like));
}

FARCALL_COLD inline std::string metadata_json(const Callee& callee) {
  if (!callee.info->parameters) return text("{\"type_schema\":", json_string(schema_of("ffi.Function")), "}");
  const Options& options = callee.get_options();
  return text("{\"type_schema\":", json_string(function_schema(*callee.info)),
              ",\"named\":", !options.parameters.empty(), like_json(options), ",\"parameters\":[",
              parameters_json(callee), "]}");
}

/* The bodies of the symbols that stand beside an exported function. */
FARCALL_COLD inline int metadata(const Callee& callee, TVMFFIAny* result) noexcept {
  try {
    *result = own_chars(metadata_json(callee), false);
    return 0;
  } catch (...) {
    return raise_current();
  }
}

FARCALL_COLD inline int documentation(const Callee& callee, TVMFFIAny* result) noexcept {
  try {
    *result = own_chars(callee.get_options().doc, false);
    return 0;
  } catch (...) {
    return raise_current();
  }
}

/* An `arg` for every parameter, or for none. */
template <class F, class Named>
inline constexpr bool kAllNamed = Named::value == 0 || Named::value == TypeOf<std::decay_t<F>>::Type::kArity;

}  // namespace detail
}  // namespace farcall

/*
 * Exports a function, a lambda or another callable under a name:
 *
 *     FARCALL_EXPORT(add, [](int a, int b) { return a + b; });
 *     FARCALL_EXPORT(scale, scale_rows, farcall::doc("Multiplies."), farcall::arg("x"), farcall::arg("by", 2.0),
 *                    farcall::like("x"));
 *
 * Give an `arg` for every parameter or for none. Use it at namespace scope, but not in an unnamed namespace, which
 * hides its symbols; once for each name in a library. In place of a lambda with commas outside of parentheses, such as
 * those of Map<K, V>, use a named function: to a macro, commas separate arguments.
 */
#define FARCALL_EXPORT(name, ...) FARCALL_EXPORT_(name, __VA_ARGS__, ::farcall::detail::End{})

#define FARCALL_EXPORT_(name, function, ...)                                                                       \
  static const ::farcall::detail::Options* farcall_options_##name(size_t arity) {                                  \
    static const ::farcall::detail::Options* const made = ::farcall::detail::Options::make(arity, __VA_ARGS__);    \
    return made;                                                                                                   \
  }                                                                                                                \
  static const auto farcall_function_##name = function;                                                            \
  static_assert(::farcall::detail::kAllNamed<decltype(farcall_function_##name),                                    \
                                             decltype(::farcall::detail::named(__VA_ARGS__))>,                     \
                "FARCALL_EXPORT: give a farcall::arg for every parameter, or for none");                           \
  static constexpr ::farcall::detail::Callee farcall_callee_##name = {                                             \
      #name, farcall_options_##name, ::farcall::detail::info_of<decltype(farcall_function_##name)>()};             \
  FARCALL_EXPORT_SYMBOL_(name)                                                                                     \
  FARCALL_EXPORT_SYMBOL_(_metadata_##name)                                                                         \
  FARCALL_EXPORT_SYMBOL_(_doc_##name)                                                                              \
  extern "C" FARCALL_VISIBLE int __tvm_ffi_##name(void*, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {    \
    return ::farcall::detail::invoke(farcall_function_##name, farcall_callee_##name, args, n, result);             \
  }                                                                                                                \
  extern "C" FARCALL_VISIBLE int __tvm_ffi__metadata_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) { \
    return ::farcall::detail::metadata(farcall_callee_##name, result);                                             \
  }                                                                                                                \
  extern "C" FARCALL_VISIBLE int __tvm_ffi__doc_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {      \
    return ::farcall::detail::documentation(farcall_callee_##name, result);                                        \
  }                                                                                                                \
  static_assert(true, "a semicolon follows")

/* Any number of arguments that the function takes by itself. */
#define FARCALL_SHORT_CALLS_(name)                                                                              \
  static const auto farcall_short_##name = [](auto&&... a) -> decltype(name(std::forward<decltype(a)>(a)...)) { \
    return name(std::forward<decltype(a)>(a)...);                                                               \
  }

#define FARCALL_EXPORT_SYMBOL_(name) \
  extern "C" FARCALL_VISIBLE int __tvm_ffi_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);

#endif  // FARCALL_CPP_EXPORT_HPP_
