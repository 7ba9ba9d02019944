/*
 * A trace has one track per hop, so a relay also records what it forwards. NAME@URL names the function NAME of the
 * relay whose next server is at URL. Every other name is looked up on the next server, as TVM does.
 */
#include "session/relay/relay.h"

static const char* const own_names[] = {"farcall.rpc.clock", "farcall.rpc.trace_begin", "farcall.rpc.trace_take"};

/* The name before "@URL"; empty when it is not meant for this relay. */
static TVMFFIByteArray own_name(const FcRelay* relay, const TVMFFIByteArray* name) {
  size_t peer = strlen(relay->far->peer), size = name->size > peer ? name->size - peer - 1 : 0;
  bool ours = size != 0 && name->data[size] == '@' && memcmp(name->data + size + 1, relay->far->peer, peer) == 0;
  for (size_t i = 0; ours && i < sizeof own_names / sizeof *own_names; ++i) {
    if (strlen(own_names[i]) == size && memcmp(own_names[i], name->data, size) == 0)
      return (TVMFFIByteArray){name->data, size};
  }
  return (TVMFFIByteArray){NULL, 0};
}

static int find(FcRelay* relay, TVMFFIByteArray name, TVMFFIAny* out) {
  FcExport* function = NULL;
  if (relay->server->policy->find(relay->server->context, name, &function) != 0) return -1;
  uint64_t handle = 0;
  if (function) handle = fc_handles_add(&relay->handles, (FcEntry){.function = function, .kind = FC_KIND_HERE});
  if (function && handle == 0) fc_export_decref(function);
  *out = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_uint64 = handle};
  return function && handle == 0 ? -1 : 1;
}

static int lookup(FcRelay* relay, const fc_wire_packet* p, TVMFFIAny* out) {
  if (p->num_args != 1 || !fc_wire_is_text(p->args[0].type_index)) return 0;
  TVMFFIByteArray name = own_name(relay, p->args[0].v_ptr);
  if (name.size == 0) return 0;
  fc_mutex_lock(&relay->lock);
  int rc = find(relay, name, out);
  fc_mutex_unlock(&relay->lock);
  return rc;
}

/* The relay's own function that a handle names, or NULL; only this thread adds and frees these. */
static FcExport* own_function(FcRelay* relay, uint64_t handle) {
  fc_mutex_lock(&relay->lock);
  const FcEntry* entry = fc_handles_find(&relay->handles, handle, FC_KIND_HERE);
  FcExport* function = entry ? entry->function : NULL;
  fc_mutex_unlock(&relay->lock);
  return function;
}

/* Waits until all earlier requests are answered and traced: the client may be quicker than the thread of replies. */
static void await_answers(FcRelay* relay) {
  if (fc_endpoint_flush_queue(relay->far) != 0) { /* lost: the other thread answers the requests */
    TVMFFIObject* error = fc_error_take();
    if (error) fc_decref(error);
  }
  fc_mutex_lock(&relay->lock);
  while (relay->count != 0 && !relay->done) fc_condition_wait(&relay->moved, &relay->lock);
  fc_mutex_unlock(&relay->lock);
}

static int call(FcRelay* relay, const fc_wire_packet* p, TVMFFIAny* out) {
  FcExport* function = own_function(relay, p->handle);
  if (!function) return 0;
  await_answers(relay);
  if (p->num_args != 0) {
    fc_error_format("TypeError", "`%s` takes no arguments", function->name);
    return -1;
  }
  return fc_export_call(relay->server, function, NULL, 0, out) == 0 ? 1 : -1;
}

static int release(FcRelay* relay, const fc_wire_packet* p) {
  bool pointer = p->num_args == 1 && p->args[0].type_index == kTVMFFIOpaquePtr;
  FcExport* function = pointer ? own_function(relay, p->args[0].v_uint64) : NULL;
  if (!function) return 0;
  FcEntry entry;
  fc_mutex_lock(&relay->lock);
  fc_handles_remove(&relay->handles, p->args[0].v_uint64, FC_KIND_HERE, &entry);
  fc_mutex_unlock(&relay->lock);
  fc_export_decref(function);
  return 1;
}

int fc_relay_here(FcRelay* relay, const fc_wire_packet* p, TVMFFIAny* out) {
  *out = fc_any_none();
  switch (p->code) {
    case FC_WIRE_GET_GLOBAL_FUNC: return lookup(relay, p, out);
    case FC_WIRE_CALL_FUNC: return call(relay, p, out);
    case FC_WIRE_FREE_HANDLE: return release(relay, p);
    default: return 0;
  }
}
