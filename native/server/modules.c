/* Modules of a session: the system library, which is linked into the program, and those that files bring. */
#include "runtime/builtins.h"
#include "runtime/module.h"
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

const FcServed fc_served_modules[] = {{"ffi.SystemLib", system_library, -1},
                                      {"ffi.ModuleGetKind", kind, -1},
                                      {"ffi.ModuleInspectSource", source, -1},
                                      {"ffi.ModuleGetFunctionMetadata", metadata, -1},
                                      {"tvm.rpc.server.ImportModule", import, -1},
                                      {"tvm.rpc.server.ModuleGetFunction", get_function, 1},
                                      {NULL, NULL, 0}};
