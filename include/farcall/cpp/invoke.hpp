/*
 * farcall/cpp/invoke.hpp - from the universal signature to a typed function, and what is said when they differ.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_INVOKE_HPP_
#define FARCALL_CPP_INVOKE_HPP_

#include <farcall/cpp/container.hpp>
#include <farcall/cpp/options.hpp>

namespace farcall {

/* The arguments as they came: the only parameter of a function that checks them itself. */
class PackedArgs {
 public:
  PackedArgs(const TVMFFIAny* args, int32_t n) noexcept : args_(args), size_(n) {}
  int32_t size() const noexcept { return size_; }
  AnyView operator[](int32_t i) const { return AnyView(args_[detail::checked_index(i, size_, "argument")]); }
  const TVMFFIAny* data() const noexcept { return args_; }

 private:
  const TVMFFIAny* args_;
  int32_t size_;
};

namespace detail {

/*
 * What cold code needs to know of a type and of a function's types: tables, so that all of it compiles once, not
 * once for each function.
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
  if (!json_value(parameter.value.raw(), &out)) out = "...";
  return text(" = ", parameter.value.is_none() ? "None" : out);
}

/* `scale(x: Tensor, by: float = 2.0) -> Tensor` */
FARCALL_COLD inline std::string signature_of(const Callee& callee) {
  const Options& options = callee.get_options();
  std::string out = text(callee.name, "(");
  for (size_t i = 0; i < callee.info->arity; ++i) {
    out += text(i ? ", " : "", parameter_name(options, i), ": ", callee.info->parameters[i].name());
    if (i < options.parameters.size()) out += default_text(options.parameters[i]);
  }
  return text(out, ") -> ", callee.info->result.name());
}

/* The beginning of what is said about an argument. */
FARCALL_COLD inline std::string argument_text(const Callee& callee, size_t i) {
  std::string name = parameter_name(callee.get_options(), i);
  return text("argument ", i + 1, " `", name, "` of `", signature_of(callee), "`: ");
}

/* ---- the call: hot code is one test of all tags, the conversions, and the function itself ---- */

/* What is missing at the end comes from the defaults. */
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
                "a parameter is a value or a const reference: nobody sees what is written into it");
  return true;
}

/* `own` keeps what is not as it came: defaults that were filled in, references that were followed. */
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

/* The whole of an exported function: throws nothing but a thread's end, and leaves an error where it returns -1. */
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
        own = with_defaults(callee, args, n);
        args = own.data();
      }
      call_typed(function, callee, Type(), args, result, own, Index());
    }
    return 0;
  }
  FARCALL_LET_THREAD_END
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
