/* The client's half of an endpoint: one request, one reply, and the releases that travel with them. */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"
#include "session/error_text.h"
#include "runtime/trace.h"

/* ---- releases ---- */

void fc_remote_free_later(FcEndpoint* ep, uint64_t handle, DLDevice device) {
  FcClient* client = ep->client;
  fc_mutex_lock(&client->free_lock);
  if (client->frees_count == client->frees_capacity) {
    size_t capacity = client->frees_capacity ? 2 * client->frees_capacity : 16;
    FcPendingFree* grown = realloc(client->frees, capacity * sizeof *grown);
    if (!grown) {
      fc_mutex_unlock(&client->free_lock);
      return;
    }
    client->frees = grown;
    client->frees_capacity = capacity;
  }
  client->frees[client->frees_count++] = (FcPendingFree){handle, device};
  fc_mutex_unlock(&client->free_lock);
}

/* Takes up to `most` releases off the queue, last first. */
static size_t take_frees(FcClient* client, FcPendingFree* out, size_t most) {
  fc_mutex_lock(&client->free_lock);
  size_t n = client->frees_count < most ? client->frees_count : most;
  client->frees_count -= n;
  if (n != 0) memcpy(out, client->frees + client->frees_count, n * sizeof *out);
  fc_mutex_unlock(&client->free_lock);
  return n;
}

static int encode_free(FcEndpoint* ep, const FcPendingFree* entry, size_t* used) {
  bool data = (int)entry->device.device_type != 0;
  TVMFFIAny args[2] = {{.type_index = kTVMFFIDevice, .v_device = entry->device},
                       {.type_index = kTVMFFIOpaquePtr, .v_uint64 = entry->handle}};
  fc_wire_packet packet = {.code = data ? FC_WIRE_DEV_FREE_DATA : FC_WIRE_FREE_HANDLE,
                           .num_args = data ? 2 : 1,
                           .args = data ? args : args + 1};
  return fc_endpoint_encode(ep, &packet, used);
}

/* The connection has ended. A server's last error comes as the reply to the first pending request, which may have been
 * a release: see read_ahead. A server that stops a slow call in the middle of a copy cannot report why. */
FC_COLD static int gone(FcEndpoint* ep, const char* what) {
  TVMFFIObject* said = fc_error_take();
  if (!said && ep->due && ep->due <= fc_now_ns()) return fc_endpoint_overdue(ep, ep->allowed_ns);
  if (!said) {
    return fc_endpoint_lose(ep, "ConnectionLostError",
                            "the connection to %s was lost while waiting for `%s`; it may or may not have taken effect",
                            ep->peer, what);
  }
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(said);
  char kind[FC_KIND_MAX];
  snprintf(kind, sizeof kind, "%.*s", (int)cell->kind.size, cell->kind.data);
  fc_endpoint_lose(ep, kind, "%.*s", (int)cell->message.size, cell->message.data);
  fc_decref(said);
  return -1;
}

static int read_payload(FcEndpoint* ep, const char* what, fc_wire_packet* reply, void* sink, uint64_t nbytes) {
  if (reply->code != FC_WIRE_COPY_ACK || !sink || reply->nbytes != nbytes) {
    return fc_endpoint_lose(ep, "ProtocolError", "%s answered `%s` with %llu bytes of %s, expected %llu", ep->peer,
                            what, (unsigned long long)reply->nbytes, fc_wire_code_name(reply->code),
                            (unsigned long long)nbytes);
  }
  ep->reader.sink = sink;
  fc_wire_event event = fc_endpoint_next(ep, reply);
  if (event == FC_WIRE_MORE) return gone(ep, what);
  return event == FC_WIRE_PAYLOAD_END ? 0 : -1;
}

static int check_reply(FcEndpoint* ep, const char* what, const fc_wire_packet* reply, const void* sink) {
  if (FC_LIKELY(reply->code == FC_WIRE_RETURN && !sink)) return 0;
  if (reply->code == FC_WIRE_EXCEPTION) return fc_remote_error(ep, reply);
  if (reply->code == FC_WIRE_SHUTDOWN) {
    return fc_endpoint_lose(ep, "ConnectionLostError",
                            "%s ended the session while `%s` was pending; it could not read the request", ep->peer,
                            what);
  }
  return fc_endpoint_lose(ep, "ProtocolError", "%s answered `%s` with %s", ep->peer, what,
                          fc_wire_code_name(reply->code));
}

static bool is_request(const fc_wire_packet* packet) {
  return packet->code == FC_WIRE_CALL_FUNC || packet->code == FC_WIRE_FREE_HANDLE;
}

int fc_remote_read_reply(FcEndpoint* ep, const char* what, fc_wire_packet* reply, void* sink, uint64_t nbytes) {
  for (;;) {
    fc_wire_event event = fc_endpoint_next_in_turn(ep, reply);
    if (event == FC_WIRE_MORE) return gone(ep, what);
    if (event == FC_WIRE_FAILED) return -1;
    if (event == FC_WIRE_PAYLOAD) return read_payload(ep, what, reply, sink, nbytes);
    if (FC_LIKELY(!is_request(reply))) return check_reply(ep, what, reply, sink);
    if (fc_remote_serve(ep, reply, false) < 0) return -1;
  }
}

int fc_remote_read_any(FcEndpoint* ep, const char* what, fc_wire_packet* reply) {
  for (;;) {
    fc_wire_event event = fc_endpoint_next_in_turn(ep, reply);
    if (event == FC_WIRE_MORE) return gone(ep, what);
    if (event == FC_WIRE_FAILED) return -1;
    if (event == FC_WIRE_PAYLOAD_END) return 0;
    if (event == FC_WIRE_PAYLOAD) continue; /* dropped, since there is no buffer for it */
    if (FC_LIKELY(!is_request(reply))) return check_reply(ep, what, reply, NULL);
    if (fc_remote_serve(ep, reply, true) < 0) return -1;
  }
}

int fc_remote_keep_failure(FcEndpoint* ep, TVMFFIObject** failure) {
  if (fc_endpoint_is_lost(ep) || ep->interrupted) {
    if (*failure) fc_decref(*failure);
    *failure = NULL;
    return -1;
  }
  TVMFFIObject* error = fc_error_take();
  if (*failure && error) fc_decref(error);
  else *failure = error;
  return 0;
}

void fc_remote_expect_many(const FcEndpoint* ep) {
  if (!(ep->client->features & FC_PEER_FARCALL)) fc_channel_hurry(ep->channel);
}

int fc_remote_read_ahead(FcEndpoint* ep, size_t n, const char* what) {
  fc_wire_packet reply;
  for (size_t i = 0; i < n; ++i) {
    if (fc_remote_read_reply(ep, what, &reply, NULL, 0) == 0) continue;
    if (fc_endpoint_is_lost(ep) || ep->late) return -1;
  }
  return 0;
}

enum { FREES_MAX = 256 }; /* small enough that replies fill no socket buffer while both sides send */

/* ---- spans: the first request of an observed call takes the call's traceparent along ---- */

static bool tells_span(const FcEndpoint* ep) { return ep->client->span != 0 && fc_thread.span != NULL; }

static int encode_span(FcEndpoint* ep, size_t* used, size_t* count) {
  TVMFFIByteArray text = {fc_thread.span, strlen(fc_thread.span)};
  TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &text};
  fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .num_args = 1, .args = &arg, .handle = ep->client->span};
  if (fc_endpoint_encode(ep, &call, used) < 0) return -1;
  fc_thread.span = NULL;
  ++*count;
  return 0;
}

int fc_remote_encode_ahead(FcEndpoint* ep, size_t* used, size_t* count) {
  FcPendingFree batch[FREES_MAX];
  *count = ep->client->frees_count ? take_frees(ep->client, batch, FREES_MAX) : 0;
  for (size_t i = 0; i < *count; ++i) {
    if (encode_free(ep, &batch[i], used) < 0) return -1;
  }
  if (FC_UNLIKELY(tells_span(ep)) && encode_span(ep, used, count) < 0) return -1;
  return fc_remote_encode_deadline(ep, used, count);
}

int fc_remote_leave(FcEndpoint* ep, const fc_wire_packet* request, size_t ahead, size_t n) {
  if (!ep->interrupted || fc_endpoint_is_lost(ep)) return -1;
  TVMFFIObject* raised = fc_error_take();
  int rc = 0;
  ep->late = ep->interrupted = false;
  ep->reader.sink = NULL;
  for (size_t i = 0; i < n && rc == 0; ++i) rc = fc_call_leave(ep, request, i == 0 ? ahead : 0);
  if (rc < 0) fc_endpoint_lose(ep, "ConnectionLostError", "no memory to wait for %s", ep->peer);
  fc_error_raise(raised);
  return -1;
}

/* Sends releases that exceed one batch. A call may queue more than the next one sends, so the server would fill up. */
static int send_backlog(FcEndpoint* ep, const char* what) {
  static const fc_wire_packet release = {.code = FC_WIRE_FREE_HANDLE};
  while (FC_UNLIKELY(ep->client->frees_count > FREES_MAX)) {
    size_t used = 0, count = 0;
    if (fc_remote_encode_ahead(ep, &used, &count) < 0) return -1;
    if (fc_endpoint_flush(ep, used, NULL, 0) < 0) return fc_remote_leave(ep, &release, 0, count);
    ++ep->client->round_trips;
    fc_remote_expect_many(ep);
    for (; count != 0; --count) {
      if (fc_remote_read_ahead(ep, 1, what) < 0) return fc_remote_leave(ep, &release, 0, count);
    }
  }
  return 0;
}

enum { TAIL_MIN = 65536 };

/* A long string that ends a call (an uploaded file): sent from its own memory, not through the outbox. */
static TVMFFIByteArray* tail_of(const fc_wire_packet* packet) {
  const TVMFFIAny* last = packet->num_args > 0 ? &packet->args[packet->num_args - 1] : NULL;
  if (!last || packet->code != FC_WIRE_CALL_FUNC) return NULL;
  if (!fc_wire_is_bytes(last->type_index) && !fc_wire_is_text(last->type_index)) return NULL;
  TVMFFIByteArray* string = last->v_ptr;
  return string->size >= TAIL_MIN ? string : NULL;
}

/* Encodes the packet without its tail, then adds the tail's size to the size fields of packet and string. */
static int encode_without(FcEndpoint* ep, const fc_wire_packet* packet, TVMFFIByteArray* tail, size_t* used) {
  size_t begin = *used, size = tail->size;
  tail->size = 0;
  int rc = fc_endpoint_encode(ep, packet, used);
  tail->size = size;
  if (rc < 0) return -1;
  uint8_t *head = ep->outbox + begin, *last = ep->outbox + *used - 8;
  fc_wire_store64(head, fc_wire_load64(head) + size);
  fc_wire_store64(last, size);
  return 0;
}

/* Checks that the packet can be encoded. Requests ahead of it must be sent once they are encoded, so this comes
 * first. */
static int check_encodable(const FcEndpoint* ep, const fc_wire_packet* packet) {
  if (FC_LIKELY(ep->client->frees_count == 0 && !fc_remote_deadline_is_new(ep) && !tells_span(ep))) return 0;
  uint64_t size = 0;
  fc_wire_status status = fc_wire_encode(packet, NULL, 0, &size);
  return status == FC_WIRE_OK ? 0 : fc_endpoint_encode_error(status);
}

/* Sends the requests that go ahead and the packet in one write. *out_at: when the write began, for a trace. */
static int send_behind(FcEndpoint* ep, const fc_wire_packet* packet, const void* payload, size_t* ahead,
                       int64_t* out_at) {
  size_t used = 0;
  if (fc_remote_encode_ahead(ep, &used, ahead) < 0) return -1;
  TVMFFIByteArray* tail = tail_of(packet);
  int rc = tail ? encode_without(ep, packet, tail, &used) : fc_endpoint_encode(ep, packet, &used);
  if (rc < 0) return -1;
  size_t nbytes = tail ? tail->size : payload ? (size_t)packet->nbytes : 0;
  *out_at = fc_trace_begin();
  return fc_endpoint_flush(ep, used, tail ? tail->data : payload, nbytes) < 0 ? -1 : 0;
}

/* Reads the replies to `ahead` requests and to this one. */
static int read_replies(FcEndpoint* ep, const fc_wire_packet* request, size_t ahead, const char* what,
                        fc_wire_packet* reply, void* sink) {
  int rc = 0;
  while (ahead != 0 && (rc = fc_remote_read_ahead(ep, 1, what)) == 0) --ahead;
  if (rc == 0) rc = fc_remote_read_reply(ep, what, reply, sink, sink ? request->nbytes : 0);
  return rc == 0 ? 0 : fc_remote_leave(ep, request, ahead, 1);
}

FC_COLD static void trace_encoding(const FcEndpoint* ep, const char* what, int64_t begin, int64_t end) {
  fc_trace_add(&(FcTraceWork){.category = "encode", .name = what, .track = ep->client->slot}, begin, end);
}

FC_COLD static void trace_exchange(const FcEndpoint* ep, const fc_wire_packet* request, const char* what, int64_t begin,
                                   bool copies) {
  if (copies) fc_trace_copy(what, ep->client->slot, &request->tensor, request->nbytes, begin);
  else fc_trace_end(&(FcTraceWork){.category = "wire", .name = what, .track = ep->client->slot}, begin);
}

int fc_remote_prepare(FcEndpoint* ep, const fc_wire_packet* request, const char* what) {
  if (FC_UNLIKELY(fc_remote_must_learn(ep)) && fc_remote_learn(ep) < 0) return -1;
  int drained = fc_call_drain(ep);
  if (drained == FC_INTERRUPTED) return -1;
  if (drained < 0 && (fc_endpoint_is_lost(ep) || !fc_deadline_has_passed())) return -1;
  if (fc_deadline_has_passed()) return fc_endpoint_too_late(ep, what);
  return send_backlog(ep, what) < 0 ? -1 : check_encodable(ep, request);
}

int fc_remote_exchange(FcEndpoint* ep, const fc_wire_packet* request, const void* payload, const char* what,
                       fc_wire_packet* reply, void* sink) {
  size_t ahead = 0;
  if (fc_remote_prepare(ep, request, what) < 0) return FC_NOT_SENT;
  int64_t begin = fc_trace_begin(), out_at = 0;
  if (send_behind(ep, request, payload, &ahead, &out_at) < 0) {
    if (ep->interrupted) return fc_remote_leave(ep, request, ahead, 1);
    if (fc_endpoint_is_lost(ep) || ahead == 0) return FC_NOT_SENT;
    return fc_endpoint_lose(ep, "ConnectionLostError", "no memory for a packet to %s", ep->peer);
  }
  if (FC_UNLIKELY(begin && out_at)) trace_encoding(ep, what, begin, out_at);
  ++ep->client->round_trips;
  if (FC_UNLIKELY(ahead != 0)) fc_remote_expect_many(ep);
  int rc = read_replies(ep, request, ahead, what, reply, sink);
  if (rc == 0 && FC_UNLIKELY(ahead != 0)) fc_error_drop();
  if (FC_UNLIKELY(out_at != 0)) trace_exchange(ep, request, what, out_at, sink || payload);
  return rc;
}

int fc_remote_request(FcEndpoint* ep, const fc_wire_packet* request, const char* what, fc_wire_packet* reply) {
  return fc_remote_exchange(ep, request, NULL, what, reply, NULL);
}

int fc_remote_unexpected(FcEndpoint* ep, const char* what) {
  return fc_endpoint_lose(ep, "ProtocolError", "%s answered `%s` with values that the protocol does not allow there",
                          ep->peer, what);
}

int fc_remote_lookup(FcEndpoint* ep, const char* name, uint64_t* handle) {
  TVMFFIByteArray text = {name, strlen(name)};
  TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &text};
  fc_wire_packet reply, lookup = {.code = FC_WIRE_GET_GLOBAL_FUNC, .num_args = 1, .args = &arg};
  if (*handle != 0) return 0;
  if (fc_remote_request(ep, &lookup, name, &reply) < 0) return -1;
  if (reply.num_args != 1) return fc_remote_unexpected(ep, name);
  if (reply.args[0].type_index == kTVMFFINone) return 0; /* not found; a null pointer (0) says the same */
  if (reply.args[0].type_index != kTVMFFIOpaquePtr) return fc_remote_unexpected(ep, name);
  *handle = reply.args[0].v_uint64;
  return 0;
}
