/* Rewrites the handles in forwarded packets: the client's become those of the next server, and the reverse. */
#include "session/relay/relay.h"

/* ---- to the next server ---- */

static int map(FcRelay* relay, uint64_t* handle, uint32_t kinds) {
  const FcEntry* entry = fc_handles_get(&relay->handles, *handle, kinds);
  if (!entry) return -1;
  *handle = entry->far;
  return 0;
}

/* Null pointers, and numbers that the client chose, mean the same on every hop. */
static int map_pointer(FcRelay* relay, TVMFFIAny* value, uint32_t kinds) {
  if (value->type_index != kTVMFFIOpaquePtr) return 0; /* the next server reports the error */
  if (value->v_uint64 == 0 || value->v_uint64 & (FC_PROMISE_BIT | FC_CLIENT_BIT)) return 0;
  return map(relay, &value->v_uint64, kinds);
}

static int tensor_to_far(FcRelay* relay, fc_wire_tensor* tensor) { return map(relay, &tensor->data, FC_KIND_DATA); }

int fc_relay_to_far(FcRelay* relay, TVMFFIAny* value) {
  switch (value->type_index) {
    case kTVMFFIOpaquePtr: return map_pointer(relay, value, FC_KIND_POINTER | FC_KIND_STREAM);
    case kTVMFFIDLTensorPtr: return tensor_to_far(relay, value->v_ptr);
    case kTVMFFIModule: return map(relay, &value->v_uint64, FC_KIND_MODULE);
    case FC_WIRE_OBJECT_REF: return map(relay, &value->v_uint64, FC_KIND_OBJECT);
    case kTVMFFIFunction: return value->v_uint64 & FC_CLIENT_BIT ? 0 : map(relay, &value->v_uint64, FC_KIND_FUNCTION);
    default: return 0;
  }
}

/* Checks the scope of the called function, and of the function that farcall.rpc.keep calls. */
static int check_callee(FcRelay* relay, uint64_t handle, const TVMFFIAny* args, int32_t n) {
  if (handle & FC_PROMISE_BIT) return fc_server_require(relay->server, FC_SCOPE_CALL, "a call");
  const FcEntry* entry = fc_handles_get(&relay->handles, handle, FC_KIND_FUNCTION);
  if (!entry) return -1;
  if (entry->other & FC_RELAY_DEADLINE) return 0;
  if (!(entry->other & FC_RELAY_KEEPS)) return fc_server_require(relay->server, (uint32_t)entry->other, "the function");
  bool kept = n >= 2 && (args[1].type_index == kTVMFFIFunction || args[1].type_index == kTVMFFIOpaquePtr);
  return kept ? check_callee(relay, args[1].v_uint64, NULL, 0) : 0;
}

static bool is_kept(const FcRelay* relay, uint64_t handle) {
  const FcEntry* entry = fc_handles_find(&relay->handles, handle, FC_KIND_FUNCTION);
  return entry && entry->other & FC_RELAY_KEEPS;
}

/* Names the called function, and a function that it returns: the same names as on the last server. */
static void name_call(const FcRelay* relay, const fc_wire_packet* p, FcPending* entry) {
  static const char of_module[] = "tvm.rpc.server.ModuleGetFunction"; /* (module, name) */
  int32_t skip = is_kept(relay, p->handle) && p->num_args >= 2 ? 2 : 0;
  entry->name = fc_relay_name_of(relay, skip ? p->args[1].v_uint64 : p->handle);
  if (!entry->name || strcmp(entry->name->text, of_module) != 0 || p->num_args < skip + 2) return;
  const TVMFFIAny* called = &p->args[skip + 1];
  if (!fc_wire_is_text(called->type_index)) return;
  entry->gives = fc_name_new("", ((const TVMFFIByteArray*)called->v_ptr)->data);
}

/* A call of farcall.rpc.deadline also sets the limits of each relay. */
static int hear_deadline(FcRelay* relay, const fc_wire_packet* p, FcPending* entry) {
  const FcEntry* function = fc_handles_find(&relay->handles, p->handle, FC_KIND_FUNCTION);
  if (FC_LIKELY(!function || function->other != FC_RELAY_DEADLINE) || !relay->server->watchdog) return 0;
  entry->tells = true;
  return fc_deadline_tell(relay->server, p, &relay->deadline);
}

static int call_to_far(FcRelay* relay, fc_wire_packet* p, FcPending* pending) {
  TVMFFIAny* args = (TVMFFIAny*)p->args;
  if (check_callee(relay, p->handle, args, p->num_args) != 0 || hear_deadline(relay, p, pending) != 0) return -1;
  name_call(relay, p, pending);
  if (!(p->handle & FC_PROMISE_BIT) && map(relay, &p->handle, FC_KIND_FUNCTION) != 0) return -1;
  for (int32_t i = 0; i < p->num_args; ++i) {
    if (fc_relay_to_far(relay, &args[i]) != 0) return -1;
  }
  return 0;
}

/* The client releases a handle: removes it from the table. */
static int release(FcRelay* relay, TVMFFIAny* value, uint32_t kinds) {
  FcEntry entry, data;
  if (value->type_index != kTVMFFIOpaquePtr || value->v_uint64 == 0 || value->v_uint64 & FC_PROMISE_BIT) return 0;
  if (!fc_handles_remove(&relay->handles, value->v_uint64, kinds, &entry)) return -1;
  fc_relay_set_name(relay, value->v_uint64, NULL);
  if (entry.kind == FC_KIND_TENSOR) fc_handles_remove(&relay->handles, entry.other, FC_KIND_RETURNED, &data);
  value->v_uint64 = entry.far;
  return 0;
}

static int copy_to_far(FcRelay* relay, fc_wire_packet* p) {
  if (fc_server_require(relay->server, FC_SCOPE_COPY, "a copy") != 0) return -1;
  return tensor_to_far(relay, &p->tensor);
}

static int among_to_far(FcRelay* relay, fc_wire_packet* p) {
  TVMFFIAny* args = (TVMFFIAny*)p->args;
  if (fc_server_require(relay->server, FC_SCOPE_COPY, "a copy") != 0) return -1;
  for (int32_t i = 0; i < p->num_args; ++i) {
    if (fc_relay_to_far(relay, &args[i]) != 0) return -1;
  }
  return 0;
}

/* The functions of the next server's dispatcher that concern the relay; 0 for others. */
static uint32_t own_function(const TVMFFIByteArray* name) {
  if (fc_is_named(*name, FC_KEEP_NAME)) return FC_RELAY_KEEPS;
  return fc_is_named(*name, FC_DEADLINE_NAME) ? FC_RELAY_DEADLINE : 0;
}

static int lookup_to_far(FcRelay* relay, const fc_wire_packet* p, FcPending* entry) {
  FcServer* server = relay->server;
  if (p->num_args != 1 || !fc_wire_is_text(p->args[0].type_index)) return 0;
  const TVMFFIByteArray* name = p->args[0].v_ptr;
  entry->scope = own_function(name);
  if (entry->scope != 0) return 0;
  if (memchr(name->data, 0, name->size)) { /* a server in C would see a shorter name, with another scope */
    fc_error_set("ValueError", "the name of a function must not contain a NUL byte");
    return -1;
  }
  entry->gives = fc_name_new("", name->data);
  entry->scope = fc_scope_of(*name);
  return fc_server_require(server, entry->scope, name->data);
}

int fc_relay_request(FcRelay* relay, fc_wire_packet* p, FcPending* entry) {
  TVMFFIAny* args = (TVMFFIAny*)p->args;
  *entry = (FcPending){.code = p->code, .nbytes = p->nbytes};
  switch (p->code) {
    case FC_WIRE_CALL_FUNC: return call_to_far(relay, p, entry);
    case FC_WIRE_GET_GLOBAL_FUNC: return lookup_to_far(relay, p, entry);
    case FC_WIRE_FREE_HANDLE: return p->num_args == 1 ? release(relay, args, FC_KIND_OWNED) : 0;
    case FC_WIRE_DEV_FREE_DATA: return p->num_args == 2 ? release(relay, args + 1, FC_KIND_ALLOCATED) : 0;
    case FC_WIRE_COPY_FROM_REMOTE:
    case FC_WIRE_COPY_TO_REMOTE: return copy_to_far(relay, p);
    case FC_WIRE_COPY_AMONG_REMOTE: return among_to_far(relay, p);
    case FC_WIRE_DEV_ALLOC_DATA:
    case FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE: return fc_server_require(relay->server, FC_SCOPE_COPY, "an allocation");
    case FC_WIRE_DEV_FREE_STREAM: return p->num_args == 2 ? release(relay, args + 1, FC_KIND_STREAM) : 0;
    case FC_WIRE_DEV_STREAM_SYNC:
    case FC_WIRE_DEV_SET_STREAM: return p->num_args == 2 ? map_pointer(relay, args + 1, FC_KIND_STREAM) : 0;
    default: return 0;
  }
}

/* ---- to the client ---- */

static int give(FcRelay* relay, uint64_t* handle, uint32_t kind, uint64_t other) {
  uint64_t near = fc_handles_add(&relay->handles, (FcEntry){.far = *handle, .other = other, .kind = kind});
  if (near == 0) return -1;
  *handle = near;
  return 0;
}

/* A handle that the client may have already. */
static int give_known(FcRelay* relay, uint64_t* handle, uint32_t kinds, uint32_t kind) {
  for (uint32_t i = 0; i < relay->handles.size; ++i) {
    const FcEntry* entry = &relay->handles.entries[i];
    if (!(entry->kind & kinds) || entry->far != *handle) continue;
    *handle = (uint64_t)entry->generation << 32 | i;
    return 0;
  }
  return give(relay, handle, kind, 0);
}

static int pointer_reply(FcRelay* relay, fc_wire_packet* p, uint32_t kind) {
  TVMFFIAny* value = (TVMFFIAny*)p->args;
  bool null = p->num_args != 1 || value->type_index != kTVMFFIOpaquePtr || value->v_uint64 == 0;
  if (null) return 0;
  if (kind == FC_KIND_STREAM) return give_known(relay, &value->v_uint64, FC_KIND_STREAM, FC_KIND_STREAM);
  return give(relay, &value->v_uint64, kind, 0);
}

static int tensor_reply(FcRelay* relay, fc_wire_packet* p) {
  TVMFFIAny* args = (TVMFFIAny*)p->args;
  fc_wire_tensor* tensor = args[1].v_ptr;
  /* A tensor without an owner is an argument that TVM returned. */
  if (p->num_args != 3) return give_known(relay, &tensor->data, FC_KIND_DATA, FC_KIND_RETURNED);
  if (give(relay, &tensor->data, FC_KIND_RETURNED, 0) != 0) return -1;
  return give(relay, &args[2].v_uint64, FC_KIND_TENSOR, tensor->data);
}

static uint32_t kind_of(int64_t type_index) {
  if (type_index == kTVMFFIFunction) return FC_KIND_FUNCTION;
  if (type_index == kTVMFFIModule) return FC_KIND_MODULE;
  return type_index >= kTVMFFIStaticObjectBegin ? FC_KIND_OBJECT : FC_KIND_POINTER;
}

/* Gives the client a handle for a function that was returned by a call, or looked up. */
static int give_function(FcRelay* relay, uint64_t* handle, const FcPending* entry, uint64_t scope) {
  if (give(relay, handle, FC_KIND_FUNCTION, scope) != 0) return -1;
  FcName* made =
      entry->gives || !entry->name ? fc_name_share(entry->gives) : fc_name_new("result of ", entry->name->text);
  fc_relay_set_name(relay, *handle, made);
  fc_name_drop(made);
  return 0;
}

static int lookup_reply(FcRelay* relay, fc_wire_packet* p, const FcPending* entry) {
  TVMFFIAny* value = (TVMFFIAny*)p->args;
  bool pointer = p->num_args == 1 && value->type_index == kTVMFFIOpaquePtr && value->v_uint64 != 0;
  return pointer ? give_function(relay, &value->v_uint64, entry, entry->scope) : 0;
}

static int call_reply(FcRelay* relay, fc_wire_packet* p, const FcPending* entry) {
  TVMFFIAny* args = (TVMFFIAny*)p->args;
  if (p->num_args < 2 || args[0].type_index != kTVMFFIInt) return 0; /* the client reports the error */
  if (args[1].type_index == kTVMFFIDLTensorPtr) return tensor_reply(relay, p);
  if (args[1].type_index != kTVMFFIOpaquePtr || args[1].v_uint64 == 0) return 0;
  uint32_t kind = kind_of(args[0].v_int64);
  if (kind == FC_KIND_FUNCTION) return give_function(relay, &args[1].v_uint64, entry, FC_SCOPE_CALL);
  return give(relay, &args[1].v_uint64, kind, 0);
}

int fc_relay_reply(FcRelay* relay, fc_wire_packet* p, const FcPending* entry) {
  switch (entry->code) {
    case FC_WIRE_CALL_FUNC: return call_reply(relay, p, entry);
    case FC_WIRE_GET_GLOBAL_FUNC: return lookup_reply(relay, p, entry);
    case FC_WIRE_DEV_ALLOC_DATA:
    case FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE: return pointer_reply(relay, p, FC_KIND_ALLOCATED);
    case FC_WIRE_DEV_CREATE_STREAM:
    case FC_WIRE_DEV_GET_CURRENT_STREAM: return pointer_reply(relay, p, FC_KIND_STREAM);
    default: return 0;
  }
}

int fc_relay_callback(FcRelay* relay, fc_wire_packet* p) {
  for (int32_t i = 0; i < p->num_args; ++i) {
    TVMFFIAny* value = (TVMFFIAny*)&p->args[i];
    int rc = 0;
    switch (value->type_index) {
      case kTVMFFIDLTensorPtr: rc = give(relay, &((fc_wire_tensor*)value->v_ptr)->data, FC_KIND_ALLOCATED, 0); break;
      case kTVMFFIFunction: rc = give(relay, &value->v_uint64, FC_KIND_FUNCTION, FC_SCOPE_CALL); break;
      case kTVMFFIModule: rc = give(relay, &value->v_uint64, FC_KIND_MODULE, 0); break;
      case FC_WIRE_OBJECT_REF: rc = give(relay, &value->v_uint64, FC_KIND_OBJECT, 0); break;
      default: break;
    }
    if (rc != 0) return rc;
  }
  return 0;
}
