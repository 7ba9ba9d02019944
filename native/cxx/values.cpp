/* The C++ functions for recursive comparison, hashes and texts of values, and for JSON: each calls a builtin. */
#include "cxx/tvm_types.hpp"

namespace tvm {
namespace ffi {

using farcall_cxx::any_bool;
using farcall_cxx::call;

class FC_EXPORTED StructuralEqual {
 public:
  static bool Equal(const Any& a, const Any& b, bool map_free_vars, bool skip_tensor_content);
};
class FC_EXPORTED StructuralHash {
 public:
  static uint64_t Hash(const Any& value, bool map_free_vars, bool skip_tensor_content);
};

bool StructuralEqual::Equal(const Any& a, const Any& b, bool map_free_vars, bool skip_tensor_content) {
  const TVMFFIAny args[4] = {a.raw(), b.raw(), any_bool(map_free_vars), any_bool(skip_tensor_content)};
  return call("ffi.StructuralEqual", args, 4).v_int64 != 0;
}

uint64_t StructuralHash::Hash(const Any& value, bool map_free_vars, bool skip_tensor_content) {
  const TVMFFIAny args[3] = {value.raw(), any_bool(map_free_vars), any_bool(skip_tensor_content)};
  return call("ffi.StructuralHash", args, 3).v_uint64;
}

FC_EXPORTED bool RecursiveEq(const Any& a, const Any& b);
bool RecursiveEq(const Any& a, const Any& b) {
  const TVMFFIAny args[2] = {a.raw(), b.raw()};
  return call("ffi.RecursiveEq", args, 2).v_int64 != 0;
}

FC_EXPORTED int64_t RecursiveHash(const Any& value);
int64_t RecursiveHash(const Any& value) { return call("ffi.RecursiveHash", &value.raw(), 1).v_int64; }

FC_EXPORTED String ReprPrint(const Any& value);
String ReprPrint(const Any& value) { return String(call("ffi.ReprPrint", &value.raw(), 1)); }

namespace json {

FC_EXPORTED Any Parse(const String& text, String* error);
FC_EXPORTED String Stringify(const Any& value, const Optional<int>& indent);

/* If `error` is not NULL, it gets the error's message, or "" without an error; on an error the result is None. */
Any Parse(const String& text, String* error) {
  TVMFFIAny none{};
  none.type_index = kTVMFFISmallStr;
  if (!error) return Any(call("ffi.json.Parse", &text.raw(), 1));
  *error = String(none);
  try {
    return Any(call("ffi.json.Parse", &text.raw(), 1));
  } catch (const Error& raised) {
    TVMFFIAny message{};
    message.type_index = kTVMFFIRawStr;
    message.v_c_str = raised.what();
    *error = String(call("ffi.String", &message, 1));
    return {};
  }
}

String Stringify(const Any& value, const Optional<int>& indent) {
  const TVMFFIAny args[2] = {value.raw(), indent.raw()};
  return String(call("ffi.json.Stringify", args, 2));
}

}  // namespace json
}  // namespace ffi
}  // namespace tvm
