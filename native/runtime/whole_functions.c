/* The builtin functions for recursive comparison, hashes and texts of values, and for JSON. */
#include "runtime/builtins.h"
#include "runtime/text.h"
#include "runtime/whole.h"

#define BUILTIN(name) static int name(const TVMFFIAny* args, int32_t n, TVMFFIAny* result)

static int equal(const TVMFFIAny* args, FcWholeMode mode, TVMFFIAny* result) {
  bool same = false;
  int rc = fc_whole_equal(&args[0], &args[1], mode, &same);
  if (rc == 0) *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = same};
  return rc;
}

/* (a, b, map_free_vars, skip_tensor_content): map_free_vars has no effect, as farcall's values have no variables. */
static bool mode_argument(const TVMFFIAny* args, int32_t i, FcWholeMode* mode) {
  int64_t skip = 0;
  if (!fc_int_argument(args, i, &skip)) return false;
  *mode = (FcWholeMode){.structural = true, .skip_tensor_contents = skip != 0};
  return true;
}

BUILTIN(structural_equal) {
  FcWholeMode mode;
  (void)n;
  return mode_argument(args, 3, &mode) ? equal(args, mode, result) : -1;
}

BUILTIN(structural_hash) {
  FcWholeMode mode;
  uint64_t hash = 0;
  (void)n;
  if (!mode_argument(args, 2, &mode) || fc_whole_hash(&args[0], mode, &hash) != 0) return -1;
  *result = fc_any_int((int64_t)hash);
  return 0;
}

BUILTIN(recursive_equal) { return (void)n, equal(args, (FcWholeMode){0}, result); }

BUILTIN(recursive_hash) {
  uint64_t hash = 0;
  (void)n;
  if (fc_whole_hash(&args[0], (FcWholeMode){0}, &hash) != 0) return -1;
  *result = fc_any_int((int64_t)hash);
  return 0;
}

BUILTIN(repr) { return (void)n, fc_whole_repr(&args[0], result); }

BUILTIN(json_parse) {
  TVMFFIByteArray text;
  (void)n;
  return fc_text_argument(args, 0, &text) ? fc_json_parse(text.data, text.size, result) : -1;
}

BUILTIN(json_stringify) {
  int64_t indent = -1;
  bool given = n > 1 && args[1].type_index != kTVMFFINone;
  if (given && !fc_int_argument(args, 1, &indent)) return -1;
  return fc_json_print(&args[0], indent, result);
}

const FcBuiltin fc_whole_builtins[] = {
    {"ffi.StructuralEqual", structural_equal, 4, 4},
    {"ffi.StructuralHash", structural_hash, 3, 3},
    {"ffi.RecursiveEq", recursive_equal, 2, 2},
    {"ffi.RecursiveHash", recursive_hash, 1, 1},
    {"ffi.ReprPrint", repr, 1, 1},
    {"ffi.json.Parse", json_parse, 1, 1},
    {"ffi.json.Stringify", json_stringify, 1, 2},
    {NULL, NULL, 0, 0},
};
