/*
 * Calls without waiting. They are encoded into the outbox and sent many at a time; a server answers in order, so the
 * replies belong to the calls in a queue. Whoever waits reads the replies of all before its own.
 *
 * Two things make this safe:
 *  - While sending blocks, replies are read. The far side may be busy sending those, and take nothing before they are
 *    gone. A reply is certain to come as long as one whole request is out.
 *  - A thread that waits for such a call receives without the lock (`reading`), so that others can send meanwhile.
 *    Whoever needs the line for itself (fc_endpoint_enter) waits for its turn.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "remote.h"
#include "trace.h"

enum { STALLED_NS = 1000000 }; /* a far side that takes nothing for so long may be waiting for us to read */

/* ---- ends of calls ---- */

void fc_call_settle(FcCall* call, int rc) {
  fc_lenders_free(call->lent);
  call->lent = NULL;
  if (rc < 0) {
    call->value = fc_any_none();
    call->error = fc_error_take();
  }
  if (call->state == FC_CALL_CANCELLED) {
    fc_any_clear(&call->value); /* a tensor that nobody wants is freed */
    return;
  }
  const FcRemoteObj* object = call->value.type_index == fc_remote_object_index() ? (void*)call->value.v_obj : NULL;
  call->finished = !object || object->kind != kTVMFFIArray;
  __atomic_store_n(&call->state, rc < 0 ? FC_CALL_FAILED : FC_CALL_DONE, __ATOMIC_RELEASE);
}

static void pop(FcQueue* queue) {
  FcCall* call = queue->first;
  queue->first = call->next;
  if (!queue->first) queue->last = NULL;
  fc_decref(call);
}

/* The connection is lost: so are the answers. */
static int fail_all(FcEndpoint* ep) {
  FcQueue* queue = &ep->client->queue;
  while (queue->first) {
    fc_error_set(ep->lost_kind, ep->lost_text);
    fc_call_settle(queue->first, -1);
    pop(queue);
  }
  queue->used = 0;
  fc_error_set(ep->lost_kind, ep->lost_text);
  return -1;
}

static const char* name_of(const FcCall* call) { return fc_remote_function_of(call->function)->name; }

/* Reads the reply of the first call in the queue. -1 when it did not come. */
static int read_first(FcEndpoint* ep) {
  FcCall* call = ep->client->queue.first;
  fc_wire_packet reply;
  const bool frees = call->frees != 0;
  while (call->frees != 0) {
    if (fc_remote_read_frees(ep, 1, "kFreeHandle") < 0) return fc_endpoint_is_lost(ep) ? fail_all(ep) : -1;
    --call->frees;
  }
  int rc = fc_remote_read_reply(ep, name_of(call), &reply, NULL, 0);
  if (rc == 0) {
    if (FC_UNLIKELY(frees)) fc_error_drop();
    call->value = fc_any_none();
    rc = fc_remote_result(ep, name_of(call), &reply, &call->value);
    if (rc == 0) rc = fc_remote_borrow(&reply, call->lent, &call->value);
  }
  if (rc < 0 && fc_endpoint_is_lost(ep)) return fail_all(ep);
  if (rc < 0 && ep->late) return -1; /* it is still to come */
  fc_trace_end("wire", name_of(call), ep->slot, call->began);
  fc_call_settle(call, rc);
  pop(&ep->client->queue);
  return 0;
}

/* ---- sending ---- */

/* The line is full: replies make room. Another thread may be reading them already. */
static int make_way(FcEndpoint* ep) {
  FcQueue* queue = &ep->client->queue;
  if (!queue->reading) return read_first(ep);
  pthread_cond_wait(&queue->turn, &ep->lock);
  return fc_endpoint_is_lost(ep) ? -1 : 0;
}

int fc_call_flush(FcEndpoint* ep) {
  FcQueue* queue = &ep->client->queue;
  struct iovec part = {ep->outbox, queue->used};
  uint64_t begin = queue->sent;
  int rc = 0;
  if (queue->used == 0) return 0;
  queue->sending = true; /* the lock is let go in between */
  for (;;) {
    bool answer_comes = queue->reading || (queue->first && queue->first->end <= queue->sent);
    size_t left = part.iov_len;
    rc = fc_channel_send(ep->channel, &part, 1, answer_comes ? fc_now_ns() + STALLED_NS : ep->deadline);
    queue->sent = begin + queue->used - (rc == 0 ? 0 : part.iov_len);
    if (rc != -ETIMEDOUT || !answer_comes) break;
    if (part.iov_len == left && make_way(ep) < 0) {
      queue->sending = false;
      return -1;
    }
  }
  ep->bytes_out += queue->sent - begin;
  queue->used = 0;
  queue->sending = false;
  pthread_cond_broadcast(&queue->turn);
  if (rc == 0 || rc == -EPIPE) return 0; /* what it said last may still be read */
  fc_endpoint_broken(ep, rc);
  return queue->reading ? -1 : fail_all(ep); /* the one who reads sees it too */
}

int fc_call_drain(FcEndpoint* ep) {
  FcQueue* queue = &ep->client->queue;
  if (FC_LIKELY(!queue->first && queue->used == 0)) return 0;
  if (fc_call_flush(ep) < 0) return -1;
  ep->client->round_trips += queue->first != NULL;
  while (queue->first) {
    if (read_first(ep) < 0) return -1;
  }
  return 0;
}

/* ---- waiting ---- */

/* Until another thread has read something, or has sent all. */
static int await_other(FcEndpoint* ep, int64_t deadline) {
  FcQueue* queue = &ep->client->queue;
  if (!deadline) return pthread_cond_wait(&queue->turn, &ep->lock);
  struct timespec until = {deadline / 1000000000, deadline % 1000000000};
  if (pthread_cond_timedwait(&queue->turn, &ep->lock, &until) != ETIMEDOUT) return 0;
  fc_error_format("TimeoutError", "%s has not answered in time; the call goes on", ep->peer);
  return -1;
}

/* Reads one reply, without the lock, and without harm when the deadline passes. */
static int read_shared(FcEndpoint* ep, int64_t deadline) {
  int64_t now = fc_now_ns();
  ep->deadline = deadline;
  ep->allowed_ns = deadline > now ? deadline - now : 0;
  ep->patient = true;
  ep->late = false;
  int rc = read_first(ep);
  ep->patient = ep->late = false;
  return rc;
}

static int join_locked(FcCall* call, int64_t deadline) {
  FcEndpoint* ep = call->ep;
  FcQueue* queue = &ep->client->queue;
  while (queue->sending) {
    if (await_other(ep, deadline) < 0) return -1;
  }
  if (call->state == FC_CALL_WAITING && fc_call_flush(ep) < 0) return -1;
  ep->client->round_trips += call->state == FC_CALL_WAITING;
  while (call->state == FC_CALL_WAITING) {
    int rc = queue->reading ? await_other(ep, deadline) : read_shared(ep, deadline);
    if (rc < 0) return -1;
  }
  return 0;
}

int fc_call_join(FcCall* call, int64_t deadline) {
  if (__atomic_load_n(&call->state, __ATOMIC_ACQUIRE) != FC_CALL_WAITING) return 0;
  pthread_mutex_lock(&call->ep->lock);
  int rc = join_locked(call, deadline);
  if (rc < 0 && call->state != FC_CALL_WAITING) { /* the session is lost, and that is the call's own failure */
    fc_error_drop();
    rc = 0;
  }
  pthread_mutex_unlock(&call->ep->lock);
  return rc;
}

int fc_call_wait(FcCall* call) {
  if (call->state == FC_CALL_WAITING && fc_call_flush(call->ep) < 0) return -1;
  call->ep->client->round_trips += call->state == FC_CALL_WAITING;
  while (call->state == FC_CALL_WAITING) {
    if (read_first(call->ep) < 0) return -1;
  }
  return 0;
}

void fc_call_await_turn(FcEndpoint* ep) {
  FcQueue* queue = &ep->client->queue;
  while (FC_UNLIKELY(queue->reading || queue->sending)) pthread_cond_wait(&queue->turn, &ep->lock);
}

void fc_call_abandon(FcEndpoint* ep) {
  if (ep->client->queue.reading) return; /* that thread finds out by itself */
  fail_all(ep);
  fc_error_drop();
}

bool fc_call_cancel(FcCall* call) {
  pthread_mutex_lock(&call->ep->lock);
  bool waiting = call->state == FC_CALL_WAITING;
  if (waiting) __atomic_store_n(&call->state, FC_CALL_CANCELLED, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&call->ep->lock);
  return waiting;
}

/* ---- the client's half, as a whole ---- */

FcClient* fc_client_new(void) {
  FcClient* client = calloc(1, sizeof *client);
  if (!client) {
    fc_error_no_memory();
    return NULL;
  }
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&client->queue.turn, &attributes);
  pthread_condattr_destroy(&attributes);
  return client;
}

void fc_client_delete(FcClient* client) {
  /* Calls hold the endpoint, so none is in the queue. */
  pthread_cond_destroy(&client->queue.turn);
  fc_exports_delete(client);
  free(client);
}
