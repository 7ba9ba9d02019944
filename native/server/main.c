/*
 * The small server: one session on standard input and output, then it ends. It needs no Python, no dynamic loader and
 * no threads. Its exit status is 0 when the client ended the session in good order.
 */
#include <stdio.h>

#include "runtime/builtins.h"
#include "server/server.h"
#include "session/posix/channels.h"
#include "session/server/serve.h"

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

static const fc_wire_limits limits = {CONTROL_BYTES, CALL_BYTES, COPY_BYTES, STRING_BYTES, VALUES, FC_WIRE_MAX_NDIM};

static const char* limits_text(char* out, size_t room) {
  snprintf(out, room,
           "{\"control_bytes\": %d, \"call_bytes\": %d, \"copy_bytes\": %d, \"string_bytes\": %d, \"values\": %d, "
           "\"rank\": %d, \"tensor_bytes\": %d, \"handles\": %d}",
           CONTROL_BYTES, CALL_BYTES, COPY_BYTES, STRING_BYTES, VALUES, FC_WIRE_MAX_NDIM, TENSOR_BYTES, HANDLES);
  return out;
}

__attribute__((weak)) int farcall_server_setup(void) { return 0; }

/* ---- the policy ---- */

/* Finds registered functions; the runtime's builtin functions are not served. */
static int find(void* context, TVMFFIByteArray name, FcExport** out) {
  (void)context;
  TVMFFIObject* function = fc_global_get(name.data, name.size);
  *out = function ? fc_export_new(function, name.data, name.size, fc_scope_of(name)) : NULL;
  return function && !*out ? -1 : 0;
}

static int begin(void* context, FcServer* server, const fc_wire_packet* init) {
  (void)context;
  if (init->num_args == 0) return fc_server_reply_void(server);
  fc_error_set("NotImplementedError", "this server does not relay sessions; connect to it as the last hop");
  return -1;
}

static TVMFFIObject* take_error(void) { return NULL; }

static const FcPolicy policy = {
    .find = find, .begin = begin, .container_function = fc_container_function, .take_error = take_error};

/* ---- the session ---- */

static int serve(FcEndpoint* ep) {
  char text[256];
  FcServer server = {.ep = ep,
                     .policy = &policy,
                     .handles = {.limit = HANDLES, .random = fc_system_random},
                     .tensor_limit = TENSOR_BYTES,
                     .scopes = FC_SCOPE_ALL,
                     .token = "none",
                     .waits = true,
                     .limits = limits_text(text, sizeof text)};
  int rc = fc_endpoint_enter(ep);
  if (rc != 0) return rc;
  rc = fc_server_run(&server);
  fc_endpoint_leave(ep);
  fc_server_clear(&server);
  return rc;
}

static int serve_standard_streams(void) {
  FcChannel* channel = fc_channel_from_fds(0, 1);
  FcEndpoint* ep = channel ? fc_endpoint_new(channel, "the client", &limits) : NULL;
  if (channel) fc_channel_decref(channel);
  if (!ep) return -1;
  int rc = serve(ep);
  fc_endpoint_decref(ep);
  return rc;
}

static int complain(void) {
  TVMFFIObject* error = fc_error_take();
  if (!error) return 1;
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  fprintf(stderr, "farcall-server: %.*s: %.*s\n", (int)cell->kind.size, cell->kind.data, (int)cell->message.size,
          cell->message.data);
  fc_decref(error);
  return 1;
}

int main(void) { return farcall_server_setup() == 0 && serve_standard_streams() == 0 ? 0 : complain(); }
