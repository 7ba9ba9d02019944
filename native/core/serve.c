/* The server: requests in, what they do here, replies out, in order. */
#include "serve.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "relay.h"
#include "rt_builtins.h"

enum {
  QUICK_NS = 20000, /* replies wait in the outbox only while calls take less than this */
  INLINE_VALUES = 8
};

/* ---- what functions' handles name ---- */

FcExport* fc_export_new(TVMFFIObject* object, const char* name, size_t size, uint32_t scope) {
  if (size > FC_PAGE_NAME_MAX) size = FC_PAGE_NAME_MAX;
  FcExport* function = malloc(sizeof *function + size + 1);
  if (!function) {
    fc_decref(object);
    fc_error_no_memory();
    return NULL;
  }
  *function = (FcExport){
      .object = object, .refs = 1, .scope = (uint16_t)scope, .name_size = (uint16_t)size, .naming = -1};
  fc_function_target(object, &function->call, &function->self);
  memcpy(function->name, name, size);
  function->name[size] = 0;
  return function;
}

void fc_export_decref(FcExport* function) {
  if (--function->refs != 0) return;
  if (function->object) fc_decref(function->object);
  free(function);
}

void fc_server_drop(FcServer* server, FcEntry entry) {
  if (entry.kind == FC_KIND_FUNCTION) {
    if (server->noted == entry.function) server->noted = NULL;
    fc_export_decref(entry.function);
    return;
  }
  if (entry.kind == FC_KIND_ALLOCATED) server->allocated -= entry.other;
  fc_decref(entry.object);
}

void fc_server_clear(FcServer* server) {
  for (uint32_t i = 0; i < server->handles.size; ++i) {
    if (server->handles.entries[i].kind) fc_server_drop(server, server->handles.entries[i]);
  }
  fc_handles_free(&server->handles);
  if (server->next_hop) fc_endpoint_decref(server->next_hop);
  server->next_hop = NULL;
  TVMFFIObject** held[] = {&server->kept, &server->failed, &server->filling, &server->refusal,
                           &server->last_error};
  for (size_t i = 0; i < sizeof held / sizeof *held; ++i) {
    if (*held[i]) fc_decref(*held[i]);
    *held[i] = NULL;
  }
}

/* ---- replies: they wait in the outbox until there is nothing to do ---- */

static int reply_packet(FcServer* server, const fc_wire_packet* packet) {
  return fc_endpoint_queue(server->ep, packet, NULL);
}

int fc_server_reply(FcServer* server, const TVMFFIAny* values, int32_t n) {
  fc_wire_packet packet = {.code = FC_WIRE_RETURN, .num_args = n, .args = values};
  return reply_packet(server, &packet);
}

static int reply_void(FcServer* server) {
  TVMFFIAny none = fc_any_none();
  return fc_server_reply(server, &none, 1);
}

static int reply_handle(FcServer* server, uint64_t handle) {
  TVMFFIAny pointer = {.type_index = kTVMFFIOpaquePtr, .v_uint64 = handle};
  return fc_server_reply(server, &pointer, 1);
}

/* "Kind: message" is the form in which exceptions travel; our client makes the class out of it again. */
int fc_queue_error(FcEndpoint* ep, TVMFFIObject* error) {
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  size_t size = cell->kind.size + 2 + cell->message.size;
  char* text = malloc(size);
  int rc = -1;
  if (text) {
    memcpy(text, cell->kind.data, cell->kind.size);
    memcpy(text + cell->kind.size, ": ", 2);
    memcpy(text + cell->kind.size + 2, cell->message.data, cell->message.size);
    TVMFFIByteArray string = {text, size};
    TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &string};
    fc_wire_packet packet = {.code = FC_WIRE_EXCEPTION, .num_args = 1, .args = &arg};
    rc = fc_endpoint_queue(ep, &packet, NULL);
  }
  free(text);
  fc_decref(error);
  if (rc == 0 || fc_endpoint_is_lost(ep)) return rc;
  return fc_endpoint_lose(ep, "ConnectionLostError", "no memory for a reply to %s", ep->peer);
}

static void keep_error(FcServer* server, TVMFFIObject* error) {
  if (FC_LIKELY(!server->keeps_errors)) return;
  if (server->last_error) fc_decref(server->last_error);
  fc_incref(error);
  server->last_error = error;
}

/* After a handler: its error, if there is one, becomes the reply. */
static int conclude(FcServer* server, int rc) {
  if (rc == 0) return 0;
  if (fc_endpoint_is_lost(server->ep)) return -1;
  TVMFFIObject* error = fc_error_take();
  if (!error) {
    fc_error_set("RuntimeError", "the request failed without a reason");
    error = fc_error_take();
  }
  keep_error(server, error);
  return fc_queue_error(server->ep, error);
}

/* ---- rules ---- */

int fc_server_require(const FcServer* server, uint32_t scope, const char* what) {
  static const char* const names[] = {"call", "copy", "load", "files"};
  uint32_t missing = scope & ~server->scopes;
  if (FC_LIKELY(missing == 0)) return 0;
  fc_error_format("PermissionDeniedError", "%s needs the scope `%s`, which token `%s` does not have; use one that has it",
                  what, names[__builtin_ctz(missing)], server->token);
  return -1;
}

static int require_start(const FcServer* server) {
  if (FC_LIKELY(server->started)) return 0;
  fc_error_set("ProtocolError", "the session has not begun; send kInitServer first");
  return -1;
}

/* The values of a syscall have these types; -1 stands for any. */
static int expect(const fc_wire_packet* p, int32_t n, const int32_t* types) {
  bool good = p->num_args == n;
  for (int32_t i = 0; good && i < n; ++i) good = types[i] < 0 || p->args[i].type_index == types[i];
  if (good) return 0;
  fc_error_format("ProtocolError", "%s does not come with %d values of these types", fc_wire_code_name(p->code),
                  (int)p->num_args);
  return -1;
}

/* ---- calls ---- */

static void note(FcServer* server, const FcExport* function) {
  if (server->page) fc_page_note(&server->noted, server->page, function, function ? function->name : "");
}

static int set_missing_error(const FcServer* server, const FcExport* function, int rc) {
  TVMFFIObject* error = fc_error_take();
  TVMFFIObject* own = server->policy->take_error();
  if (own && error) fc_decref(error);
  if (own) error = own;
  if (error) fc_error_raise(error);
  else fc_error_format("RuntimeError", "`%s` returned %d without setting an error", function->name, rc);
  return -1;
}

/* What a request waited for behind others, and what it took then. */
FC_COLD static void trace_call(const FcServer* server, const FcExport* function, int64_t begin) {
  if (!fc_trace_begin()) return;
  fc_trace_add("queue", function->name, -1, server->ep->arrived, begin);
  fc_trace_end("compute", function->name, -1, begin);
}

/*
 * While a function of the client can be called, other threads may do so: the endpoint is theirs for that time.
 * Earlier replies go out before a call that may take long.
 */
static int invoke(FcServer* server, FcExport* function, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  bool shared = server->callbacks != NULL;
  FcExport* outer = server->running;
  if (!function->quick && fc_endpoint_flush_queue(server->ep) != 0) return -1;
  note(server, server->running = function);
  int64_t begin = fc_now_ns();
  if (shared) fc_endpoint_leave(server->ep);
  int rc = function->call(function->self, args, n, result);
  if (shared) pthread_mutex_lock(&server->ep->lock);
  if (FC_UNLIKELY(server->ep->arrived != 0)) trace_call(server, function, begin);
  function->quick = fc_now_ns() - begin < QUICK_NS;
  note(server, server->running = outer);
  if (FC_LIKELY(rc == 0)) return 0;
  return set_missing_error(server, function, rc);
}

/* The arguments of one call; objects among them are owned. */
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

/* A call from its wire values to its result. */
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

/* What a call names: a function's handle, or a promise of one. A new reference. */
static FcExport* callee(FcServer* server, uint64_t handle) {
  if (FC_UNLIKELY(handle & FC_PROMISE_BIT)) {
    TVMFFIAny kept;
    if (fc_promise_get(server, handle, &kept) != 0) return NULL;
    if (kept.type_index == kTVMFFIFunction) return fc_export_new(kept.v_obj, "promise", 7, FC_SCOPE_CALL);
    fc_any_clear(&kept);
    fc_error_set("TypeError", "the promised result that is to be called is no function");
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

/* farcall.rpc.keep(id, function, args...): the call itself, and its outcome under the id. */
static int keep(FcServer* server, const fc_wire_packet* p, TVMFFIAny* result) {
  const TVMFFIAny* args = p->args;
  bool pointer = p->num_args >= 2 && (args[1].type_index == kTVMFFIFunction || args[1].type_index == kTVMFFIOpaquePtr);
  if (!pointer || args[0].type_index != kTVMFFIInt) {
    fc_error_set("TypeError", "farcall.rpc.keep takes an id, a function, and the function's arguments");
    return -1;
  }
  if (fc_promise_check(server, args[0].v_int64) != 0) return -1;
  FcExport* function = callee(server, args[1].v_uint64);
  int rc = function ? perform(server, function, args + 2, p->num_args - 2, result) : -1;
  if (function) fc_export_decref(function);
  if (fc_endpoint_is_lost(server->ep)) return -1;
  return fc_promise_set(server, args[0].v_int64, rc, result);
}

static int call(FcServer* server, const fc_wire_packet* p) {
  FcExport* function = callee(server, p->handle);
  if (FC_UNLIKELY(!function)) return -1;
  TVMFFIAny result = fc_any_none();
  int rc = FC_UNLIKELY(function->keeps) ? keep(server, p, &result)
                                        : perform(server, function, p->args, p->num_args, &result);
  if (FC_LIKELY(rc == 0)) rc = reply_result(server, function, p, &result);
  fc_export_decref(function);
  return rc;
}

static int call_keep(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  fc_error_set("TypeError", "only a client calls farcall.rpc.keep");
  return -1;
}

/* What the dispatcher itself has: promises, and how to look into containers. */
static int find_own(TVMFFIByteArray name, FcExport** out) {
  static const char keep_name[] = "farcall.rpc.keep";
  TVMFFIObjectHandle object = NULL;
  bool keeps = name.size == sizeof keep_name - 1 && memcmp(name.data, keep_name, name.size) == 0;
  if (keeps && fc_function_new(NULL, call_keep, NULL, &object) != 0) return -1;
  if (!keeps) object = fc_container_function(name.data, name.size);
  if (!object) return 0;
  *out = fc_export_new(object, name.data, name.size, 0);
  if (*out) (*out)->keeps = keeps;
  return *out ? 0 : -1;
}

static int find(FcServer* server, TVMFFIByteArray name, FcExport** out) {
  if (find_own(name, out) != 0) return -1;
  if (*out) return 0;
  return server->policy->find(server->context, name, out);
}

static int get_global(FcServer* server, const fc_wire_packet* p) {
  FcExport* function = NULL;
  if (p->num_args != 1 || !fc_wire_is_text(p->args[0].type_index)) return expect(p, 1, (int32_t[]){kTVMFFIRawStr});
  TVMFFIByteArray name = *(const TVMFFIByteArray*)p->args[0].v_ptr;
  if (find(server, name, &function) != 0) return -1;
  if (!function) return reply_handle(server, 0);
  uint64_t handle = 0;
  if (fc_server_require(server, function->scope, function->name) == 0) {
    handle = fc_handles_add(&server->handles, (FcEntry){.function = function, .kind = FC_KIND_FUNCTION});
  }
  if (handle != 0) return reply_handle(server, handle);
  fc_export_decref(function);
  return -1;
}

static int free_handle(FcServer* server, const fc_wire_packet* p) {
  FcEntry entry;
  if (expect(p, 1, (int32_t[]){kTVMFFIOpaquePtr}) != 0) return -1;
  uint64_t handle = p->args[0].v_uint64;
  if (fc_promise_forget(server, handle)) return reply_void(server);
  if (!fc_handles_remove(&server->handles, handle, FC_KIND_OWNED, &entry)) return -1;
  FcEntry data;
  if (entry.kind == FC_KIND_TENSOR && fc_handles_remove(&server->handles, entry.other, FC_KIND_RETURNED, &data)) {
    fc_server_drop(server, data);
  }
  fc_server_drop(server, entry);
  return reply_void(server);
}

/* ---- memory ---- */

static int allocate(FcServer* server, DLDevice device, uint64_t nbytes) {
  if (fc_server_check_device(device) != 0 || fc_server_require(server, FC_SCOPE_COPY, "an allocation") != 0) return -1;
  if (nbytes > server->tensor_limit - server->allocated || nbytes > INT64_MAX) {
    fc_error_format("MemoryError", "%lld bytes: the session has allocated %llu already, its limit is %llu",
                    (long long)nbytes, (unsigned long long)server->allocated,
                    (unsigned long long)server->tensor_limit);
    return -1;
  }
  int64_t size = (int64_t)nbytes;
  DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &size};
  FcTensorObj* memory = fc_tensor_alloc(&like);
  if (!memory) return -1;
  FcEntry entry = {.object = &memory->header, .other = nbytes, .kind = FC_KIND_ALLOCATED};
  uint64_t handle = fc_handles_add(&server->handles, entry);
  if (handle == 0) {
    fc_decref(memory);
    return -1;
  }
  server->allocated += nbytes;
  return reply_handle(server, handle);
}

/* Allocations are aligned to 64, for any type. */
static int alloc_data(FcServer* server, const fc_wire_packet* p) {
  static const int32_t types[] = {kTVMFFIDevice, kTVMFFIInt, kTVMFFIInt, kTVMFFIDataType};
  if (expect(p, 4, types) != 0) return -1;
  return allocate(server, p->args[0].v_device, (uint64_t)p->args[1].v_int64);
}

static int alloc_with_scope(FcServer* server, const fc_wire_packet* p) {
  if (expect(p, 2, (int32_t[]){kTVMFFIDLTensorPtr, -1}) != 0) return -1;
  const fc_wire_tensor* like = p->args[0].v_ptr;
  if (fc_wire_is_text(p->args[1].type_index)) {
    const TVMFFIByteArray* scope = p->args[1].v_ptr;
    if (scope->size != 0 && strcmp(scope->data, "global") != 0) {
      fc_error_format("ValueError", "memory scope '%.40s': the CPU has only 'global'", scope->data);
      return -1;
    }
  }
  uint64_t nbytes;
  if (fc_wire_tensor_nbytes(like, &nbytes) != 0) nbytes = UINT64_MAX;
  return allocate(server, like->device, nbytes);
}

static int free_data(FcServer* server, const fc_wire_packet* p) {
  FcEntry entry;
  if (expect(p, 2, (int32_t[]){kTVMFFIDevice, kTVMFFIOpaquePtr}) != 0) return -1;
  if (!fc_handles_remove(&server->handles, p->args[1].v_uint64, FC_KIND_ALLOCATED, &entry)) return -1;
  fc_server_drop(server, entry);
  return reply_void(server);
}

/* ---- copies ---- */

static uint64_t lane_bytes(DLDataType dtype) { return ((uint64_t)dtype.bits + 7) / 8; }

/* The bytes of a copy, which is one more thing that a token may forbid. */
static int copy_span(FcServer* server, const fc_wire_tensor* tensor, uint64_t nbytes, FcSpan* out) {
  if (fc_server_require(server, FC_SCOPE_COPY, "a copy") != 0) return -1;
  return fc_server_span(server, tensor, nbytes, out);
}

/* The payload of a copy that is refused is read, and dropped. */
static void copy_in(FcServer* server, const fc_wire_packet* p) {
  FcSpan span;
  if (require_start(server) != 0 || copy_span(server, &p->tensor, p->nbytes, &span) != 0) {
    server->refusal = fc_error_take();
    return;
  }
  fc_incref(server->filling = span.allocation);
  server->copy_began = fc_trace_begin();
  server->lane = lane_bytes(p->tensor.dtype);
  server->ep->reader.sink = span.data;
}

static int end_copy_in(FcServer* server) {
  TVMFFIObject *refusal = server->refusal, *filling = server->filling;
  const fc_wire_reader* reader = &server->ep->reader;
  server->refusal = server->filling = NULL;
  if (refusal) return fc_queue_error(server->ep, refusal);
  if (fc_host_is_big()) fc_wire_swap_elements(reader->sink, reader->payload_size, server->lane);
  fc_decref(filling);
  fc_trace_end("copy", "kCopyToRemote", -1, server->copy_began);
  return reply_void(server);
}

/* Big-endian hosts send a copy, in the wire's order. */
FC_COLD static int send_swapped(FcServer* server, const fc_wire_packet* ack, const uint8_t* span, DLDataType dtype) {
  uint8_t* swapped = malloc(ack->nbytes + 1);
  if (!swapped) {
    fc_error_no_memory();
    return -1;
  }
  memcpy(swapped, span, ack->nbytes);
  fc_wire_swap_elements(swapped, ack->nbytes, lane_bytes(dtype));
  int rc = fc_endpoint_queue(server->ep, ack, swapped);
  free(swapped);
  return rc;
}

static int copy_out(FcServer* server, const fc_wire_packet* p) {
  FcSpan span;
  if (copy_span(server, &p->tensor, p->nbytes, &span) != 0) return -1;
  fc_wire_packet ack = {.code = FC_WIRE_COPY_ACK, .nbytes = p->nbytes};
  int64_t begin = fc_trace_begin();
  int rc = fc_host_is_big() ? send_swapped(server, &ack, span.data, p->tensor.dtype)
                            : fc_endpoint_queue(server->ep, &ack, span.data);
  fc_trace_end("copy", "kCopyFromRemote", -1, begin);
  return rc;
}

static int copy_among(FcServer* server, const fc_wire_packet* p) {
  static const int32_t types[] = {kTVMFFIDLTensorPtr, kTVMFFIDLTensorPtr, -1};
  if (expect(p, 3, types) != 0) return -1;
  const fc_wire_tensor *from = p->args[0].v_ptr, *to = p->args[1].v_ptr;
  FcSpan source, target;
  uint64_t nbytes;
  if (fc_wire_tensor_nbytes(from, &nbytes) != 0) nbytes = UINT64_MAX; /* beyond any allocation */
  if (copy_span(server, from, nbytes, &source) != 0 || copy_span(server, to, nbytes, &target) != 0) return -1;
  if (nbytes != 0) memmove(target.data, source.data, (size_t)nbytes);
  return reply_void(server);
}

/* ---- the table of requests ---- */

static int start(FcServer* server, const fc_wire_packet* p) {
  if (server->started) {
    fc_error_set("ProtocolError", "the session has begun already; kInitServer comes once");
    return -1;
  }
  if (server->policy->answer(server->context, server, p) != 0) return -1;
  server->started = true;
  if (!server->next_hop) return 0;
  int rc = fc_relay_run(server, server->next_hop, p, server->next_args);
  server->ended = true;
  return rc;
}

static int request(FcServer* server, const fc_wire_packet* p) {
  if (p->code == FC_WIRE_INIT_SERVER) return start(server, p);
  if (FC_UNLIKELY(require_start(server) != 0)) return -1;
  switch (p->code) {
    case FC_WIRE_CALL_FUNC: return call(server, p);
    case FC_WIRE_GET_GLOBAL_FUNC: return get_global(server, p);
    case FC_WIRE_FREE_HANDLE: return free_handle(server, p);
    case FC_WIRE_COPY_FROM_REMOTE: return copy_out(server, p);
    case FC_WIRE_DEV_ALLOC_DATA: return alloc_data(server, p);
    case FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE: return alloc_with_scope(server, p);
    case FC_WIRE_DEV_FREE_DATA: return free_data(server, p);
    case FC_WIRE_COPY_AMONG_REMOTE: return copy_among(server, p);
    default: return server->policy->answer(server->context, server, p);
  }
}

int fc_server_event(FcServer* server, fc_wire_event event, const fc_wire_packet* p) {
  if (event == FC_WIRE_PAYLOAD_END) return end_copy_in(server);
  if (event == FC_WIRE_PACKET) {
    if (p->code == FC_WIRE_SHUTDOWN) {
      server->ended = true;
      return 0;
    }
    return conclude(server, request(server, p));
  }
  if (p->code == FC_WIRE_COPY_TO_REMOTE) {
    copy_in(server, p);
    return 0;
  }
  return fc_endpoint_refuse(server->ep, "the client sent a kCopyAck, which only a server sends");
}

int fc_server_run(FcServer* server) {
  fc_wire_packet packet;
  while (!server->ended) {
    fc_wire_event event = fc_endpoint_next(server->ep, &packet);
    if (event == FC_WIRE_FAILED) return -1;
    if (event == FC_WIRE_MORE) {
      if (server->ep->starved) return fc_endpoint_flush_queue(server->ep) == 0 ? 1 : -1;
      if (fc_wire_at_boundary(&server->ep->reader)) return 0;
      return fc_endpoint_lose(server->ep, "ConnectionLostError", "the client closed the connection inside a packet");
    }
    if (fc_server_event(server, event, &packet) != 0) return -1;
  }
  return fc_endpoint_flush_queue(server->ep);
}
