/* Arguments of a remote call as wire values. */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"

enum { NESTED_MAX = 32 };

typedef struct Place { /* the position of an argument, or of an item in one, for messages */
  FcRemoteArgs* wire;
  FcEndpoint* ep;
  const char* name;
  int32_t i;
  bool pairs;                /* the items are alternating keys and values */
  int32_t depth;
  const struct Place* outer; /* the list that contains this item; NULL: this is an argument */
} Place;

/* Writes the position, such as "2[0][key 1]". Returns its size. */
FC_COLD static int print_place(const Place* at, char* out, int room) {
  if (!at->outer) return snprintf(out, (size_t)room, "%d", (int)at->i + 1);
  int used = print_place(at->outer, out, room);
  if (used >= room) return used;
  if (!at->pairs) return used + snprintf(out + used, (size_t)(room - used), "[%d]", (int)at->i);
  const char* what = at->i % 2 ? "value" : "key";
  return used + snprintf(out + used, (size_t)(room - used), "[%s %d]", what, (int)at->i / 2);
}

FC_COLD static int refuse(const Place* at, const char* kind, const char* why) {
  char place[80];
  print_place(at, place, sizeof place);
  fc_error_format(kind, "argument %s of remote `%s`: %s", place, at->name, why);
  return -1;
}

static int set_text(const Place* at, FcWireSlot* slot, TVMFFIAny* out) {
  if (memchr(slot->string.data, 0, slot->string.size)) {
    return refuse(at, "ValueError", "text with a NUL byte cannot travel (the protocol's text ends there); pass bytes");
  }
  out->type_index = kTVMFFIRawStr;
  out->v_ptr = &slot->string;
  return 0;
}

/* A local tensor is copied to the remote CPU for the call. */
static int copy_there(const Place* at, const DLTensor* dl, FcWireSlot* slot) {
  if (dl->device.device_type != kDLCPU) {
    return refuse(at, "ValueError", "only CPU tensors are copied to a session automatically; move it to the CPU first");
  }
  slot->tensor.byte_offset = 0;
  if (fc_remote_alloc(at->ep, &slot->tensor, &slot->tensor.data) < 0) return -1;
  FcTensorObj* there = fc_remote_tensor(at->ep, &slot->tensor, 0, true);
  if (!there) return -1;
  slot->lent = &there->header;
  slot->copied = true;
  return fc_remote_write(at->ep, &slot->tensor, dl);
}

static int set_tensor(const Place* at, const TVMFFIAny* arg, const DLTensor* dl, FcWireSlot* slot, TVMFFIAny* out) {
  out->type_index = kTVMFFIDLTensorPtr;
  out->v_ptr = &slot->tensor;
  fc_remote_to_wire(dl, &slot->tensor);
  if (at->outer && !(at->ep->client->features & FC_PEER_FARCALL)) {
    return refuse(at, "TypeError", "a TVM server cannot keep a tensor in a list; pass it as a separate argument");
  }
  if (dl->ndim > FC_WIRE_MAX_NDIM) return refuse(at, "ValueError", "a tensor of more than 32 dims cannot travel");
  if (!fc_device_is_remote(dl->device)) return copy_there(at, dl, slot);
  slot->lent = arg->type_index == kTVMFFITensor ? arg->v_obj : NULL;
  if ((int)dl->device.device_type / FC_REMOTE_STEP - 1 != at->ep->client->slot) {
    return refuse(at, "ValueError", "the tensor lives on another session; copy it with session.tensor(x.numpy())");
  }
  if (fc_is_contiguous(dl)) return 0;
  return refuse(at, "ValueError",
                "a remote tensor must be contiguous to travel; copy it there: session.tensor(view.numpy())");
}

/* A function of this process, which the server may call while the call is open. */
static int set_local_function(const Place* at, TVMFFIObject* function, FcWireSlot* slot, TVMFFIAny* out) {
  if (!(at->ep->client->features & FC_PEER_CALLBACKS)) {
    return refuse(at, "TypeError",
                  "the server cannot call functions of this process (a TVM server, or one that does not allow it); "
                  "pass a function of the same session, which session.get_function gives");
  }
  if (at->outer) {
    return refuse(at, "TypeError",
                  "a list cannot contain a function of this process, which the server may call only during the call; "
                  "pass it as a separate argument");
  }
  out->v_uint64 = slot->callback = fc_remote_export(at->ep, function);
  return slot->callback ? 0 : -1;
}

static int set_function(const Place* at, TVMFFIObject* object, FcWireSlot* slot, TVMFFIAny* out) {
  FcRemoteFunction* function = fc_remote_function_of(object);
  if (!function || function->owned.ep != at->ep) return set_local_function(at, object, slot, out);
  out->v_uint64 = function->owned.handle;
  return 0;
}

static int set_object(const Place* at, const FcRemoteObj* object, TVMFFIAny* out) {
  if (object->owned.ep != at->ep) return refuse(at, "ValueError", "the object lives on another session");
  out->type_index = object->kind == kTVMFFIModule ? kTVMFFIModule : FC_WIRE_OBJECT_REF;
  out->v_uint64 = object->owned.handle;
  return 0;
}

static int set_arg(const Place* at, const TVMFFIAny* arg, FcWireSlot* slot, TVMFFIAny* out);

/* The result of an earlier call, which may still be pending. */
static int set_call(const Place* at, FcCall* call, FcWireSlot* slot, TVMFFIAny* out) {
  if (fc_call_state(call) == FC_CALL_WAITING && call->ep == at->ep && call->promise) {
    *out = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_uint64 = FC_PROMISE_BIT | call->promise};
    call->taken = true;
    return 0;
  }
  if (call->ep != at->ep) return refuse(at, "ValueError", "the call whose result this is belongs to another session");
  if (fc_call_wait(call) < 0) return -1;
  if (fc_call_state(call) == FC_CALL_DONE) return set_arg(at, &call->value, slot, out);
  if (fc_call_state(call) == FC_CALL_CANCELLED) {
    return refuse(at, "ValueError", "the call whose result this is was cancelled");
  }
  at->wire->inherits = true;
  fc_incref(call->error);
  fc_error_raise(call->error);
  return -1;
}

/* ---- lists and dicts: the server makes them for the call, from values ---- */

static int begin(FcRemoteArgs* wire, const Place* first, const TVMFFIAny* args, int32_t n);

/* Calls the function of the server that makes such an object. */
static int make_there(const Place* at, const char* maker, uint64_t* function, const FcRemoteArgs* items,
                      FcWireSlot* slot, TVMFFIAny* out) {
  FcEndpoint* ep = at->ep;
  fc_wire_packet reply;
  if (fc_remote_lookup(ep, maker, function) < 0) return -1;
  if (!*function) return refuse(at, "RemoteError", "the server cannot make lists; pass the items one by one");
  fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .num_args = items->n, .args = items->any, .handle = *function};
  if (fc_remote_request(ep, &call, maker, &reply) < 0) return -1;
  if (reply.num_args != 2 || reply.args[1].type_index != kTVMFFIOpaquePtr) return fc_remote_unexpected(ep, maker);
  *out = (TVMFFIAny){.type_index = FC_WIRE_OBJECT_REF, .v_uint64 = slot->made = reply.args[1].v_uint64};
  return 0;
}

static int set_items(const Place* at, const char* maker, uint64_t* function, const TVMFFIAny* items, int64_t n,
                     FcWireSlot* slot, TVMFFIAny* out) {
  FcRemoteArgs wire;
  int32_t most = at->ep->client->args_max;
  Place first = {.ep = at->ep, .name = at->name, .depth = at->depth + 1, .outer = at};
  first.pairs = function == &at->ep->client->make_map;
  if (at->depth >= NESTED_MAX) return refuse(at, "ValueError", "lists are nested too deeply");
  if (n > INT32_MAX || (most != 0 && n > most)) {
    char why[120];
    snprintf(why, sizeof why, "%lld items are too many to travel in a list (at most %d); pass a tensor, or bytes",
             (long long)n, (int)most);
    return refuse(at, "ValueError", why);
  }
  int rc = begin(&wire, &first, items, (int32_t)n);
  if (rc == 0) rc = make_there(at, maker, function, &wire, slot, out);
  at->wire->inherits |= wire.inherits;
  fc_remote_args_end(&wire, at->ep, true);
  return rc;
}

/* The items are alternating keys and values, borrowed. */
static int set_map(const Place* at, TVMFFIObject* map, FcWireSlot* slot, TVMFFIAny* out) {
  int64_t n = 2 * (int64_t)TVMFFIMapGetCellPtr(map)->size, i = 0;
  TVMFFIAny* items = malloc(((size_t)n + 1) * sizeof *items);
  FcMapCursor cursor = {.at = 0};
  if (!items) {
    fc_error_no_memory();
    return -1;
  }
  while (i < n && fc_map_next(map, &cursor)) {
    items[i++] = *cursor.key;
    items[i++] = *cursor.value;
  }
  int rc = set_items(at, "ffi.Map", &at->ep->client->make_map, items, i, slot, out);
  free(items);
  return rc;
}

static int set_shape(const Place* at, TVMFFIObject* shape, FcWireSlot* slot, TVMFFIAny* out) {
  const TVMFFIShapeCell* cell = TVMFFIShapeGetCellPtr(shape);
  TVMFFIAny* dims = malloc((cell->size + 1) * sizeof *dims);
  if (!dims) {
    fc_error_no_memory();
    return -1;
  }
  for (size_t i = 0; i < cell->size; ++i) dims[i] = fc_any_int(cell->data[i]);
  int rc = set_items(at, "ffi.Shape", &at->ep->client->make_shape, dims, (int64_t)cell->size, slot, out);
  free(dims);
  return rc;
}

static int set_sequence(const Place* at, TVMFFIObject* sequence, FcWireSlot* slot, TVMFFIAny* out) {
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(sequence);
  return set_items(at, "ffi.Array", &at->ep->client->make_array, cell->data, cell->size, slot, out);
}

FC_COLD static int set_other(const Place* at, const TVMFFIAny* arg, FcWireSlot* slot, TVMFFIAny* out) {
  char why[160];
  switch (arg->type_index) {
    case kTVMFFIArray:
    case kTVMFFIList: return set_sequence(at, arg->v_obj, slot, out);
    case kTVMFFIMap:
    case kTVMFFIDict: return set_map(at, arg->v_obj, slot, out);
    case kTVMFFIShape: return set_shape(at, arg->v_obj, slot, out);
    default: break;
  }
  if (arg->type_index == fc_remote_object_index()) return set_object(at, (const FcRemoteObj*)arg->v_obj, out);
  if (arg->type_index == fc_call_index()) return set_call(at, (FcCall*)arg->v_obj, slot, out);
  snprintf(why, sizeof why,
           "a value of type %s cannot travel; pass numbers, text, bytes, tensors, or lists and dicts of these",
           fc_type_name(arg->type_index));
  return refuse(at, "TypeError", why);
}

static int set_arg(const Place* at, const TVMFFIAny* arg, FcWireSlot* slot, TVMFFIAny* out) {
  *out = *arg;
  switch (arg->type_index) {
    case kTVMFFINone:
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIOpaquePtr:
    case kTVMFFIDataType: return 0;
    case kTVMFFIDevice: return fc_remote_own_device(at->ep, &out->v_device);
    case kTVMFFIFunction: return set_function(at, arg->v_obj, slot, out);
    default: break;
  }
  if (fc_any_text(arg, &slot->string)) return set_text(at, slot, out);
  if (fc_any_bytes(arg, &slot->string)) {
    out->type_index = slot->string.size <= 7 ? kTVMFFISmallBytes : kTVMFFIBytes; /* as TVM's clients send them */
    out->v_ptr = &slot->string;
    return 0;
  }
  const DLTensor* dl = fc_any_tensor(arg);
  return dl ? set_tensor(at, arg, dl, slot, out) : set_other(at, arg, slot, out);
}

static int make_room(FcRemoteArgs* wire, int32_t n) {
  wire->any = wire->inline_any;
  wire->slots = wire->inline_slots;
  wire->heap = NULL;
  wire->n = 0;
  wire->inherits = false;
  if (n <= FC_REMOTE_INLINE_ARGS) return 0;
  wire->heap = malloc((size_t)n * (sizeof(TVMFFIAny) + sizeof(FcWireSlot)));
  if (!wire->heap) {
    fc_error_no_memory();
    return -1;
  }
  wire->any = wire->heap;
  wire->slots = (FcWireSlot*)(wire->any + n);
  return 0;
}

static int begin(FcRemoteArgs* wire, const Place* first, const TVMFFIAny* args, int32_t n) {
  Place at = *first;
  at.wire = wire;
  if (make_room(wire, n) < 0) return -1;
  for (int32_t i = 0; i < n; ++i) {
    wire->slots[i].lent = NULL;
    wire->slots[i].copied = false;
    wire->slots[i].callback = wire->slots[i].made = 0;
    wire->n = i + 1;
    at.i = i;
    if (set_arg(&at, &args[i], &wire->slots[i], &wire->any[i]) < 0) return -1;
  }
  return 0;
}

int fc_remote_args_begin(FcRemoteArgs* wire, FcEndpoint* ep, const char* name, const TVMFFIAny* args, int32_t n) {
  if (FC_UNLIKELY(ep->client->args_max != 0 && n > ep->client->args_max)) {
    wire->heap = NULL;
    wire->n = 0;
    wire->inherits = false;
    fc_error_format("ValueError", "remote `%s` was given %d arguments; %s takes at most %d in one call", name, (int)n,
                    ep->peer, (int)ep->client->args_max);
    return -1;
  }
  return begin(wire, &(Place){.ep = ep, .name = name}, args, n);
}

void fc_remote_args_end(FcRemoteArgs* wire, FcEndpoint* ep, bool sent) {
  for (int32_t i = 0; i < wire->n; ++i) {
    const FcWireSlot* slot = &wire->slots[i];
    if (slot->copied) fc_decref(slot->lent);
    if (slot->made) fc_remote_free_later(ep, slot->made, fc_no_device());
    if (slot->callback && !sent) fc_remote_unexport(ep, slot->callback);
  }
  free(wire->heap);
}
