/*
 * farcall/cpp/function.hpp - functions as values: calling Python from C++, and C++ from anywhere.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_FUNCTION_HPP_
#define FARCALL_CPP_FUNCTION_HPP_

#include <farcall/cpp/invoke.hpp>

namespace farcall {

namespace detail {

/* Holds an argument of an outgoing call until the call ends. */
template <class T, bool kBorrows>
class Held {
 public:
  explicit Held(const T& value) : raw_(Traits<T>::view(value)) {}
  const TVMFFIAny& raw() const noexcept { return raw_; }

 private:
  TVMFFIAny raw_;
};
template <class T>
class Held<T, false> {
 public:
  explicit Held(const T& value) : any_(Any::adopt(Traits<T>::own(value))) {}
  const TVMFFIAny& raw() const noexcept { return any_.raw(); }

 private:
  Any any_;
};
template <class A>
using HeldFor = Held<std::decay_t<A>, Traits<std::decay_t<A>>::kBorrows>;

template <class F>
struct Closure {
  F callable;
  std::string name;
  static int call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
    auto* closure = static_cast<Closure*>(self);
    return invoke(closure->callable, Callee{closure->name.c_str(), no_options, info_of<F>()}, args, n, result);
  }
  static void destroy(void* self) { delete static_cast<Closure*>(self); }
};

}  // namespace detail

/* A function of any language. An error in it is thrown here as an Error. */
class Function : public ObjectRef {
 public:
  Function() noexcept = default;
  explicit Function(ObjectRef ref) noexcept : ObjectRef(std::move(ref)) {}

  /* A lambda or function of C++ as a value, callable from anywhere. The name is for its error messages. */
  template <class F>
  static Function FromTyped(F&& callable, std::string_view name = "function") {
    using Closure = detail::Closure<std::decay_t<F>>;
    auto* closure = new Closure{std::forward<F>(callable), std::string(name.empty() ? "function" : name)};
    TVMFFIObjectHandle out = nullptr;
    if (TVMFFIFunctionCreate(closure, Closure::call, Closure::destroy, &out) != 0) {
      delete closure;
      detail::throw_raised("TVMFFIFunctionCreate");
    }
    return Function(adopt(out));
  }

  /* The function that is registered under a name, in Python by `register_global_func`. */
  static Optional<Function> GetGlobal(std::string_view name) {
    TVMFFIByteArray array = detail::bytes_of(name);
    TVMFFIObjectHandle out = nullptr;
    detail::check_call(TVMFFIFunctionGetGlobal(&array, &out), "TVMFFIFunctionGetGlobal");
    if (!out) return std::nullopt;
    return Function(adopt(out));
  }
  /* The same; ValueError if the name is not registered. */
  static Function GetGlobalRequired(std::string_view name) {
    Optional<Function> found = GetGlobal(name);
    FARCALL_CHECK(found, "ValueError", "no global function is registered as `", name, "`");
    return *found;
  }
  static void SetGlobal(std::string_view name, const Function& function, bool allow_override = false) {
    TVMFFIByteArray array = detail::bytes_of(name);
    detail::check_call(TVMFFIFunctionSetGlobal(&array, function.get(), allow_override), "TVMFFIFunctionSetGlobal");
  }

  template <class... A>
  Any operator()(A&&... args) const {
    return call_held(detail::HeldFor<A>(args)...);
  }
  /* The result as an R: `f.call<int>(1, 2)`. */
  template <class R, class... A>
  R call(A&&... args) const {
    Any result = (*this)(std::forward<A>(args)...);
    if constexpr (!std::is_void_v<R>) return detail::cast_as<R, detail::WrongResult>(result.raw(), object_);
  }
  /* With arguments that are values already. */
  Any call_packed(const TVMFFIAny* args, int32_t n) const {
    FARCALL_CHECK(object_, "TypeError", "an empty Function was called");
    TVMFFIAny result{};
    detail::check_call(TVMFFIFunctionGetCellPtr(object_)->safe_call(object_, args, n, &result), "the function");
    return Any::adopt(result);
  }

 private:
  template <class... H>
  Any call_held(const H&... held) const {
    const TVMFFIAny args[sizeof...(H) + 1] = {held.raw()..., TVMFFIAny{}};
    return call_packed(args, static_cast<int32_t>(sizeof...(H)));
  }
};

template <>
struct Traits<Function> : detail::ObjectTraits<Function, kTVMFFIFunction> {
  static std::string name() { return "Callable"; }
  static std::string schema() { return detail::schema_of("ffi.Function"); }
};

/* A function whose types are known: TypedFunction<int(int, int)>. They are checked at each call, not before. */
template <class Signature>
class TypedFunction;
template <class R, class... P>
class TypedFunction<R(P...)> : public Function {
 public:
  TypedFunction() noexcept = default;
  TypedFunction(Function function) noexcept : Function(std::move(function)) {}
  explicit TypedFunction(ObjectRef ref) noexcept : Function(std::move(ref)) {}
  R operator()(P... args) const { return this->template call<R>(args...); }
};

template <class R, class... P>
struct Traits<TypedFunction<R(P...)>> : detail::ObjectTraits<TypedFunction<R(P...)>, kTVMFFIFunction> {
  static std::string name() { return detail::callable_name(detail::FunctionType<R, P...>::kInfo); }
  static std::string schema() { return detail::function_schema(detail::FunctionType<R, P...>::kInfo); }
};

/* std::function and what is made like it, as a parameter or result; its header is the user's to include. */
template <template <class> class F, class R, class... P>
struct Traits<F<R(P...)>> : Traits<TypedFunction<R(P...)>> {
  static constexpr bool kBorrows = false;
  static F<R(P...)> get(const TVMFFIAny& any) { return TypedFunction<R(P...)>(ObjectRef::share(any.v_obj)); }
  static TVMFFIAny own(F<R(P...)> value) { return detail::any_object(Function::FromTyped(std::move(value)).release()); }
};

namespace detail {

/* A function that every runtime has under this name, looked up when it is first called. */
class RuntimeFunction {
 public:
  constexpr RuntimeFunction(const char* name) noexcept : name_(name) {}
  RuntimeFunction(const RuntimeFunction&) = delete;
  RuntimeFunction& operator=(const RuntimeFunction&) = delete;
  Function get() const {
    TVMFFIObject* known = __atomic_load_n(&function_, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!known, 0)) known = find();
    return Function(ObjectRef::share(known));
  }
  template <class... A>
  Any operator()(A&&... args) const {
    return get()(std::forward<A>(args)...);
  }

 private:
  FARCALL_COLD TVMFFIObject* find() const {
    TVMFFIObject* found = Function::GetGlobalRequired(name_).release(); /* for good */
    TVMFFIObject* other = nullptr;
    bool first = __atomic_compare_exchange_n(&function_, &other, found, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    if (!first) release(found);
    return first ? found : other;
  }
  const char* name_;
  mutable TVMFFIObject* function_ = nullptr;
};

}  // namespace detail

/* A lambda or function as a result or argument: Python gets a callable. */
template <class F>
Function make_function(F&& callable, std::string_view name = "function") {
  return Function::FromTyped(std::forward<F>(callable), name);
}

}  // namespace farcall

#endif  // FARCALL_CPP_FUNCTION_HPP_
