// The library of torch_ops/ and test_stubgen.py.
#include <farcall/kernel.hpp>

using namespace farcall;

static Tensor scale(ConstTensorView x, double by) {
  FARCALL_CHECK(x.is_contiguous(), "ValueError", "`x` has strides");
  Tensor y = Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.sizes(), x.dtype(), x.device());
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = static_cast<float>(x.data_ptr<float>()[i] * by);
  return y;
}
static void add_into(ConstTensorView a, ConstTensorView b, TensorView out) {
  FARCALL_CHECK(a.numel() == out.numel() && b.numel() == out.numel(), "ValueError", "sizes differ");
  for (int64_t i = 0; i < out.numel(); ++i) {
    out.data_ptr<float>()[i] = a.data_ptr<float>()[i] + b.data_ptr<float>()[i];
  }
}
static void fill(Optional<TensorView> x, double value) {
  if (!x.has_value()) return;
  for (int64_t i = 0; i < x.value().numel(); ++i) x.value().data_ptr<float>()[i] = static_cast<float>(value);
}
static std::vector<Tensor> multiples(ConstTensorView x, int64_t n) {
  std::vector<Tensor> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(scale(x, static_cast<double>(i)));
  return out;
}
static std::tuple<Tensor, Tensor> both(ConstTensorView x) { return {scale(x, 1), scale(x, 2)}; }
static Tensor same(Tensor x) { return x; }
static Tensor first(const Array<Tensor>& xs) { return xs[0]; }
static double total(Optional<ConstTensorView> x, const std::vector<double>& more, bool negative, const std::string& unit) {
  double sum = static_cast<double>(unit.size());
  for (double value : more) sum += value;
  for (int64_t i = 0; x.has_value() && i < x.value().numel(); ++i) sum += x.value().data_ptr<float>()[i];
  return negative ? -sum : sum;
}
static Tensor zeros(Shape shape, DLDataType dtype, DLDevice device) {
  Tensor y = Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, shape, dtype, device);
  std::memset(y.data_ptr(), 0, static_cast<size_t>(y.nbytes()));
  return y;
}
static double limit(double by, int64_t n, const std::string& text) { return by + static_cast<double>(n) + text.size(); }
static int64_t apply(TypedFunction<int64_t(int64_t)> f) { return f(1); }
static Map<String, Tensor> renamed(const Map<String, Tensor>& named) { return named; }
static int64_t fallible(int64_t n) {
  FARCALL_CHECK(n >= 0, "ValueError", "expected 0 or more, got ", n);
  return n;
}

FARCALL_EXPORT(scale, scale, doc("Multiplies.\n\nBy \"\"\" and \\ too\""), required("x", "what to scale"),
               arg("by", 2.0, "the factor"));
FARCALL_EXPORT(add_into, add_into, arg("a"), arg("b"), arg("out"));
FARCALL_EXPORT(fill, fill, arg("x"), arg("value", 1.5));
FARCALL_EXPORT(multiples, multiples, arg("x"), arg("n", 2));
FARCALL_EXPORT(both, both);
FARCALL_EXPORT(same, same, arg("x"));
FARCALL_EXPORT(first, first, arg("xs"));
FARCALL_EXPORT(total, total, arg("x", nullptr), arg("more"), arg("negative", false), arg("unit", "a\"b"));
FARCALL_EXPORT(zeros, zeros, arg("shape"), arg("dtype", DLDataType{kDLFloat, 32, 1}), arg("device", DLDevice{kDLCPU, 0}));
FARCALL_EXPORT(limit, limit, arg("by", std::numeric_limits<double>::infinity()), arg("n", -3), arg("in", "\n"));
FARCALL_EXPORT(apply, apply, arg("f"));
FARCALL_EXPORT(renamed, renamed, arg("named"));
FARCALL_EXPORT(fallible, fallible, arg("n"));
FARCALL_EXPORT(packed, [](PackedArgs args) { return args.size(); });
