/* Modules as C++ objects: the methods of modules that the core makes, and calls into modules that libraries make. */
#include "cxx/tvm_types.hpp"

#include <cstring>

namespace farcall_cxx {

const FcCxxCore* core;

[[noreturn]] void throw_raised() { throw tvm::ffi::Error(core->take_error()); }

TVMFFIAny call(const char* builtin, const TVMFFIAny* args, int32_t n) {
  TVMFFIAny result{};
  if (core->call(builtin, args, n, &result) != 0) throw_raised();
  return result;
}

namespace {

TVMFFIAny ask(const char* builtin, const tvm::ffi::ModuleObj* module, const tvm::ffi::String& name, bool imports) {
  const TVMFFIAny args[3] = {any_object(module->handle()), name.raw(), any_bool(imports)};
  return call(builtin, args, 3);
}

}  // namespace
}  // namespace farcall_cxx

namespace tvm {
namespace ffi {

using farcall_cxx::any_object;
using farcall_cxx::ask;
using farcall_cxx::call;
using farcall_cxx::core;
using farcall_cxx::throw_raised;

/* See TVMFFIObject in c_api.h for the two counts. */
void release(TVMFFIObject* object) noexcept {
  constexpr uint64_t kWeakOne = 0x100000000ULL;
  uint64_t old = __atomic_fetch_sub(&object->combined_ref_count, 1, __ATOMIC_RELEASE);
  if (static_cast<uint32_t>(old) != 1) return;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  bool both = old == kWeakOne + 1;
  if (object->deleter) object->deleter(object, both ? 3 : 1);
  if (both || __atomic_fetch_sub(&object->combined_ref_count, kWeakOne, __ATOMIC_RELEASE) != kWeakOne) return;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (object->deleter) object->deleter(object, 2);
}

/* ---- methods that a library's class inherits ---- */

int ModuleObj::GetPropertyMask() const { return 0; }
bool ModuleObj::ImplementsFunction(const String& name) { return GetFunction(name).get() != nullptr; }
Optional<String> ModuleObj::GetFunctionDoc(const String&) { return {}; }
Optional<String> ModuleObj::GetFunctionMetadata(const String&) { return {}; }
void ModuleObj::WriteToFile(const String&, const String&) const {
  core->raise_text("RuntimeError", "a module of this kind cannot be written to files");
  throw_raised();
}
Array<String> ModuleObj::GetWriteFormats() const { return Array<String>(call("ffi.Array", nullptr, 0).v_obj); }
Bytes ModuleObj::SaveToBytes() const {
  core->raise_text("RuntimeError", "a module of this kind cannot be saved as bytes");
  throw_raised();
}
String ModuleObj::InspectSource(const String&) const {
  TVMFFIAny empty{};
  empty.type_index = kTVMFFISmallStr;
  return String(empty);
}
void ModuleObj::ImportModule(const Module& other) {
  if (core->import(handle(), other.get()) != 0) throw_raised();
}
void ModuleObj::ClearImports() {
  if (core->clear_imports(handle()) != 0) throw_raised();
}

/* ---- functions that libraries call on any module ---- */

Optional<Function> ModuleObj::GetFunction(const String& name, bool query_imports) {
  return Optional<Function>(ask("ffi.ModuleGetFunction", this, name, query_imports).v_obj);
}
bool ModuleObj::ImplementsFunction(const String& name, bool query_imports) {
  return ask("ffi.ModuleImplementsFunction", this, name, query_imports).v_int64 != 0;
}
Optional<String> ModuleObj::GetFunctionDoc(const String& name, bool query_imports) {
  return Optional<String>(ask("ffi.ModuleGetFunctionDoc", this, name, query_imports));
}
Optional<String> ModuleObj::GetFunctionMetadata(const String& name, bool query_imports) {
  return Optional<String>(ask("ffi.ModuleGetFunctionMetadata", this, name, query_imports));
}
Module Module::LoadFromFile(const String& file_name) {
  return Module(call("ffi.ModuleLoadFromFile", &file_name.raw(), 1).v_obj);
}

namespace {

void visit_symbol(void* context, const char* name, void* symbol) {
  TVMFFIAny args[2] = {};
  args[0].type_index = kTVMFFIRawStr;
  args[0].v_c_str = name;
  args[1].type_index = kTVMFFIOpaquePtr;
  args[1].v_ptr = symbol;
  auto* visit = static_cast<TVMFFIObject*>(context);
  TVMFFIAny result{};
  if (TVMFFIFunctionGetCellPtr(visit)->safe_call(visit, args, 2, &result) != 0) throw_raised();
  Value dropped(result);
}

}  // namespace

void Module::VisitContextSymbols(const TypedFunction<void(String, void*)>& visit) {
  core->each_context_symbol(visit_symbol, visit.get());
}

/* ---- modules that the core makes: all but their table of methods is in the core ---- */

namespace {

class Own final : public ModuleObj {
 public:
  const char* kind() const override { return core->kind(handle()); }
  int GetPropertyMask() const override {
    TVMFFIAny self = any_object(handle());
    return static_cast<int>(call("ffi.ModuleGetPropertyMask", &self, 1).v_int64);
  }
  Optional<Function> GetFunction(const String& name) override { return ModuleObj::GetFunction(name, false); }
  bool ImplementsFunction(const String& name) override { return ModuleObj::ImplementsFunction(name, false); }
  Optional<String> GetFunctionDoc(const String& name) override { return ModuleObj::GetFunctionDoc(name, false); }
  Optional<String> GetFunctionMetadata(const String& name) override {
    return ModuleObj::GetFunctionMetadata(name, false);
  }
  Bytes SaveToBytes() const override {
    TVMFFIAny result{};
    if (core->save(handle(), &result) != 0) throw_raised();
    return Bytes(result);
  }
  String InspectSource(const String& format) const override {
    const TVMFFIAny args[2] = {any_object(handle()), format.raw()};
    return String(call("ffi.ModuleInspectSource", args, 2));
  }
};

/* The table of methods of class Own: the first word of each of its objects. */
void* const* own_table() noexcept {
  static const Own sample{};
  void* const* table;
  std::memcpy(&table, static_cast<const void*>(&sample), sizeof table);
  return table;
}

/* ---- calls into modules that libraries made: an exception becomes this thread's error ---- */

template <class F>
int guarded(F&& call_it) noexcept {
  try {
    call_it();
    return 0;
  } catch (const Error& error) {
    retain(error.get());
    core->raise(error.get());
  } catch (const std::exception& error) {
    core->raise_text("RuntimeError", error.what());
  } catch (...) {
    core->raise_text("RuntimeError", "a C++ module threw something other than a std::exception");
  }
  return -1;
}

/* Borrows a String value as a const String&. */
const String& string_of(const TVMFFIAny* any) noexcept { return *reinterpret_cast<const String*>(any); }

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): only addresses are taken
const FcCxx kMethods = {
    own_table(),
    [](TVMFFIObject* module, const char** out) { return guarded([&] { *out = ModuleObj::of(module)->kind(); }); },
    [](TVMFFIObject* module, int* out) { return guarded([&] { *out = ModuleObj::of(module)->GetPropertyMask(); }); },
    [](TVMFFIObject* module, const TVMFFIAny* name, TVMFFIAny* result) {
      return guarded([&] { *result = any_object(ModuleObj::of(module)->GetFunction(string_of(name)).take()); });
    },
    [](TVMFFIObject* module, bool doc, const TVMFFIAny* name, TVMFFIAny* result) {
      return guarded([&] {
        ModuleObj* self = ModuleObj::of(module);
        *result = (doc ? self->GetFunctionDoc(string_of(name)) : self->GetFunctionMetadata(string_of(name))).take();
      });
    },
    [](TVMFFIObject* module, const TVMFFIAny* file, const TVMFFIAny* format) {
      return guarded([&] { ModuleObj::of(module)->WriteToFile(string_of(file), string_of(format)); });
    },
    [](TVMFFIObject* module, TVMFFIAny* result) {
      return guarded([&] { *result = any_object(ModuleObj::of(module)->GetWriteFormats().take()); });
    },
    [](TVMFFIObject* module, TVMFFIAny* result) {
      return guarded([&] { *result = ModuleObj::of(module)->SaveToBytes().take(); });
    },
    [](TVMFFIObject* module, const TVMFFIAny* format, TVMFFIAny* result) {
      return guarded([&] { *result = ModuleObj::of(module)->InspectSource(string_of(format)).take(); });
    },
    [](TVMFFIObject* module, TVMFFIObject* other) {
      return guarded([&] {
        retain(other);
        ModuleObj::of(module)->ImportModule(Module(other));
      });
    },
    [](TVMFFIObject* module) { return guarded([&] { ModuleObj::of(module)->ClearImports(); }); },
};

}  // namespace
}  // namespace ffi
}  // namespace tvm

extern "C" FC_EXPORTED const FcCxx* fc_cxx_meet(const FcCxxCore* core);
const FcCxx* fc_cxx_meet(const FcCxxCore* core) {
  farcall_cxx::core = core;
  return &tvm::ffi::kMethods;
}
