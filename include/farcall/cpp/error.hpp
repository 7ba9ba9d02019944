/*
 * farcall/cpp/error.hpp - errors: thrown here, an exception of their kind in Python.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_ERROR_HPP_
#define FARCALL_CPP_ERROR_HPP_

#include <farcall/cpp/object.hpp>

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>

namespace farcall {

namespace detail {

class Misfit;

inline TVMFFIByteArray bytes_of(std::string_view text) noexcept { return {text.data(), text.size()}; }
inline std::string_view view_of(const TVMFFIByteArray& bytes) noexcept { return {bytes.data, bytes.size}; }

/* The shortest form that reads back the same. */
FARCALL_COLD inline std::string float_text(double value) {
  char buffer[32];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  std::string out = buffer;
  return out.find_first_of(".eni") == std::string::npos ? out + ".0" : out;
}

/*
 * One part of a text, not yet written: every type that text() takes becomes this, so that what writes it compiles
 * once, and a call of text() needs no cleaning up.
 */
class Piece {
 public:
  Piece(std::string_view part) noexcept : view_(part) {}
  Piece(const std::string& part) noexcept : view_(part) {}
  Piece(const char* part) noexcept : view_(part) {}
  Piece(char part) noexcept : kind_(kChar) { integer_ = part; }
  Piece(bool part) noexcept : view_(part ? "true" : "false") {}
  Piece(double part) noexcept : kind_(kFloat) { float_ = part; }
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
  Piece(T part) noexcept : kind_(std::is_signed_v<T> ? kInt : kUnsigned) {
    integer_ = static_cast<int64_t>(part);
  }
  void append_to(std::string& out) const;

 private:
  enum Kind { kView, kChar, kInt, kUnsigned, kFloat };
  Kind kind_ = kView;
  union {
    std::string_view view_;
    int64_t integer_;
    double float_;
  };
};

FARCALL_COLD inline void Piece::append_to(std::string& out) const {
  switch (kind_) {
    case kView: out.append(view_); break;
    case kChar: out.push_back(static_cast<char>(integer_)); break;
    case kInt: out.append(std::to_string(integer_)); break;
    case kUnsigned: out.append(std::to_string(static_cast<uint64_t>(integer_))); break;
    case kFloat: out.append(float_text(float_)); break;
  }
}

FARCALL_COLD inline std::string join(std::initializer_list<Piece> pieces) {
  std::string out;
  for (const Piece& piece : pieces) piece.append_to(out);
  return out;
}

}  // namespace detail

/* The parts as one text: numbers, characters and strings. */
template <class... Parts>
std::string text(const Parts&... parts) {
  return detail::join({detail::Piece(parts)...});
}

/*
 * An error with a kind, which is the name of a Python exception class: `throw Error("ValueError", "...")`.
 * An unknown kind is a RuntimeError there. The place of the throw becomes a line of the Python traceback.
 */
class Error : public std::exception {
 public:
  Error(std::string_view kind, std::string_view message, const char* file = __builtin_FILE(),
        int line = __builtin_LINE(), const char* function = __builtin_FUNCTION())
      : Error(kind, message, nullptr, place(file, line, function)) {}
  /* With a cause, which is `__cause__` in Python. */
  Error(std::string_view kind, std::string_view message, const Error& cause, const char* file = __builtin_FILE(),
        int line = __builtin_LINE(), const char* function = __builtin_FUNCTION())
      : Error(kind, message, cause.object_.get(), place(file, line, function)) {}
  /* An error that came from elsewhere: a function that was called here. */
  explicit Error(ObjectRef object) noexcept : object_(std::move(object)) {}

  const char* what() const noexcept override { return object_ ? cell()->message.data : "out of memory"; }
  std::string_view kind() const noexcept { return object_ ? detail::view_of(cell()->kind) : "MemoryError"; }
  std::string_view message() const noexcept { return object_ ? detail::view_of(cell()->message) : what(); }
  /* One line a frame, the most recent call first. */
  std::string_view backtrace() const noexcept { return object_ ? detail::view_of(cell()->backtrace) : ""; }
  /* The error that caused this one (`__cause__` in Python); empty without a cause. */
  std::optional<Error> cause() const noexcept {
    if (!object_ || !cell()->cause_chain) return std::nullopt;
    return Error(ObjectRef::share(cell()->cause_chain));
  }
  const ObjectRef& object() const noexcept { return object_; }

 private:
  friend class detail::Misfit;
  Error(std::string_view kind, std::string_view message, TVMFFIObject* cause, const std::string& backtrace) {
    TVMFFIByteArray k = detail::bytes_of(kind), m = detail::bytes_of(message), b = detail::bytes_of(backtrace);
    TVMFFIObjectHandle made = nullptr;
    int rc = cause ? TVMFFIErrorCreateWithCauseAndExtraContext(&k, &m, &b, cause, nullptr, &made)
                   : TVMFFIErrorCreate(&k, &m, &b, &made);
    if (rc == 0) object_ = ObjectRef::adopt(made);
  }
  static std::string place(const char* file, int line, const char* function) {
    return text("  File \"", file, "\", line ", line, ", in ", function, "\n");
  }
  const TVMFFIErrorCell* cell() const noexcept { return TVMFFIErrorGetCellPtr(object_.get()); }

  ObjectRef object_;
};

/* Throws Error(kind, text(parts...)) unless the condition holds. The parts are evaluated only then. */
#define FARCALL_CHECK(condition, kind, ...)                                                            \
  do {                                                                                                 \
    if (__builtin_expect(!(condition), 0)) throw ::farcall::Error(kind, ::farcall::text(__VA_ARGS__)); \
  } while (0)

/*
 * Before a `catch (...)` that does not throw again: pthread_exit and pthread_cancel unwind the stack by an exception,
 * and GNU's library aborts the process when it does not arrive. CPython ends daemon threads so.
 */
#ifdef __GLIBCXX__
#define FARCALL_LET_THREAD_END      \
  catch (::abi::__forced_unwind&) { \
    throw;                          \
  }
#else
#define FARCALL_LET_THREAD_END
#endif

namespace detail {

/*
 * A value that a function found wrong while it ran. The wrapper of the function knows which argument it came from, and
 * puts that before the message.
 */
class Misfit : public Error {
 public:
  /* Without a place of its own in the traceback, which would be in these headers. */
  Misfit(std::string_view kind, std::string_view message) : Error(kind, message, nullptr, std::string()) {}
  /* The argument that the value is, or comes from; -1 if unknown. */
  virtual int32_t find(const TVMFFIAny*, int32_t) const noexcept { return -1; }
  Error at(const std::string& place) const {
    return Error(kind(), text(place, message()), nullptr, std::string(backtrace()));
  }
};

/* The error that a C function left in this thread's slot. */
[[noreturn]] FARCALL_COLD inline void throw_raised(const char* what) {
  TVMFFIObjectHandle handle = nullptr;
  TVMFFIErrorMoveFromRaised(&handle);
  if (!handle) throw Error("RuntimeError", text(what, " failed without an error"));
  throw Error(ObjectRef::adopt(handle));
}

inline void check_call(int rc, const char* what) {
  if (__builtin_expect(rc != 0, 0)) throw_raised(what);
}

inline int raise(const Error& error) noexcept {
  if (error.object()) {
    TVMFFIErrorSetRaised(error.object().get());
  } else {
    TVMFFIErrorSetRaisedFromCStr("MemoryError", error.what());
  }
  return -1;
}

inline int raise(const char* kind, const std::exception& error) noexcept {
  TVMFFIErrorSetRaisedFromCStr(kind, error.what());
  return -1;
}

/* Inside a catch block: the exception that is being handled becomes this thread's error. */
FARCALL_COLD inline int raise_current() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return raise(error);
  } catch (const std::invalid_argument& error) {
    return raise("ValueError", error);
  } catch (const std::domain_error& error) {
    return raise("ValueError", error);
  } catch (const std::length_error& error) {
    return raise("ValueError", error);
  } catch (const std::out_of_range& error) {
    return raise("IndexError", error);
  } catch (const std::overflow_error& error) {
    return raise("OverflowError", error);
  } catch (const std::bad_alloc& error) {
    return raise("MemoryError", error);
  } catch (const std::exception& error) {
    return raise("RuntimeError", error);
  } catch (...) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "an exception that is not a std::exception was thrown");
    return -1;
  }
}

}  // namespace detail
}  // namespace farcall

#endif  // FARCALL_CPP_ERROR_HPP_
