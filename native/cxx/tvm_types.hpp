/*
 * The C++ types in the functions that libraries import from TVM FFI: only their layouts, and how they are passed. An
 * owning type has a destructor, so C++ compilers pass and return it in memory.
 */
#ifndef FARCALL_CXX_TVM_TYPES_HPP_
#define FARCALL_CXX_TVM_TYPES_HPP_

#include <exception>
#include <utility>

#include "runtime/cxx.h"

#define FC_EXPORTED __attribute__((visibility("default")))

namespace tvm {
namespace ffi {

inline void retain(TVMFFIObject* object) noexcept {
  if (object) __atomic_fetch_add(&object->combined_ref_count, 1, __ATOMIC_RELAXED);
}
void release(TVMFFIObject* object) noexcept;

/* The header of every object. In a class with virtual methods, the pointer to their table precedes it. */
class Object {
 public:
  TVMFFIObject* header() noexcept { return &header_; }

 private:
  TVMFFIObject header_;
};

/* A strong reference, or NULL. */
class ObjectRef {
 public:
  ObjectRef() noexcept = default;
  explicit ObjectRef(TVMFFIObject* owned) noexcept : object_(owned) {}
  ObjectRef(const ObjectRef& other) noexcept : object_(other.object_) { retain(object_); }
  ObjectRef(ObjectRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ObjectRef& operator=(ObjectRef other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~ObjectRef() {
    if (object_) release(object_);
  }
  TVMFFIObject* get() const noexcept { return object_; }
  TVMFFIObject* take() noexcept { return std::exchange(object_, nullptr); }

 private:
  TVMFFIObject* object_ = nullptr;
};

/* A value of 16 bytes, as are String, Bytes, and Optional, except for an Optional of an object. */
class Value {
 public:
  Value() noexcept = default;
  explicit Value(const TVMFFIAny& owned) noexcept : any_(owned) {}
  Value(const Value& other) noexcept : any_(other.any_) {
    if (any_.type_index >= kTVMFFIStaticObjectBegin) retain(any_.v_obj);
  }
  Value(Value&& other) noexcept : any_(std::exchange(other.any_, TVMFFIAny{})) {}
  Value& operator=(Value other) noexcept {
    std::swap(any_, other.any_);
    return *this;
  }
  ~Value() {
    if (any_.type_index >= kTVMFFIStaticObjectBegin && any_.v_obj) release(any_.v_obj);
  }
  const TVMFFIAny& raw() const noexcept { return any_; }
  TVMFFIAny take() noexcept { return std::exchange(any_, TVMFFIAny{}); }

 private:
  TVMFFIAny any_{};
};

class Any : public Value {
  using Value::Value;
};
class String : public Value {
  using Value::Value;
};
class Bytes : public Value {
  using Value::Value;
};
class Function : public ObjectRef {
  using ObjectRef::ObjectRef;
};
class Module;
template <class T, class = void>
class Array : public ObjectRef {
  using ObjectRef::ObjectRef;
};
template <class T, class = void>
class Optional : public Value {
  using Value::Value;
};
template <>
class Optional<Function, void> : public ObjectRef {
  using ObjectRef::ObjectRef;
};
template <class Signature>
class TypedFunction;
template <class R, class... P>
class TypedFunction<R(P...)> : public Function {};

/* The exception that libraries throw and catch. */
class Error : public ObjectRef, public std::exception {
 public:
  explicit Error(TVMFFIObject* owned) noexcept : ObjectRef(owned) {}
  const char* what() const noexcept override { return TVMFFIErrorGetCellPtr(get())->message.data; }
};

static_assert(sizeof(ObjectRef) == sizeof(void*) && sizeof(Value) == 16 && sizeof(Error) == 2 * sizeof(void*),
              "the layouts are TVM FFI's");

/* The order of the virtual methods is that of TVM FFI's table. */
class FC_EXPORTED ModuleObj : public Object {
 public:
  virtual const char* kind() const = 0;
  virtual int GetPropertyMask() const;
  virtual Optional<Function> GetFunction(const String& name) = 0;
  virtual bool ImplementsFunction(const String& name);
  virtual Optional<String> GetFunctionDoc(const String& name);
  virtual Optional<String> GetFunctionMetadata(const String& name);
  virtual void WriteToFile(const String& file, const String& format) const;
  virtual Array<String> GetWriteFormats() const;
  virtual Bytes SaveToBytes() const;
  virtual String InspectSource(const String& format) const;
  virtual void ImportModule(const Module& other);
  virtual void ClearImports();

  Optional<Function> GetFunction(const String& name, bool query_imports);
  bool ImplementsFunction(const String& name, bool query_imports);
  Optional<String> GetFunctionDoc(const String& name, bool query_imports);
  Optional<String> GetFunctionMetadata(const String& name, bool query_imports);

  TVMFFIObject* handle() const noexcept { return const_cast<ModuleObj*>(this)->header(); }
  static ModuleObj* of(TVMFFIObject* handle) noexcept {
    return static_cast<ModuleObj*>(reinterpret_cast<Object*>(handle));
  }

 private:
  [[maybe_unused]] TVMFFIObject* imports_;
  [[maybe_unused]] TVMFFIObject* cache_;
};

class Module : public ObjectRef {
 public:
  using ObjectRef::ObjectRef;
  FC_EXPORTED static Module LoadFromFile(const String& file_name);
  FC_EXPORTED static void VisitContextSymbols(const TypedFunction<void(String, void*)>& visit);
};

}  // namespace ffi
}  // namespace tvm

namespace farcall_cxx {

extern const FcCxxCore* core;

/* Calls a builtin function of the core by name; throws its error. */
TVMFFIAny call(const char* builtin, const TVMFFIAny* args, int32_t n);
/* Throws the error in the slot. */
[[noreturn]] void throw_raised();

inline TVMFFIAny any_object(TVMFFIObject* object) noexcept {
  TVMFFIAny any{};
  if (!object) return any;
  any.type_index = object->type_index;
  any.v_obj = object;
  return any;
}
inline TVMFFIAny any_bool(bool value) noexcept {
  TVMFFIAny any{};
  any.type_index = kTVMFFIBool;
  any.v_int64 = value;
  return any;
}

}  // namespace farcall_cxx

#endif  // FARCALL_CXX_TVM_TYPES_HPP_
