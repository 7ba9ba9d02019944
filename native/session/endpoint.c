/* Endpoints: the connection itself, its life, how it is lost, and whose turn it is. */
#include "session/endpoint.h"
#include "session/client/remote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BEAT_NS = 1000000000 }; /* for eight bytes on an idle line */

#define CLOSED_TEXT "the session with %s is closed; connect again"

/* ---- the table of client sessions: the device of a remote tensor leads to its endpoint ---- */

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static FcEndpoint** table;
static int32_t table_size;

static int table_enter(FcEndpoint* ep) {
  int32_t slot = 0;
  pthread_mutex_lock(&table_lock);
  while (slot < table_size && table[slot]) ++slot;
  if (slot == table_size) {
    int32_t size = table_size ? 2 * table_size : 32;
    FcEndpoint** grown = size <= INT32_MAX / FC_REMOTE_STEP - 1 ? realloc(table, (size_t)size * sizeof *table) : NULL;
    if (!grown) {
      pthread_mutex_unlock(&table_lock);
      fc_error_no_memory();
      return -1;
    }
    memset(grown + table_size, 0, (size_t)(size - table_size) * sizeof *table);
    table = grown;
    table_size = size;
  }
  table[slot] = ep;
  ep->slot = slot;
  pthread_mutex_unlock(&table_lock);
  return 0;
}

FcEndpoint* fc_endpoint_of(DLDevice device) {
  int32_t slot = (int32_t)device.device_type / FC_REMOTE_STEP - 1;
  FcEndpoint* found = NULL;
  pthread_mutex_lock(&table_lock);
  if (slot >= 0 && slot < table_size && table[slot]) {
    found = table[slot];
    fc_endpoint_incref(found);
  }
  pthread_mutex_unlock(&table_lock);
  if (!found) fc_error_format("ValueError", "device type %d belongs to no open session", (int)device.device_type);
  return found;
}

FcEndpoint* fc_endpoint_of_serial(uint64_t serial) {
  FcEndpoint* found = NULL;
  pthread_mutex_lock(&table_lock);
  for (int32_t i = 0; i < table_size && !found; ++i) {
    if (table[i] && table[i]->serial == serial) found = table[i];
  }
  if (found) fc_endpoint_incref(found);
  pthread_mutex_unlock(&table_lock);
  return found;
}

/* ---- life ---- */

FcEndpoint* fc_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits, bool client) {
  FcEndpoint* ep = calloc(1, sizeof *ep);
  uint8_t* inbox = malloc(FC_INBOX_SIZE);
  if (!ep || !inbox) {
    free(ep);
    free(inbox);
    fc_error_no_memory();
    return NULL;
  }
  static uint64_t serials;
  ep->refs = 1;
  ep->slot = -1;
  ep->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
  ep->before_wait = ep;
  fc_channel_incref(channel);
  ep->channel = channel;
  ep->inbox = inbox;
  snprintf(ep->peer, sizeof ep->peer, "%s", peer);
  fc_wire_reader_init(&ep->reader, limits);
  fc_mutex_init_recursive(&ep->lock); /* a function that the far side calls back may call it in turn */
  pthread_mutex_init(&ep->free_lock, NULL);
  if (client && (!(ep->client = fc_client_new()) || table_enter(ep) < 0)) {
    fc_endpoint_decref(ep);
    return NULL;
  }
  return ep;
}

void fc_endpoint_incref(FcEndpoint* ep) { __atomic_fetch_add(&ep->refs, 1, __ATOMIC_RELAXED); }

static void endpoint_delete(FcEndpoint* ep) {
  fc_channel_decref(ep->channel);
  if (ep->client) fc_client_delete(ep->client);
  pthread_mutex_destroy(&ep->lock);
  pthread_mutex_destroy(&ep->free_lock);
  free(ep->reader.body);
  free(ep->reader.arena);
  free(ep->inbox);
  free(ep->outbox);
  free(ep->frees);
  free(ep);
}

void fc_endpoint_decref(FcEndpoint* ep) {
  /* Under the table's lock: between the last release and the removal nobody may find it there. */
  pthread_mutex_lock(&table_lock);
  bool last = __atomic_sub_fetch(&ep->refs, 1, __ATOMIC_ACQ_REL) == 0;
  if (last && ep->slot >= 0) table[ep->slot] = NULL;
  pthread_mutex_unlock(&table_lock);
  if (last) endpoint_delete(ep);
}

/* The first reason stays. Two threads of a relay may come here; who sees the kind may read the rest. */
FC_COLD static void set_lost(FcEndpoint* ep, const char* kind, const char* text) {
  pthread_mutex_lock(&ep->free_lock);
  if (!fc_endpoint_is_lost(ep)) {
    snprintf(ep->lost_text, sizeof ep->lost_text, "%s", text);
    snprintf(ep->lost_kind + 1, sizeof ep->lost_kind - 1, "%s", kind + 1);
    __atomic_store_n(&ep->lost_kind[0], kind[0], __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&ep->free_lock);
}

/* Always answers -1, with the first reason as the error. */
FC_COLD int fc_endpoint_lose(FcEndpoint* ep, const char* kind, const char* format, ...) {
  if (!fc_endpoint_is_lost(ep)) {
    char text[sizeof ep->lost_text];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    set_lost(ep, kind, text);
    fc_channel_interrupt(ep->channel);
  }
  fc_error_set(ep->lost_kind, ep->lost_text);
  return -1;
}

int fc_endpoint_overdue(FcEndpoint* ep, int64_t allowed_ns) {
  return fc_endpoint_lose(ep, "DeadlineExceededError",
                          "%s did not answer within %.3g s; the session is closed: connect again", ep->peer,
                          (double)allowed_ns / 1e9);
}

int fc_endpoint_broken(FcEndpoint* ep, int error) {
  error = -error;
  if (error == ETIMEDOUT && ep->patient) {
    ep->late = true;
    fc_error_format("DeadlineExceededError", "%s has not answered within %.3g s; the call goes on", ep->peer,
                    (double)ep->allowed_ns / 1e9);
    return -1;
  }
  if (error == ETIMEDOUT) return fc_endpoint_overdue(ep, ep->allowed_ns);
  if (error == EINTR) { /* cannot be resumed: the reply would be taken for the next one's */
    TVMFFIObject* held = fc_error_take();
    fc_endpoint_lose(ep, "ConnectionLostError", "a call to %s was interrupted; connect again", ep->peer);
    if (held) fc_error_raise(held);
    return -1;
  }
  if (error == ECANCELED) return fc_endpoint_lose(ep, "ConnectionLostError", CLOSED_TEXT, ep->peer);
  if (error == ECHILD) {
    return fc_endpoint_lose(ep, "ConnectionLostError",
                            "the session with %s is that of the process which forked this one; connect here, too",
                            ep->peer);
  }
  return fc_endpoint_lose(ep, "ConnectionLostError", "the connection to %s was lost: %s", ep->peer, strerror(error));
}

void fc_endpoint_send_last(FcEndpoint* ep, const void* bytes, size_t n) {
  struct iovec part = {(void*)bytes, n};
  fc_channel_send(ep->channel, &part, 1, FC_AT_ONCE);
}

void fc_endpoint_close(FcEndpoint* ep, bool farewell) {
  static const uint8_t goodbye[FC_WIRE_HEAD_SIZE] = {4, 0, 0, 0, 0, 0, 0, 0, FC_WIRE_SHUTDOWN};
  if (pthread_mutex_trylock(&ep->lock) == 0) {
    if (farewell && !fc_endpoint_is_lost(ep)) fc_endpoint_send_last(ep, goodbye, sizeof goodbye);
  } else {
    fc_channel_interrupt(ep->channel); /* ends the call in progress in another thread, which then unlocks */
    pthread_mutex_lock(&ep->lock);
  }
  fc_channel_close(ep->channel);
  char closed[FC_PEER_NAME_MAX + 64];
  snprintf(closed, sizeof closed, CLOSED_TEXT, ep->peer);
  set_lost(ep, "ConnectionLostError", closed);
  if (ep->client) fc_call_abandon(ep);
  pthread_mutex_unlock(&ep->lock);
}

bool fc_endpoint_beat(FcEndpoint* ep) {
  static const uint8_t empty[8];
  struct iovec part = {(void*)empty, sizeof empty};
  if (pthread_mutex_trylock(&ep->lock) != 0) return true;
  int rc = fc_endpoint_is_lost(ep) ? -EPIPE : fc_channel_send(ep->channel, &part, 1, fc_now_ns() + BEAT_NS);
  /* What is out in part cannot be completed later. */
  if (rc == -ETIMEDOUT) fc_endpoint_lose(ep, "ConnectionLostError", "%s takes no more bytes", ep->peer);
  if (rc == -ETIMEDOUT) fc_error_drop();
  pthread_mutex_unlock(&ep->lock);
  return rc == 0;
}

/* ---- one at a time ---- */

FC_TLS int64_t fc_deadline;

void fc_endpoint_start_deadline(FcEndpoint* ep) {
  ep->deadline = ep->due = 0;
  if (FC_LIKELY(!ep->timeout_ns && !fc_deadline)) return;
  int64_t now = fc_now_ns();
  ep->due = ep->timeout_ns ? now + ep->timeout_ns : INT64_MAX;
  if (fc_deadline && fc_deadline < ep->due) ep->due = fc_deadline;
  ep->allowed_ns = ep->due > now ? ep->due - now : 0;
  ep->deadline = ep->due + fc_remote_grace(ep);
}

int fc_endpoint_too_late(const FcEndpoint* ep, const char* what) {
  fc_error_format("DeadlineExceededError", "%s%s%s was not sent to %s: %s; the session goes on", what ? "`" : "",
                  what ? what : "the request", what ? "`" : "", ep->peer,
                  what ? "no time was left" : "another thread had the session until no time was left");
  return -1;
}

/* While another thread has the session. The mutex knows the wall clock only. */
static int lock_in_time(FcEndpoint* ep) {
  struct timespec until;
  int64_t left = fc_deadline - fc_now_ns();
  if (pthread_mutex_trylock(&ep->lock) == 0) return 0;
  clock_gettime(CLOCK_REALTIME, &until);
  left = (left > 0 ? left : 0) + until.tv_nsec;
  until.tv_sec += left / 1000000000;
  until.tv_nsec = left % 1000000000;
  return pthread_mutex_timedlock(&ep->lock, &until) == 0 ? 0 : -1;
}

int fc_endpoint_enter(FcEndpoint* ep) {
  if (FC_LIKELY(!fc_deadline)) pthread_mutex_lock(&ep->lock);
  else if (lock_in_time(ep) < 0) return fc_endpoint_too_late(ep, NULL);
  if (ep->client && fc_call_await_turn(ep) < 0) {
    pthread_mutex_unlock(&ep->lock);
    return -1;
  }
  if (fc_endpoint_is_lost(ep)) {
    fc_error_set(ep->lost_kind, ep->lost_text);
    pthread_mutex_unlock(&ep->lock);
    return -1;
  }
  fc_endpoint_start_deadline(ep);
  return 0;
}

void fc_endpoint_leave(FcEndpoint* ep) { pthread_mutex_unlock(&ep->lock); }
