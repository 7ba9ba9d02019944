/* A relay: forwards replies of the next server to the client. */
#include <stdio.h>
#include <stdlib.h>

#include "session/relay/relay.h"
#include "session/error_text.h"
#include "runtime/trace.h"

/* ---- errors name the hop that they come from ---- */

/* "Kind: hop 2 (URL): message"; the number of a farther hop grows by one. The caller must free() it; NULL without
 * memory. */
static char* name_hop(const FcRelay* relay, const char* text) {
  char kind[FC_KIND_MAX];
  const char *message = fc_error_split_kind(text, kind), *rest = NULL;
  int hop = fc_error_read_hop(message, &rest);
  int prefix = (int)(message - text);
  size_t size = strlen(text) + strlen(relay->far->peer) + 32;
  char* named = malloc(size);
  if (!named) return NULL;
  if (hop != 0) snprintf(named, size, "%.*shop %d %s", prefix, text, hop + 1, rest);
  else snprintf(named, size, "%.*shop 2 (%s): %s", prefix, text, relay->far->peer, message);
  return named;
}

static int send_text(FcRelay* relay, const char* text) {
  TVMFFIByteArray string = {text, strlen(text)};
  TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &string};
  fc_wire_packet packet = {.code = FC_WIRE_EXCEPTION, .num_args = 1, .args = &arg};
  return fc_endpoint_queue(relay->near, &packet, NULL);
}

static int send_named(FcRelay* relay, const char* text) {
  char* named = name_hop(relay, text);
  int rc = send_text(relay, named ? named : text);
  free(named);
  return rc;
}

/* ---- replies ---- */

/* Queues the relay's own answer: an exception for an error, else a pointer (of a function) or the result of a call. */
static int queue_here(FcRelay* relay, FcPending* entry) {
  static const FcOrigin here = {"a function of the relay", NULL};
  if (entry->answer.type_index == kTVMFFIError) return fc_queue_error(relay->near, entry->answer.v_obj);
  if (entry->code != FC_WIRE_CALL_FUNC) return fc_server_reply(relay->server, &entry->answer, 1);
  FcWireResult wire;
  TVMFFIAny held;
  int rc = fc_server_result(relay->server, &here, &entry->answer, &wire, &held);
  if (rc == 0) rc = fc_server_reply(relay->server, wire.values, wire.n);
  fc_any_clear(&held);
  return rc == 0 ? 0 : fc_queue_error(relay->near, fc_error_take());
}

int fc_relay_send_here(FcRelay* relay, FcPending* entry) {
  int rc = queue_here(relay, entry);
  return rc != 0 ? rc : fc_endpoint_flush_queue(relay->near);
}

/* Sends the relay's own answers at the front of the queue. While one is queued, only this thread sends. */
static int send_own(FcRelay* relay) {
  int rc = 0;
  fc_mutex_lock(&relay->lock);
  while (rc == 0 && relay->count != 0 && relay->queue[relay->first].here) {
    FcPending entry = fc_relay_pop(relay);
    rc = fc_relay_send_here(relay, &entry);
  }
  fc_mutex_unlock(&relay->lock);
  return rc;
}

static void trace_answer(const FcPending* entry) {
  bool copy = entry->code == FC_WIRE_COPY_FROM_REMOTE || entry->code == FC_WIRE_COPY_TO_REMOTE;
  const char* name = entry->name ? entry->name->text : fc_wire_code_name(entry->code);
  fc_trace_end(&(FcTraceWork){.category = copy ? "copy" : "wire", .name = name, .track = -1}, entry->began);
}

/* Removes the answered request at the front, then sends the relay's own answers behind it. Its reply is sent, or this
 * thread queues another one behind it next. */
static int retire(FcRelay* relay) {
  fc_mutex_lock(&relay->lock);
  /* Once the queue is empty, the other thread may send. */
  int rc = relay->count == 1 ? fc_endpoint_flush_queue(relay->near) : 0;
  trace_answer(&relay->queue[relay->first]); /* before the queue becomes empty: await_answers relies on it */
  FcPending entry = fc_relay_pop(relay);
  fc_relay_drop(&entry);
  fc_mutex_unlock(&relay->lock);
  return rc != 0 ? rc : send_own(relay);
}

/* Called before this thread waits. With an empty queue it has nothing to send, and the other thread may be sending. */
static int send_replies(FcRelay* relay) {
  fc_mutex_lock(&relay->lock);
  int rc = relay->count != 0 ? fc_endpoint_flush_queue(relay->near) : 0;
  fc_mutex_unlock(&relay->lock);
  return rc;
}

static bool front(FcRelay* relay, FcPending* out) {
  fc_mutex_lock(&relay->lock);
  bool any = relay->count != 0;
  if (any) *out = relay->queue[relay->first];
  fc_mutex_unlock(&relay->lock);
  return any;
}

static int unexpected(FcRelay* relay, const fc_wire_packet* p) {
  return fc_endpoint_lose(relay->far, "ProtocolError", "%s sent a %s that answers no request", relay->far->peer,
                          fc_wire_code_name(p->code));
}

static int rewrite(FcRelay* relay, fc_wire_packet* p, const FcPending* entry) {
  fc_mutex_lock(&relay->lock);
  int rc = fc_relay_reply(relay, p, entry);
  fc_mutex_unlock(&relay->lock);
  return rc;
}

static int back_return(FcRelay* relay, fc_wire_packet* p) {
  FcPending entry;
  if (!front(relay, &entry) || entry.code == FC_WIRE_COPY_FROM_REMOTE) return unexpected(relay, p);
  int rc = rewrite(relay, p, &entry) == 0 ? fc_endpoint_queue(relay->near, p, NULL)
                                          : fc_queue_error(relay->near, fc_error_take());
  return rc != 0 ? rc : retire(relay);
}

/* Without a pending request, the exception is the last error of a session that ends. */
static int back_exception(FcRelay* relay, const fc_wire_packet* p) {
  FcPending entry;
  if (p->num_args != 1 || !fc_wire_is_text(p->args[0].type_index)) return unexpected(relay, p);
  const char* text = ((const TVMFFIByteArray*)p->args[0].v_ptr)->data;
  if (!front(relay, &entry)) {
    char kind[FC_KIND_MAX];
    const char* message = fc_error_split_kind(text, kind);
    return fc_endpoint_lose(relay->far, kind, "%s", message);
  }
  int rc = send_named(relay, text);
  return rc != 0 ? rc : retire(relay);
}

static int back_payload(FcRelay* relay, fc_wire_packet* p, uint8_t* buffer) {
  FcPending entry;
  if (!front(relay, &entry) || entry.code != FC_WIRE_COPY_FROM_REMOTE || entry.nbytes != p->nbytes) {
    return unexpected(relay, p);
  }
  if (fc_endpoint_queue(relay->near, p, NULL) != 0) return -1;
  if (relay->near->channel->sending) fc_channel_note(relay->near->channel);
  int rc = fc_relay_stream(relay->far, relay->near, buffer);
  if (rc != 0) return -1;
  if (relay->near->channel->sending) *relay->near->channel->sending = 0;
  return retire(relay);
}

/* The next server calls a function of the client, or releases one. */
static int back_request(FcRelay* relay, fc_wire_packet* p) {
  bool call = p->code == FC_WIRE_CALL_FUNC;
  fc_mutex_lock(&relay->lock); /* locked, since the other thread may send while no request is pending */
  int rc = call ? fc_relay_callback(relay, p) : 0;
  if (rc == 0 && call) rc = fc_relay_suspend(relay);
  if (rc == 0) rc = fc_endpoint_queue(relay->near, p, NULL);
  if (rc == 0) rc = fc_endpoint_flush_queue(relay->near);
  fc_mutex_unlock(&relay->lock);
  return rc != 0 ? rc : send_own(relay);
}

static int back_packet(FcRelay* relay, fc_wire_packet* p) {
  bool notice = p->code == FC_WIRE_FREE_HANDLE && p->num_args == 1 && p->args[0].type_index == kTVMFFIOpaquePtr;
  switch (p->code) {
    case FC_WIRE_RETURN: return back_return(relay, p);
    case FC_WIRE_EXCEPTION: return back_exception(relay, p);
    case FC_WIRE_CALL_FUNC: return p->handle & FC_CLIENT_BIT ? back_request(relay, p) : unexpected(relay, p);
    case FC_WIRE_FREE_HANDLE: return notice ? back_request(relay, p) : unexpected(relay, p);
    case FC_WIRE_SHUTDOWN:
      return fc_endpoint_lose(relay->far, "ConnectionLostError", "%s ended the session", relay->far->peer);
    default: return unexpected(relay, p);
  }
}

static int back_all(FcRelay* relay, uint8_t* buffer) {
  fc_wire_packet packet;
  for (;;) {
    int rc;
    if (relay->far->inbox_at == relay->far->inbox_end && send_replies(relay) != 0) return -1;
    switch (fc_endpoint_next(relay->far, &packet)) {
      case FC_WIRE_PACKET: rc = back_packet(relay, &packet); break;
      case FC_WIRE_PAYLOAD: rc = back_payload(relay, &packet, buffer); break;
      case FC_WIRE_MORE:
        return fc_endpoint_lose(relay->far, "ConnectionLostError", "%s closed the connection", relay->far->peer);
      default: return -1;
    }
    if (rc != 0) return rc;
  }
}

/* ---- the end ---- */

/* Answers a pending request with the reason, in which the next server may have named the function already. */
static int send_lost(FcRelay* relay, const FcPending* entry) {
  const char *why = relay->far->lost_text, *rest, *name = entry->name ? entry->name->text : NULL;
  char text[sizeof relay->far->lost_kind + sizeof relay->far->lost_text + 80];
  if (!name || strstr(why, name) || fc_error_read_hop(why, &rest) != 0) return send_text(relay, relay->lost);
  snprintf(text, sizeof text, "%s: `%.64s`: %s", relay->far->lost_kind, name, why);
  return send_named(relay, text);
}

/* Answers all pending requests with the reason; `refuse` does so for later ones. */
static void answer_rest(FcRelay* relay) {
  char text[sizeof relay->far->lost_kind + sizeof relay->far->lost_text + 2];
  snprintf(text, sizeof text, "%s: %s", relay->far->lost_kind, relay->far->lost_text);
  char* named = name_hop(relay, text);
  fc_mutex_lock(&relay->lock);
  snprintf(relay->lost, sizeof relay->lost, "%s", named ? named : text);
  int rc = fc_endpoint_is_lost(relay->near) ? -1 : 0;
  while (relay->suspended_count != 0 && fc_relay_resume(relay) == 0) continue;
  while (relay->count != 0 && rc == 0) {
    FcPending entry = fc_relay_pop(relay);
    rc = entry.here ? queue_here(relay, &entry) : send_lost(relay, &entry);
    fc_relay_drop(&entry);
  }
  if (rc == 0) fc_endpoint_flush_queue(relay->near);
  relay->done = true;
  fc_condition_signal(&relay->moved);
  fc_mutex_unlock(&relay->lock);
  free(named);
}

void* fc_relay_backward(void* argument) {
  FcRelay* relay = argument;
  uint8_t* buffer = malloc(FC_RELAY_PIECE);
  if (buffer) back_all(relay, buffer);
  free(buffer);
  fc_endpoint_lose(relay->far, "ConnectionLostError", "the connection to %s failed", relay->far->peer);
  answer_rest(relay);
  fc_error_drop();
  return NULL;
}
