/* Calls without waiting: the object, and how a call begins. session/client/queue.c sends calls and reads replies. */
#include <stdlib.h>

#include "session/client/remote.h"
#include "runtime/trace.h"

enum { FLUSH_AT = 32768 }; /* bytes in the outbox that cause it to be sent */

/* ---- the call as an object ---- */

int32_t fc_call_index(void) {
  static int32_t index;
  return fc_own_type(&index, "farcall.Call");
}

static void delete_call(void* self, int flags) {
  FcCall* call = self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    if (call->promise) fc_remote_free_later(call->ep, FC_PROMISE_BIT | call->promise, fc_no_device());
    fc_any_clear(&call->value);
    if (call->error) fc_decref(call->error);
    fc_lenders_free(call->lent);
    if (call->function) { /* else it is in the endpoint's queue, and must not keep the endpoint alive */
      fc_decref(call->function);
      fc_endpoint_decref(call->ep);
    }
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(call);
}

FcCall* fc_call_new(FcEndpoint* ep, TVMFFIObject* function) {
  FcCall* call = malloc(sizeof *call);
  if (!call) {
    fc_error_no_memory();
    return NULL;
  }
  *call = (FcCall){.ep = ep, .function = function, .value = fc_any_none(), .due = fc_deadline};
  call->observed = fc_thread.span != NULL;
  if (FC_UNLIKELY(call->due)) call->allowed = call->due - fc_now_ns();
  fc_object_init(&call->header, fc_call_index(), delete_call);
  if (!function) return call;
  fc_endpoint_incref(ep);
  fc_incref(function);
  return call;
}

/* ---- beginning ---- */

/* Arguments that need requests before the call (MADE), or that the server may call while it is open (FUNCTIONS). */
enum { ARGS_PLAIN, ARGS_MADE, ARGS_FUNCTIONS };

static int kind_of_args(const FcEndpoint* ep, const TVMFFIAny* args, int32_t n) {
  int kind = fc_remote_may_be_called(ep) ? ARGS_FUNCTIONS : ARGS_PLAIN;
  for (int32_t i = 0; i < n; ++i) {
    const DLTensor* dl = fc_any_tensor(&args[i]);
    if (args[i].type_index == kTVMFFIFunction && !fc_remote_function_of(args[i].v_obj)) kind = ARGS_FUNCTIONS;
    bool upload = dl && !fc_device_is_remote(dl->device);
    bool made = upload || fc_type_is_container(args[i].type_index);
    if ((made || args[i].type_index == fc_call_index()) && kind == ARGS_PLAIN) kind = ARGS_MADE;
  }
  return kind;
}

/* Lets the server keep the result under a promise, for later calls that take it as an argument. */
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
  fc_wire_packet packet = {
      .code = FC_WIRE_CALL_FUNC, .num_args = wire->n, .args = wire->any, .handle = f->owned.handle};
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

void fc_call_push(FcQueue* queue, FcCall* call) {
  fc_incref(call);
  if (queue->last) queue->last->next = call;
  else queue->first = call;
  queue->last = call;
}

/* Records how long it took to queue the call. Returns when the wait for its reply began. */
FC_COLD static int64_t trace_submission(const FcEndpoint* ep, const FcRemoteFunction* f, const TVMFFIAny* args,
                                        int32_t n, int64_t began) {
  int64_t now = fc_now_ns();
  FcTraceWork work = {.category = "call", .name = f->name, .track = ep->client->slot, .args = args, .num_args = n};
  fc_trace_add(&work, began, now);
  return now;
}

/* Encodes the call after the requests that go ahead of it. A failure leaves nothing in the outbox. */
static int enqueue(FcEndpoint* ep, FcCall* call, const FcRemoteFunction* f, const FcRemoteArgs* wire) {
  FcQueue* queue = &ep->client->queue;
  size_t before = queue->used, ahead = 0;
  const char* span = fc_thread.span;
  int rc = fc_remote_encode_ahead(ep, &queue->used, &ahead);
  size_t begin = queue->used;
  if (rc == 0) rc = encode_call(ep, call, f, wire);
  if (rc < 0) {
    queue->used = before;
    ep->client->told_until = -1; /* the encoded limits were not sent, nor was the span */
    fc_thread.span = span;
    return -1;
  }
  call->ahead = (uint32_t)ahead;
  queue->encoded += queue->used - before;
  call->end = queue->encoded;
  call->size = queue->used - begin;
  fc_call_push(queue, call);
  ++ep->client->calls;
  return 0;
}

/* The caller holds the lock and, with ARGS_MADE, has the line to itself. */
static int begin_locked(FcCall* call, const TVMFFIAny* args, int32_t n, bool keep) {
  FcEndpoint* ep = call->ep;
  const FcRemoteFunction* f = fc_remote_function_of(call->function);
  FcRemoteArgs wire;
  int64_t began = fc_trace_begin();
  if (fc_deadline_has_passed()) return fc_endpoint_too_late(ep, f->name);
  if (FC_UNLIKELY(fc_remote_must_learn(ep)) && fc_remote_learn(ep) < 0) return -1;
  if (keep && prepare_keep(ep, call) < 0) return -1;
  int rc = fc_remote_args_begin(&wire, ep, f->name, args, n);
  if (rc == 0 && !(ep->client->features & FC_PEER_FARCALL)) call->lent = fc_remote_lenders(&wire);
  if (rc == 0) rc = enqueue(ep, call, f, &wire);
  if (rc == 0 && FC_UNLIKELY(began != 0)) call->began = trace_submission(ep, f, args, n, began);
  fc_remote_args_end(&wire, ep, rc == 0);
  if (rc == 0 || !wire.inherits) return rc;
  call->promise = 0; /* the call was not sent, so the server keeps nothing */
  fc_call_settle(call, rc);
  return 0;
}

/* A call in which the server may call back is made at once: no other request may follow it on the line. */
static int call_at_once(FcCall* call, const TVMFFIAny* args, int32_t n) {
  TVMFFIAny result = fc_any_none();
  int rc = TVMFFIFunctionGetCellPtr(call->function)->safe_call(call->function, args, n, &result);
  call->value = result;
  fc_call_settle(call, rc);
  return 0;
}

/* Whether a function of the server must be looked up first. */
static bool needs_the_line(const FcEndpoint* ep, bool keep) {
  const FcClient* client = ep->client;
  return (keep && !client->keep && (client->features & FC_PEER_PROMISES)) || fc_remote_must_learn(ep);
}

FcCall* fc_call_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep) {
  FcEndpoint* ep = fc_remote_function_of(function)->owned.ep;
  FcCall* call = fc_call_new(ep, function);
  if (!call) return NULL;
  int kind = kind_of_args(ep, args, n);
  if (kind == ARGS_FUNCTIONS) {
    call_at_once(call, args, n);
    return call;
  }
  bool alone = kind == ARGS_MADE || needs_the_line(ep, keep);
  int rc = alone ? fc_endpoint_enter(ep) : fc_endpoint_enter_to_send(ep);
  bool at_once = false;
  if (rc == 0) {
    at_once = fc_remote_may_be_called(ep); /* another thread was interrupted in such a call */
    if (!at_once) rc = begin_locked(call, args, n, keep);
    if (rc == 0 && ep->client->queue.used >= FLUSH_AT) rc = fc_call_flush(ep);
    fc_endpoint_leave(ep);
  }
  if (at_once) call_at_once(call, args, n);
  if (rc == 0) return call;
  fc_decref(call);
  return NULL;
}

FcCall* fc_call_try_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep) {
  FcEndpoint* ep = fc_remote_function_of(function)->owned.ep;
  const FcClient* client = ep->client;
  if (kind_of_args(ep, args, n) != ARGS_PLAIN || needs_the_line(ep, keep) || !fc_mutex_trylock(&ep->lock)) {
    return NULL;
  }
  bool room = !ep->sending && client->queue.used < FLUSH_AT && !fc_endpoint_is_lost(ep) && !fc_remote_may_be_called(ep);
  FcCall* call = room ? fc_call_new(ep, function) : NULL;
  if (call && begin_locked(call, args, n, keep) < 0) {
    fc_decref(call);
    call = NULL;
    fc_error_drop(); /* the caller tries again with waiting, and gets the error then */
  }
  fc_mutex_unlock(&ep->lock);
  return call;
}
