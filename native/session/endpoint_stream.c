/* Endpoints: packets out of and into bytes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/endpoint.h"
#include "runtime/trace.h"

enum {
  SENT_AT_ONCE_MAX = 16384,  /* a send in one system call; larger ones call fc_channel_note */
  QUEUED_PAYLOAD_MAX = 4096, /* a payload that is queued with packets; a larger one is sent from its own memory */
  DIRECT_MIN = 4096,         /* from this size on, bytes are received directly into their destination */
  LONG_PIECE = 4 << 20,      /* see send_long */
  KEEP_BUFFER_MAX = 1 << 20, /* a buffer that grew beyond this for one packet is released */
  UNSENT_MAX = 256 << 20     /* see keep_unsent */
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

/* Sends in pieces, so that bytes_out shows the progress of a long send. Leaves the unsent bytes in *part. */
static int send_long(FcEndpoint* ep, FcPart* part) {
  int rc = 0;
  while (part->size != 0 && rc == 0) {
    FcPart piece = {part->data, part->size < LONG_PIECE ? part->size : LONG_PIECE};
    size_t size = piece.size;
    rc = fc_channel_send(ep->channel, &piece, 1, ep->deadline);
    if (rc < 0) size -= piece.size;
    __atomic_fetch_add(&ep->bytes_out, size, __ATOMIC_RELAXED);
    part->data = (uint8_t*)part->data + size;
    part->size -= size;
  }
  return rc;
}

/* Leaves the unsent bytes in the parts. */
static int send_parts(FcEndpoint* ep, FcPart parts[2]) {
  size_t used = parts[0].size, nbytes = parts[1].size;
  if (FC_UNLIKELY(used > LONG_PIECE || nbytes > LONG_PIECE)) {
    int rc = send_long(ep, &parts[0]);
    return rc == 0 ? send_long(ep, &parts[1]) : rc;
  }
  int rc = fc_channel_send(ep->channel, parts, nbytes != 0 ? 2 : 1, ep->deadline);
  size_t unsent = FC_LIKELY(rc == 0) ? 0 : parts[0].size + parts[1].size;
  __atomic_fetch_add(&ep->bytes_out, used + nbytes - unsent, __ATOMIC_RELAXED);
  return rc;
}

/* A send was interrupted: moves the unsent bytes to the beginning of the outbox. The payload is copied, since its owner
 * may change or free it; -1 when it is too large for that. */
FC_COLD static int keep_unsent(FcEndpoint* ep, const FcPart parts[2], size_t total) {
  size_t n = parts[0].size + parts[1].size;
  if (n > UNSENT_MAX) return -1;
  memmove(ep->outbox, parts[0].data, parts[0].size);
  if (give_outbox(ep, n) < 0) return -1;
  if (parts[1].size != 0) memcpy(ep->outbox + parts[0].size, parts[1].data, parts[1].size);
  ep->torn = n != total;
  ep->side->unsent(ep, n);
  return 0;
}

/* The thread's error is that of a signal handler or, with -ETIMEDOUT, none. */
FC_COLD static int fail_to_send(FcEndpoint* ep, int rc, const FcPart parts[2], size_t total) {
  bool resumes = (rc == -EINTR && ep->resumable) || (rc == -ETIMEDOUT && ep->patient);
  TVMFFIObject* raised = rc == -EINTR ? fc_error_take() : NULL;
  if (resumes && keep_unsent(ep, parts, total) < 0) {
    fc_endpoint_lose(
        ep, "ConnectionLostError",
        "a call to %s was interrupted, and its last %zu bytes are too many to be sent later; connect again", ep->peer,
        parts[0].size + parts[1].size);
  } else {
    fc_endpoint_broken(ep, rc);
  }
  if (raised) fc_error_raise(raised);
  return -1;
}

int fc_endpoint_flush(FcEndpoint* ep, size_t used, const void* payload, size_t nbytes) {
  FcPart parts[2] = {{ep->outbox, used}, {(void*)payload, nbytes}};
  int rc = send_parts(ep, parts);
  if (FC_UNLIKELY(rc != 0 && rc != -EPIPE)) return fail_to_send(ep, rc, parts, used + nbytes);
  shrink_outbox(ep);
  return rc == 0;
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
