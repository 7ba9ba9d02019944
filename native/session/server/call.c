/* The server: calls, from the values of the request to those of the reply. */
#include <stdlib.h>

#include "session/server/serve.h"
#include "runtime/trace.h"

enum {
  QUICK_NS = 20000, /* replies wait in the outbox only while calls take less time than this */
  INLINE_VALUES = 8
};

static void note(FcServer* server, const FcExport* function) {
  if (server->page) fc_page_note(&server->noted, server->page, function, function ? function->name : "");
}

/* Traces how long a request waited behind others, and how long its call took. */
FC_COLD static void trace_call(const FcExport* function, const TVMFFIAny* args, int32_t n, int64_t arrived,
                               int64_t begin) {
  if (!fc_trace_begin()) return;
  FcTraceWork work = {.category = "queue", .name = function->name, .track = -1};
  fc_trace_add(&work, arrived, begin);
  work.category = "compute";
  work.args = args;
  work.num_args = n;
  fc_trace_end(&work, begin);
}

/*
 * If the call may use functions of the client, the endpoint is unlocked meanwhile, since any thread may call them.
 * Earlier replies are sent before a call that may take long.
 */
static int invoke(FcServer* server, FcExport* function, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  bool shared = server->callbacks != NULL;
  FcExport* outer = server->running;
  /* Other replies wait for this call, or it is traced. */
  bool timed = server->ep->queued != 0 || server->ep->arrived != 0;
  const FcDue due = server->due;
  if (!function->quick && fc_endpoint_flush_queue(server->ep) != 0) return -1;
  if (FC_UNLIKELY(fc_deadline_is_set(&server->deadline)) && fc_deadline_begin(server, function->name) != 0) return -1;
  note(server, server->running = function);
  /* Saved, since more may arrive during the call. */
  int64_t begin = timed ? fc_now_ns() : 0, arrived = server->ep->arrived;
  if (shared) fc_endpoint_leave(server->ep);
  int rc = fc_export_call(server, function, args, n, result);
  if (shared) fc_endpoint_reenter(server->ep);
  if (FC_UNLIKELY(server->due.at != due.at)) fc_deadline_arm(server, due);
  if (FC_UNLIKELY(arrived != 0)) trace_call(function, args, n, arrived, begin);
  if (timed) function->quick = fc_now_ns() - begin < QUICK_NS;
  note(server, server->running = outer);
  return rc;
}

/* The arguments of one call; owns the objects among them. */
typedef struct Arguments {
  TVMFFIAny* any;
  TVMFFIAny inlined[INLINE_VALUES];
} Arguments;

static void end_arguments(Arguments* args, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    if (fc_any_is_object(&args->any[i])) fc_decref(args->any[i].v_obj);
  }
  if (args->any != args->inlined) free(args->any);
}

static int begin_arguments(FcServer* server, const FcExport* function, const TVMFFIAny* wire, int32_t n,
                           Arguments* args) {
  args->any = n <= INLINE_VALUES ? args->inlined : malloc((size_t)n * sizeof *args->any);
  if (!args->any) {
    fc_error_no_memory();
    return -1;
  }
  for (int32_t i = 0; i < n; ++i) {
    if (FC_LIKELY(fc_server_argument(server, function->name, i, &wire[i], &args->any[i]) == 0)) continue;
    end_arguments(args, i);
    return -1;
  }
  return 0;
}

/* Converts the wire values, calls the function, and gives its result. */
static int perform(FcServer* server, FcExport* function, const TVMFFIAny* wire, int32_t n, TVMFFIAny* result) {
  Arguments args;
  FcCallback* outer = server->callbacks;
  if (fc_server_require(server, function->scope, function->name) != 0) return -1;
  int rc = begin_arguments(server, function, wire, n, &args);
  if (FC_LIKELY(rc == 0)) {
    rc = invoke(server, function, args.any, n, result);
    end_arguments(&args, n);
  }
  if (FC_LIKELY(server->callbacks == outer)) return rc;
  if (fc_callbacks_end(server, outer) == 0) return rc;
  fc_any_clear(result);
  return -1;
}

/* The function that a request calls, by its handle or by a promise. A new reference. */
static FcExport* callee(FcServer* server, uint64_t handle) {
  if (FC_UNLIKELY(handle & FC_PROMISE_BIT)) {
    TVMFFIAny kept;
    if (fc_promise_get(server, handle, &kept) != 0) return NULL;
    if (kept.type_index == kTVMFFIFunction) return fc_export_new(kept.v_obj, "promise", 7, FC_SCOPE_CALL);
    fc_any_clear(&kept);
    fc_error_set("TypeError", "cannot call a promised result that is not a function");
    return NULL;
  }
  FcEntry* entry = fc_handles_get(&server->handles, handle, FC_KIND_FUNCTION);
  if (FC_UNLIKELY(!entry)) return NULL;
  ++entry->function->refs;
  return entry->function;
}

static int reply_result(FcServer* server, const FcExport* function, const fc_wire_packet* p, TVMFFIAny* result) {
  FcOrigin origin = {function->name, NULL};
  if (function->naming >= 0 && function->naming < p->num_args &&
      fc_wire_is_text(p->args[function->naming].type_index)) {
    origin.called = ((const TVMFFIByteArray*)p->args[function->naming].v_ptr)->data;
  }
  FcWireResult wire;
  TVMFFIAny held;
  int rc = fc_server_result(server, &origin, result, &wire, &held);
  if (FC_LIKELY(rc == 0)) rc = fc_server_reply(server, wire.values, wire.n);
  fc_any_clear(&held);
  return rc;
}

/* ---- spans, which the host makes ---- */

/* farcall.rpc.span(traceparent): of the next call. */
static int tell_span(FcServer* server, const fc_wire_packet* p) {
  bool good = p->num_args == 1 && fc_wire_is_text(p->args[0].type_index);
  const TVMFFIByteArray* text = good ? p->args[0].v_ptr : NULL;
  if (!text || text->size >= FC_SPAN_MAX) {
    fc_error_set("ValueError", FC_SPAN_NAME " takes a traceparent");
    return -1;
  }
  memcpy(server->span, text->data, text->size);
  server->span[text->size] = 0;
  return 0;
}

/* Whether it is a function of the protocol. Calls of these are in no span. */
static bool is_standard(const FcExport* function) {
  uint32_t scope;
  return fc_scope_is_listed((TVMFFIByteArray){function->name, function->name_size}, &scope) ||
         strncmp(function->name, "ffi.", 4) == 0; /* a function that makes a list: no host exports such a name */
}

FC_COLD static int perform_in_span(FcServer* server, FcExport* function, const TVMFFIAny* wire, int32_t n,
                                   TVMFFIAny* result) {
  if (is_standard(function)) return perform(server, function, wire, n, result);
  void* span = server->policy->span_begin(server->context, function->name, server->span);
  server->span[0] = 0;
  int rc = perform(server, function, wire, n, result);
  server->policy->span_end(span, rc != 0);
  return rc;
}

static int perform_any(FcServer* server, FcExport* function, const TVMFFIAny* wire, int32_t n, TVMFFIAny* result) {
  if (FC_LIKELY(!(server->offers & FC_OFFER_SPANS))) return perform(server, function, wire, n, result);
  return perform_in_span(server, function, wire, n, result);
}

/* ---- requests ---- */

/* farcall.rpc.keep(id, function, args...): calls the function, and keeps its result or error under the id. */
static int keep(FcServer* server, const fc_wire_packet* p, TVMFFIAny* result) {
  const TVMFFIAny* args = p->args;
  bool pointer = p->num_args >= 2 && (args[1].type_index == kTVMFFIFunction || args[1].type_index == kTVMFFIOpaquePtr);
  if (!pointer || args[0].type_index != kTVMFFIInt) {
    fc_error_set("TypeError", "farcall.rpc.keep takes an id, a function, and the function's arguments");
    return -1;
  }
  if (fc_promise_check(server, args[0].v_int64) != 0) return -1;
  FcExport* function = callee(server, args[1].v_uint64);
  int rc = function ? perform_any(server, function, args + 2, p->num_args - 2, result) : -1;
  if (function) fc_export_decref(function);
  if (fc_endpoint_is_lost(server->ep)) return -1;
  return fc_promise_set(server, args[0].v_int64, rc, result);
}

static int call(FcServer* server, FcExport* function, const fc_wire_packet* p, TVMFFIAny* result) {
  if (FC_LIKELY(function->own == FC_OWN_NONE)) return perform_any(server, function, p->args, p->num_args, result);
  if (function->own == FC_OWN_HELLO) return fc_server_hello(server, result);
  if (function->own == FC_OWN_SPAN) return tell_span(server, p);
  return function->own == FC_OWN_KEEP ? keep(server, p, result) : fc_deadline_tell(server, p, &server->deadline);
}

int fc_server_call(FcServer* server, const fc_wire_packet* p) {
  FcExport* function = callee(server, p->handle);
  if (FC_UNLIKELY(!function)) return -1;
  TVMFFIAny result = fc_any_none();
  int rc = call(server, function, p, &result);
  if (FC_LIKELY(rc == 0)) rc = reply_result(server, function, p, &result);
  fc_export_decref(function);
  return rc;
}
