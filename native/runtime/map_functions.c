/* The builtin functions on Map and Dict. */
#include <stdlib.h>

#include "runtime/builtins.h"

#define BUILTIN(name) static int name(const TVMFFIAny* args, int32_t n, TVMFFIAny* result)

static int set_item(TVMFFIObject* map, const TVMFFIAny* key, const TVMFFIAny* value) {
  TVMFFIAny owned_key, owned_value;
  if (fc_any_to_owned(key, &owned_key) != 0) return -1;
  if (fc_any_to_owned(value, &owned_value) == 0) return fc_map_set(map, owned_key, owned_value);
  fc_any_clear(&owned_key);
  return -1;
}

static int make(int32_t type_index, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObjectHandle map;
  if (n % 2 != 0) {
    fc_error_format("TypeError", "expected alternating keys and values, got %d arguments", (int)n);
    return -1;
  }
  if (fc_map_new(type_index, &map) != 0) return -1;
  for (int32_t i = 0; i < n; i += 2) {
    if (set_item(map, &args[i], &args[i + 1]) == 0) continue;
    fc_decref(map);
    return -1;
  }
  *result = fc_any_object(map);
  return 0;
}

BUILTIN(make_map) { return make(kTVMFFIMap, args, n, result); }
BUILTIN(make_dict) { return make(kTVMFFIDict, args, n, result); }

/* ---- reading ---- */

static int size_of(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  TVMFFIObject* map = fc_object_argument(args, 0, type_index);
  if (!map) return -1;
  *result = fc_any_int((int64_t)TVMFFIMapGetCellPtr(map)->size);
  return 0;
}

static int count_of(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  TVMFFIObject* map = fc_object_argument(args, 0, type_index);
  if (!map) return -1;
  *result = fc_any_int(fc_map_find(map, &args[1]) != NULL);
  return 0;
}

static int no_key(const TVMFFIAny* key) {
  TVMFFIByteArray text;
  if (fc_any_text(key, &text)) {
    fc_error_format("KeyError", "%.*s", (int)text.size, text.data);
  } else if (key->type_index == kTVMFFIInt) {
    fc_error_format("KeyError", "%lld", (long long)key->v_int64);
  } else {
    fc_error_format("KeyError", "there is no such key of type `%s`", fc_type_name(key->type_index));
  }
  return -1;
}

static int item_of(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  TVMFFIObject* map = fc_object_argument(args, 0, type_index);
  const TVMFFIAny* value = map ? fc_map_find(map, &args[1]) : NULL;
  if (value) return fc_any_to_owned(value, result);
  return map ? no_key(&args[1]) : -1;
}

/* The object that means "missing" where None may be a value: made once, never freed. */
static int invalid(TVMFFIAny* result) {
  static TVMFFIObject object = {.combined_ref_count = 0x100000001ULL, .type_index = kTVMFFIObject};
  fc_incref(&object);
  *result = fc_any_object(&object);
  return 0;
}

static int item_or_missing(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  TVMFFIObject* map = fc_object_argument(args, 0, type_index);
  const TVMFFIAny* value = map ? fc_map_find(map, &args[1]) : NULL;
  if (value) return fc_any_to_owned(value, result);
  return map ? invalid(result) : -1;
}

/* f(0) returns the key, f(1) the value; f(2) advances and returns whether another pair is left. */
static int step(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcSnapshot* pairs = self;
  int64_t what = -1;
  if (n == 1 && !fc_int_argument(args, 0, &what)) return -1;
  if (what == 2) {
    if (pairs->at < pairs->n) pairs->at += 2;
    *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = pairs->at < pairs->n};
    return 0;
  }
  if ((what == 0 || what == 1) && pairs->at < pairs->n)
    return fc_any_to_owned(&pairs->values[pairs->at + what], result);
  fc_error_set("IndexError", "expected 0 (key), 1 (value) or 2 (next), and a pair that is left");
  return -1;
}

static int iterate(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  TVMFFIObject* map = fc_object_argument(args, 0, type_index);
  if (!map) return -1;
  TVMFFIAny* pairs = malloc((size_t)(TVMFFIMapGetCellPtr(map)->size * 2 + 1) * sizeof *pairs);
  int64_t n = 0;
  FcMapCursor cursor = {.begun = false};
  if (!pairs) {
    fc_error_no_memory();
    return -1;
  }
  while (fc_map_next(map, &cursor)) {
    fc_any_to_owned(cursor.key, &pairs[n++]);
    fc_any_to_owned(cursor.value, &pairs[n++]);
  }
  int rc = fc_snapshot(pairs, n, step, result);
  free(pairs);
  return rc;
}

BUILTIN(map_size) { return (void)n, size_of(args, kTVMFFIMap, result); }
BUILTIN(map_count) { return (void)n, count_of(args, kTVMFFIMap, result); }
BUILTIN(map_item) { return (void)n, item_of(args, kTVMFFIMap, result); }
BUILTIN(map_iterate) { return (void)n, iterate(args, kTVMFFIMap, result); }
BUILTIN(map_item_or_missing) { return (void)n, item_or_missing(args, kTVMFFIMap, result); }
BUILTIN(get_invalid) { return (void)args, (void)n, invalid(result); }
BUILTIN(dict_item_or_missing) { return (void)n, item_or_missing(args, kTVMFFIDict, result); }
BUILTIN(dict_size) { return (void)n, size_of(args, kTVMFFIDict, result); }
BUILTIN(dict_count) { return (void)n, count_of(args, kTVMFFIDict, result); }
BUILTIN(dict_item) { return (void)n, item_of(args, kTVMFFIDict, result); }
BUILTIN(dict_iterate) { return (void)n, iterate(args, kTVMFFIDict, result); }

/* ---- changing a Dict ---- */

BUILTIN(dict_set) {
  (void)n, (void)result;
  TVMFFIObject* dict = fc_object_argument(args, 0, kTVMFFIDict);
  return dict ? set_item(dict, &args[1], &args[2]) : -1;
}

BUILTIN(dict_erase) {
  (void)n, (void)result;
  TVMFFIObject* dict = fc_object_argument(args, 0, kTVMFFIDict);
  if (!dict) return -1;
  return fc_map_erase(dict, &args[1]) ? 0 : no_key(&args[1]);
}

BUILTIN(dict_clear) {
  (void)n, (void)result;
  TVMFFIObject* dict = fc_object_argument(args, 0, kTVMFFIDict);
  if (!dict) return -1;
  for (FcMapCursor cursor = {.begun = false}; fc_map_next(dict, &cursor); cursor.begun = false) {
    TVMFFIAny key;
    fc_any_to_owned(cursor.key, &key);
    fc_map_erase(dict, &key);
    fc_any_clear(&key);
  }
  return 0;
}

const FcBuiltin fc_map_builtins[] = {
    {"ffi.Map", make_map, 0, -1},
    {"ffi.MapSize", map_size, 1, 1},
    {"ffi.MapCount", map_count, 2, 2},
    {"ffi.MapGetItem", map_item, 2, 2},
    {"ffi.MapGetItemOrMissing", map_item_or_missing, 2, 2},
    {"ffi.GetInvalidObject", get_invalid, 0, 0},
    {"ffi.MapForwardIterFunctor", map_iterate, 1, 1},
    {"ffi.Dict", make_dict, 0, -1},
    {"ffi.DictSize", dict_size, 1, 1},
    {"ffi.DictCount", dict_count, 2, 2},
    {"ffi.DictGetItem", dict_item, 2, 2},
    {"ffi.DictGetItemOrMissing", dict_item_or_missing, 2, 2},
    {"ffi.DictForwardIterFunctor", dict_iterate, 1, 1},
    {"ffi.DictSetItem", dict_set, 3, 3},
    {"ffi.DictErase", dict_erase, 2, 2},
    {"ffi.DictClear", dict_clear, 1, 1},
    {NULL, NULL, 0, 0},
};

TVMFFIObject* fc_container_function(const char* name, size_t size) {
  TVMFFIObject* found = fc_builtin_of(fc_container_builtins, name, size);
  return found ? found : fc_builtin_of(fc_map_builtins, name, size);
}
