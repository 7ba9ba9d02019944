/*
 * The functions that native code finds by name without anybody registering them. No Python here.
 *
 * They are no part of the registry: a session that serves registered functions must not serve these, some of which
 * load libraries. A function that is registered under such a name comes first.
 */
#include "runtime/builtins.h"

#include <stdlib.h>

/* ---- arguments ---- */

bool fc_bad_argument(int32_t i, const char* expected, const TVMFFIAny* got) {
  fc_error_format("TypeError", "argument %d: expected %s, got `%s`", (int)i + 1, expected,
                  fc_type_name(got->type_index));
  return false;
}

bool fc_int_argument(const TVMFFIAny* args, int32_t i, int64_t* out) {
  if (args[i].type_index != kTVMFFIInt && args[i].type_index != kTVMFFIBool) {
    return fc_bad_argument(i, "an int", &args[i]);
  }
  *out = args[i].v_int64;
  return true;
}

bool fc_text_argument(const TVMFFIAny* args, int32_t i, TVMFFIByteArray* out) {
  return fc_any_text(&args[i], out) || fc_bad_argument(i, "a string", &args[i]);
}

TVMFFIObject* fc_object_argument(const TVMFFIAny* args, int32_t i, int32_t type_index) {
  if (args[i].type_index == type_index) return args[i].v_obj;
  fc_bad_argument(i, fc_type_name(type_index), &args[i]);
  return NULL;
}

/* ---- values that a function gives one by one ---- */

static void free_snapshot(void* self) {
  FcSnapshot* snapshot = self;
  for (int64_t i = 0; i < snapshot->n; ++i) fc_any_clear(&snapshot->values[i]);
  free(snapshot);
}

int fc_snapshot(TVMFFIAny* values, int64_t n, TVMFFISafeCallType call, TVMFFIAny* result) {
  TVMFFIObjectHandle function = NULL;
  FcSnapshot* snapshot = malloc(sizeof *snapshot + (size_t)n * sizeof *values);
  if (!snapshot) {
    for (int64_t i = 0; i < n; ++i) fc_any_clear(&values[i]);
    fc_error_no_memory();
    return -1;
  }
  snapshot->n = n;
  snapshot->at = 0;
  if (n) memcpy(snapshot->values, values, (size_t)n * sizeof *values);
  if (fc_function_new(snapshot, call, free_snapshot, &function) != 0) {
    free_snapshot(snapshot);
    return -1;
  }
  *result = fc_any_object(function);
  return 0;
}

/* ---- the registry itself ---- */

static int name_at(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcSnapshot* names = self;
  int64_t i = 0;
  if (n != 1) {
    fc_error_set("TypeError", "expected one int: -1 for the number of names, or an index");
    return -1;
  }
  if (!fc_int_argument(args, 0, &i)) return -1;
  if (i == -1) {
    *result = fc_any_int(names->n);
    return 0;
  }
  if (i >= 0 && i < names->n) return fc_any_to_owned(&names->values[i], result);
  fc_error_format("IndexError", "index %lld of %lld names", (long long)i, (long long)names->n);
  return -1;
}

typedef struct {
  TVMFFIAny* names;
  int64_t n, room;
} Names;

static bool collect(void* context, const char* name, size_t size) {
  Names* names = context;
  if (names->n == names->room) {
    TVMFFIAny* more = realloc(names->names, (size_t)(names->room * 2 + 64) * sizeof *more);
    if (!more) return false;
    names->names = more;
    names->room = names->room * 2 + 64;
  }
  if (fc_any_from_bytes(kTVMFFIStr, name, size, &names->names[names->n]) != 0) return false;
  ++names->n;
  return true;
}

static int list_names(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  Names names = {NULL, 0, 0};
  (void)args, (void)n;
  fc_global_each(collect, &names);
  fc_builtin_each(collect, &names);
  int rc = fc_snapshot(names.names, names.n, name_at, result);
  free(names.names);
  return rc;
}

static int remove_global(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIByteArray name;
  (void)n;
  if (!fc_text_argument(args, 0, &name)) return -1;
  *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = fc_global_remove(name.data, name.size)};
  return 0;
}

static int get_metadata(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIByteArray name;
  (void)n;
  if (!fc_text_argument(args, 0, &name)) return -1;
  return fc_global_metadata(name.data, name.size, result);
}

static int list_types(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  Names names = {NULL, 0, 0};
  TVMFFIObjectHandle array = NULL;
  (void)args, (void)n;
  fc_type_each(collect, &names);
  int rc = fc_array_new(names.names, names.n, &array);
  free(names.names);
  if (rc == 0) *result = fc_any_object(array);
  return rc;
}

const FcBuiltin fc_registry_builtins[] = {
    {"ffi.FunctionListGlobalNamesFunctor", list_names, 0, 0},
    {"ffi.FunctionRemoveGlobal", remove_global, 1, 1},
    {"ffi.GetGlobalFuncMetadata", get_metadata, 1, 1},
    {"ffi.GetRegisteredTypeKeys", list_types, 0, 0},
    {NULL, NULL, 0, 0},
};

/* ---- all of them ---- */

static const FcBuiltin* const tables[] = {fc_registry_builtins, fc_container_builtins, fc_map_builtins,
                                          fc_module_builtins, fc_whole_builtins};
enum { TABLES = sizeof tables / sizeof *tables };

static const FcBuiltin* find_in(const FcBuiltin* table, const char* name, size_t size) {
  for (const FcBuiltin* b = table; b->name; ++b) {
    if (strlen(b->name) == size && memcmp(b->name, name, size) == 0) return b;
  }
  return NULL;
}

static const FcBuiltin* find(const char* name, size_t size) {
  const FcBuiltin* found = NULL;
  if (size < 4 || memcmp(name, "ffi.", 4) != 0) return NULL;
  for (int t = 0; t < TABLES && !found; ++t) found = find_in(tables[t], name, size);
  return found;
}

static int call_builtin(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcBuiltin* builtin = self;
  if (n < builtin->least || (builtin->most >= 0 && n > builtin->most)) {
    fc_error_format("TypeError", "`%s`: expected %d argument%s, got %d", builtin->name, (int)builtin->least,
                    builtin->least == 1 ? "" : "s", (int)n);
  } else if (builtin->call(args, n, result) == 0) {
    return 0;
  }
  fc_foreign_error_mirror();
  return -1;
}

static TVMFFIObject* function_of(const FcBuiltin* builtin) {
  TVMFFIObjectHandle function = NULL;
  if (builtin && fc_function_new((void*)builtin, call_builtin, NULL, &function) != 0) return NULL;
  return function;
}

int fc_builtin_call(const char* name, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  return call_builtin((void*)find(name, strlen(name)), args, n, result);
}

TVMFFIObject* fc_builtin_get(const char* name, size_t size) { return function_of(find(name, size)); }

TVMFFIObject* fc_container_function(const char* name, size_t size) {
  const FcBuiltin* found = find_in(fc_container_builtins, name, size);
  return function_of(found ? found : find_in(fc_map_builtins, name, size));
}

void fc_builtin_each(bool (*visit)(void*, const char*, size_t), void* context) {
  for (int t = 0; t < TABLES; ++t) {
    for (const FcBuiltin* b = tables[t]; b->name; ++b) {
      if (!visit(context, b->name, strlen(b->name))) return;
    }
  }
}
