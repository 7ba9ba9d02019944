/* The server: finds functions by name, with the scope that each requires. */
#include "session/server/serve.h"

/* ---- the scope of a name ---- */

const char* const fc_scope_names[] = {"call", "copy", "load", "files", "relay", NULL};

/* Every standard function, with the scope that it requires. Other names are functions that the host exports. */
static const struct {
  const char* name;
  uint32_t needs;
} needs[] = {
    {"tvm.rpc.server.upload", FC_SCOPE_FILES},
    {"tvm.rpc.server.download", FC_SCOPE_FILES},
    {"tvm.rpc.server.remove", FC_SCOPE_FILES},
    {"tvm.rpc.server.listdir", FC_SCOPE_FILES},
    {"tvm.rpc.server.workpath", FC_SCOPE_FILES},
    {"tvm.rpc.server.download_linked_module", FC_SCOPE_FILES | FC_SCOPE_LOAD},
    {"farcall.rpc.have", FC_SCOPE_FILES},
    {"farcall.rpc.known", FC_SCOPE_FILES},
    {"farcall.rpc.read", FC_SCOPE_FILES},
    {"farcall.rpc.share", FC_SCOPE_FILES},
    {"farcall.rpc.size", FC_SCOPE_FILES},
    {"farcall.rpc.write", FC_SCOPE_FILES},
    {"tvm.rpc.server.load_module", FC_SCOPE_LOAD},
    {"tvm.rpc.server.ImportModule", FC_SCOPE_LOAD},
    {"tvm.rpc.server.ModuleGetFunction", FC_SCOPE_LOAD},
    {"ffi.ModuleGetKind", FC_SCOPE_LOAD},
    {"ffi.ModuleGetFunctionMetadata", FC_SCOPE_LOAD},
    {"ffi.ModuleInspectSource", FC_SCOPE_LOAD},
    {"ffi.SystemLib", FC_SCOPE_LOAD},
    /* Tracebacks show the server's code and paths, so they require the scope that allows running code. */
    {"farcall.rpc.debug", FC_SCOPE_LOAD},
    {"farcall.rpc.traceback", FC_SCOPE_LOAD},
    /* Sessions show who else uses the server. A client that runs its code there could find out anyway. */
    {"farcall.rpc.sessions", FC_SCOPE_LOAD},
    {"farcall.rpc.module_functions", FC_SCOPE_LOAD},
    {"farcall.rpc.functions", FC_SCOPE_CALL},
    {FC_COMPUTE_NAME, FC_SCOPE_CALL},
    {"farcall.rpc.items", FC_SCOPE_CALL},
    {"farcall.rpc.plain_items", FC_SCOPE_CALL},
    /* What the functions of the session print. A token that cannot call has none. */
    {"farcall.rpc.output", FC_SCOPE_CALL},
    {"runtime.RPCTimeEvaluator", FC_SCOPE_CALL},
    {"farcall.rpc.device_function", FC_SCOPE_CALL | FC_SCOPE_RELAY},
    {"farcall.rpc.device_module", FC_SCOPE_FILES | FC_SCOPE_LOAD | FC_SCOPE_RELAY},
    {FC_HELLO_NAME, 0},
    {"farcall.rpc.clock", 0},
    {"farcall.rpc.trace_begin", 0},
    {"farcall.rpc.trace_take", 0},
    {"tvm.rpc.server.GetCRTMaxPacketSize", 0},
};

bool fc_scope_is_listed(TVMFFIByteArray name, uint32_t* scope) {
  for (size_t i = 0; i < sizeof needs / sizeof *needs; ++i) {
    if (!fc_is_named(name, needs[i].name)) continue;
    *scope = needs[i].needs;
    return true;
  }
  return false;
}

uint32_t fc_scope_of(TVMFFIByteArray name) {
  uint32_t scope;
  return fc_scope_is_listed(name, &scope) ? scope : FC_SCOPE_CALL;
}

/* ---- the dispatcher's functions ---- */

static int call_own(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  fc_error_set("TypeError", "only a client calls this function");
  return -1;
}

/* Finds the dispatcher's functions: hello, promises, deadlines, spans, computing, and functions that make and read
 * containers. */
static int find_own(const FcServer* server, TVMFFIByteArray name, FcExport** out) {
  TVMFFIObjectHandle object = NULL;
  TVMFFIObject* (*containers)(const char*, size_t) = server->policy->container_function;
  int own = FC_OWN_NONE;
  if (fc_is_named(name, FC_HELLO_NAME)) own = FC_OWN_HELLO;
  if (fc_is_named(name, FC_KEEP_NAME)) own = FC_OWN_KEEP;
  if (fc_is_named(name, FC_DEADLINE_NAME) && server->watchdog) own = FC_OWN_DEADLINE;
  if (fc_is_named(name, FC_SPAN_NAME) && server->offers & FC_OFFER_SPANS) own = FC_OWN_SPAN;
  const bool computes = fc_is_named(name, FC_COMPUTE_NAME);
  if (own != FC_OWN_NONE && fc_function_new(NULL, call_own, NULL, &object) != 0) return -1;
  if (computes && fc_function_new(NULL, fc_server_compute, NULL, &object) != 0) return -1;
  if (!object && containers) object = containers(name.data, name.size);
  if (!object) return 0;
  *out = fc_export_new(object, name.data, name.size, computes ? FC_SCOPE_CALL : 0);
  if (*out) (*out)->own = (uint8_t)own;
  return *out ? 0 : -1;
}

/* ---- finding ---- */

static int find(FcServer* server, TVMFFIByteArray name, FcExport** out) {
  if (find_own(server, name, out) != 0) return -1;
  if (*out) return 0;
  return server->policy->find(server->context, name, out);
}

int fc_server_get_global(FcServer* server, const fc_wire_packet* p) {
  FcExport* function = NULL;
  if (p->num_args != 1 || !fc_wire_is_text(p->args[0].type_index)) {
    return fc_server_expect(p, 1, (int32_t[]){kTVMFFIRawStr});
  }
  TVMFFIByteArray name = *(const TVMFFIByteArray*)p->args[0].v_ptr;
  if (find(server, name, &function) != 0) return -1;
  if (!function) return fc_server_reply_handle(server, 0);
  uint64_t handle = 0;
  if (fc_server_require(server, function->scope, function->name) == 0) {
    handle = fc_handles_add(&server->handles, (FcEntry){.function = function, .kind = FC_KIND_FUNCTION});
  }
  if (handle != 0) return fc_server_reply_handle(server, handle);
  fc_export_decref(function);
  return -1;
}
