// One library with a function for each kind of argument, result and error. farcall and tvm_ffi load it.
#include <farcall/kernel.hpp>

#include <functional>
#include <map>
#include <stdexcept>
#include <unordered_map>

using namespace farcall;

namespace tests {

// ---- values

enum class Color : int32_t { kRed = 1, kBlue = 2 };

int64_t add(int64_t a, int32_t b) { return a + b; }
uint64_t most() { return ~uint64_t{0}; }
double mean(double a, float b) { return (a + b) / 2; }
bool flip(bool x) { return !x; }
std::string join(std::string_view a, const std::string& b, const char* c) { return text(a, b, c); }
int64_t length(String s, Bytes b) { return static_cast<int64_t>(s.size() * 100 + b.size()); }
Bytes reversed(const Bytes& b) {
  std::string out(b.view().rbegin(), b.view().rend());
  return Bytes(out);
}
Color next(Color c) { return c == Color::kRed ? Color::kBlue : Color::kRed; }
std::string kinds(DLDataType dtype, DLDevice device) { return text(dtype_name(dtype), " ", device_name(device)); }
Any same(Any x) { return x; }
Optional<int64_t> half(Optional<int64_t> x) {
  if (!x || *x % 2) return std::nullopt;
  return *x / 2;
}

FARCALL_EXPORT(add, add, arg("a"), arg("b", 10));
FARCALL_EXPORT(narrow, [](int8_t a, uint16_t b) { return a + b; });
FARCALL_EXPORT(unsigned64, [](uint64_t a) { return a; });
FARCALL_EXPORT(most, most);
FARCALL_EXPORT(mean, mean);
FARCALL_EXPORT(flip, flip);
FARCALL_EXPORT(join, join);
FARCALL_EXPORT(length, length);
FARCALL_EXPORT(reversed, reversed);
FARCALL_EXPORT(next_color, next);
FARCALL_EXPORT(kinds, kinds, doc("Names of both."), arg("dtype", dtype_of<float>), arg("device", DLDevice{kDLCPU, 0}));
FARCALL_EXPORT(same, same);
FARCALL_EXPORT(half, half);
FARCALL_EXPORT(nothing, [] {});
FARCALL_EXPORT(pointer, [](void* p) { return p == nullptr; });
FARCALL_EXPORT(count_all, [](PackedArgs args) { return args.size(); });
FARCALL_EXPORT(options, [](int64_t n, const std::string& mode, double by, Optional<int64_t> limit) {
  return text(n, mode, by > 1.0, limit.value_or(-1));
}, doc("Has defaults of every kind."), required("n", "how many"), arg("mode", "a much longer text"), arg("by", 1.5),
               arg("limit", nullptr));

// ---- tensors

// All accessors of a tensor.
std::string asked(TensorView x) {
  std::string out = text(x.dim(), "|");
  for (int64_t dim : x.sizes()) out += text(dim, ",");
  out += "|";
  for (int64_t stride : x.strides()) out += text(stride, ",");
  return text(out, "|", x.numel(), "|", dtype_name(x.dtype()), "|", device_name(x.device()), "|", x.byte_offset(), "|",
              x.is_contiguous(), "|", x.nbytes());
}
std::string axis(ConstTensorView x, int64_t i) { return text(x.size(i), " ", x.stride(i)); }

// The same of a tensor without strides, as some producers give it.
std::string without_strides(TensorView x) {
  DLTensor bare = x.dl();
  bare.strides = nullptr;
  return text(asked(TensorView(&bare)), "|", TensorView(&bare).stride(0));
}

float offset_first(TensorView x) {
  DLTensor moved = x.dl();
  moved.byte_offset += 4;
  return *TensorView(&moved).data_ptr<float>();
}

Tensor doubled(ConstTensorView x) {
  FARCALL_CHECK(x.is_contiguous(), "ValueError", "`x` has strides");
  Tensor y = Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.sizes(), x.dtype(), x.device());
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
  return y;
}

void add_one(TensorView x) {
  auto* data = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) data[i] += 1;
}

Tensor columns(int64_t rows, int64_t columns) {
  Tensor y = Tensor::FromEnvAllocStrided(TVMFFIEnvTensorAlloc, {rows, columns}, {1, rows}, dtype_of<float>, {kDLCPU, 0});
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = static_cast<float>(i);
  return y;
}

int64_t live = 0;

// A user's allocator: counts live allocations, and fills new memory with a value.
struct Counting {
  void AllocData(DLTensor* tensor, float value) {
    int64_t n = ShapeView(tensor->shape, static_cast<size_t>(tensor->ndim)).numel();
    FARCALL_CHECK(n < 1000, "MemoryError", "at most 1000 elements");
    auto* data = new float[static_cast<size_t>(n)];
    for (int64_t i = 0; i < n; ++i) data[i] = value;
    tensor->data = data;
    ++live;
  }
  void FreeData(DLTensor* tensor) {
    delete[] static_cast<float*>(tensor->data);
    --live;
  }
};

Tensor filled(Shape shape, float value) {
  return Tensor::FromNDAlloc(Counting(), shape, dtype_of<float>, {kDLCPU, 0}, value);
}

// A round trip: the memory stays the same, and is released once.
Tensor through_dlpack(Tensor x, bool versioned, int64_t alignment, bool contiguous, bool checked_by_receiver) {
  auto align = static_cast<size_t>(alignment);
  size_t out_alignment = checked_by_receiver ? 0 : align;
  bool out_contiguous = contiguous && !checked_by_receiver;
  if (!versioned) {
    DLManagedTensor* managed = x.ToDLPack(out_alignment, out_contiguous);
    try {
      return Tensor::FromDLPack(managed, align, contiguous);
    } catch (...) {
      managed->deleter(managed);
      throw;
    }
  }
  DLManagedTensorVersioned* managed = x.ToDLPackVersioned(out_alignment, out_contiguous);
  try {
    return Tensor::FromDLPackVersioned(managed, align, contiguous);
  } catch (...) {
    managed->deleter(managed);
    throw;
  }
}

int64_t bad_dlpack(const Tensor& x, uint32_t major, uint64_t flags) {
  DLManagedTensorVersioned* managed = x.ToDLPackVersioned();
  managed->version.major = major;
  managed->flags |= flags;
  try {
    return static_cast<int64_t>(Tensor::FromDLPackVersioned(managed).flags());
  } catch (...) {
    managed->deleter(managed);
    throw;
  }
}

Tensor transposed(const Tensor& x) {
  return x.as_strided({x.size(1), x.size(0)}, {x.stride(1), x.stride(0)});
}

FARCALL_EXPORT(asked, asked);
FARCALL_EXPORT(axis, axis);
FARCALL_EXPORT(without_strides, without_strides);
FARCALL_EXPORT(offset_first, offset_first);
FARCALL_EXPORT(doubled, doubled, arg("x"), like("x"));
FARCALL_EXPORT(unlike, doubled, arg("x"), like("y"));
FARCALL_EXPORT(add_one, add_one, arg("x"));
FARCALL_EXPORT(columns, columns);
FARCALL_EXPORT(filled, filled);
FARCALL_EXPORT(live, [] { return live; });
FARCALL_EXPORT(keep, [](Tensor x) { return x; });
FARCALL_EXPORT(through_dlpack, through_dlpack, arg("x"), arg("versioned"), arg("alignment"), arg("contiguous"),
               arg("checked_by_receiver", true));
FARCALL_EXPORT(bad_dlpack, bad_dlpack);
FARCALL_EXPORT(transposed, transposed);
FARCALL_EXPORT(row, [](const Tensor& x, int64_t i) { return x.as_strided({x.size(1)}, {x.stride(1)}, i * x.stride(0)); });
FARCALL_EXPORT(strided, [](int64_t stride) {
  return Tensor::FromEnvAllocStrided(TVMFFIEnvTensorAlloc, {2}, {stride}, dtype_of<float>, {kDLCPU, 0});
});
FARCALL_EXPORT(of_shape, [](ConstTensorView x, const Shape& shape) {
  return Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, shape, x.dtype(), x.device());
});
FARCALL_EXPORT(is_nothing, [](const Any& x) {
  Tensor held = x == nullptr ? Tensor() : x.cast<Tensor>();
  FARCALL_CHECK((held != nullptr) == (x != nullptr) && Tensor() == nullptr, "RuntimeError", "null");
  return x == nullptr;
});
FARCALL_EXPORT(maybe, [](Optional<TensorView> x) { return x ? x->numel() : -1; });

// ---- containers

FARCALL_EXPORT(sum, [](Array<double> items) {
  double out = 0;
  for (double item : items) out += item;
  return out;
});
FARCALL_EXPORT(sizes, [](std::vector<TensorView> items) {
  std::vector<int64_t> out;
  for (const TensorView& item : items) out.push_back(item.numel());
  return out;
});
FARCALL_EXPORT(item, [](Array<> items, int64_t i) { return items.at(i); });
FARCALL_EXPORT(nested, [](const Array<Array<int64_t>>& rows) { return rows.at(-1).back(); });
FARCALL_EXPORT(swap, [](std::pair<int64_t, std::string> x) { return std::make_tuple(x.second, x.first, 2.5); });
FARCALL_EXPORT(dims, [](Shape shape) { return Shape({shape.numel(), shape.at(-1)}); });
FARCALL_EXPORT(total, [](Map<String, int64_t> x) {
  std::string keys;
  int64_t out = 0;
  for (const auto& [key, value] : x) {
    keys += key.str();
    out += value;
  }
  return text(keys, "=", out);
});
FARCALL_EXPORT(lookup, [](const Map<String, Any>& x, const String& key) { return x.at(key); });
Map<String, int64_t> by_length(const std::vector<std::string>& words) {
  std::vector<std::pair<String, int64_t>> items;
  for (const std::string& word : words) items.emplace_back(word, static_cast<int64_t>(word.size()));
  return Map<String, int64_t>(items);
}
FARCALL_EXPORT(by_length, by_length);

Map<String, Any> with_item(Map<String, Any> x, const String& key, const Any& value) {
  Map<String, Any> before = x;
  x.Set(key, value);
  FARCALL_CHECK(before.find(key).has_value() == (before.size() == x.size()), "RuntimeError", "shared");
  return x;
}
Map<String, Any> without(Map<String, Any> x, const String& key) {
  size_t before = x.size();
  FARCALL_CHECK(x.erase(key) == (x.size() != before), "RuntimeError", "erase");
  return x;
}
std::map<std::string, std::vector<int64_t>> grouped(const std::unordered_map<int64_t, std::string>& x) {
  std::map<std::string, std::vector<int64_t>> out;
  for (const auto& [key, value] : x) out[value].push_back(key);
  return out;
}
FARCALL_EXPORT(with_item, with_item);
FARCALL_EXPORT(without, without);
FARCALL_EXPORT(grouped, grouped);
FARCALL_EXPORT(extended, [](Array<int64_t> x, int64_t n) {
  Array<int64_t> out = x;
  for (int64_t i = 0; i < n; ++i) out.push_back(i);
  if (n) out.Set(-1, 99);
  return std::make_pair(x, out);
});
List<int64_t> shared_list(int64_t n) {
  List<int64_t> out = {7, 8};
  List<int64_t> same = out;
  for (int64_t i = 0; i < n; ++i) same.push_back(i);
  same.insert(0, 6);
  same.erase(-1);
  same.Set(1, 70);
  return out;
}
FARCALL_EXPORT(shared_list, shared_list);
FARCALL_EXPORT(append, [](List<int64_t> x, int64_t item) {
  x.push_back(item);
  return x;
});
Dict<String, Any> shared_dict(int64_t n) {
  Dict<String, Any> out = {{"first", 1}};
  Dict<String, Any> same = out;
  for (int64_t i = 0; i < n; ++i) same.Set(std::to_string(i), i);
  FARCALL_CHECK(same.erase("first") && !same.erase("first"), "RuntimeError", "erase");
  FARCALL_CHECK(out.at("0").cast<int64_t>() == 0 && !out.contains("first"), "RuntimeError", "find");
  return out;
}
FARCALL_EXPORT(shared_dict, shared_dict);
Dict<String, Any> put(Dict<String, Any> x, const String& key, const Any& value) {
  x.Set(key, value);
  return x;
}
FARCALL_EXPORT(put, put);
FARCALL_EXPORT(cleared, [](List<> x) { x.clear(); });

// ---- one of several types

using Either = Variant<double, int64_t, String, Array<int64_t>, TensorView>;
FARCALL_EXPORT(which, [](const Either& x) {
  return std::visit([](const auto& held) { return Traits<std::decay_t<decltype(held)>>::name(); }, x);
});
Variant<int64_t, std::string> either(int64_t x) {
  if (x > 0) return x;
  return "not positive";
}
FARCALL_EXPORT(either, either);

// ---- modules

FARCALL_EXPORT(call_in, [](const Module& module, const std::string& name, int64_t x) { return module[name](x); });
FARCALL_EXPORT(about, [](Module module, std::string_view name) {
  return text(module.kind(), "|", module.ImplementsFunction(name), "|", module.GetFunctionDoc(name).has_value(), "|",
              module.GetFunctionMetadata(name).has_value(), "|", module.imports().size());
});
FARCALL_EXPORT(import_into, [](const Module& module, const Module& other) {
  module.ImportModule(other);
  bool found = module.GetFunction("add", true).has_value();
  module.ClearImports();
  return found;
});
FARCALL_EXPORT(load, [](const std::string& path) { return Module::LoadFromFile(path); });

// ---- functions

FARCALL_EXPORT(apply_std, [](const std::function<int64_t(int64_t)>& f, int64_t x) { return f(x) + 1; });
FARCALL_EXPORT(std_adder, [](int64_t n) -> std::function<int64_t(int64_t)> { return [n](int64_t x) { return n + x; }; });
FARCALL_EXPORT(apply, [](Function f, int64_t x) { return f(x, std::string("text\0with NUL", 13), 2.5, true, nullptr); });
FARCALL_EXPORT(apply_typed, [](const TypedFunction<int64_t(int64_t)>& f, int64_t x) { return f(x) + 1; });
FARCALL_EXPORT(apply_tensor, [](Function f, TensorView x) { return f(x).cast<int64_t>(); });
FARCALL_EXPORT(adder, [](int64_t n) { return make_function([n](int64_t x) { return n + x; }, "adder"); });
FARCALL_EXPORT(call_global, [](const std::string& name, int64_t x) { return Function::GetGlobalRequired(name)(x); });
FARCALL_EXPORT(has_global, [](std::string_view name) { return Function::GetGlobal(name).has_value(); });
FARCALL_EXPORT(set_global, [](std::string_view name) {
  Function::SetGlobal(name, make_function([](int64_t x) { return x * 3; }));
});
FARCALL_EXPORT(catches, [](Function f) {
  try {
    f();
    return std::string("fine");
  } catch (const Error& error) {
    return text(error.kind(), ": ", error.message());
  }
});

// ---- errors

FARCALL_EXPORT(fail, [](const std::string& kind, const std::string& message) { throw Error(kind, message); });
FARCALL_EXPORT(fail_std, [](const std::string& what) {
  if (what == "invalid_argument") throw std::invalid_argument("bad value");
  if (what == "out_of_range") throw std::out_of_range("far away");
  if (what == "bad_alloc") throw std::bad_alloc();
  if (what == "overflow_error") throw std::overflow_error("too big");
  if (what == "runtime_error") throw std::runtime_error("went wrong");
  throw 42;
});
FARCALL_EXPORT(fail_with_cause, [] {
  try {
    throw Error("KeyError", "inner");
  } catch (const Error& inner) {
    throw Error("ValueError", "outer", inner);
  }
});
FARCALL_EXPORT(causes, [](const Error& error) {
  std::string out;
  for (std::optional<Error> e = error; e; e = e->cause()) out += text(e->kind(), ";");
  return out;
});
FARCALL_EXPORT(error_value, [](const Error& error) { return text(error.kind(), "|", error.message()); });

// ---- the environment

int64_t stream(int32_t device_id) {
  DLDevice device{kDLCUDA, device_id};
  StreamScope scope(device, reinterpret_cast<void*>(0x1230));
  return reinterpret_cast<int64_t>(EnvGetStream<char*>(device));
}
FARCALL_EXPORT(stream, stream);
FARCALL_EXPORT(signals, [] { EnvCheckSignals(); });
FARCALL_EXPORT(until_a_signal, [] {
  for (;;) EnvCheckSignals();
});

}  // namespace tests
