/*
 * farcall/cpp/options.hpp - the description of an exported function beyond its types: names, defaults, texts.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_OPTIONS_HPP_
#define FARCALL_CPP_OPTIONS_HPP_

#include <farcall/cpp/names.hpp>

#include <vector>

namespace farcall {

namespace detail {

struct Callee;

/* A default that only the C++ declaration has. A call without the argument leaves it to the function. */
struct OwnDefault {};

}  // namespace detail

/* A parameter: its name, and its default. */
struct Parameter {
  std::string name;
  bool has_default = false;
  Any value;
  std::string doc;
  bool own_default = false; /* the default is in the C++ declaration only */
};

/* `arg("x")`, `arg("scale", 1.0)`, `arg("scale", 1.0, "what it is for")`. */
inline Parameter arg(std::string_view name) { return {std::string(name), false, Any(), ""}; }
template <class T>
Parameter arg(std::string_view name, T&& value, std::string_view doc = "") {
  return {std::string(name), true, Any(std::forward<T>(value)), std::string(doc)};
}
inline Parameter arg(std::string_view name, detail::OwnDefault) { return {std::string(name), true, Any(), "", true}; }
/* A documented parameter that must be given. */
inline Parameter required(std::string_view name, std::string_view doc = "") {
  return {std::string(name), false, Any(), std::string(doc)};
}

/* What `help()` shows for the function. */
struct Doc {
  const char* text;
};
inline Doc doc(const char* text) { return {text}; }

/*
 * The result is a new tensor with the shape, dtype and device of this parameter. So torch.compile and torch.export
 * know the result of an operator without running it.
 */
struct Like {
  std::string parameter;
};
inline Like like(std::string_view parameter) { return {std::string(parameter)}; }

namespace detail {

struct End {}; /* closes the list of options, so that it is never empty */

/* Names that a tool read from the source. They are dropped if their number differs from the parameters'. */
struct Guess {
  std::vector<Parameter> parameters;
};
template <class... P>
Guess guess(P&&... parameters) {
  return {{std::forward<P>(parameters)...}};
}

/* Calls a function with fewer arguments than it has parameters. */
struct ShortCalls {
  void (*call)(const Callee& callee, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);
};

struct Options {
  std::vector<Parameter> parameters; /* empty, or one for each parameter */
  std::string doc;
  std::string shape_like; /* a parameter's name, or empty */
  ShortCalls short_calls = {nullptr};

  /* Whether a call with n arguments leaves defaults to the function. */
  bool leaves_out(size_t n) const noexcept {
    bool own = false;
    for (size_t i = n; i < parameters.size(); ++i) {
      if (!parameters[i].has_default) return false;
      own = own || parameters[i].own_default;
    }
    return own && short_calls.call;
  }

  template <class... O>
  static const Options* make(size_t arity, O&&... options) {
    auto* made = new Options; /* never freed: functions may be called until the process ends */
    (made->add(std::forward<O>(options)), ...);
    if (made->guessed_ && made->parameters.size() != arity) made->parameters.clear();
    return made;
  }

 private:
  void add(Parameter parameter) { parameters.push_back(std::move(parameter)); }
  void add(Doc text) { doc = text.text; }
  void add(Like same) { shape_like = std::move(same.parameter); }
  void add(Guess guess) {
    parameters = std::move(guess.parameters);
    guessed_ = true;
  }
  void add(ShortCalls calls) { short_calls = calls; }
  void add(End) {}

  bool guessed_ = false;
};

/* How many parameters the options name; for unevaluated use. */
template <class... O>
std::integral_constant<size_t, (size_t{0} + ... + size_t{std::is_same_v<Plain<O>, Parameter>})> named(O&&...);

inline const Options* no_options(size_t) {
  static const Options* const none = new Options;
  return none;
}

/* ---- JSON ---- */

inline void json_escape(std::string& out, char c) {
  static constexpr char kHex[] = "0123456789abcdef";
  auto u = static_cast<unsigned char>(c);
  if (c == '"' || c == '\\') {
    out += {'\\', c};
  } else if (u < 0x20) {
    out += {'\\', 'u', '0', '0', kHex[u >> 4], kHex[u & 15]};
  } else {
    out += c;
  }
}

inline std::string json_string(std::string_view value) {
  std::string out = "\"";
  for (char c : value) json_escape(out, c);
  return out + "\"";
}

/* JSON has no infinities and NaN; Python's reader and others accept these words. */
inline std::string json_float(double value) {
  if (value != value) return "NaN";
  if (value > std::numeric_limits<double>::max()) return "Infinity";
  if (value < std::numeric_limits<double>::lowest()) return "-Infinity";
  return float_text(value);
}

/* Dtypes and devices are text. A default that has no form in JSON is left to the function. */
inline bool json_value(const TVMFFIAny& any, std::string* out) {
  std::string_view chars;
  if (read_chars(any, false, &chars)) {
    *out = json_string(chars);
    return true;
  }
  switch (any.type_index) {
    case kTVMFFINone: *out = "null"; return true;
    case kTVMFFIInt: *out = text(any.v_int64); return true;
    case kTVMFFIBool: *out = text(any.v_int64 != 0); return true;
    case kTVMFFIFloat: *out = json_float(any.v_float64); return true;
    case kTVMFFIDataType: *out = json_string(dtype_name(any.v_dtype)); return true;
    case kTVMFFIDevice: *out = json_string(device_name(any.v_device)); return true;
    default: return false;
  }
}

}  // namespace detail
}  // namespace farcall

#endif  // FARCALL_CPP_OPTIONS_HPP_
