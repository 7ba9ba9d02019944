/* Functions of this process, which the server calls while it runs one of the client's calls. */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"

/* ---- the table: slots and generations, as in session/server/handles.c ---- */

typedef struct FcLent {
  TVMFFIObject* function; /* owned; NULL: a free slot */
  uint32_t generation;    /* 30 bits */
  uint32_t next_free;     /* 1 + index of the next free slot; 0: none */
} FcLent;

enum { EXPORTS_MAX = 65536, GENERATION_MASK = 0x3FFFFFFF };

static int grow(FcClient* client) {
  uint32_t size = client->exports_size ? 2 * client->exports_size : 8;
  FcLent* grown = size <= EXPORTS_MAX ? realloc(client->exports, size * sizeof *grown) : NULL;
  if (!grown) {
    fc_error_format("MemoryError", "the server holds %u functions of this process, which is the limit",
                    client->exports_live);
    return -1;
  }
  client->exports = grown;
  for (uint32_t i = client->exports_size; i < size; ++i) {
    grown[i] = (FcLent){NULL, 1, client->exports_free};
    client->exports_free = i + 1;
  }
  client->exports_size = size;
  return 0;
}

uint64_t fc_remote_export(FcEndpoint* ep, TVMFFIObject* function) {
  FcClient* client = ep->client;
  if (!client->exports_free && grow(client) < 0) return 0;
  uint32_t slot = client->exports_free - 1;
  FcLent* entry = &client->exports[slot];
  client->exports_free = entry->next_free;
  ++client->exports_live;
  fc_incref(function);
  entry->function = function;
  return FC_CLIENT_BIT | (uint64_t)entry->generation << 32 | slot;
}

static FcLent* find(FcClient* client, uint64_t handle) {
  uint32_t slot = (uint32_t)handle;
  FcLent* entry = slot < client->exports_size ? &client->exports[slot] : NULL;
  bool valid = entry && entry->function && (FC_CLIENT_BIT | (uint64_t)entry->generation << 32 | slot) == handle;
  return valid ? entry : NULL;
}

void fc_remote_unexport(FcEndpoint* ep, uint64_t handle) {
  FcClient* client = ep->client;
  FcLent* entry = find(client, handle);
  if (!entry) return;
  TVMFFIObject* function = entry->function;
  entry->function = NULL;
  entry->generation = entry->generation % GENERATION_MASK + 1;
  entry->next_free = client->exports_free;
  client->exports_free = (uint32_t)handle + 1;
  --client->exports_live;
  fc_decref(function);
}

bool fc_remote_may_be_called(const FcEndpoint* ep) {
  return ep->client->exports_live != 0 || ep->client->queue.owed != 0;
}

void fc_exports_delete(FcClient* client) {
  for (uint32_t i = 0; i < client->exports_size; ++i) {
    if (client->exports[i].function) fc_decref(client->exports[i].function);
  }
  free(client->exports);
}

/* ---- arguments of a call by the server: copied, since the reader reuses its memory ---- */

static int take_function(FcEndpoint* ep, uint64_t handle, TVMFFIAny* out) {
  FcLent* entry = handle & FC_CLIENT_BIT ? find(ep->client, handle) : NULL;
  if (handle & FC_CLIENT_BIT && !entry) {
    fc_error_format("InvalidHandleError", "%#llx is not a function of this client", (unsigned long long)handle);
    return -1;
  }
  TVMFFIObject* function = entry ? entry->function : fc_remote_function(ep, handle, "an argument of a callback");
  if (!function) return -1;
  if (entry) fc_incref(function);
  *out = fc_any_object(function);
  return 0;
}

static int take_remote(TVMFFIObject* object, TVMFFIAny* out) {
  if (!object) return -1;
  *out = fc_any_object(object);
  return 0;
}

static int take_arg(FcEndpoint* ep, const TVMFFIAny* wire, TVMFFIAny* out) {
  FcTensorObj* tensor;
  if (fc_wire_is_text(wire->type_index) || fc_wire_is_bytes(wire->type_index)) {
    return fc_remote_string("a call of the server", wire, out);
  }
  switch (wire->type_index) {
    case kTVMFFIDLTensorPtr: /* this client frees it, as all arguments of a callback (docs/spec/wire.md) */
      tensor = fc_remote_tensor(ep, wire->v_ptr, 0, true);
      return take_remote(tensor ? &tensor->header : NULL, out);
    case kTVMFFIFunction: return take_function(ep, wire->v_uint64, out);
    case kTVMFFIModule:
    case FC_WIRE_OBJECT_REF:
      return take_remote(
          fc_remote_object(ep, wire->v_uint64, wire->type_index == kTVMFFIModule ? kTVMFFIModule : kTVMFFIObject), out);
    default:
      *out = *wire;
      if (wire->type_index == kTVMFFIDevice) out->v_device = fc_remote_masked(ep, wire->v_device);
      return 0;
  }
}

/* ---- results ---- */

/* Converts an argument's wire value to the form of a result: its type first, objects as pointers. */
static void to_result(const TVMFFIAny* wire, TVMFFIAny out[3], int32_t* n) {
  static const TVMFFIAny no_owner = {.type_index = kTVMFFIOpaquePtr, .v_uint64 = 0};
  out[0] = fc_any_int(wire->type_index);
  out[1] = *wire;
  *n = 2;
  switch (wire->type_index) {
    case kTVMFFIRawStr: out[0].v_int64 = kTVMFFIStr; break;
    case kTVMFFISmallBytes:
    case kTVMFFIBytes: out[1].type_index = kTVMFFIByteArrayPtr; break;
    case kTVMFFIDLTensorPtr:
      out[0].v_int64 = kTVMFFITensor;
      out[2] = no_owner;
      *n = 3;
      break;
    case FC_WIRE_OBJECT_REF:
      out[0].v_int64 = kTVMFFIObject;
      out[1].type_index = kTVMFFIOpaquePtr;
      break;
    case kTVMFFIFunction:
    case kTVMFFIModule: out[1].type_index = kTVMFFIOpaquePtr; break;
    default: break;
  }
}

/* Sends an answer. FC_INTERRUPTED, with the error, when its rest is sent later, ahead of the next request. */
static int send_packet(FcEndpoint* ep, const fc_wire_packet* packet) {
  size_t used = 0;
  if (fc_endpoint_encode(ep, packet, &used) < 0) return -1;
  if (fc_endpoint_flush(ep, used, NULL, 0) >= 0) return 0;
  return ep->late ? FC_INTERRUPTED : -1;
}

/* Copies a tensor of this process to the server first, by requests that nest in the call. */
static int send_result(FcEndpoint* ep, const char* name, const TVMFFIAny* value) {
  FcRemoteArgs wire;
  TVMFFIAny values[3];
  fc_wire_packet packet = {.code = FC_WIRE_RETURN, .args = values};
  int rc = fc_remote_args_begin(&wire, ep, name, value, 1);
  if (rc == 0) {
    to_result(&wire.any[0], values, &packet.num_args);
    rc = send_packet(ep, &packet);
  }
  fc_remote_args_end(&wire, ep, rc != -1);
  return rc;
}

/* Sends "Kind: message", the form in which a server sends exceptions. */
static int send_error(FcEndpoint* ep) {
  TVMFFIObject* error = fc_error_take();
  const TVMFFIErrorCell* cell = error ? TVMFFIErrorGetCellPtr(error) : NULL;
  char inline_text[1024], *text = inline_text;
  size_t need = cell ? cell->kind.size + cell->message.size + 3 : 0;
  if (need > sizeof inline_text) text = malloc(need);
  TVMFFIByteArray string = {"RuntimeError: a callback failed", 31};
  if (cell && text) {
    int size = snprintf(text, need, "%.*s: %.*s", (int)cell->kind.size, cell->kind.data, (int)cell->message.size,
                        cell->message.data);
    string = (TVMFFIByteArray){text, (size_t)size};
  }
  TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &string};
  fc_wire_packet packet = {.code = FC_WIRE_EXCEPTION, .num_args = 1, .args = &arg};
  int rc = send_packet(ep, &packet);
  if (text != inline_text) free(text);
  if (error) fc_decref(error);
  if (rc == -1 && !fc_endpoint_is_lost(ep)) {
    fc_endpoint_lose(ep, "ConnectionLostError", "no memory for an answer to %s", ep->peer);
  }
  return rc;
}

/* ---- serving ---- */

/* The callback failed. An interruption may have left replies on the line: its error then ends the open call, too, and
 * the server gets its answer behind those replies. */
static int answer_failure(FcEndpoint* ep) {
  if (!ep->client->queue.first && ep->client->queue.used == 0) return send_error(ep);
  if (fc_call_owe(ep) == 0) return FC_INTERRUPTED;
  return fc_endpoint_lose(ep, "ConnectionLostError", "no memory for an answer to %s", ep->peer);
}

static int call_export(FcEndpoint* ep, TVMFFIObject* function, TVMFFIAny* args, int32_t n) {
  TVMFFIAny result = fc_any_none();
  int rc = TVMFFIFunctionGetCellPtr(function)->safe_call(function, args, n, &result) == 0 ? 0 : -1;
  if (rc == 0 && fc_call_drain(ep) < 0) rc = -1; /* the callback may have caught an interruption */
  if (rc == 0) rc = send_result(ep, "the result of a callback", &result);
  fc_any_clear(&result);
  return rc != -1 || fc_endpoint_is_lost(ep) ? rc : answer_failure(ep);
}

int fc_remote_decline(FcEndpoint* ep) {
  fc_error_set("InterruptedError",
               "the client was interrupted, and no longer waits for the call that has this function");
  return send_error(ep);
}

static int serve_call(FcEndpoint* ep, const fc_wire_packet* packet, bool declines) {
  FcLent* entry = find(ep->client, packet->handle);
  int32_t n = packet->num_args, done = 0;
  TVMFFIAny* args = malloc(((size_t)n + 1) * sizeof *args);
  int rc = args ? 0 : -1;
  if (!args) fc_error_no_memory();
  if (!entry) {
    fc_error_format("InvalidHandleError", "%#llx is not a function of this client", (unsigned long long)packet->handle);
    rc = -1;
  }
  for (; rc == 0 && done < n; ++done) {
    args[done] = fc_any_none();
    rc = take_arg(ep, &packet->args[done], &args[done]);
  }
  if (rc != 0) {
    rc = send_error(ep);
  } else if (declines) {
    rc = fc_remote_decline(ep);
  } else {
    TVMFFIObject* function = entry->function; /* during the call the table may move, and the function may leave it */
    fc_incref(function);
    rc = call_export(ep, function, args, n);
    fc_decref(function);
  }
  while (done > 0) fc_any_clear(&args[--done]);
  free(args);
  return rc;
}

static int not_asked(FcEndpoint* ep, const fc_wire_packet* packet) {
  return fc_endpoint_lose(ep, "ProtocolError", "%s sent a %s, which only a client sends", ep->peer,
                          fc_wire_code_name(packet->code));
}

int fc_remote_serve(FcEndpoint* ep, const fc_wire_packet* packet, bool declines) {
  /* An answer would come between the unsent bytes; the server has no function to call while there are any. */
  bool busy = ep->sending || ep->client->queue.used != 0;
  if (busy || !(ep->client->features & FC_PEER_CALLBACKS)) return not_asked(ep, packet);
  if (packet->code == FC_WIRE_FREE_HANDLE) {
    if (packet->num_args != 1 || packet->args[0].type_index != kTVMFFIOpaquePtr) return not_asked(ep, packet);
    fc_remote_unexport(ep, packet->args[0].v_uint64);
    return 0;
  }
  /* Saved, since nested requests start their own. */
  int64_t deadline = ep->deadline, due = ep->due, allowed = ep->allowed_ns;
  int rc = serve_call(ep, packet, declines);
  ep->deadline = deadline;
  ep->due = due;
  ep->allowed_ns = allowed;
  if (rc == FC_INTERRUPTED) ep->late = ep->interrupted = true;
  return rc < 0 ? -1 : 0;
}
