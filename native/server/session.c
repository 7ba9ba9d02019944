/* One session of the small server, over any channel. */
#include "server/session.h"

#include <stdio.h>

/* The limits of one session. Memory for a packet grows with the bytes that have arrived. */
enum {
  CONTROL_BYTES = 1 << 16,
  CALL_BYTES = 1 << 24,
  COPY_BYTES = 1 << 28,
  STRING_BYTES = 1 << 24,
  VALUES = 1024,
  TENSOR_BYTES = 1 << 28,
  HANDLES = 1 << 16
};

const fc_wire_limits fc_session_limits = {CONTROL_BYTES, CALL_BYTES, COPY_BYTES,
                                          STRING_BYTES,  VALUES,     FC_WIRE_MAX_NDIM};

static const char* limits_text(char* out, size_t room) {
  snprintf(out, room,
           "{\"control_bytes\": %d, \"call_bytes\": %d, \"copy_bytes\": %d, \"string_bytes\": %d, \"values\": %d, "
           "\"rank\": %d, \"tensor_bytes\": %d, \"handles\": %d}",
           CONTROL_BYTES, CALL_BYTES, COPY_BYTES, STRING_BYTES, VALUES, FC_WIRE_MAX_NDIM, TENSOR_BYTES, HANDLES);
  return out;
}

static int run(FcServer* server) {
  int rc = fc_endpoint_enter(server->ep);
  if (rc != 0) return rc;
  rc = fc_server_run(server);
  fc_endpoint_leave(server->ep);
  return rc;
}

int fc_session_serve(FcChannel* channel, const FcOptions* options, uint32_t rights, const char* token,
                     volatile uint8_t* page) {
  char text[256];
  FcEndpoint* ep = fc_endpoint_new(channel, "the client", &fc_session_limits);
  if (!ep) return -1;
  FcSession session = {.options = options,
                       .server = {.ep = ep,
                                  .policy = &fc_session_policy,
                                  .handles = {.limit = HANDLES, .random = fc_system_random},
                                  .tensor_limit = TENSOR_BYTES,
                                  .scopes = rights,
                                  .waits = true,
                                  .limits = limits_text(text, sizeof text),
                                  .page = page}};
  session.server.context = &session;
  snprintf(session.server.token, sizeof session.server.token, "%s", token);
  int rc = run(&session.server);
  fc_server_clear(&session.server);
  fc_endpoint_decref(ep);
  return rc;
}

int fc_session_complain(void) {
  TVMFFIObject* error = fc_error_take();
  if (!error) return 1;
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  fprintf(stderr, "farcall-server: %.*s: %.*s\n", (int)cell->kind.size, cell->kind.data, (int)cell->message.size,
          cell->message.data);
  fc_decref(error);
  return 1;
}
