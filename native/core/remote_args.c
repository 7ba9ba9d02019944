/* Arguments of a remote call as wire values. */
#include <stdio.h>
#include <stdlib.h>

#include "remote.h"

typedef struct Place { /* of one argument, for messages */
  FcEndpoint* ep;
  const char* name;
  int32_t i;
} Place;

FC_COLD static int refuse(const Place* at, const char* kind, const char* why) {
  fc_error_format(kind, "argument %d of remote `%s`: %s", (int)at->i + 1, at->name, why);
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
    return refuse(at, "ValueError",
                  "only CPU tensors are copied to a session by themselves; move it to the CPU first");
  }
  slot->tensor.byte_offset = 0;
  if (fc_remote_alloc(at->ep, &slot->tensor, &slot->copied) < 0) return -1;
  slot->tensor.data = slot->copied;
  return fc_remote_write(at->ep, &slot->tensor, dl);
}

static int set_tensor(const Place* at, const DLTensor* dl, FcWireSlot* slot, TVMFFIAny* out) {
  out->type_index = kTVMFFIDLTensorPtr;
  out->v_ptr = &slot->tensor;
  fc_remote_to_wire(dl, &slot->tensor);
  if (dl->ndim > FC_WIRE_MAX_NDIM) return refuse(at, "ValueError", "a tensor of more than 32 dims cannot travel");
  if (!fc_device_is_remote(dl->device)) return copy_there(at, dl, slot);
  if ((int)dl->device.device_type / FC_REMOTE_STEP - 1 != at->ep->slot) {
    return refuse(at, "ValueError", "the tensor lives on another session; copy it with session.tensor(x.numpy())");
  }
  return fc_is_contiguous(dl) ? 0 : refuse(at, "ValueError", "a remote tensor must be contiguous to travel");
}

/* A function of this process: the far side may call it while a call is open. */
static int set_local_function(const Place* at, TVMFFIObject* function, FcWireSlot* slot, TVMFFIAny* out) {
  if (!(at->ep->client->features & FC_PEER_CALLBACKS)) {
    return refuse(at, "TypeError",
                  "the server cannot call functions of this process (a TVM server, or one that does not allow it); "
                  "pass a function of the same session, which session.get_function gives");
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

/* The result of an earlier call, which may be on its way still. */
static int set_call(const Place* at, FcCall* call, FcWireSlot* slot, TVMFFIAny* out) {
  if (call->state == FC_CALL_WAITING && call->ep == at->ep && call->promise) {
    *out = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_uint64 = FC_PROMISE_BIT | call->promise};
    return 0;
  }
  if (call->ep != at->ep) return refuse(at, "ValueError", "the call whose result this is belongs to another session");
  if (fc_call_wait(call) < 0) return -1;
  if (call->state == FC_CALL_DONE) return set_arg(at, &call->value, slot, out);
  if (call->state == FC_CALL_CANCELLED) return refuse(at, "ValueError", "the call whose result this is was cancelled");
  fc_incref(call->error);
  fc_error_raise(call->error);
  return -1;
}

FC_COLD static int set_other(const Place* at, const TVMFFIAny* arg, FcWireSlot* slot, TVMFFIAny* out) {
  char why[160];
  if (arg->type_index == fc_remote_object_index()) return set_object(at, (const FcRemoteObj*)arg->v_obj, out);
  if (arg->type_index == fc_call_index()) return set_call(at, (FcCall*)arg->v_obj, slot, out);
  snprintf(why, sizeof why, "a value of type %s cannot travel; pass numbers, text, bytes or tensors",
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
    case kTVMFFIDevice: out->v_device = fc_remote_unmasked(arg->v_device); return 0;
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
  return dl ? set_tensor(at, dl, slot, out) : set_other(at, arg, slot, out);
}

static int make_room(FcRemoteArgs* wire, int32_t n) {
  wire->any = wire->inline_any;
  wire->slots = wire->inline_slots;
  wire->heap = NULL;
  wire->n = 0;
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

int fc_remote_args_begin(FcRemoteArgs* wire, FcEndpoint* ep, const char* name, const TVMFFIAny* args, int32_t n) {
  if (make_room(wire, n) < 0) return -1;
  if (FC_UNLIKELY(ep->client->args_max != 0 && n > ep->client->args_max)) {
    fc_error_format("ValueError", "remote `%s` was given %d arguments; %s takes at most %d in one call", name, (int)n,
                    ep->peer, (int)ep->client->args_max);
    return -1;
  }
  for (int32_t i = 0; i < n; ++i) {
    wire->slots[i].copied = wire->slots[i].callback = 0;
    wire->n = i + 1;
    const Place at = {ep, name, i};
    if (set_arg(&at, &args[i], &wire->slots[i], &wire->any[i]) < 0) return -1;
  }
  return 0;
}

void fc_remote_args_end(FcRemoteArgs* wire, FcEndpoint* ep, bool sent) {
  for (int32_t i = 0; i < wire->n; ++i) {
    const FcWireSlot* slot = &wire->slots[i];
    if (slot->copied) fc_endpoint_free_later(ep, slot->copied, slot->tensor.device);
    if (slot->callback && !sent) fc_remote_unexport(ep, slot->callback);
  }
  free(wire->heap);
}
