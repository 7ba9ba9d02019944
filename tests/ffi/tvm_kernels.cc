// Kernels of a user of the real apache-tvm-ffi package: tvm_ffi.cpp.load_inline builds them, and test_tvm_kernels.py
// loads the library without that package.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace ffi = tvm::ffi;
using AnyMap = ffi::Map<ffi::Any, ffi::Any>;
using AnyDict = ffi::Dict<ffi::Any, ffi::Any>;

// ---- plain values
int64_t add(int64_t a, int64_t b) { return a + b; }
double halve(double x) { return x / 2; }
bool invert(bool b) { return !b; }
void nothing() {}
ffi::String greet(ffi::String s) { return ffi::String("hello ") + s; }
ffi::Bytes backwards(ffi::Bytes b) {
  std::string s(b.data(), b.size());
  std::reverse(s.begin(), s.end());
  return ffi::Bytes(s);
}
DLDataType parse_dtype(ffi::String s) { return ffi::StringToDLDataType(s); }
ffi::String dtype_name(DLDataType d) { return ffi::DLDataTypeToString(d); }
int64_t device_id(DLDevice d) { return d.device_id; }
ffi::String type_key(ffi::Any a) { return a.GetTypeKey(); }
int64_t signals() { return TVMFFIEnvCheckSignals(); }
void until_a_signal() {
  while (TVMFFIEnvCheckSignals() == 0) continue;
  throw ffi::EnvErrorAlreadySet();
}
int64_t stream(int64_t type, int64_t id) { return reinterpret_cast<int64_t>(TVMFFIEnvGetStream(type, id)); }

// ---- tensors
float* floats(ffi::TensorView x) { return static_cast<float*>(x.data_ptr()); }
double total(ffi::TensorView x) { return std::accumulate(floats(x), floats(x) + x.numel(), 0.0); }
ffi::Shape dims(ffi::TensorView x) { return ffi::Shape(x.shape()); }
int64_t stride_of(ffi::TensorView x, int64_t i) { return x.stride(i); }
ffi::Tensor same(ffi::Tensor x) { return x; }
ffi::Tensor increased(ffi::TensorView x) {
  ffi::Tensor y = ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
  std::transform(floats(x), floats(x) + x.numel(), static_cast<float*>(y.data_ptr()), [](float v) { return v + 1; });
  return y;
}
struct Malloc {
  void AllocData(DLTensor* t) { t->data = std::calloc(1, ffi::GetDataSize(*t) + 1); }
  void FreeData(DLTensor* t) { std::free(t->data); }
};
ffi::Tensor zeros(int64_t n) {
  return ffi::Tensor::FromNDAlloc(Malloc(), ffi::Shape({n}), DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
}
ffi::Tensor row(ffi::Tensor x, int64_t i) {
  return x.as_strided(ffi::Shape({x.size(1)}), ffi::Shape({1}), i * x.size(1));
}

// ---- Optional and containers
int64_t maybe(ffi::Optional<int64_t> x) { return x.has_value() ? x.value() + 1 : -1; }
ffi::Optional<ffi::String> maybe_text(ffi::Optional<ffi::String> x) { return x; }
int64_t maybe_size(ffi::Optional<ffi::Tensor> x) { return x.has_value() ? x.value().numel() : -1; }
ffi::Any either(ffi::Variant<int64_t, ffi::String> v) { return ffi::Any(v); }
ffi::Tuple<ffi::String, int64_t> swapped(ffi::Tuple<int64_t, ffi::String> t) {
  return ffi::Tuple<ffi::String, int64_t>(t.get<1>(), t.get<0>());
}
int64_t sum(ffi::Array<int64_t> a) { return std::accumulate(a.begin(), a.end(), int64_t{0}); }
int64_t product(ffi::Shape s) { return s.Product(); }
ffi::Array<ffi::Any> squares(int64_t n) {
  ffi::Array<ffi::Any> a;
  for (int64_t i = 0; i < n; ++i) a.push_back(i * i);
  return a;
}
ffi::Array<ffi::Array<ffi::Any>> nested(ffi::Array<ffi::Array<ffi::Any>> a) { return a; }
ffi::List<ffi::Any> texts(int64_t n) {
  ffi::List<ffi::Any> a;
  for (int64_t i = 0; i < n; ++i) a.push_back("item " + std::to_string(i));
  return a;
}
AnyMap make_map(int64_t n) {
  AnyMap m;
  for (int64_t i = 0; i < n; ++i) m.Set("key number " + std::to_string(i), i);
  return m;
}
AnyDict make_dict(int64_t n) {
  AnyDict m;
  for (int64_t i = 0; i < n; ++i) m.Set(i * 7, "v" + std::to_string(i));
  return m;
}
ffi::Any map_get(AnyMap m, ffi::Any k) { return m[k]; }
int64_t map_size(AnyMap m) { return static_cast<int64_t>(m.size()); }
ffi::Array<ffi::Any> map_keys(AnyMap m) {
  ffi::Array<ffi::Any> a;
  for (auto item : m) a.push_back(item.first);
  return a;
}
// Inlined code of the package changes an object that farcall created.
AnyMap map_set(AnyMap m, ffi::Any k, ffi::Any v) {
  m.Set(k, v);
  return m;
}
AnyMap map_erase(AnyMap m, ffi::Any k) {
  m.erase(k);
  return m;
}
ffi::Any dict_fill(AnyDict m, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) m.Set(i, i);
  return m;
}
int64_t hash_of(ffi::Any v) { return static_cast<int64_t>(ffi::AnyHash()(v)); }

// ---- functions
ffi::Any apply(ffi::Function f, ffi::Any x) { return f(x); }
ffi::Any call_global(ffi::String name, ffi::Any x) { return ffi::Function::GetGlobalRequired(name)(x); }
ffi::Any builtin(ffi::String name, ffi::Array<ffi::Any> args) {
  std::vector<ffi::Any> values(args.begin(), args.end());
  std::vector<ffi::AnyView> views(values.begin(), values.end());
  ffi::Any result;
  ffi::Function::GetGlobalRequired(name).CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  return result;
}
ffi::Function adder(int64_t a) {
  return ffi::Function::FromTyped([a](int64_t b) { return a + b; });
}

// ---- errors
void fail(ffi::String kind, ffi::String message) {
  throw ffi::Error(kind, message, TVMFFIBacktrace(__FILE__, __LINE__, "fail", 0));
}
int64_t positive(int64_t x) {
  TVM_FFI_CHECK(x > 0, ValueError) << "x is " << x;
  return x;
}
ffi::String caught(ffi::Function f) {
  try {
    f();
  } catch (const ffi::Error& e) {
    return e.kind() + ": " + e.message();
  }
  return "none";
}

// ---- a class of the library's own
class CounterObj : public ffi::Object {
 public:
  int64_t value = 0;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("farcall.test.Counter", CounterObj, ffi::Object);
};
class Counter : public ffi::ObjectRef {
 public:
  explicit Counter(int64_t value) {
    auto object = ffi::make_object<CounterObj>();
    object->value = value;
    data_ = std::move(object);
  }
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Counter, ffi::ObjectRef, CounterObj);
};
int64_t count(int64_t times) {
  ffi::Any any = Counter(0);
  for (int64_t i = 0; i < times; ++i) ++const_cast<CounterObj*>(any.cast<Counter>().get())->value;
  return any.cast<Counter>()->value;
}
