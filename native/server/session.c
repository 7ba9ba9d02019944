/* One session of the small server, over any channel. */
#include "server/session.h"

#include <stdio.h>

enum { CONTROL_BYTES = 1 << 16, VALUES = 1024, HANDLES = 1 << 16, SECOND = 1000000000, MILLISECOND = 1000000 };

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Memory for a packet grows with the bytes that have arrived, and comes from the session's budget. With a largest
 * packet, none is longer. */
static fc_wire_limits limits_of(const FcOptions* options) {
  uint64_t packet = options->packet ? options->packet : UINT64_MAX, share = options->memory / 4;
  return (fc_wire_limits){.max_control = least(CONTROL_BYTES, packet),
                          .max_call = least(share, packet),
                          .max_payload = least(options->memory, packet),
                          .max_string = least(share, packet),
                          .max_args = VALUES,
                          .max_ndim = FC_WIRE_MAX_NDIM};
}

static const char* print_limits(const FcOptions* options, const fc_wire_limits* limits, char* out, size_t room) {
  snprintf(out, room,
           "{\"control_bytes\": %llu, \"call_bytes\": %llu, \"copy_bytes\": %llu, \"string_bytes\": %llu, "
           "\"values\": %d, \"rank\": %d, \"tensor_bytes\": %llu, \"handles\": %d, \"memory_bytes\": %llu, "
           "\"lease_seconds\": %lld.%03d}",
           (unsigned long long)limits->max_control, (unsigned long long)limits->max_call,
           (unsigned long long)limits->max_payload, (unsigned long long)limits->max_string, VALUES, FC_WIRE_MAX_NDIM,
           (unsigned long long)options->memory, HANDLES, (unsigned long long)options->memory,
           (long long)(options->lease_ns / SECOND), (int)(options->lease_ns % SECOND / MILLISECOND));
  return out;
}

/* The feature `files` sends pieces of half a MiB, which a largest packet may forbid: then files travel whole. */
static uint32_t offers_of(const FcOptions* options, const FcClient* client) {
  return FC_OFFER_TRACE | (options->packet ? FC_OFFER_PACKETS : client->files ? FC_OFFER_FILES : 0);
}

int fc_session_open(FcSession* session, FcChannel* channel, const FcOptions* options, const FcClient* client,
                    bool waits) {
  fc_wire_limits limits = limits_of(options);
  FcEndpoint* ep = fc_endpoint_new(channel, "the client", &limits);
  if (!ep) return -1;
  *session = (FcSession){.options = options,
                         .client = client,
                         .wire = limits,
                         .policy = fc_session_policy,
                         .server = {.ep = ep,
                                    .policy = &session->policy,
                                    .context = session,
                                    .handles = {.limit = HANDLES, .random = fc_system_random},
                                    .tensor_limit = options->memory,
                                    .scopes = client->rights,
                                    .waits = waits,
                                    .offers = offers_of(options, client),
                                    .watchdog = client->watchdog,
                                    .page = client->page}};
  /* Only a server with devices says that it relays. */
  if (client->onward && options->device_count) session->policy.forward = client->onward->forward;
  session->server.limits = print_limits(options, &limits, session->limits, sizeof session->limits);
  snprintf(session->server.token, sizeof session->server.token, "%s", client->token);
  return 0;
}

int fc_session_run(FcSession* session) {
  FcServer* server = &session->server;
  int rc = fc_endpoint_enter(server->ep);
  if (rc != 0) return rc;
  rc = fc_server_run(server);
  fc_endpoint_leave(server->ep);
  return rc;
}

void fc_session_close(FcSession* session) {
  fc_server_clear(&session->server);
  fc_endpoint_decref(session->server.ep);
}
