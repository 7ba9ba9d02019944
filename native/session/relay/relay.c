/* A relay: forwards requests of the client to the next server. */
#include "session/relay/relay.h"
#include "session/error_text.h"
#include "runtime/trace.h"

#include <stdio.h>
#include <stdlib.h>

enum { QUEUE_FIRST = 64, QUEUE_MAX = 65536 };

/* ---- pending requests ---- */

/* Makes room for one more at the end of a ring that begins at *first, or of a stack. */
static int grow(FcPending** items, size_t* first, size_t count, size_t* capacity) {
  if (count < *capacity) return 0;
  size_t wanted = *capacity ? *capacity * 2 : QUEUE_FIRST;
  FcPending* grown = malloc(wanted * sizeof *grown);
  if (!grown) {
    fc_error_no_memory();
    return -1;
  }
  for (size_t i = 0; i < count; ++i) grown[i] = (*items)[(*first + i) % *capacity];
  free(*items);
  *items = grown;
  *first = 0;
  *capacity = wanted;
  return 0;
}

/* The request that the next server works on. */
static FcPending* current(FcRelay* relay) {
  if (relay->count != 0) return &relay->queue[relay->first];
  return relay->suspended_count != 0 ? &relay->suspended[relay->suspended_count - 1] : NULL;
}

/* The next server ends a call that takes too long, and reports it: the watchdog ends this process only if it does
 * not. */
static void arm(FcRelay* relay, FcPending* now) {
  if (now && !now->due.at && fc_deadline_is_set(&now->deadline)) {
    now->due = fc_deadline_due(&now->deadline, fc_now_ns());
    now->due.at += FC_DEADLINE_HOP_NS;
  }
  FcDue due = now ? now->due : (FcDue){0, 0};
  if (FC_UNLIKELY(due.at != relay->server->due.at)) fc_deadline_arm(relay->server, due);
}

/* Notes the pending request on the status page: the supervisor counts time on the next server as work of this
 * process. */
static void note(FcRelay* relay) {
  FcServer* server = relay->server;
  FcPending* now = current(relay);
  if (!server->page) return;
  fc_page_note(&server->noted, server->page, now ? relay : NULL, relay->name);
  arm(relay, now);
}

static int append(FcRelay* relay, FcPending entry) {
  if (grow(&relay->queue, &relay->first, relay->count, &relay->capacity) != 0) return -1;
  relay->queue[(relay->first + relay->count++) % relay->capacity] = entry;
  note(relay);
  return 0;
}

/* Appends to the queue; waits while it is too long, so that a client that reads no replies must wait. -1 with an error:
 * no memory. */
static int push(FcRelay* relay, FcPending entry) {
  while (relay->count >= QUEUE_MAX && !relay->done) fc_condition_wait(&relay->moved, &relay->lock);
  return append(relay, entry);
}

FcPending fc_relay_pop(FcRelay* relay) {
  FcPending entry = relay->queue[relay->first];
  relay->first = (relay->first + 1) % relay->capacity;
  --relay->count;
  note(relay);
  fc_condition_signal(&relay->moved);
  return entry;
}

void fc_relay_drop(FcPending* entry) {
  fc_name_drop(entry->name);
  fc_name_drop(entry->gives);
}

int fc_relay_suspend(FcRelay* relay) {
  size_t none = 0;
  if (relay->count == 0 || relay->queue[relay->first].code != FC_WIRE_CALL_FUNC) {
    return fc_endpoint_lose(relay->far, "ProtocolError", "%s called a function of the client outside of a call",
                            relay->far->peer);
  }
  if (grow(&relay->suspended, &none, relay->suspended_count, &relay->suspended_capacity) != 0) return -1;
  relay->suspended[relay->suspended_count++] = fc_relay_pop(relay);
  note(relay);
  return 0;
}

/* When the next server reads this answer, it has read all requests that were forwarded before. */
int fc_relay_resume(FcRelay* relay) {
  if (relay->suspended_count == 0) return -1;
  return append(relay, relay->suspended[--relay->suspended_count]);
}

/* ---- payloads ---- */

int fc_relay_stream(FcEndpoint* from, FcEndpoint* to, uint8_t* buffer) {
  fc_wire_reader* reader = &from->reader;
  uint64_t left = reader->payload_left;
  bool lost = to && fc_endpoint_flush_queue(to) != 0;
  do {
    fc_wire_packet packet;
    uint64_t piece = left < FC_RELAY_PIECE ? left : FC_RELAY_PIECE;
    fc_wire_slice(reader, piece);
    reader->sink = to && !lost ? buffer : NULL;
    if (fc_endpoint_next(from, &packet) != FC_WIRE_PAYLOAD_END) return -1;
    left -= piece;
    if (!to || lost || piece == 0) continue;
    FcPart part = {buffer, (size_t)piece};
    int rc = fc_channel_send(to->channel, &part, 1, 0);
    if (rc != 0) lost = fc_endpoint_broken(to, rc) != 0;
  } while (left != 0);
  return lost;
}

/* ---- requests that this server answers ---- */

/* Answers a request that is not forwarded. While no request is pending, no other thread sends. */
static int answer_here(FcRelay* relay, int32_t code, TVMFFIAny answer) {
  FcPending entry = {.here = true, .code = code, .answer = answer};
  fc_mutex_lock(&relay->lock);
  int rc = relay->count == 0 ? fc_relay_send_here(relay, &entry) : push(relay, entry);
  fc_mutex_unlock(&relay->lock);
  return rc;
}

/* Answers with the thread's error. */
static int refuse(FcRelay* relay) { return answer_here(relay, 0, fc_any_object(fc_error_take())); }

static void set_lost_error(const FcRelay* relay) {
  char kind[FC_KIND_MAX];
  const char* message = fc_error_split_kind(relay->lost, kind);
  fc_error_set(kind, message);
}

/* ---- requests ---- */

/* Subtracts the time that has passed, since the next server counts from when it receives the request. */
static void subtract_elapsed(const FcRelay* relay, fc_wire_packet* p) {
  int64_t left = relay->deadline.until - fc_now_ns();
  if (relay->deadline.until) ((TVMFFIAny*)p->args)[0].v_int64 = left > 0 ? left : 1;
}

/* Rewrites the request for the next server and queues a pending reply. */
static int admit(FcRelay* relay, fc_wire_packet* p) {
  FcPending entry = {.name = NULL};
  fc_mutex_lock(&relay->lock);
  int rc = relay->done ? -1 : fc_relay_request(relay, p, &entry);
  if (relay->done) set_lost_error(relay);
  entry.began = fc_trace_begin();
  entry.deadline = relay->deadline;
  if (rc == 0) rc = push(relay, entry);
  if (rc != 0) fc_relay_drop(&entry);
  if (rc == 0 && entry.tells) subtract_elapsed(relay, p);
  fc_mutex_unlock(&relay->lock);
  return rc;
}

/* If the request could not be sent, the connection is lost, which the other thread sees and reports. */
static void drop_error(int rc) {
  if (rc != 0) fc_error_drop();
}

static void send_far(FcRelay* relay, const fc_wire_packet* p) {
  int rc = fc_endpoint_queue(relay->far, p, NULL);
  if (rc != 0) fc_endpoint_lose(relay->far, "ConnectionLostError", "no memory for a packet to %s", relay->far->peer);
  drop_error(rc);
}

/* Forwards the client's answer to a call of its function; if that fails, forwards the error instead. */
static int forward_answer(FcRelay* relay, fc_wire_packet* p) {
  int rc = 0;
  fc_mutex_lock(&relay->lock);
  int resumed = fc_relay_resume(relay);
  for (int32_t i = 0; i < p->num_args && resumed == 0 && rc == 0; ++i) {
    rc = fc_relay_to_far(relay, (TVMFFIAny*)&p->args[i]);
  }
  fc_mutex_unlock(&relay->lock);
  if (resumed != 0) return fc_endpoint_lose(relay->near, "ProtocolError", "the client answered without being called");
  if (rc != 0) drop_error(fc_queue_error(relay->far, fc_error_take()));
  else send_far(relay, p);
  return 0;
}

static int forward_packet(FcRelay* relay, fc_wire_packet* p) {
  if (p->code == FC_WIRE_SHUTDOWN) {
    relay->server->ended = true;
    return 0;
  }
  if (p->code == FC_WIRE_RETURN || p->code == FC_WIRE_EXCEPTION) return forward_answer(relay, p);
  TVMFFIAny answer;
  int here = fc_relay_here(relay, p, &answer);
  if (here == 1) return answer_here(relay, p->code, answer);
  if (here != 0 || admit(relay, p) != 0) return refuse(relay);
  send_far(relay, p);
  return 0;
}

static int forward_copy(FcRelay* relay, fc_wire_packet* p, uint8_t* buffer) {
  int admitted = admit(relay, p);
  TVMFFIObject* refusal = admitted == 0 ? NULL : fc_error_take();
  if (admitted == 0) send_far(relay, p);
  if (fc_relay_stream(relay->near, admitted == 0 ? relay->far : NULL, buffer) < 0) {
    if (refusal) fc_decref(refusal);
    return fc_endpoint_lose(relay->near, "ConnectionLostError", "the client closed the connection inside a copy");
  }
  if (!refusal) return 0;
  fc_error_raise(refusal);
  return refuse(relay);
}

static int forward_all(FcRelay* relay, uint8_t* buffer) {
  fc_wire_packet packet;
  while (!relay->server->ended) {
    int rc;
    switch (fc_endpoint_next(relay->near, &packet)) {
      case FC_WIRE_PACKET: rc = forward_packet(relay, &packet); break;
      case FC_WIRE_PAYLOAD: rc = forward_copy(relay, &packet, buffer); break;
      case FC_WIRE_MORE:
        if (fc_wire_at_boundary(&relay->near->reader)) return 0;
        return fc_endpoint_lose(relay->near, "ConnectionLostError", "the client closed the connection inside a packet");
      default: return -1;
    }
    if (rc != 0) return rc;
  }
  return 0;
}

/* ---- the session ---- */

static void clear(FcRelay* relay) {
  if (relay->server->page) fc_page_note(&relay->server->noted, relay->server->page, NULL, "");
  for (size_t i = 0; i < relay->count; ++i) {
    FcPending* entry = &relay->queue[(relay->first + i) % relay->capacity];
    fc_any_clear(&entry->answer);
    fc_relay_drop(entry);
  }
  for (size_t i = 0; i < relay->suspended_count; ++i) fc_relay_drop(&relay->suspended[i]);
  fc_relay_clear_names(relay);
  for (uint32_t i = 0; i < relay->handles.size; ++i) {
    if (relay->handles.entries[i].kind == FC_KIND_HERE) fc_export_decref(relay->handles.entries[i].function);
  }
  fc_handles_free(&relay->handles);
  free(relay->queue);
  free(relay->suspended);
  fc_mutex_destroy(&relay->lock);
  fc_condition_destroy(&relay->moved);
}

static int run_threads(FcRelay* relay, uint8_t* buffer) {
  FcTask backward;
  if (fc_task_start(&backward, fc_relay_backward, relay) != 0) {
    fc_error_set("RuntimeError", "cannot start a thread for the replies of the next hop");
    return -1;
  }
  int rc = forward_all(relay, buffer);
  /* Sends the queued requests, which the next server then carries out, even if no client reads the replies. */
  if (!fc_endpoint_is_lost(relay->far)) fc_endpoint_flush_queue(relay->far);
  fc_endpoint_close(relay->far, true);
  fc_task_join(backward);
  return rc;
}

/* Forwards kInitServer with the values after those that named the next hop. */
int fc_relay_run(FcServer* server, FcEndpoint* far, const fc_wire_packet* init, int32_t skip) {
  FcHandles handles = {.limit = server->handles.limit, .random = server->handles.random};
  FcRelay relay = {.server = server, .near = server->ep, .far = far, .handles = handles};
  uint8_t* buffer = malloc(FC_RELAY_PIECE);
  fc_wire_packet next = *init;
  snprintf(relay.name, sizeof relay.name, "forwarding to %s", far->peer);
  next.args += skip;
  next.num_args -= skip;
  fc_mutex_init(&relay.lock);
  fc_condition_init(&relay.moved);
  /* Each thread sends the queue that it writes: this one before it waits, the other when it has read everything. */
  relay.near->before_wait = far;
  far->before_wait = NULL;
  int rc = buffer ? push(&relay, (FcPending){.code = FC_WIRE_INIT_SERVER}) : -1;
  if (!buffer) fc_error_no_memory();
  if (rc == 0) send_far(&relay, &next);
  if (rc == 0) rc = run_threads(&relay, buffer);
  relay.near->before_wait = relay.near;
  far->before_wait = far;
  free(buffer);
  clear(&relay);
  return rc;
}
