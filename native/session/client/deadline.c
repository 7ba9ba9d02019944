/*
 * Tells the server how long requests may take (docs/spec/wire.md, feature `deadlines`). Changed limits travel in the same
 * write as the first request to which they apply, so requests without a limit cost nothing.
 */
#include "session/client/remote.h"

enum { GRACE_NS = 200000000 };

int64_t fc_remote_grace(const FcEndpoint* ep) { return ep->client && ep->client->deadline ? GRACE_NS : 0; }

bool fc_remote_must_learn(const FcEndpoint* ep) {
  const FcClient* client = ep->client;
  return !client->deadline && (client->features & FC_PEER_DEADLINES) && (fc_deadline || ep->timeout_ns);
}

int fc_remote_learn(FcEndpoint* ep) {
  FcClient* client = ep->client;
  client->features &= ~(uint32_t)FC_PEER_DEADLINES; /* look up once; and the lookup is itself a request */
  if (fc_remote_lookup(ep, "farcall.rpc.deadline", &client->deadline) < 0) {
    if (fc_endpoint_is_lost(ep)) return -1;
    if (fc_deadline_has_passed() || client->queue.first) { /* not sent, or interrupted: try again later */
      client->features |= FC_PEER_DEADLINES;
      return -1;
    }
    fc_error_drop(); /* then only this side enforces the limits */
  }
  fc_endpoint_start_deadline(ep);
  return 0;
}

bool fc_remote_deadline_is_new(const FcEndpoint* ep) {
  const FcClient* client = ep->client;
  return client->deadline && FC_UNLIKELY(client->told_until != fc_deadline || client->told_each != ep->timeout_ns);
}

int fc_remote_encode_deadline(FcEndpoint* ep, size_t* used, size_t* count) {
  FcClient* client = ep->client;
  if (!fc_remote_deadline_is_new(ep)) return 0;
  int64_t left = fc_deadline ? fc_deadline - fc_now_ns() : 0;
  if (fc_deadline && left <= 0) left = 1; /* since 0 means no limit */
  TVMFFIAny args[2] = {fc_any_int(left), fc_any_int(ep->timeout_ns)};
  fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .num_args = 2, .args = args, .handle = client->deadline};
  if (fc_endpoint_encode(ep, &call, used) < 0) return -1;
  client->told_until = fc_deadline;
  client->told_each = ep->timeout_ns;
  ++*count;
  return 0;
}
