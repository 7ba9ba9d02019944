/* Endpoints: packets out of and into bytes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/endpoint.h"
#include "session/trace.h"

enum {
  SENT_AT_ONCE_MAX = 16384,  /* a send in one system call; larger ones call fc_channel_note */
  QUEUED_PAYLOAD_MAX = 4096, /* a payload that is queued with packets; a larger one is sent from its own memory */
  DIRECT_MIN = 4096,         /* from this size on, bytes are received directly into their destination */
  LONG_PIECE = 4 << 20,      /* see send_long */
  KEEP_BUFFER_MAX = 1 << 20  /* a buffer that grew beyond this for one packet is released */
};

/* ---- out ---- */

int fc_endpoint_encode_error(fc_wire_status status) {
  fc_error_format("ValueError", "cannot encode the packet: %s", fc_wire_status_text(status));
  return -1;
}

static int give_outbox(FcEndpoint* ep, size_t wanted) {
  if (wanted <= ep->outbox_capacity) return 0;
  size_t capacity = 512 + ep->outbox_capacity + ep->outbox_capacity / 2;
  if (capacity < wanted) capacity = wanted;
  uint8_t* grown = realloc(ep->outbox, capacity);
  if (!grown) {
    fc_error_no_memory();
    return -1;
  }
  ep->outbox = grown;
  ep->outbox_capacity = capacity;
  return 0;
}

/* Encodes behind `used` bytes of the outbox; -1 with an error. */
int fc_endpoint_encode(FcEndpoint* ep, const fc_wire_packet* packet, size_t* used) {
  for (;;) {
    uint64_t size = 0, room = ep->outbox_capacity - *used;
    fc_wire_status status = fc_wire_encode(packet, room != 0 ? ep->outbox + *used : NULL, room, &size);
    if (FC_LIKELY(status == FC_WIRE_OK && size <= room)) {
      *used += (size_t)size;
      return 0;
    }
    if (status != FC_WIRE_OK && status != FC_WIRE_E_CAPACITY) return fc_endpoint_encode_error(status);
    if (size > PTRDIFF_MAX - *used) return fc_error_no_memory(), -1;
    if (give_outbox(ep, *used + (size_t)size) < 0) return -1;
  }
}

static void shrink_outbox(FcEndpoint* ep) {
  if (ep->outbox_capacity <= KEEP_BUFFER_MAX) return;
  free(ep->outbox);
  ep->outbox = NULL;
  ep->outbox_capacity = 0;
}

/* Sends in pieces, so that bytes_out shows the progress of a long send. */
static int send_long(FcEndpoint* ep, const void* bytes, size_t n) {
  const uint8_t* at = bytes;
  int rc = 0;
  while (n != 0 && rc == 0) {
    FcPart part = {(void*)at, n < LONG_PIECE ? n : LONG_PIECE};
    at += part.size;
    n -= part.size;
    __atomic_fetch_add(&ep->bytes_out, part.size, __ATOMIC_RELAXED);
    rc = fc_channel_send(ep->channel, &part, 1, ep->deadline);
  }
  return rc;
}

static int send_parts(FcEndpoint* ep, size_t used, const void* payload, size_t nbytes) {
  FcPart parts[2] = {{ep->outbox, used}, {(void*)payload, nbytes}};
  if (FC_UNLIKELY(used > LONG_PIECE || nbytes > LONG_PIECE)) {
    int rc = send_long(ep, ep->outbox, used);
    return rc == 0 ? send_long(ep, payload, nbytes) : rc;
  }
  __atomic_fetch_add(&ep->bytes_out, used + nbytes, __ATOMIC_RELAXED);
  return fc_channel_send(ep->channel, parts, nbytes != 0 ? 2 : 1, ep->deadline);
}

int fc_endpoint_flush(FcEndpoint* ep, size_t used, const void* payload, size_t nbytes) {
  int rc = send_parts(ep, used, payload, nbytes);
  shrink_outbox(ep);
  if (rc == 0 || rc == -EPIPE) return rc == 0;
  return fc_endpoint_broken(ep, rc);
}

/* Sends the queue, and a payload behind it. */
static int send_queued(FcEndpoint* ep, const void* payload, size_t nbytes) {
  size_t used = ep->queued;
  ep->queued = 0;
  if (used + nbytes > SENT_AT_ONCE_MAX) fc_channel_note(ep->channel);
  int sent = fc_endpoint_flush(ep, used, payload, nbytes);
  if (sent < 0) return -1;
  if (sent == 0) return fc_endpoint_lose(ep, "ConnectionLostError", "%s closed the connection", ep->peer);
  if (ep->channel->sending) *ep->channel->sending = 0;
  return 0;
}

int fc_endpoint_flush_queue(FcEndpoint* ep) { return ep->queued != 0 ? send_queued(ep, NULL, 0) : 0; }

int fc_endpoint_queue(FcEndpoint* ep, const fc_wire_packet* packet, const void* payload) {
  if (fc_endpoint_encode(ep, packet, &ep->queued) < 0) return -1;
  size_t nbytes = payload ? (size_t)packet->nbytes : 0; /* the payload is in memory, so its size fits */
  if (nbytes > QUEUED_PAYLOAD_MAX) return send_queued(ep, payload, nbytes);
  if (nbytes != 0) {
    if (give_outbox(ep, ep->queued + nbytes) < 0) return -1;
    memcpy(ep->outbox + ep->queued, payload, nbytes);
    ep->queued += nbytes;
  }
  return ep->queued < SENT_AT_ONCE_MAX ? 0 : send_queued(ep, NULL, 0);
}

/* ---- in ---- */

/* Sends a server's last error before it closes the connection. */
FC_COLD static void tell_peer(FcEndpoint* ep, const char* kind, const char* message) {
  char text[600];
  uint8_t bytes[700];
  uint64_t size = 0;
  TVMFFIByteArray string = {text, (size_t)snprintf(text, sizeof text, "%s: %s", kind, message)};
  TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &string};
  fc_wire_packet packet = {.code = FC_WIRE_EXCEPTION, .num_args = 1, .args = &arg};
  if (fc_wire_encode(&packet, bytes, sizeof bytes, &size) != FC_WIRE_OK) return;
  fc_endpoint_send_last(ep, bytes, (size_t)size);
}

FC_COLD int fc_endpoint_refuse(FcEndpoint* ep, const char* text) {
  /* After the pending replies; the client would take it for the first of them otherwise. */
  if (!ep->side && fc_endpoint_flush_queue(ep) == 0) tell_peer(ep, "ProtocolError", text);
  return fc_endpoint_lose(ep, "ProtocolError", "%s", text);
}

FC_COLD static fc_wire_event refused(FcEndpoint* ep) {
  const fc_wire_reader* r = &ep->reader;
  const char* name = r->head_have == FC_WIRE_HEAD_SIZE ? fc_wire_code_name(r->code) : NULL;
  char limit[96] = "";
  if (r->allowed != 0) {
    snprintf(limit, sizeof limit, ": %llu, the limit is %llu", (unsigned long long)r->measured,
             (unsigned long long)r->allowed);
  } else if (r->measured != 0) {
    snprintf(limit, sizeof limit, ": %llu", (unsigned long long)r->measured);
  }
  char text[512];
  snprintf(text, sizeof text, "%s sent a packet%s%s that cannot be read: %s%s", ep->peer, name ? " " : "",
           name ? name : "", fc_wire_status_text(r->status), limit);
  fc_endpoint_refuse(ep, text);
  return FC_WIRE_FAILED;
}

FC_COLD static fc_wire_event no_memory(FcEndpoint* ep) {
  char text[FC_PEER_NAME_MAX + 96];
  snprintf(text, sizeof text, "%s sent a packet of %llu bytes, for which there is no memory", ep->peer,
           (unsigned long long)ep->reader.body_size);
  fc_endpoint_refuse(ep, text);
  return FC_WIRE_FAILED;
}

static bool give_body(fc_wire_reader* r) {
  uint8_t* grown = realloc(r->body, (size_t)r->need);
  if (!grown) return false;
  r->body = grown;
  r->body_capacity = r->need;
  return true;
}

static bool give_arena(fc_wire_reader* r) {
  void* arena = r->need <= PTRDIFF_MAX ? malloc((size_t)r->need) : NULL;
  if (!arena) return false;
  free(r->arena);
  r->arena = arena;
  r->arena_capacity = r->need;
  return true;
}

/* Releases the buffer of a big packet; called before waiting for the next one. */
static void shrink_body(fc_wire_reader* r) {
  if (r->body_capacity <= KEEP_BUFFER_MAX || r->state != FC_WIRE_S_HEAD) return;
  free(r->body);
  r->body = NULL;
  r->body_capacity = 0;
}

/* > 0: bytes received; 0: none (the peer has finished, or the endpoint is starved); -1 with an error. */
static ptrdiff_t receive(FcEndpoint* ep, void* to, size_t n) {
  FcEndpoint* other = ep->before_wait;
  if (other && other->queued != 0 && send_queued(other, NULL, 0) < 0 && other == ep) return -1;
  ptrdiff_t got = fc_channel_receive(ep->channel, to, n, ep->deadline);
  if (FC_LIKELY(got >= 0)) {
    ep->bytes_in += (uint64_t)got;
    ep->arrived = fc_trace_begin();
    return got;
  }
  ep->starved = got == -EAGAIN;
  return ep->starved ? 0 : fc_endpoint_broken(ep, (int)got);
}

/* Receives more bytes, directly into their destination when there are many. Returns as `receive`. */
static ptrdiff_t fill(FcEndpoint* ep) {
  uint8_t* place = NULL;
  uint64_t room = fc_wire_room(&ep->reader, &place);
  if (room >= DIRECT_MIN) {
    ptrdiff_t got = receive(ep, place, (size_t)room);
    if (got > 0) fc_wire_wrote(&ep->reader, (uint64_t)got);
    return got;
  }
  ptrdiff_t got = receive(ep, ep->inbox, FC_INBOX_SIZE);
  ep->inbox_at = 0;
  ep->inbox_end = got > 0 ? (size_t)got : 0;
  return got;
}

fc_wire_event fc_endpoint_next(FcEndpoint* ep, fc_wire_packet* out) {
  fc_wire_reader* r = &ep->reader;
  ep->starved = false;
  shrink_body(r);
  for (;;) {
    uint64_t used = 0;
    fc_wire_event event = fc_wire_feed(r, ep->inbox + ep->inbox_at, ep->inbox_end - ep->inbox_at, &used, out);
    ep->inbox_at += used;
    switch (event) {
      case FC_WIRE_MORE: break;
      case FC_WIRE_SPACE:
        if (!give_body(r)) return no_memory(ep);
        continue;
      case FC_WIRE_ARENA:
        if (!give_arena(r)) return no_memory(ep);
        continue;
      case FC_WIRE_FAILED: return refused(ep);
      default: return event;
    }
    ptrdiff_t got = fill(ep);
    if (got < 0) return FC_WIRE_FAILED;
    if (got == 0) return FC_WIRE_MORE;
  }
}
