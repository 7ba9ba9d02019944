/*
 * Builtin functions: native code finds them by name, but they are not in the registry.
 *
 * A session that serves registered functions must not serve builtins, some of which load libraries. A registered
 * function of the same name has precedence.
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

/* ---- a function that returns values one by one ---- */

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

/* ---- the tables ---- */

enum { MOST_TABLES = 8 };
static const FcBuiltin* tables[MOST_TABLES]; /* NULL after the last */

void fc_builtins_add(const FcBuiltin* table) {
  size_t i = 0;
  while (i < MOST_TABLES && tables[i] && tables[i] != table) ++i;
  if (i < MOST_TABLES) tables[i] = table;
  fc_unregistered = fc_builtin_get;
}

static const FcBuiltin* find_in(const FcBuiltin* table, const char* name, size_t size) {
  for (const FcBuiltin* b = table; b->name; ++b) {
    if (strlen(b->name) == size && memcmp(b->name, name, size) == 0) return b;
  }
  return NULL;
}

static const FcBuiltin* find(const char* name, size_t size) {
  const FcBuiltin* found = NULL;
  if (size < 4 || memcmp(name, "ffi.", 4) != 0) return NULL;
  for (size_t t = 0; t < MOST_TABLES && tables[t] && !found; ++t) found = find_in(tables[t], name, size);
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
  const FcBuiltin* builtin = find(name, strlen(name));
  if (builtin) return call_builtin((void*)builtin, args, n, result);
  fc_error_format("RuntimeError", "this program has no function `%s`", name);
  return -1;
}

TVMFFIObject* fc_builtin_get(const char* name, size_t size) { return function_of(find(name, size)); }

TVMFFIObject* fc_builtin_of(const FcBuiltin* table, const char* name, size_t size) {
  return function_of(find_in(table, name, size));
}

void fc_builtin_each(bool (*visit)(void*, const char*, size_t), void* context) {
  for (size_t t = 0; t < MOST_TABLES && tables[t]; ++t) {
    for (const FcBuiltin* b = tables[t]; b->name; ++b) {
      if (!visit(context, b->name, strlen(b->name))) return;
    }
  }
}
