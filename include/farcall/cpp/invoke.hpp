/*
 * farcall/cpp/invoke.hpp - calls a typed function with arguments of the C ABI, and reports arguments that do not fit.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_INVOKE_HPP_
#define FARCALL_CPP_INVOKE_HPP_

#include <farcall/cpp/container.hpp>
#include <farcall/cpp/options.hpp>

#include <tuple>

namespace farcall {

namespace detail {

[[noreturn]] FARCALL_COLD inline void throw_missing(int32_t position, int32_t n) {
  const char* plural = n == 1 ? "" : "s";
  throw WrongArgument("TypeError", text("argument ", position, " is missing: got ", n, " argument", plural), -1);
}

}  // namespace detail

/* An argument: a value with its index. */
class PackedArg : public AnyView {
 public:
  PackedArg(const TVMFFIAny& raw, int32_t i) noexcept : AnyView(raw), i_(i) {}
  template <class T>
  T cast() const {
    return detail::cast_as<T, detail::WrongArgument>(raw(), i_);
  }

 private:
  int32_t i_;
};

/* The raw arguments: the only parameter of a function that checks them itself. */
class PackedArgs {
 public:
  PackedArgs(const TVMFFIAny* args, int32_t n) noexcept : args_(args), size_(n) {}
  int32_t size() const noexcept { return size_; }
  /* Indices begin at 0, and negative ones count from the end; messages count from 1. */
  PackedArg operator[](int32_t i) const {
    int32_t at = i < 0 ? i + size_ : i;
    if (__builtin_expect(at < 0 || at >= size_, 0)) detail::throw_missing(i < 0 ? i : i + 1, size_);
    return PackedArg(args_[at], at);
  }
  const TVMFFIAny* data() const noexcept { return args_; }

 private:
  const TVMFFIAny* args_;
  int32_t size_;
};

namespace detail {

/*
 * Tables that describe a type and a function's types for cold code, which therefore compiles once, not once for each
 * function.
 */
struct TypeInfo {
  std::string (*name)();
  std::string (*schema)();
  bool read_only;
};
struct FunctionInfo {
  const TypeInfo* parameters;
  size_t arity;
  TypeInfo result;
};

template <class T>
constexpr TypeInfo type_info() noexcept {
  if constexpr (std::is_void_v<T>) return type_info<std::nullptr_t>();
  else return {Traits<Plain<T>>::name, Traits<Plain<T>>::schema, Traits<Plain<T>>::kReadOnly};
}

/* The types of a function, in a form that can be specialised. */
template <class R, class... P>
struct FunctionType {
  using Result = R;
  static constexpr size_t kArity = sizeof...(P);
  static constexpr TypeInfo kParameters[kArity + 1] = {type_info<P>()..., TypeInfo{}};
  static constexpr FunctionInfo kInfo = {kParameters, kArity, type_info<R>()};
};
/* Arguments that the function checks itself. */
template <class R>
struct FunctionType<R, PackedArgs> {
  using Result = R;
  static constexpr size_t kArity = 1;
  static constexpr FunctionInfo kInfo = {nullptr, 0, type_info<R>()};
};

inline std::string join_types(const FunctionInfo& info, std::string (*TypeInfo::*what)(), const char* comma) {
  std::string out;
  for (size_t i = 0; i < info.arity; ++i) out += text(i ? comma : "", (info.parameters[i].*what)());
  return out;
}

FARCALL_COLD inline std::string function_schema(const FunctionInfo& info) {
  return text("{\"type\":\"ffi.Function\",\"named_args\":{\"return\":[", info.result.schema(), "],\"params\":[",
              join_types(info, &TypeInfo::schema, ","), "]}}");
}

FARCALL_COLD inline std::string callable_name(const FunctionInfo& info) {
  return text("Callable[[", join_types(info, &TypeInfo::name, ", "), "], ", info.result.name(), "]");
}

/* An exported function, in cold code. Its options are made when they are first asked for. */
struct Callee {
  const char* name;
  const Options* (*options)(size_t arity);
  const FunctionInfo* info;

  const Options& get_options() const { return *options(info->arity); }
};

template <class F>
struct TypeOf : TypeOf<decltype(&F::operator())> {};
template <class R, class... P>
struct TypeOf<R (*)(P...)> {
  using Type = FunctionType<R, P...>;
};
template <class R, class... P>
struct TypeOf<R (*)(P...) noexcept> : TypeOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct TypeOf<R (C::*)(P...)> : TypeOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct TypeOf<R (C::*)(P...) const> : TypeOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct TypeOf<R (C::*)(P...) noexcept> : TypeOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct TypeOf<R (C::*)(P...) const noexcept> : TypeOf<R (*)(P...)> {};

template <class T>
struct IsPacked : std::false_type {};
template <class R>
struct IsPacked<FunctionType<R, PackedArgs>> : std::true_type {};

/* ---- messages ---- */

inline std::string parameter_name(const Options& options, size_t i) {
  return i < options.parameters.size() ? options.parameters[i].name : text("arg", i + 1);
}

inline std::string default_text(const Parameter& parameter) {
  std::string out;
  if (!parameter.has_default) return out;
  if (parameter.own_default || !json_value(parameter.value.raw(), &out)) out = "...";
  return text(" = ", out == "null" ? "None" : out);
}

/* `scale(x: Tensor, by: float = 2.0) -> Tensor` */
FARCALL_COLD inline std::string signature_of(const Callee& callee) {
  const Options& options = callee.get_options();
  if (!callee.info->parameters) return text(callee.name, "(...) -> ", callee.info->result.name());
  std::string out = text(callee.name, "(");
  for (size_t i = 0; i < callee.info->arity; ++i) {
    out += text(i ? ", " : "", parameter_name(options, i), ": ", callee.info->parameters[i].name());
    if (i < options.parameters.size()) out += default_text(options.parameters[i]);
  }
  return text(out, ") -> ", callee.info->result.name());
}

/* The beginning of a message about an argument. */
FARCALL_COLD inline std::string argument_text(const Callee& callee, size_t i) {
  std::string name = callee.info->parameters ? text(" `", parameter_name(callee.get_options(), i), "`") : "";
  return text("argument ", i + 1, name, " of `", signature_of(callee), "`: ");
}

FARCALL_COLD inline int raise_misfit(const Misfit& misfit, const Callee& callee, const TVMFFIAny* args,
                                     int32_t n) noexcept {
  try {
    int32_t i = misfit.find(args, n);
    return raise(
        misfit.at(i < 0 ? text("`", signature_of(callee), "`: ") : argument_text(callee, static_cast<size_t>(i))));
  } catch (...) {
    return raise_current();
  }
}

/* ---- the call: hot code is one test of all tags, the conversions, and the function itself ---- */

/* Fills in missing arguments at the end from the defaults. */
FARCALL_COLD inline std::vector<TVMFFIAny> with_defaults(const Callee& callee, const TVMFFIAny* args, int32_t n) {
  const Options& options = callee.get_options();
  size_t given = static_cast<size_t>(n), arity = callee.info->arity;
  std::vector<TVMFFIAny> all(args, args + given);
  for (size_t i = given; i < options.parameters.size() && options.parameters[i].has_default; ++i) {
    all.push_back(options.parameters[i].value.raw());
  }
  if (given <= arity && all.size() == arity) return all;
  size_t least = arity;
  while (least > 0 && least <= options.parameters.size() && options.parameters[least - 1].has_default) --least;
  throw Error("TypeError", text("`", signature_of(callee), "` takes ", least < arity ? text(least, " to ") : "", arity,
                                arity == 1 ? " argument" : " arguments", ", got ", n));
}

/* An object that the caller gives away is taken as one that it lends: the caller releases it. */
FARCALL_COLD inline std::vector<TVMFFIAny> follow_rvalues(const TVMFFIAny* args, size_t n) {
  std::vector<TVMFFIAny> all(args, args + n);
  for (TVMFFIAny& any : all) {
    if (any.type_index == kTVMFFIObjectRValueRef) any = any_object(*static_cast<TVMFFIObject**>(any.v_ptr));
  }
  return all;
}

template <class T>
FARCALL_COLD void require(const Callee& callee, size_t i, const TVMFFIAny& any) {
  if (!Traits<T>::accepts(any)) throw_mismatch<T>(any, argument_text(callee, i));
}

template <class P>
constexpr bool is_parameter() noexcept {
  static_assert(!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>,
                "declare the parameter as a value or a const reference: the caller would not see changes");
  return true;
}

/* `own` holds arguments that were replaced: defaults that were filled in, references that were followed. */
template <class F, class R, class... P, size_t... I>
FARCALL_INLINE void call_typed(F& function, const Callee& callee, FunctionType<R, P...>, const TVMFFIAny* args,
                               TVMFFIAny* result, std::vector<TVMFFIAny>& own, std::index_sequence<I...>) {
  static_assert((is_parameter<P>() && ...), "");
  if (__builtin_expect(!(Traits<Plain<P>>::accepts(args[I]) && ...), 0)) {
    own = follow_rvalues(args, sizeof...(P));
    args = own.data();
    (require<Plain<P>>(callee, I, args[I]), ...); /* the first that does not fit is named */
  }
  (void)args, (void)result;
  if constexpr (std::is_void_v<R>) {
    function(Traits<Plain<P>>::get(args[I])...);
  } else {
    *result = Traits<Plain<R>>::own(function(Traits<Plain<P>>::get(args[I])...));
  }
}

/* The first arguments alone, where the function takes them so. */
template <class F, class R, class... P, size_t... I>
void call_first(F& function, const Callee& callee, FunctionType<R, P...>, const TVMFFIAny* args, TVMFFIAny* result,
                std::index_sequence<I...> first) {
  using All = std::tuple<P...>;
  if constexpr (std::is_invocable_v<F&, std::tuple_element_t<I, All>...>) {
    std::vector<TVMFFIAny> own;
    call_typed(function, callee, FunctionType<R, std::tuple_element_t<I, All>...>(), args, result, own, first);
  } else {
    throw Error("TypeError", text("`", signature_of(callee), "` takes more than ", sizeof...(I), " arguments"));
  }
}

template <class F, class Type, size_t... N>
void call_short(F& function, const Callee& callee, const TVMFFIAny* args, int32_t n, TVMFFIAny* result,
                std::index_sequence<N...>) {
  auto given = static_cast<size_t>(n);
  (void)((given == N && (call_first(function, callee, Type(), args, result, std::make_index_sequence<N>()), true)) ||
         ...);
}

/* `callable` takes as many arguments as the function does, which is an F, in a call that leaves out its defaults. */
template <class F, class C>
ShortCalls short_calls(const C& callable) {
  using Type = typename TypeOf<F>::Type;
  static const C held = callable;
  return {[](const Callee& callee, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
    call_short<const C, Type>(held, callee, args, n, result, std::make_index_sequence<Type::kArity>());
  }};
}

/* The body of an exported function: throws only to end a thread, and sets the thread's error when it returns -1. */
template <class F>
FARCALL_INLINE int invoke(F& function, const Callee& callee, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  using Type = typename TypeOf<std::decay_t<F>>::Type;
  using Index = std::make_index_sequence<Type::kArity>;
  try {
    if constexpr (IsPacked<Type>::value) {
      if constexpr (std::is_void_v<typename Type::Result>) function(PackedArgs(args, n));
      else *result = Traits<Plain<typename Type::Result>>::own(function(PackedArgs(args, n)));
    } else {
      std::vector<TVMFFIAny> own;
      if (__builtin_expect(n != static_cast<int32_t>(Type::kArity), 0)) {
        if (callee.get_options().leaves_out(static_cast<size_t>(n))) {
          callee.get_options().short_calls.call(callee, args, n, result);
          return 0;
        }
        own = with_defaults(callee, args, n);
        args = own.data();
      }
      call_typed(function, callee, Type(), args, result, own, Index());
    }
    return 0;
  }
  FARCALL_LET_THREAD_END
  catch (const Misfit& misfit) {
    return raise_misfit(misfit, callee, args, n);
  }
  catch (const Error& error) {
    return raise(error);
  }
  catch (...) {
    return raise_current();
  }
}

template <class F>
constexpr const FunctionInfo* info_of() noexcept {
  return &TypeOf<std::decay_t<F>>::Type::kInfo;
}

}  // namespace detail
}  // namespace farcall

#endif  // FARCALL_CPP_INVOKE_HPP_
