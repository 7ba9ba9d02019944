/* The server: functions by name, first the dispatcher's own. */
#include "runtime/builtins.h"
#include "session/server/serve.h"

static int call_own(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  fc_error_set("TypeError", "only a client calls this function");
  return -1;
}

/* What the dispatcher itself has: promises, deadlines, and how to look into containers. */
static int find_own(const FcServer* server, TVMFFIByteArray name, FcExport** out) {
  TVMFFIObjectHandle object = NULL;
  int own = FC_OWN_NONE;
  if (fc_is_named(name, FC_KEEP_NAME)) own = FC_OWN_KEEP;
  if (fc_is_named(name, FC_DEADLINE_NAME) && server->watchdog) own = FC_OWN_DEADLINE;
  if (own != FC_OWN_NONE && fc_function_new(NULL, call_own, NULL, &object) != 0) return -1;
  if (own == FC_OWN_NONE) object = fc_container_function(name.data, name.size);
  if (!object) return 0;
  *out = fc_export_new(object, name.data, name.size, 0);
  if (*out) (*out)->own = (uint8_t)own;
  return *out ? 0 : -1;
}

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
