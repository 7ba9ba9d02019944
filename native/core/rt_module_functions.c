/* The builtin functions on modules. No Python here. */
#include <stdlib.h>

#include "rt_builtins.h"
#include "rt_module.h"

#define BUILTIN(name) static int name(const TVMFFIAny* args, int32_t n, TVMFFIAny* result)

static TVMFFIObject* module_argument(const TVMFFIAny* args, int32_t i) {
  return fc_object_argument(args, i, kTVMFFIModule);
}

/* (module, name, query_imports=False) */
typedef struct {
  TVMFFIObject* module;
  TVMFFIByteArray name;
  bool imports;
} Query;

static bool read_query(const TVMFFIAny* args, int32_t n, Query* out) {
  int64_t imports = 0;
  out->module = module_argument(args, 0);
  if (!out->module || !fc_text_argument(args, 1, &out->name)) return false;
  if (n > 2 && !fc_int_argument(args, 2, &imports)) return false;
  out->imports = imports != 0;
  return true;
}

BUILTIN(get_function) {
  Query q;
  TVMFFIObject* function = NULL;
  if (!read_query(args, n, &q) || fc_module_get(q.module, q.name.data, q.name.size, q.imports, &function) != 0) return -1;
  if (function) *result = fc_any_object(function);
  return 0;
}

BUILTIN(implements) {
  if (get_function(args, n, result) != 0) return -1;
  bool found = result->type_index == kTVMFFIFunction;
  fc_any_clear(result);
  *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = found};
  return 0;
}

BUILTIN(get_metadata) {
  Query q;
  if (!read_query(args, n, &q)) return -1;
  return fc_module_text(q.module, "_metadata_", q.name.data, q.name.size, q.imports, result);
}

BUILTIN(get_doc) {
  Query q;
  if (!read_query(args, n, &q)) return -1;
  return fc_module_text(q.module, "_doc_", q.name.data, q.name.size, q.imports, result);
}

BUILTIN(import_module) {
  (void)n, (void)result;
  TVMFFIObject* module = module_argument(args, 0);
  TVMFFIObject* other = module ? module_argument(args, 1) : NULL;
  return other ? fc_module_import(module, other) : -1;
}

BUILTIN(clear_imports) {
  (void)n, (void)result;
  TVMFFIObject* module = module_argument(args, 0);
  return module ? fc_module_clear_imports(module) : -1;
}

static const FcModuleObj* own_module(const TVMFFIAny* args) {
  TVMFFIObject* handle = module_argument(args, 0);
  const FcModuleObj* module = handle ? fc_module_of(handle) : NULL;
  if (handle && !module) fc_error_set("RuntimeError", "the module was made by another runtime; ask that one");
  return module;
}

BUILTIN(get_kind) {
  (void)n;
  const FcModuleObj* module = own_module(args);
  return module ? fc_any_from_bytes(kTVMFFIStr, module->kind, strlen(module->kind), result) : -1;
}

BUILTIN(get_properties) {
  (void)n;
  const FcModuleObj* module = own_module(args);
  if (!module) return -1;
  *result = fc_any_int(module->properties);
  return 0;
}

BUILTIN(inspect_source) {
  const FcModuleObj* module = own_module(args);
  if (!module) return -1;
  if (!module->source) return fc_any_from_bytes(kTVMFFIStr, "", 0, result);
  return TVMFFIFunctionGetCellPtr(module->source)->safe_call(module->source, args + 1, n - 1, result);
}

BUILTIN(load_from_file) {
  TVMFFIAny path;
  TVMFFIByteArray text;
  char message[1024];
  (void)n;
  if (!fc_text_argument(args, 0, &text) || fc_any_from_bytes(kTVMFFIStr, text.data, text.size, &path) != 0) return -1;
  fc_any_text(&path, &text); /* it ends in NUL here */
  TVMFFIObject* module = fc_module_load(text.data, message, sizeof message);
  fc_any_clear(&path);
  if (!module && message[0]) fc_error_format("OSError", "cannot load library: %s", message);
  if (!module) return -1;
  *result = fc_any_object(module);
  return 0;
}

BUILTIN(system_lib) {
  TVMFFIAny prefix;
  TVMFFIByteArray text = {"", 0};
  if (n > 0 && !fc_text_argument(args, 0, &text)) return -1;
  if (fc_any_from_bytes(kTVMFFIStr, text.data, text.size, &prefix) != 0) return -1;
  fc_any_text(&prefix, &text);
  TVMFFIObject* module = fc_module_system(text.data);
  fc_any_clear(&prefix);
  if (!module) return -1;
  fc_incref(module);
  *result = fc_any_object(module);
  return 0;
}

/* Libraries stay loaded for good here: there is nothing to pin. */
BUILTIN(pin) {
  (void)n, (void)result;
  return module_argument(args, 0) ? 0 : -1;
}

const FcBuiltin fc_module_builtins[] = {
    {"ffi.ModuleGetFunction", get_function, 2, 3},
    {"ffi.ModuleImplementsFunction", implements, 2, 3},
    {"ffi.ModuleGetFunctionMetadata", get_metadata, 2, 3},
    {"ffi.ModuleGetFunctionDoc", get_doc, 2, 3},
    {"ffi.ModuleImportModule", import_module, 2, 2},
    {"ffi.ModuleClearImports", clear_imports, 1, 1},
    {"ffi.ModuleGetKind", get_kind, 1, 1},
    {"ffi.ModuleGetPropertyMask", get_properties, 1, 1},
    {"ffi.ModuleInspectSource", inspect_source, 1, 2},
    {"ffi.ModuleLoadFromFile", load_from_file, 1, 1},
    {"ffi.ModuleGlobalsAdd", pin, 1, 1},
    {"ffi.ModuleGlobalsRemove", pin, 1, 1},
    {"ffi.SystemLib", system_lib, 0, 1},
    {NULL, NULL, 0, 0},
};
