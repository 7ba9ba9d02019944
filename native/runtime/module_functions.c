/* The builtin functions on modules. */
#include <stdlib.h>

#include "runtime/builtins.h"
#include "runtime/module.h"

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
  if (!read_query(args, n, &q) || fc_module_get(q.module, q.name.data, q.name.size, q.imports, &function) != 0)
    return -1;
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

BUILTIN(get_kind) {
  (void)n;
  const char* kind = NULL;
  TVMFFIObject* module = module_argument(args, 0);
  if (!module || fc_module_kind(module, &kind) != 0) return -1;
  return fc_any_from_bytes(kTVMFFIStr, kind, strlen(kind), result);
}

BUILTIN(get_properties) {
  (void)n;
  int properties = 0;
  TVMFFIObject* module = module_argument(args, 0);
  if (!module || fc_module_properties(module, &properties) != 0) return -1;
  *result = fc_any_int(properties);
  return 0;
}

/* An argument as a String, which C++ methods expect; the caller clears it. */
static bool string_argument(const TVMFFIAny* args, int32_t i, TVMFFIAny* out) {
  TVMFFIByteArray text;
  return fc_text_argument(args, i, &text) && fc_any_from_bytes(kTVMFFIStr, text.data, text.size, out) == 0;
}

BUILTIN(inspect_source) {
  TVMFFIAny format = {.type_index = kTVMFFISmallStr};
  TVMFFIObject* module = module_argument(args, 0);
  if (!module || (n > 1 && !string_argument(args, 1, &format))) return -1;
  int rc = fc_module_source(module, &format, result);
  fc_any_clear(&format);
  return rc;
}

BUILTIN(get_write_formats) {
  (void)n;
  TVMFFIObject* module = module_argument(args, 0);
  return module ? fc_module_formats(module, result) : -1;
}

BUILTIN(write_to_file) {
  TVMFFIAny file, format = fc_any_none();
  (void)n, (void)result;
  TVMFFIObject* module = module_argument(args, 0);
  if (!module || !string_argument(args, 1, &file)) return -1;
  int rc = string_argument(args, 2, &format) ? fc_module_write(module, &file, &format) : -1;
  fc_any_clear(&format);
  fc_any_clear(&file);
  return rc;
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

/* No effect: libraries stay loaded until the process ends. */
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
    {"ffi.ModuleGetWriteFormats", get_write_formats, 1, 1},
    {"ffi.ModuleWriteToFile", write_to_file, 3, 3},
    {"ffi.ModuleGlobalsAdd", pin, 1, 1},
    {"ffi.ModuleGlobalsRemove", pin, 1, 1},
    {"ffi.SystemLib", system_lib, 0, 1},
    {NULL, NULL, 0, 0},
};
