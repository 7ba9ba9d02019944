/*
 * farcall/cpp/module.hpp - Module: functions by name, from another library or another loader of modules.
 *
 * Part of <farcall/kernel.hpp>; include that.
 */
#ifndef FARCALL_CPP_MODULE_HPP_
#define FARCALL_CPP_MODULE_HPP_

#include <farcall/cpp/function.hpp>

namespace farcall {

/* A module that Python passed or that this library loaded. Unsupported operations throw, as in Python. */
class Module : public ObjectRef {
 public:
  Module() noexcept = default;
  explicit Module(ObjectRef ref) noexcept : ObjectRef(std::move(ref)) {}

  /* The module of a file: a shared library, or a file with a registered loader. */
  static Module LoadFromFile(const std::string& path) {
    static const detail::RuntimeFunction load = "ffi.ModuleLoadFromFile";
    return Module(load(path).cast<ObjectRef>());
  }
  /* The functions that are linked into this process: see FARCALL_SYSTEM_LIB. */
  static Module SystemLib(const std::string& prefix = "") {
    static const detail::RuntimeFunction load = "ffi.SystemLib";
    return Module(load(prefix).cast<ObjectRef>());
  }

  /* A function of the module or, with query_imports, of the modules that it imports. */
  Optional<Function> GetFunction(std::string_view name, bool query_imports = false) const {
    static const detail::RuntimeFunction get = "ffi.ModuleGetFunction";
    return get(*this, name, query_imports).cast<Optional<Function>>();
  }
  /* The same; AttributeError if the function is missing. */
  Function operator[](std::string_view name) const {
    Optional<Function> found = GetFunction(name);
    FARCALL_CHECK(found, "AttributeError", "the module has no function `", name, "`");
    return *found;
  }
  bool ImplementsFunction(std::string_view name, bool query_imports = false) const {
    static const detail::RuntimeFunction implements = "ffi.ModuleImplementsFunction";
    return implements(*this, name, query_imports).cast<bool>();
  }
  /* The JSON that describes a function, if any. */
  Optional<String> GetFunctionMetadata(std::string_view name, bool query_imports = false) const {
    static const detail::RuntimeFunction get = "ffi.ModuleGetFunctionMetadata";
    return get(*this, name, query_imports).cast<Optional<String>>();
  }
  Optional<String> GetFunctionDoc(std::string_view name, bool query_imports = false) const {
    static const detail::RuntimeFunction get = "ffi.ModuleGetFunctionDoc";
    return get(*this, name, query_imports).cast<Optional<String>>();
  }
  /* "library", or what its loader calls it. */
  String kind() const {
    static const detail::RuntimeFunction get = "ffi.ModuleGetKind";
    return get(*this).cast<String>();
  }
  /* The source of the module, or an empty string. */
  String InspectSource(std::string_view format = "") const {
    static const detail::RuntimeFunction inspect = "ffi.ModuleInspectSource";
    return inspect(*this, format).cast<String>();
  }

  void ImportModule(const Module& other) const {
    static const detail::RuntimeFunction import = "ffi.ModuleImportModule";
    import(*this, other);
  }
  void ClearImports() const {
    static const detail::RuntimeFunction clear = "ffi.ModuleClearImports";
    clear(*this);
  }
  /* As they are now. They stand behind the header: an Array, or NULL while there are none. */
  Array<Module> imports() const;
};

template <>
struct Traits<Module> : detail::ObjectTraits<Module, kTVMFFIModule> {
  static std::string name() { return "Module"; }
  static std::string schema() { return detail::schema_of("ffi.Module"); }
};

inline Array<Module> Module::imports() const {
  auto* array = *reinterpret_cast<TVMFFIObject* const*>(object_ + 1);
  return array ? Array<Module>(share(array)) : Array<Module>();
}

}  // namespace farcall

#endif  // FARCALL_CPP_MODULE_HPP_
