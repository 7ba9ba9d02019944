/* Endpoints: their lifetime, and how a connection is lost. */
#include "session/endpoint.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/trace.h"

enum { BEAT_NS = 1000000000 }; /* longest time to send eight bytes on an idle line */

#define CLOSED_TEXT "the session with %s is closed; connect again"

/* ---- life ---- */

static uint64_t addressable(uint64_t limit) { return limit < PTRDIFF_MAX ? limit : PTRDIFF_MAX; }

/* Lowers the limits, so that every size within them fits in a size_t, even with 32-bit addresses. */
static fc_wire_limits addressable_limits(const fc_wire_limits* limits) {
  fc_wire_limits lowered = *limits;
  lowered.max_control = addressable(limits->max_control);
  lowered.max_call = addressable(limits->max_call);
  lowered.max_payload = addressable(limits->max_payload);
  lowered.max_string = addressable(limits->max_string);
  return lowered;
}

FcEndpoint* fc_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits) {
  FcEndpoint* ep = calloc(1, sizeof *ep);
  uint8_t* inbox = malloc(FC_INBOX_SIZE);
  if (!ep || !inbox) {
    free(ep);
    free(inbox);
    fc_error_no_memory();
    return NULL;
  }
  ep->refs = 1;
  ep->before_wait = ep;
  fc_channel_incref(channel);
  ep->channel = channel;
  ep->inbox = inbox;
  snprintf(ep->peer, sizeof ep->peer, "%s", peer);
  fc_wire_limits lowered = addressable_limits(limits);
  fc_wire_reader_init(&ep->reader, &lowered);
  fc_mutex_init_recursive(&ep->lock); /* recursive, since a callback may call the peer in turn */
  fc_condition_init(&ep->turn);
  fc_mutex_init(&ep->lost_lock);
  return ep;
}

void fc_endpoint_incref(FcEndpoint* ep) { __atomic_fetch_add(&ep->refs, 1, __ATOMIC_RELAXED); }

bool fc_endpoint_try_incref(FcEndpoint* ep) {
  int64_t refs = __atomic_load_n(&ep->refs, __ATOMIC_RELAXED);
  while (refs != 0) {
    if (__atomic_compare_exchange_n(&ep->refs, &refs, refs + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
  }
  return false;
}

static void endpoint_delete(FcEndpoint* ep) {
  fc_channel_decref(ep->channel);
  if (ep->side) ep->side->free(ep);
  fc_mutex_destroy(&ep->lock);
  fc_condition_destroy(&ep->turn);
  fc_mutex_destroy(&ep->lost_lock);
  free(ep->reader.body);
  free(ep->reader.arena);
  free(ep->inbox);
  free(ep->outbox);
  free(ep);
}

void fc_endpoint_decref(FcEndpoint* ep) {
  if (__atomic_sub_fetch(&ep->refs, 1, __ATOMIC_ACQ_REL) == 0) endpoint_delete(ep);
}

/* The first reason stays. Two threads of a relay may call this at once; the kind's first byte is set last, so that a
 * thread which sees it may read the rest. */
FC_COLD static void set_lost(FcEndpoint* ep, const char* kind, const char* text) {
  fc_mutex_lock(&ep->lost_lock);
  if (!fc_endpoint_is_lost(ep)) {
    snprintf(ep->lost_text, sizeof ep->lost_text, "%s", text);
    snprintf(ep->lost_kind + 1, sizeof ep->lost_kind - 1, "%s", kind + 1);
    __atomic_store_n(&ep->lost_kind[0], kind[0], __ATOMIC_RELEASE);
  }
  fc_mutex_unlock(&ep->lost_lock);
}

/* Always returns -1, with the first reason as the error. */
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
  if (error == EINTR && ep->resumable) {
    ep->late = ep->interrupted = true;
    return -1;
  }
  if (error == EINTR) { /* the line is inside an exchange: its rest would be read as the next reply */
    TVMFFIObject* held = fc_error_take();
    fc_endpoint_lose(ep, "ConnectionLostError", "a call to %s was interrupted; connect again", ep->peer);
    if (held) fc_error_raise(held);
    return -1;
  }
  if (error == ECANCELED) return fc_endpoint_lose(ep, "ConnectionLostError", CLOSED_TEXT, ep->peer);
  if (error == ECHILD) {
    return fc_endpoint_lose(ep, "ConnectionLostError",
                            "the session with %s belongs to the parent process; connect again in this process",
                            ep->peer);
  }
  return fc_endpoint_lose(ep, "ConnectionLostError", "the connection to %s was lost: %s", ep->peer, strerror(error));
}

void fc_endpoint_send_last(FcEndpoint* ep, const void* bytes, size_t n) {
  FcPart part = {(void*)bytes, n};
  fc_channel_send(ep->channel, &part, 1, FC_AT_ONCE);
}

void fc_endpoint_close(FcEndpoint* ep, bool farewell) {
  static const uint8_t goodbye[FC_WIRE_HEAD_SIZE] = {4, 0, 0, 0, 0, 0, 0, 0, FC_WIRE_SHUTDOWN};
  if (fc_mutex_trylock(&ep->lock)) {
    if (farewell && !fc_endpoint_is_lost(ep) && !ep->torn) fc_endpoint_send_last(ep, goodbye, sizeof goodbye);
  } else {
    fc_channel_interrupt(ep->channel); /* ends the call in progress in another thread, which then unlocks */
    fc_mutex_lock(&ep->lock);
  }
  fc_channel_close(ep->channel);
  char closed[FC_PEER_NAME_MAX + 64];
  snprintf(closed, sizeof closed, CLOSED_TEXT, ep->peer);
  set_lost(ep, "ConnectionLostError", closed);
  if (ep->side) ep->side->closed(ep);
  fc_mutex_unlock(&ep->lock);
}

bool fc_endpoint_beat(FcEndpoint* ep) {
  static const uint8_t empty[8];
  FcPart part = {(void*)empty, sizeof empty};
  if (!fc_mutex_trylock(&ep->lock)) return true;
  int rc = fc_endpoint_is_lost(ep) ? -EPIPE : 0;
  if (rc == 0 && !ep->torn) rc = fc_channel_send(ep->channel, &part, 1, fc_now_ns() + BEAT_NS);
  /* A packet that was sent in part cannot be completed later. */
  if (rc == -ETIMEDOUT) fc_endpoint_lose(ep, "ConnectionLostError", "%s takes no more bytes", ep->peer);
  if (rc == -ETIMEDOUT) fc_error_drop();
  fc_mutex_unlock(&ep->lock);
  return rc == 0;
}

/* ---- traces ---- */

void fc_trace_copy(const char* name, int32_t track, const fc_wire_tensor* tensor, uint64_t bytes, int64_t start) {
  DLTensor dl = {.ndim = 0};
  TVMFFIAny arg = {.type_index = kTVMFFIDLTensorPtr, .v_ptr = &dl};
  FcTraceWork work = {.category = "copy", .name = name, .track = track, .bytes = bytes};
  if (tensor) {
    dl = (DLTensor){
        .device = tensor->device, .ndim = tensor->ndim, .dtype = tensor->dtype, .shape = (int64_t*)tensor->shape};
    work.args = &arg;
    work.num_args = 1;
  }
  fc_trace_end(&work, start);
}
