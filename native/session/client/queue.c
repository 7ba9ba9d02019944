/*
 * Calls without waiting. They are encoded into the outbox and sent many at a time; a server answers in order, so a
 * queue of calls matches the replies. A thread that waits for a call reads all replies before its own.
 *
 * Two things make this safe:
 *  - While sending blocks, this side reads replies. The server may be busy sending those, and read nothing before they
 *    are sent. A reply is certain to come once one whole request has been sent.
 *  - A thread that waits for such a call receives without the lock (`shared`), so that others can send meanwhile.
 *    A thread that needs the line to itself (fc_endpoint_enter) waits for its turn: see session/endpoint.h.
 */
#include <errno.h>

#include "session/client/remote.h"
#include "runtime/trace.h"

enum { STALLED_NS = 1000000 }; /* a server that takes nothing for so long may be waiting for this side to read */

/* ---- ends of calls ---- */

/* A call ends once: by its reply, or by a cancellation. */
static bool end(FcCall* call, int32_t state) {
  int32_t waiting = FC_CALL_WAITING;
  return __atomic_compare_exchange_n(&call->state, &waiting, state, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void fc_call_settle(FcCall* call, int rc) {
  fc_lenders_free(call->lent);
  call->lent = NULL;
  if (rc < 0) {
    call->value = fc_any_none();
    call->error = fc_error_take();
  }
  const FcRemoteObj* object = call->value.type_index == fc_remote_object_index() ? (void*)call->value.v_obj : NULL;
  call->finished = !object || object->kind != kTVMFFIArray;
  if (FC_UNLIKELY(call->observed)) call->ended = fc_now_ns();
  if (!end(call, rc < 0 ? FC_CALL_FAILED : FC_CALL_DONE)) fc_any_clear(&call->value); /* it was cancelled */
}

static void pop(FcQueue* queue) {
  FcCall* call = queue->first;
  queue->first = call->next;
  if (!queue->first) queue->last = NULL;
  queue->owed -= call->code == FC_WIRE_EXCEPTION;
  fc_decref(call);
}

/* The connection is lost: all pending calls fail. */
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

/* Releases the result of a request that no thread waits for. */
static void release(FcEndpoint* ep, const FcCall* call, const fc_wire_packet* reply) {
  TVMFFIAny value = fc_any_none();
  const TVMFFIAny* arg = reply->args;
  bool pointer = reply->num_args == 1 && arg->type_index == kTVMFFIOpaquePtr && arg->v_uint64 != 0;
  switch (call->code) {
    case FC_WIRE_CALL_FUNC:
      if (fc_remote_result(ep, fc_call_name(call), reply, &value) == 0) fc_any_clear(&value);
      break;
    case FC_WIRE_GET_GLOBAL_FUNC:
      if (pointer) fc_remote_free_later(ep, arg->v_uint64, fc_no_device());
      break;
    case FC_WIRE_DEV_ALLOC_DATA:
    case FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE:
      if (pointer) fc_remote_free_later(ep, arg->v_uint64, call->device);
      break;
    default: break;
  }
}

static int drop_reply(FcEndpoint* ep, const FcCall* call) {
  fc_wire_packet reply = {.code = 0};
  int rc = fc_remote_read_any(ep, fc_call_name(call), &reply);
  if (rc == 0 && reply.code == FC_WIRE_RETURN) release(ep, call, &reply);
  if (fc_endpoint_is_lost(ep)) return fail_all(ep);
  if (rc < 0 && ep->late) return -1; /* the reply is still to come */
  fc_error_drop(); /* no thread waits for the server's refusal */
  pop(&ep->client->queue);
  return 0;
}

static int pay_owed(FcEndpoint* ep) {
  int rc = fc_remote_decline(ep);
  if (fc_endpoint_is_lost(ep)) return fail_all(ep);
  pop(&ep->client->queue);
  return rc;
}

FC_COLD static void trace_reply(const FcEndpoint* ep, const FcCall* call) {
  FcTraceWork work = {.category = "async", .name = fc_call_name(call), .track = ep->client->slot, .bytes = call->size};
  fc_trace_end(&work, call->began);
}

static int read_first_reply(FcEndpoint* ep) {
  FcCall* call = ep->client->queue.first;
  fc_wire_packet reply;
  const bool ahead = call->ahead != 0;
  if (call->code == FC_WIRE_EXCEPTION) return pay_owed(ep);
  while (call->ahead != 0) {
    if (fc_remote_read_ahead(ep, 1, "kFreeHandle") < 0) return fc_endpoint_is_lost(ep) ? fail_all(ep) : -1;
    --call->ahead;
  }
  if (!call->function) return drop_reply(ep, call);
  if (call->withdrawn) {
    fc_error_drop();
    pop(&ep->client->queue);
    return 0;
  }
  int rc = fc_remote_read_reply(ep, fc_call_name(call), &reply, NULL, 0);
  if (rc == 0) {
    if (FC_UNLIKELY(ahead)) fc_error_drop();
    call->value = fc_any_none();
    rc = fc_remote_result(ep, fc_call_name(call), &reply, &call->value);
    if (rc == 0) rc = fc_remote_borrow(&reply, call->lent, &call->value);
  }
  if (rc < 0 && fc_endpoint_is_lost(ep)) return fail_all(ep);
  if (rc < 0 && ep->late) return -1; /* the reply is still to come */
  if (FC_UNLIKELY(call->began != 0)) trace_reply(ep, call);
  fc_call_settle(call, rc);
  pop(&ep->client->queue);
  return 0;
}

/* Reads the reply of the first call in the queue. -1 when it did not come, FC_INTERRUPTED when a signal handler raised
 * first; the received part of the reply is kept. */
static int read_first(FcEndpoint* ep) {
  int rc = read_first_reply(ep);
  if (rc == 0 || !ep->interrupted) return rc;
  ep->late = ep->interrupted = false;
  return FC_INTERRUPTED;
}

int fc_call_owe(FcEndpoint* ep) {
  static const fc_wire_packet answer = {.code = FC_WIRE_EXCEPTION};
  if (fc_call_leave(ep, &answer, 0) < 0) return -1;
  ++ep->client->queue.owed;
  return 0;
}

void fc_call_unsent(FcEndpoint* ep, size_t n) {
  FcQueue* queue = &ep->client->queue;
  queue->used += n;
  queue->encoded += n;
  /* No reply is certain to come before these bytes are sent: they may answer a call of the server. */
  for (FcCall* call = queue->first; call; call = call->next) {
    if (!call->function) call->end = queue->encoded;
  }
}

int fc_call_leave(FcEndpoint* ep, const fc_wire_packet* request, size_t ahead) {
  FcQueue* queue = &ep->client->queue;
  const TVMFFIAny* arg = request->args;
  DLDevice device = fc_no_device();
  if (request->code == FC_WIRE_DEV_ALLOC_DATA) device = arg->v_device;
  if (request->code == FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE) device = ((const fc_wire_tensor*)arg->v_ptr)->device;
  FcCall* call = fc_call_new(ep, NULL);
  if (!call) return -1;
  call->code = request->code;
  call->device = device;
  call->ahead = (uint32_t)ahead;
  call->end = queue->encoded;
  call->due = ep->due;
  call->allowed = ep->allowed_ns;
  call->state = FC_CALL_CANCELLED;
  fc_call_push(queue, call);
  fc_decref(&call->header);
  return 0;
}

void fc_call_forget(FcQueue* queue) {
  while (queue->first) pop(queue);
}

/* ---- sending ---- */

/* The line is full: reads replies to make room. Another thread may be reading them already. */
static int make_way(FcEndpoint* ep) {
  if (!ep->reading) return read_first(ep);
  if (fc_endpoint_await_other(ep, 0) == FC_INTERRUPTED) return FC_INTERRUPTED;
  return fc_endpoint_is_lost(ep) ? -1 : 0;
}

/* A signal handler raised: keeps the unsent bytes, which the next flush sends. */
static int pause_sending(FcEndpoint* ep, const FcPart* rest) {
  FcQueue* queue = &ep->client->queue;
  ep->torn = ep->torn || rest->size != queue->used;
  memmove(ep->outbox, rest->data, rest->size);
  queue->used = rest->size;
  return FC_INTERRUPTED;
}

int fc_call_flush(FcEndpoint* ep) {
  FcQueue* queue = &ep->client->queue;
  FcPart part = {ep->outbox, queue->used};
  uint64_t begin = queue->sent;
  int rc = 0;
  if (queue->used == 0) return 0;
  ep->sending = true; /* the loop unlocks in between */
  for (;;) {
    bool answer_comes = ep->reading || (queue->first && queue->first->end <= queue->sent);
    size_t left = part.size;
    rc = fc_channel_send(ep->channel, &part, 1, answer_comes ? fc_now_ns() + STALLED_NS : ep->deadline);
    queue->sent = begin + queue->used - (rc == 0 ? 0 : part.size);
    if (rc != -ETIMEDOUT || !answer_comes) break;
    int way = part.size == left ? make_way(ep) : 0;
    if (way == FC_INTERRUPTED) rc = -EINTR;
    if (way == FC_INTERRUPTED) break;
    if (way < 0) {
      ep->sending = false;
      return -1;
    }
  }
  ep->bytes_out += queue->sent - begin;
  ep->sending = false;
  fc_condition_broadcast(&ep->turn);
  if (rc == -EINTR) return pause_sending(ep, &part);
  queue->used = 0;
  ep->torn = false;
  fc_remote_expect_many(ep);
  if (rc == 0 || rc == -EPIPE) return 0; /* -EPIPE: the server's last bytes may still be read */
  fc_endpoint_broken(ep, rc);
  return ep->reading ? -1 : fail_all(ep); /* the reading thread sees the loss, too */
}

/* ---- waiting ---- */

/* The sooner of two times; 0 means never. */
static int64_t sooner(int64_t a, int64_t b) { return !a || (b && b < a) ? b : a; }

static int too_late(const FcEndpoint* ep) {
  fc_error_format("DeadlineExceededError", "%s has not answered in time; the call goes on", ep->peer);
  return -1;
}

/* A wait has failed. It ends the session if the call's own time is over. */
static int give_up(FcEndpoint* ep, int64_t last, int64_t allowed) {
  if (!last || fc_now_ns() < last) return too_late(ep);
  fc_endpoint_overdue(ep, allowed);
  while (ep->reading) fc_condition_wait(&ep->turn, &ep->lock); /* the reader sees the loss at once */
  return fail_all(ep);
}

/* How long a thread waits for a call: at most its own patience, and not much longer than the call's time limit. */
typedef struct Wait {
  int64_t due, last; /* the call's time limit, and when no reply is expected any more; 0: never */
  int64_t until;
} Wait;

static Wait wait_for(const FcCall* call, int64_t patience) {
  int64_t last = call->due ? call->due + fc_remote_grace(call->ep) : 0;
  return (Wait){call->due, last, call->due && call->due <= patience ? last : sooner(patience, last)};
}

/* Reads one reply; the session goes on if it does not come in time. Each may take as long as the session allows. */
static int read_within(FcEndpoint* ep, const Wait* wait, bool shared) {
  int64_t now = fc_now_ns(), each = ep->timeout_ns ? now + ep->timeout_ns : 0;
  int64_t last = each ? each + fc_remote_grace(ep) : 0;
  ep->deadline = sooner(wait->until, last);
  ep->due = sooner(wait->due, each);
  ep->allowed_ns = sooner(ep->due, ep->deadline) - now;
  ep->patient = true;
  ep->shared = shared;
  int rc = read_first(ep);
  bool late = ep->late && rc != FC_INTERRUPTED;
  ep->patient = ep->shared = ep->late = false;
  return late && ep->deadline == last ? give_up(ep, last, ep->timeout_ns) : rc;
}

/* After a wait that failed: either the session is lost, or only the wait is over. */
static int end_wait(FcEndpoint* ep, const FcCall* call, const Wait* wait) {
  if (!fc_endpoint_is_lost(ep)) return give_up(ep, wait->last, call->allowed);
  fc_error_set(ep->lost_kind, ep->lost_text);
  return -1;
}

/* Reads the reply of the first call within this thread's deadline. The caller has the line to itself. */
static int read_alone(FcEndpoint* ep) {
  const FcCall* call = ep->client->queue.first;
  Wait wait = wait_for(call, fc_deadline);
  int rc = read_within(ep, &wait, false);
  return rc == 0 || rc == FC_INTERRUPTED ? rc : end_wait(ep, call, &wait);
}

int fc_call_drain(FcEndpoint* ep) {
  FcQueue* queue = &ep->client->queue;
  if (FC_LIKELY(!queue->first && queue->used == 0)) return 0;
  int rc = fc_call_flush(ep);
  if (rc == 0) ep->client->round_trips += queue->first != NULL;
  while (rc == 0 && queue->first) rc = read_alone(ep);
  if (rc == 0) fc_endpoint_start_deadline(ep);
  return rc;
}

int fc_call_wait(FcCall* call) {
  if (fc_call_state(call) == FC_CALL_WAITING && fc_call_flush(call->ep) < 0) return -1;
  call->ep->client->round_trips += fc_call_state(call) == FC_CALL_WAITING;
  while (fc_call_state(call) == FC_CALL_WAITING) {
    if (read_alone(call->ep) < 0) return -1;
  }
  fc_endpoint_start_deadline(call->ep);
  return 0;
}

static int join_locked(FcCall* call, int64_t patience) {
  FcEndpoint* ep = call->ep;
  Wait wait = wait_for(call, patience);
  int rc = 0;
  while (rc == 0 && ep->sending) rc = fc_endpoint_await_other(ep, wait.until);
  if (rc < 0) return rc == FC_INTERRUPTED ? rc : end_wait(ep, call, &wait);
  if (!ep->reading) fc_endpoint_start_deadline(ep); /* for sending */
  if (fc_call_state(call) == FC_CALL_WAITING) rc = fc_call_flush(ep);
  if (rc < 0) return rc;
  ep->client->round_trips += fc_call_state(call) == FC_CALL_WAITING;
  while (rc == 0 && fc_call_state(call) == FC_CALL_WAITING) {
    rc = ep->reading ? fc_endpoint_await_other(ep, wait.until) : read_within(ep, &wait, true);
  }
  return rc == 0 || rc == FC_INTERRUPTED ? rc : end_wait(ep, call, &wait);
}

int fc_call_join(FcCall* call, int64_t patience) {
  if (fc_call_state(call) != FC_CALL_WAITING) return 0;
  int rc = fc_endpoint_lock(call->ep, patience);
  if (rc == -1) return too_late(call->ep);
  if (rc < 0) return rc;
  rc = join_locked(call, patience);
  if (rc == -1 && fc_call_state(call) != FC_CALL_WAITING) { /* the session is lost: that is the call's error */
    fc_error_drop();
    rc = 0;
  }
  fc_mutex_unlock(&call->ep->lock);
  return rc;
}

void fc_call_abandon(FcEndpoint* ep) {
  if (ep->reading) return; /* the reading thread sees the loss itself */
  fail_all(ep);
  fc_error_drop();
}

/* Removes a call from the outbox if it is still there. It stays in the queue, for the replies ahead of its own. */
static void withdraw(FcCall* call) {
  FcEndpoint* ep = call->ep;
  FcQueue* queue = &ep->client->queue;
  uint64_t first = queue->encoded - queue->used; /* the byte at which the outbox begins */
  if (ep->sending || call->taken || call->end - call->size < first) return;
  uint8_t* packet = ep->outbox + (call->end - call->size - first);
  memmove(packet, packet + call->size, (size_t)(queue->encoded - call->end));
  queue->used -= call->size;
  queue->encoded -= call->size;
  call->withdrawn = true;
  call->promise = 0;
  --ep->client->calls;
  for (FcCall* other = call; other; other = other->next) other->end -= call->size;
}

/* Cancelling never waits. A thread that has the line to itself sends everything, so nothing can be withdrawn then. */
bool fc_call_cancel(FcCall* call) {
  if (!end(call, FC_CALL_CANCELLED)) return false;
  if (!fc_mutex_trylock(&call->ep->lock)) return true;
  if (!fc_endpoint_is_lost(call->ep)) withdraw(call);
  fc_condition_broadcast(&call->ep->turn); /* wakes threads that wait for the call */
  fc_mutex_unlock(&call->ep->lock);
  return true;
}
