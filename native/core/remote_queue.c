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

enum {
  FLUSH_AT = 32768,
  STALLED_NS = 1000000 /* a far side that takes nothing for so long may be waiting for us to read */
};

/* ---- the call as an object ---- */

static int32_t call_index;
static pthread_once_t index_once = PTHREAD_ONCE_INIT;

static void make_index(void) {
  static const char name[] = "farcall.Call";
  TVMFFIByteArray key = {name, sizeof name - 1};
  call_index = TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 0, kTVMFFIObject);
}

int32_t fc_call_index(void) {
  pthread_once(&index_once, make_index);
  return call_index;
}

static void delete_call(void* self, int flags) {
  FcCall* call = self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    if (call->promise) fc_endpoint_free_later(call->ep, FC_PROMISE_BIT | call->promise, fc_no_device());
    fc_any_clear(&call->value);
    if (call->error) fc_decref(call->error);
    fc_lenders_free(call->lent);
    fc_decref(call->function);
    fc_endpoint_decref(call->ep);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(call);
}

static FcCall* new_call(FcEndpoint* ep, TVMFFIObject* function) {
  FcCall* call = malloc(sizeof *call);
  if (!call) {
    fc_error_no_memory();
    return NULL;
  }
  *call = (FcCall){.ep = ep, .function = function, .value = fc_any_none()};
  fc_object_init(&call->header, fc_call_index(), delete_call);
  fc_endpoint_incref(ep);
  fc_incref(function);
  return call;
}

static const char* name_of(const FcCall* call) { return fc_remote_function_of(call->function)->name; }

/* ---- ends of calls ---- */

/* The error of this thread, or the value, is the call's. */
static void settle(FcCall* call, int rc) {
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
    settle(queue->first, -1);
    pop(queue);
  }
  queue->used = 0;
  fc_error_set(ep->lost_kind, ep->lost_text);
  return -1;
}

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
  settle(call, rc);
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

/* ---- beginning ---- */

/* Arguments that need the line before the call, or that the far side may call while it is open. */
enum { ARGS_PLAIN, ARGS_MADE, ARGS_FUNCTIONS };

static int kind_of_args(const FcEndpoint* ep, const TVMFFIAny* args, int32_t n) {
  int kind = fc_remote_has_exports(ep) ? ARGS_FUNCTIONS : ARGS_PLAIN;
  for (int32_t i = 0; i < n; ++i) {
    const DLTensor* dl = fc_any_tensor(&args[i]);
    if (args[i].type_index == kTVMFFIFunction && !fc_remote_function_of(args[i].v_obj)) kind = ARGS_FUNCTIONS;
    bool upload = dl && !fc_device_is_remote(dl->device);
    bool made = upload || fc_type_is_container(args[i].type_index);
    if ((made || args[i].type_index == fc_call_index()) && kind == ARGS_PLAIN) kind = ARGS_MADE;
  }
  return kind;
}

/* Whether the result is to be kept there, for calls that take it before it is here. */
static int prepare_keep(FcEndpoint* ep, FcCall* call) {
  FcClient* client = ep->client;
  if (!(client->features & FC_PEER_PROMISES)) return 0;
  if (fc_remote_lookup(ep, "farcall.rpc.keep", &client->keep) < 0) return -1;
  if (client->keep) call->promise = ++client->promises;
  return 0;
}

static int encode_call(FcEndpoint* ep, FcCall* call, const FcRemoteFunction* f, const FcRemoteArgs* wire) {
  size_t* used = &ep->client->queue.used;
  TVMFFIAny all[FC_REMOTE_INLINE_ARGS + 2], *args = all;
  fc_wire_packet packet = {.code = FC_WIRE_CALL_FUNC, .num_args = wire->n, .args = wire->any,
                           .handle = f->owned.handle};
  if (!call->promise) return fc_endpoint_encode(ep, &packet, used);
  if (wire->n > FC_REMOTE_INLINE_ARGS) args = malloc(((size_t)wire->n + 2) * sizeof *args);
  if (!args) {
    fc_error_no_memory();
    return -1;
  }
  args[0] = fc_any_int((int64_t)call->promise);
  args[1] = (TVMFFIAny){.type_index = kTVMFFIFunction, .v_uint64 = f->owned.handle};
  memcpy(args + 2, wire->any, (size_t)wire->n * sizeof *args);
  packet.handle = ep->client->keep;
  packet.num_args += 2;
  packet.args = args;
  int rc = fc_endpoint_encode(ep, &packet, used);
  if (args != all) free(args);
  return rc;
}

static void push(FcQueue* queue, FcCall* call) {
  fc_incref(call);
  if (queue->last) queue->last->next = call;
  else queue->first = call;
  queue->last = call;
}

/* Behind queued releases. A failure leaves nothing in the outbox. */
static int enqueue(FcEndpoint* ep, FcCall* call, const FcRemoteFunction* f, const FcRemoteArgs* wire) {
  FcQueue* queue = &ep->client->queue;
  size_t before = queue->used, frees = 0;
  int rc = fc_remote_encode_frees(ep, &queue->used, &frees);
  if (rc == 0) rc = encode_call(ep, call, f, wire);
  if (rc < 0) {
    queue->used = before;
    return -1;
  }
  call->frees = (uint32_t)frees;
  call->began = fc_trace_begin();
  queue->encoded += queue->used - before;
  call->end = queue->encoded;
  push(queue, call);
  ++ep->client->calls;
  return 0;
}

/* The caller holds the lock; with ARGS_MADE the line is its own. */
static int begin_locked(FcCall* call, const TVMFFIAny* args, int32_t n, bool keep) {
  FcEndpoint* ep = call->ep;
  const FcRemoteFunction* f = fc_remote_function_of(call->function);
  FcRemoteArgs wire;
  if (keep && prepare_keep(ep, call) < 0) return -1;
  int rc = fc_remote_args_begin(&wire, ep, f->name, args, n);
  if (rc == 0 && !(ep->client->features & FC_PEER_FARCALL)) call->lent = fc_remote_lenders(&wire);
  if (rc == 0) rc = enqueue(ep, call, f, &wire);
  fc_remote_args_end(&wire, ep, rc == 0);
  if (rc == 0 || !wire.inherits) return rc;
  call->promise = 0; /* it fails without being sent */
  settle(call, rc);
  return 0;
}

/* A call during which the far side may call back is made at once: nothing may be on the line behind it. */
static int call_at_once(FcCall* call, const TVMFFIAny* args, int32_t n) {
  TVMFFIAny result = fc_any_none();
  int rc = TVMFFIFunctionGetCellPtr(call->function)->safe_call(call->function, args, n, &result);
  call->value = result;
  settle(call, rc);
  return 0;
}

/* Locks to send; unlike fc_endpoint_enter while another thread receives. */
static int enter_to_send(FcEndpoint* ep) {
  pthread_mutex_lock(&ep->lock);
  while (FC_UNLIKELY(ep->client->queue.sending)) await_other(ep, 0);
  if (FC_UNLIKELY(fc_endpoint_is_lost(ep))) {
    fc_error_set(ep->lost_kind, ep->lost_text);
    pthread_mutex_unlock(&ep->lock);
    return -1;
  }
  if (!ep->client->queue.reading) fc_endpoint_start_deadline(ep);
  return 0;
}

FcCall* fc_call_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep) {
  FcEndpoint* ep = fc_remote_function_of(function)->owned.ep;
  FcCall* call = new_call(ep, function);
  if (!call) return NULL;
  int kind = kind_of_args(ep, args, n);
  if (kind == ARGS_FUNCTIONS) {
    call_at_once(call, args, n);
    return call;
  }
  bool alone = kind == ARGS_MADE || (keep && !ep->client->keep);
  int rc = alone ? fc_endpoint_enter(ep) : enter_to_send(ep);
  if (rc == 0) {
    rc = begin_locked(call, args, n, keep);
    if (rc == 0 && ep->client->queue.used >= FLUSH_AT) rc = fc_call_flush(ep);
    fc_endpoint_leave(ep);
  }
  if (rc == 0) return call;
  fc_decref(call);
  return NULL;
}

FcCall* fc_call_try_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep) {
  FcEndpoint* ep = fc_remote_function_of(function)->owned.ep;
  const FcClient* client = ep->client;
  if (kind_of_args(ep, args, n) != ARGS_PLAIN || (keep && !client->keep && client->features & FC_PEER_PROMISES) ||
      pthread_mutex_trylock(&ep->lock) != 0) {
    return NULL;
  }
  bool room = !client->queue.sending && client->queue.used < FLUSH_AT && !fc_endpoint_is_lost(ep);
  FcCall* call = room ? new_call(ep, function) : NULL;
  if (call && begin_locked(call, args, n, keep) < 0) {
    fc_decref(call);
    call = NULL;
    fc_error_drop(); /* who tries again gets it */
  }
  pthread_mutex_unlock(&ep->lock);
  return call;
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
