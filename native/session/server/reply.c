/* The server: replies, and checks for all requests. */
#include <stdlib.h>

#include "session/server/serve.h"

/* ---- replies: they wait in the outbox until no request is waiting ---- */

int fc_server_reply(FcServer* server, const TVMFFIAny* values, int32_t n) {
  fc_wire_packet packet = {.code = FC_WIRE_RETURN, .num_args = n, .args = values};
  return fc_endpoint_queue(server->ep, &packet, NULL);
}

int fc_server_reply_void(FcServer* server) {
  TVMFFIAny none = fc_any_none();
  return fc_server_reply(server, &none, 1);
}

int fc_server_reply_handle(FcServer* server, uint64_t handle) {
  TVMFFIAny pointer = {.type_index = kTVMFFIOpaquePtr, .v_uint64 = handle};
  return fc_server_reply(server, &pointer, 1);
}

/* Exceptions travel as "Kind: message"; farcall's client restores the class from the kind. */
int fc_queue_error(FcEndpoint* ep, TVMFFIObject* error) {
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  size_t size = cell->kind.size + 2 + cell->message.size;
  char* text = malloc(size);
  int rc = -1;
  if (text) {
    memcpy(text, cell->kind.data, cell->kind.size);
    memcpy(text + cell->kind.size, ": ", 2);
    memcpy(text + cell->kind.size + 2, cell->message.data, cell->message.size);
    TVMFFIByteArray string = {text, size};
    TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &string};
    fc_wire_packet packet = {.code = FC_WIRE_EXCEPTION, .num_args = 1, .args = &arg};
    rc = fc_endpoint_queue(ep, &packet, NULL);
  }
  free(text);
  fc_decref(error);
  if (rc == 0 || fc_endpoint_is_lost(ep)) return rc;
  return fc_endpoint_lose(ep, "ConnectionLostError", "no memory for a reply to %s", ep->peer);
}

/* ---- checks ---- */

int fc_server_require(const FcServer* server, uint32_t scope, const char* what) {
  uint32_t missing = scope & ~server->scopes;
  if (FC_LIKELY(missing == 0)) return 0;
  fc_error_format("PermissionDeniedError",
                  "%s needs the scope `%s`, which token `%s` does not have; use one that has it", what,
                  fc_scope_names[__builtin_ctz(missing)], server->token);
  return -1;
}

int fc_server_require_start(const FcServer* server) {
  if (FC_LIKELY(server->started)) return 0;
  fc_error_set("ProtocolError", "the session has not begun; send kInitServer first");
  return -1;
}

int fc_server_expect(const fc_wire_packet* p, int32_t n, const int32_t* types) {
  bool good = p->num_args == n;
  for (int32_t i = 0; good && i < n; ++i) good = types[i] < 0 || p->args[i].type_index == types[i];
  if (good) return 0;
  fc_error_format("ProtocolError", "%s does not take %d values of these types", fc_wire_code_name(p->code),
                  (int)p->num_args);
  return -1;
}
