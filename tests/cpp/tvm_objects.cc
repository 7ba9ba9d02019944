// Built by the real tvm_ffi.cpp.load_inline into a library that imports more than C functions: classes that derive
// from ModuleObj, JSON, whole values, types with fields. Built and loaded by test_tvm_objects.py.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/dataclass.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/rvalue_ref.h>
#include <tvm/ffi/tvm_ffi.h>

#include <map>

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

// ---- a module of the library's own class

class TableObj : public ffi::ModuleObj {
 public:
  explicit TableObj(int64_t base) : base_(base) {}
  const char* kind() const final { return "tests.table"; }
  int GetPropertyMask() const final { return 3; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (name == "add") return ffi::Function::FromTyped([this](int64_t x) { return x + base_; });
    if (name == "fails") TVM_FFI_THROW(ValueError) << "no function can be made";
    if (name == "throws") throw 42;
    return std::nullopt;
  }
  ffi::Optional<ffi::String> GetFunctionDoc(const ffi::String& name) final {
    if (name == "add") return ffi::String("Adds its base, which is a number.");
    return std::nullopt;
  }
  ffi::Bytes SaveToBytes() const final { return ffi::Bytes("base=" + std::to_string(base_)); }
  ffi::String InspectSource(const ffi::String& format) const final { return ffi::String("source as ") + format; }

 private:
  int64_t base_;
};
class BareObj : public ffi::ModuleObj {
 public:
  const char* kind() const final { return "tests.bare"; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String&) final { return std::nullopt; }
};
ffi::Module make_table(int64_t base) { return ffi::Module(ffi::make_object<TableObj>(base)); }
ffi::Module make_bare() { return ffi::Module(ffi::make_object<BareObj>()); }

// ---- any module, also one that farcall created

ffi::Any call_in(ffi::Module m, ffi::String name, ffi::Any x) { return m->GetFunction(name, true).value()(x); }
bool implements(ffi::Module m, ffi::String name) { return m->ImplementsFunction(name, true); }
bool implements_itself(ffi::Module m, ffi::String name) { return m->ImplementsFunction(name); }
void import_into(ffi::Module m, ffi::Module other) { m->ImportModule(other); }
void clear_imports(ffi::Module m) { m->ClearImports(); }
ffi::Array<ffi::Any> imports(ffi::Module m) { return m->imports(); }
ffi::String kind_of(ffi::Module m) { return m->kind(); }
int64_t mask_of(ffi::Module m) { return m->GetPropertyMask(); }
ffi::Any doc_of(ffi::Module m, ffi::String name) { return m->GetFunctionDoc(name, true); }
ffi::Any metadata_of(ffi::Module m, ffi::String name) { return m->GetFunctionMetadata(name, true); }
ffi::String source_of(ffi::Module m) { return m->InspectSource("c"); }
ffi::Bytes saved(ffi::Module m) { return m->SaveToBytes(); }
ffi::Array<ffi::String> formats_of(ffi::Module m) { return m->GetWriteFormats(); }
void write_to(ffi::Module m, ffi::String file) { m->WriteToFile(file, "txt"); }
ffi::Module load_module(ffi::String path) { return ffi::Module::LoadFromFile(path); }
bool visits_context(ffi::String name) {
  static int64_t variable;
  TVMFFIEnvModRegisterContextSymbol(name.c_str(), &variable);
  bool found = false;
  ffi::Module::VisitContextSymbols(ffi::TypedFunction<void(ffi::String, void*)>(
      [&](ffi::String seen, void* symbol) { found = found || (seen == name && symbol == &variable); }));
  return found;
}
ffi::String caught(ffi::Module m, ffi::Module other) {
  try {
    m->ImportModule(other);
  } catch (const ffi::Error& error) {
    return error.kind();
  }
  return "nothing";
}

// ---- JSON and whole values

ffi::Any parse(ffi::String text) { return ffi::json::Parse(text); }
ffi::String parse_error(ffi::String text) {
  ffi::String error = "before";
  ffi::json::Parse(text, &error);
  return error;
}
ffi::String print(ffi::Any value, ffi::Optional<int> indent) { return ffi::json::Stringify(value, indent); }
bool same_structure(ffi::Any a, ffi::Any b) { return ffi::StructuralEqual()(a, b); }
bool same_hash(ffi::Any a, ffi::Any b) { return ffi::StructuralHash()(a) == ffi::StructuralHash()(b); }
bool equal(ffi::Any a, ffi::Any b) { return ffi::RecursiveEq(a, b); }
bool equal_hash(ffi::Any a, ffi::Any b) { return ffi::RecursiveHash(a) == ffi::RecursiveHash(b); }
ffi::String repr(ffi::Any a) { return ffi::ReprPrint(a); }

// ---- a type with fields

class PointObj : public ffi::Object {
 public:
  int64_t x;
  ffi::Array<int64_t> more;
  int64_t note = 0;
  explicit PointObj(ffi::UnsafeInit) {}
  PointObj(int64_t x, ffi::Array<int64_t> more) : x(x), more(more) {}
  int64_t sum(int64_t y) const { return x + y; }
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("farcall.tests.Point", PointObj, ffi::Object);
};
class Point : public ffi::ObjectRef {
 public:
  Point(int64_t x, ffi::Array<int64_t> more) { data_ = ffi::make_object<PointObj>(x, more); }
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Point, ffi::ObjectRef, PointObj);
};
TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<PointObj>()
      .def_rw("x", &PointObj::x, "where it is")
      .def_ro("more", &PointObj::more)
      .def("sum", &PointObj::sum);
  refl::GlobalDef()
      .def("farcall.tests.triple", [](int64_t x) { return 3 * x; }, "three times as much")
      .def_packed("farcall.tests.count", [](ffi::PackedArgs args, ffi::Any* result) { *result = args.size(); });
}
ffi::String shown(int64_t x) { return ffi::ReprPrint(Point(x, {1, 2})); }
ffi::Array<bool> compared(int64_t x, int64_t y) {
  Point a(x, {1}), b(y, {1});
  return {ffi::RecursiveEq(a, b), ffi::StructuralEqual()(a, b), ffi::RecursiveHash(a) == ffi::RecursiveHash(b),
          ffi::StructuralHash()(a) == ffi::StructuralHash()(b)};
}
int64_t by_name(int64_t x) {
  ffi::Function triple = ffi::Function::GetGlobalRequired("farcall.tests.triple");
  return triple(x).cast<int64_t>() + ffi::Function::GetGlobalRequired("farcall.tests.count")(1, 2).cast<int64_t>();
}
int64_t taken(ffi::RValueRef<ffi::Array<int64_t>> array) { return (*std::move(array)).size(); }
