/*
 * Functions of the client, as ordinary Functions. While the call to which the client passed them is open, any thread of
 * the server may call them; meanwhile the server serves the client's nested requests.
 */
#include <stdlib.h>

#include "session/server/serve.h"
#include "session/error_text.h"

struct FcCallback {
  FcEndpoint* ep;
  FcServer* server;       /* valid while `open` */
  TVMFFIObject* function; /* the Function around this; the list owns a reference */
  FcCallback* next;
  uint64_t handle;
  bool open; /* changes under the endpoint's lock */
};

/* ---- arguments ---- */

typedef struct Outgoing {
  TVMFFIAny* any;
  TVMFFIAny* held;
  FcWireResult* slots;
  void* heap;
} Outgoing;

static int reserve(Outgoing* out, int32_t n) {
  size_t each = sizeof *out->any + sizeof *out->held + sizeof *out->slots;
  out->heap = malloc((size_t)(n ? n : 1) * each);
  if (!out->heap) {
    fc_error_no_memory();
    return -1;
  }
  out->slots = out->heap;
  out->any = (TVMFFIAny*)(out->slots + n);
  out->held = out->any + n;
  return 0;
}

static int queue_call(FcCallback* callback, const TVMFFIAny* args, int32_t n) {
  Outgoing out;
  int32_t done = 0;
  int rc = reserve(&out, n);
  if (rc != 0) return rc;
  for (; rc == 0 && done < n; ++done) {
    rc = fc_server_outgoing(callback->server, &args[done], &out.slots[done], &out.held[done]);
    out.any[done] = out.slots[done].values[0];
  }
  fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .handle = callback->handle, .num_args = n, .args = out.any};
  if (rc == 0) rc = fc_endpoint_queue(callback->ep, &call, NULL);
  while (done-- > 0) fc_any_clear(&out.held[done]);
  free(out.heap);
  return rc;
}

/* ---- the answer ---- */

static int take_result(FcServer* server, const fc_wire_packet* p, TVMFFIAny* result) {
  if (p->num_args < 2 || p->args[0].type_index != kTVMFFIInt) {
    return fc_endpoint_lose(server->ep, "ProtocolError", "%s answered a call of its function without a result",
                            server->ep->peer);
  }
  TVMFFIAny value = p->args[1], arg;
  int64_t type = p->args[0].v_int64;
  if (value.type_index == kTVMFFIOpaquePtr && type >= kTVMFFIStaticObjectBegin) { /* in the form of a server's result */
    value.type_index = type == kTVMFFIFunction || type == kTVMFFIModule ? (int32_t)type : FC_WIRE_OBJECT_REF;
  }
  if (fc_server_argument(server, "the client's function", 0, &value, &arg) != 0) return -1;
  if (!fc_any_is_object(&arg)) return fc_any_to_owned(&arg, result);
  *result = arg;
  return 0;
}

static int take_answer(FcServer* server, const fc_wire_packet* p, TVMFFIAny* result) {
  if (p->code == FC_WIRE_RETURN) return take_result(server, p, result);
  if (p->num_args != 1 || !fc_wire_is_text(p->args[0].type_index)) {
    return fc_endpoint_lose(server->ep, "ProtocolError", "%s sent a kException without a text", server->ep->peer);
  }
  char kind[FC_KIND_MAX];
  const char* message = fc_error_split_kind(((const TVMFFIByteArray*)p->args[0].v_ptr)->data, kind);
  fc_error_set(kind, message);
  return -1;
}

/* Waits until the client answers, and serves its requests until then. */
static int await_answer(FcServer* server, TVMFFIAny* result) {
  fc_wire_packet packet;
  while (!server->ended) {
    fc_wire_event event = fc_endpoint_next(server->ep, &packet);
    if (event == FC_WIRE_FAILED) return -1;
    if (event == FC_WIRE_MORE) break;
    if (event == FC_WIRE_PACKET && (packet.code == FC_WIRE_RETURN || packet.code == FC_WIRE_EXCEPTION)) {
      return take_answer(server, &packet, result);
    }
    if (fc_server_event(server, event, &packet) != 0) return -1;
  }
  return fc_endpoint_lose(server->ep, "ConnectionLostError", "the client left while its function was called");
}

/* The arguments of the open call point into the reader's buffers, so the answer is read into other buffers. */
static int ask(FcCallback* callback, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  fc_wire_reader* reader = &callback->ep->reader;
  fc_wire_reader outer = *reader;
  if (queue_call(callback, args, n) != 0) return -1;
  reader->body = NULL;
  reader->arena = NULL;
  reader->body_capacity = reader->arena_capacity = 0;
  int rc = await_answer(callback->server, result);
  free(reader->body);
  free(reader->arena);
  reader->body = outer.body;
  reader->arena = outer.arena;
  reader->body_capacity = outer.body_capacity;
  reader->arena_capacity = outer.arena_capacity;
  return rc;
}

FC_COLD static int is_over(void) {
  fc_error_set("InvalidHandleError",
               "a function of the client can be called only while the call that it was passed to is open");
  return -1;
}

static int call_client(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcCallback* callback = self;
  if (!__atomic_load_n(&callback->open, __ATOMIC_ACQUIRE)) return is_over();
  if (fc_endpoint_enter(callback->ep) != 0) return -1;
  int rc = callback->open ? ask(callback, args, n, result) : is_over();
  callback->ep->deadline = 0; /* the deadline was for the answer; requests have none */
  fc_endpoint_leave(callback->ep);
  return rc;
}

/* ---- life ---- */

static void delete_callback(void* self) {
  FcCallback* callback = self;
  fc_endpoint_decref(callback->ep);
  free(callback);
}

static FcCallback* make(FcServer* server, uint64_t handle) {
  FcCallback* callback = malloc(sizeof *callback);
  if (!callback) {
    fc_error_no_memory();
    return NULL;
  }
  fc_endpoint_incref(server->ep);
  *callback = (FcCallback){.ep = server->ep, .server = server, .handle = handle, .open = true};
  TVMFFIObjectHandle function;
  if (fc_function_new(callback, call_client, delete_callback, &function) != 0) {
    delete_callback(callback);
    return NULL;
  }
  callback->function = function;
  return callback;
}

TVMFFIObject* fc_callback_to_client(FcServer* server, uint64_t handle) {
  if (!server->waits) {
    fc_error_set("NotImplementedError", "this server cannot call functions of the client, since it never waits");
    return NULL;
  }
  FcCallback* callback = server->callbacks;
  while (callback && callback->handle != handle) callback = callback->next;
  if (!callback) {
    callback = make(server, handle);
    if (!callback) return NULL;
    callback->next = server->callbacks;
    server->callbacks = callback;
  }
  fc_incref(callback->function);
  return callback->function;
}

int fc_callbacks_end(FcServer* server, FcCallback* until) {
  int rc = 0;
  while (server->callbacks != until) {
    FcCallback* callback = server->callbacks;
    TVMFFIAny handle = {.type_index = kTVMFFIOpaquePtr, .v_uint64 = callback->handle};
    fc_wire_packet notice = {.code = FC_WIRE_FREE_HANDLE, .num_args = 1, .args = &handle};
    if (!fc_endpoint_is_lost(server->ep)) rc |= fc_endpoint_queue(server->ep, &notice, NULL);
    server->callbacks = callback->next;
    __atomic_store_n(&callback->open, false, __ATOMIC_RELEASE);
    fc_decref(callback->function);
  }
  return rc;
}
