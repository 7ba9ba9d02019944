/*
 * Comparison and hashes of keys of Map and Dict. Libraries have copies of this code compiled in, so every number here
 * is part of the ABI.
 */
#include "runtime/runtime.h"

static uint64_t combine(uint64_t key, uint64_t value) {
  return key ^ (value + 0x9e3779b9ULL + (key << 6) + (key >> 2));
}

/* A function that a library registered for its type: a C function pointer, or a Function. */
static const TVMFFIAny* custom(const char* name, int32_t type_index) {
  if (type_index < kTVMFFIDynObjectBegin) return NULL;
  TVMFFIByteArray text = {name, strlen(name)};
  const TVMFFITypeAttrColumn* column = TVMFFIGetTypeAttrColumn(&text);
  int32_t offset = column ? type_index - column->begin_index : -1;
  if (offset < 0 || offset >= column->size) return NULL;
  return column->data[offset].type_index != kTVMFFINone ? &column->data[offset] : NULL;
}

typedef TVMFFIAny (*HashPointer)(const TVMFFIAny*);
typedef TVMFFIAny (*EqualPointer)(const TVMFFIAny*, const TVMFFIAny*);

static TVMFFIAny call_pointer(const TVMFFIAny* pointer, const TVMFFIAny* args, int32_t n) {
  HashPointer hash;
  EqualPointer equal;
  memcpy(&hash, &pointer->v_ptr, sizeof hash);
  memcpy(&equal, &pointer->v_ptr, sizeof equal);
  return n == 1 ? hash(&args[0]) : equal(&args[0], &args[1]);
}

static int64_t call_custom(const TVMFFIAny* function, const TVMFFIAny* args, int32_t n) {
  TVMFFIAny result = fc_any_none();
  if (function->type_index == kTVMFFIOpaquePtr) {
    result = call_pointer(function, args, n);
  } else if (function->type_index != kTVMFFIFunction ||
             TVMFFIFunctionGetCellPtr(function->v_obj)->safe_call(function->v_obj, args, n, &result) != 0) {
    fc_error_drop();
  }
  int64_t value = result.type_index == kTVMFFIInt || result.type_index == kTVMFFIBool ? result.v_int64 : 0;
  fc_any_clear(&result);
  return value;
}

uint64_t fc_any_hash(const TVMFFIAny* any) {
  TVMFFIByteArray bytes;
  if (fc_any_text(any, &bytes)) return combine(kTVMFFIStr, fc_hash_bytes(bytes.data, bytes.size));
  if (fc_any_bytes(any, &bytes)) return combine(kTVMFFIBytes, fc_hash_bytes(bytes.data, bytes.size));
  const TVMFFIAny* function = custom("__any_hash__", any->type_index);
  uint64_t own = function ? (uint64_t)call_custom(function, any, 1) : any->v_uint64;
  return combine((uint64_t)any->type_index, own);
}

static bool same_bytes(TVMFFIByteArray a, TVMFFIByteArray b) {
  return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
}

bool fc_any_equal(const TVMFFIAny* a, const TVMFFIAny* b) {
  TVMFFIByteArray x, y;
  if (a->type_index == b->type_index && a->v_uint64 == b->v_uint64 && a->zero_padding == b->zero_padding) return true;
  if (fc_any_text(a, &x)) return fc_any_text(b, &y) && same_bytes(x, y);
  if (fc_any_bytes(a, &x)) return fc_any_bytes(b, &y) && same_bytes(x, y);
  if (a->type_index != b->type_index) return false;
  const TVMFFIAny* function = custom("__any_equal__", a->type_index);
  TVMFFIAny args[2] = {*a, *b};
  return function && call_custom(function, args, 2) != 0;
}
