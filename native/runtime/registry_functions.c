/* The builtin functions on registered functions and types. */
#include <stdlib.h>

#include "runtime/builtins.h"

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
