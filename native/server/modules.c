/* Modules of a session: the system library, which is linked into the program, and those that files bring. */
#include "runtime/builtins.h"
#include "runtime/module.h"
#include "runtime/text.h"
#include "server/session.h"

/* Calls the runtime's function of modules that does the work. */
static int forward(const char* name, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObject* function = fc_builtin_of(fc_module_builtins, name, strlen(name));
  if (!function) return -1;
  int rc = TVMFFIFunctionGetCellPtr(function)->safe_call(function, args, n, result);
  fc_decref(function);
  return rc;
}

#define FORWARD(function, name)                                                          \
  static int function(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) { \
    (void)self;                                                                          \
    return forward(name, args, n, result);                                               \
  }

FORWARD(system_library, "ffi.SystemLib")
FORWARD(kind, "ffi.ModuleGetKind")
FORWARD(source, "ffi.ModuleInspectSource")
FORWARD(metadata, "ffi.ModuleGetFunctionMetadata")
FORWARD(import, "ffi.ModuleImportModule")

/* (module, name, query_imports=True): the function, or None. */
static int get_function(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIAny three[3] = {fc_any_none(), fc_any_none(), {.type_index = kTVMFFIBool, .v_int64 = 1}};
  (void)self;
  for (int32_t i = 0; i < n && i < 3; ++i) three[i] = args[i];
  return forward("ffi.ModuleGetFunction", three, 3, result);
}

/* ---- names ---- */

/* Keeps the list sorted. */
static bool add_name(void* list, const char* name, size_t size) {
  TVMFFIAny item;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(list);
  TVMFFIByteArray other;
  int64_t at = cell->size;
  while (at > 0 && fc_any_text((TVMFFIAny*)cell->data + at - 1, &other)) {
    int order = memcmp(name, other.data, size < other.size ? size : other.size);
    if (order > 0 || (order == 0 && size >= other.size)) break;
    --at;
  }
  return fc_any_from_bytes(kTVMFFIStr, name, size, &item) == 0 && fc_list_insert(list, at, item) == 0;
}

/* farcall.rpc.module_functions(module): a JSON list of the names of the module's functions. */
static int list_functions(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObjectHandle list = NULL;
  (void)self;
  if (n < 1 || args[0].type_index != kTVMFFIModule) return fc_error_set("TypeError", "expected a module"), -1;
  if (fc_list_new(NULL, 0, &list) != 0) return -1;
  fc_module_each(fc_module_of(args[0].v_obj), add_name, list);
  TVMFFIAny any = fc_any_object(list);
  int rc = fc_json_print(&any, -1, result);
  fc_decref(list);
  return rc;
}

const FcServed fc_served_modules[] = {{"ffi.SystemLib", system_library, -1},
                                      {"ffi.ModuleGetKind", kind, -1},
                                      {"ffi.ModuleInspectSource", source, -1},
                                      {"ffi.ModuleGetFunctionMetadata", metadata, -1},
                                      {"farcall.rpc.module_functions", list_functions, -1},
                                      {"tvm.rpc.server.ImportModule", import, -1},
                                      {"tvm.rpc.server.ModuleGetFunction", get_function, 1},
                                      {NULL, NULL, 0}};
