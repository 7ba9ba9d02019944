/* What lives on the other side: remote Functions (the trampoline of a call), Tensors, and copies. */
#include <stdio.h>
#include <stdlib.h>

#include "endpoint.h"

enum { INLINE_ARGS = 8, ALIGNMENT = 64, NAME_MAX_SHOWN = 128 };

static const DLDevice NO_DEVICE = {(DLDeviceType)0, 0};

/* ---- tensors ---- */

typedef struct Owned {
  FcEndpoint* ep;
  uint64_t handle; /* 0: nothing to release */
  DLDevice device; /* as FcPendingFree has it */
} Owned;

static void release_owned(Owned* owned) {
  if (owned->handle) fc_endpoint_free_later(owned->ep, owned->handle, owned->device);
  fc_endpoint_decref(owned->ep);
  free(owned);
}

static void release_tensor(FcTensorObj* tensor) { release_owned(tensor->context); }

/* A plain device, as a tensor on this side carries it. */
static DLDevice masked(const FcEndpoint* ep, DLDevice device) {
  device.device_type = (DLDeviceType)((int)device.device_type + FC_REMOTE_STEP * (ep->slot + 1));
  return device;
}

static DLDevice unmasked(DLDevice device) {
  device.device_type = (DLDeviceType)((int)device.device_type % FC_REMOTE_STEP);
  return device;
}

/* A Tensor around a remote tensor. `handle` (kFreeHandle), or the data (kDevFreeData) when it is 0, moves in. */
static FcTensorObj* remote_tensor(FcEndpoint* ep, const fc_wire_tensor* wire, uint64_t handle, bool owns_data) {
  Owned* owned = malloc(sizeof *owned);
  DLTensor dl = {.data = (void*)(uintptr_t)wire->data,
                 .device = masked(ep, wire->device),
                 .ndim = wire->ndim,
                 .dtype = wire->dtype,
                 .shape = (int64_t*)wire->shape,
                 .byte_offset = wire->byte_offset};
  FcTensorObj* tensor = owned ? fc_tensor_new(&dl, release_tensor, owned) : NULL;
  DLDevice device = owns_data ? wire->device : NO_DEVICE;
  if (!tensor) {
    if (!owned) fc_error_no_memory();
    free(owned);
    fc_endpoint_free_later(ep, owns_data ? wire->data : handle, device);
    return NULL;
  }
  fc_endpoint_incref(ep);
  *owned = (Owned){ep, owns_data ? wire->data : handle, device};
  return tensor;
}

/* A tensor of this endpoint as it travels. */
static void to_wire(const DLTensor* dl, fc_wire_tensor* out) {
  *out = (fc_wire_tensor){.data = (uint64_t)(uintptr_t)dl->data,
                          .byte_offset = dl->byte_offset,
                          .shape = dl->shape,
                          .device = unmasked(dl->device),
                          .ndim = dl->ndim,
                          .dtype = dl->dtype};
}

static int unexpected(FcEndpoint* ep, const char* what) {
  return fc_endpoint_lose(ep, "ProtocolError", "%s answered `%s` with values that the protocol does not allow there",
                          ep->peer, what);
}

/* The caller holds the lock. Answers the data's handle in *data. */
static int request_alloc(FcEndpoint* ep, const fc_wire_tensor* like, uint64_t* data) {
  fc_wire_tensor empty = *like;
  empty.data = empty.byte_offset = 0;
  TVMFFIAny args[2] = {{.type_index = kTVMFFIDLTensorPtr, .v_ptr = &empty}, {.type_index = kTVMFFINone}};
  fc_wire_packet reply, request = {.code = FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE, .num_args = 2, .args = args};
  if (fc_endpoint_request(ep, &request, "kDevAllocDataWithScope", &reply) < 0) return -1;
  if (reply.num_args != 1 || reply.args[0].type_index != kTVMFFIOpaquePtr) return unexpected(ep,
                                                                                             "kDevAllocDataWithScope");
  *data = reply.args[0].v_uint64;
  return 0;
}

FcTensorObj* fc_remote_empty(FcEndpoint* ep, DLDevice device, int32_t ndim, const int64_t* shape, DLDataType dtype) {
  fc_wire_tensor wire = {.shape = shape, .device = device, .ndim = ndim, .dtype = dtype};
  if (fc_endpoint_enter(ep) < 0) return NULL;
  int rc = request_alloc(ep, &wire, &wire.data);
  fc_endpoint_leave(ep);
  return rc < 0 ? NULL : remote_tensor(ep, &wire, 0, true);
}

/* ---- copies ---- */

static void pack_strided(const DLTensor* from, int32_t axis, size_t element, const uint8_t* at, uint8_t** to) {
  if (axis == from->ndim) {
    memcpy(*to, at, element);
    *to += element;
    return;
  }
  for (int64_t i = 0; i < from->shape[axis]; ++i) {
    pack_strided(from, axis + 1, element, at + i * from->strides[axis] * (int64_t)element, to);
  }
}

/* The bytes of a local tensor in row-major order: in place, or packed into *packed (to be freed). */
static const void* compact_bytes(const DLTensor* local, int64_t nbytes, void** packed) {
  const uint8_t* data = (const uint8_t*)local->data + local->byte_offset;
  *packed = NULL;
  if (fc_is_contiguous(local)) return data;
  size_t bits = (size_t)local->dtype.bits * local->dtype.lanes;
  if (bits % 8 != 0) {
    fc_error_set("ValueError", "a tensor of a type below one byte must be contiguous to be copied");
    return NULL;
  }
  uint8_t* to = *packed = malloc((size_t)nbytes);
  if (!to) {
    fc_error_no_memory();
    return NULL;
  }
  pack_strided(local, 0, bits / 8, data, &to);
  return *packed;
}

/* The caller holds the lock. */
static int request_copy_in(FcEndpoint* ep, const fc_wire_tensor* remote, const DLTensor* local) {
  void* packed = NULL;
  int64_t nbytes = fc_nbytes(local);
  const void* bytes = nbytes < 0 ? NULL : compact_bytes(local, nbytes, &packed);
  if (nbytes < 0 || (!bytes && nbytes > 0)) return -1;
  fc_wire_packet reply, request = {.code = FC_WIRE_COPY_TO_REMOTE, .tensor = *remote, .nbytes = (uint64_t)nbytes};
  int rc = fc_endpoint_exchange(ep, &request, bytes, "kCopyToRemote", &reply, NULL);
  free(packed);
  return rc;
}

int fc_remote_copy_in(FcEndpoint* ep, const DLTensor* remote, const DLTensor* local) {
  fc_wire_tensor wire;
  to_wire(remote, &wire);
  if (fc_endpoint_enter(ep) < 0) return -1;
  int rc = request_copy_in(ep, &wire, local);
  fc_endpoint_leave(ep);
  return rc;
}

int fc_remote_copy_out(FcEndpoint* ep, const DLTensor* remote, void* memory) {
  int64_t nbytes = fc_nbytes(remote);
  if (nbytes < 0) return -1;
  if (nbytes == 0) return 0;
  fc_wire_packet reply, request = {.code = FC_WIRE_COPY_FROM_REMOTE, .nbytes = (uint64_t)nbytes};
  to_wire(remote, &request.tensor);
  if (fc_endpoint_enter(ep) < 0) return -1;
  int rc = fc_endpoint_exchange(ep, &request, NULL, "kCopyFromRemote", &reply, memory);
  fc_endpoint_leave(ep);
  return rc;
}

/* ---- a remote Function ---- */

typedef struct RemoteFunction {
  Owned owned;
  char name[NAME_MAX_SHOWN];
} RemoteFunction;

static int call_remote(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

static void delete_remote(void* self) {
  RemoteFunction* f = self;
  fc_endpoint_free_later(f->owned.ep, f->owned.handle, NO_DEVICE);
  fc_endpoint_decref(f->owned.ep);
  free(f);
}

TVMFFIObject* fc_remote_function(FcEndpoint* ep, uint64_t handle, const char* name) {
  RemoteFunction* f = malloc(sizeof *f);
  TVMFFIObjectHandle object = NULL;
  if (!f) {
    fc_error_no_memory();
    fc_endpoint_free_later(ep, handle, NO_DEVICE);
    return NULL;
  }
  fc_endpoint_incref(ep);
  f->owned = (Owned){ep, handle, NO_DEVICE};
  snprintf(f->name, sizeof f->name, "%s", name);
  if (fc_function_new(f, call_remote, delete_remote, &object) != 0) {
    delete_remote(f);
    return NULL;
  }
  return object;
}

/* ---- arguments ---- */

typedef struct WireSlot {
  union {
    TVMFFIByteArray string;
    fc_wire_tensor tensor;
  };
  uint64_t copied; /* handle of a temporary that holds a local tensor for this call; 0: none */
} WireSlot;

typedef struct WireArgs {
  TVMFFIAny* any;
  WireSlot* slots;
  void* heap;
  TVMFFIAny inline_any[INLINE_ARGS];
  WireSlot inline_slots[INLINE_ARGS];
} WireArgs;

static int wire_args_begin(WireArgs* w, int32_t n) {
  w->any = w->inline_any;
  w->slots = w->inline_slots;
  w->heap = NULL;
  if (n > INLINE_ARGS) {
    w->heap = malloc((size_t)n * (sizeof(TVMFFIAny) + sizeof(WireSlot)));
    if (!w->heap) {
      fc_error_no_memory();
      return -1;
    }
    w->any = w->heap;
    w->slots = (WireSlot*)(w->any + n);
  }
  for (int32_t i = 0; i < n; ++i) w->slots[i].copied = 0;
  return 0;
}

/* Temporaries go with the next request. */
static void wire_args_end(FcEndpoint* ep, WireArgs* w, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    if (w->slots[i].copied) fc_endpoint_free_later(ep, w->slots[i].copied, w->slots[i].tensor.device);
  }
  free(w->heap);
}

FC_COLD static int refuse(const RemoteFunction* f, int32_t i, const char* kind, const char* why) {
  fc_error_format(kind, "argument %d of remote `%s`: %s", (int)i + 1, f->name, why);
  return -1;
}

static int set_text(const RemoteFunction* f, WireSlot* slot, int32_t i, TVMFFIAny* out) {
  if (memchr(slot->string.data, 0, slot->string.size)) {
    return refuse(f, i, "ValueError",
                  "text with a NUL byte cannot travel (the protocol's text ends there); pass bytes");
  }
  out->type_index = kTVMFFIRawStr;
  out->v_ptr = &slot->string;
  return 0;
}

/* A local tensor is copied to the remote CPU for the call. */
static int set_tensor(const RemoteFunction* f, const DLTensor* dl, WireSlot* slot, int32_t i, TVMFFIAny* out) {
  out->type_index = kTVMFFIDLTensorPtr;
  out->v_ptr = &slot->tensor;
  to_wire(dl, &slot->tensor);
  if (dl->ndim > FC_WIRE_MAX_NDIM) return refuse(f, i, "ValueError", "a tensor of more than 32 dims cannot travel");
  if (fc_device_is_remote(dl->device)) {
    if ((int)dl->device.device_type / FC_REMOTE_STEP - 1 != f->owned.ep->slot) {
      return refuse(f, i, "ValueError", "the tensor lives on another session; copy it with session.tensor(x.numpy())");
    }
    return fc_is_contiguous(dl) ? 0 : refuse(f, i, "ValueError", "a remote tensor must be contiguous to travel");
  }
  if (dl->device.device_type != kDLCPU) {
    return refuse(f, i, "ValueError",
                  "only CPU tensors are copied to a session by themselves; move it to the CPU first");
  }
  slot->tensor.byte_offset = 0;
  if (request_alloc(f->owned.ep, &slot->tensor, &slot->copied) < 0) return -1;
  slot->tensor.data = slot->copied;
  return request_copy_in(f->owned.ep, &slot->tensor, dl);
}

static int set_function(const RemoteFunction* f, TVMFFIObject* object, int32_t i, TVMFFIAny* out) {
  TVMFFISafeCallType call;
  void* self;
  fc_function_target(object, &call, &self);
  if (call != call_remote || ((RemoteFunction*)self)->owned.ep != f->owned.ep) {
    return refuse(f, i, "TypeError", "only functions of the same session can travel; export it on the server instead");
  }
  out->v_uint64 = ((RemoteFunction*)self)->owned.handle;
  return 0;
}

/* One argument as a wire value. May talk to the far side: the lock is held. */
static int set_arg(const RemoteFunction* f, const TVMFFIAny* arg, WireSlot* slot, int32_t i, TVMFFIAny* out) {
  *out = *arg;
  if (fc_any_text(arg, &slot->string)) return set_text(f, slot, i, out);
  if (fc_any_bytes(arg, &slot->string)) {
    out->type_index = slot->string.size <= 7 ? kTVMFFISmallBytes : kTVMFFIBytes; /* as TVM's clients send them */
    out->v_ptr = &slot->string;
    return 0;
  }
  const DLTensor* dl = fc_any_tensor(arg);
  if (dl) return set_tensor(f, dl, slot, i, out);
  switch (arg->type_index) {
    case kTVMFFINone:
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIOpaquePtr:
    case kTVMFFIDataType: return 0;
    case kTVMFFIDevice: out->v_device = unmasked(arg->v_device); return 0;
    case kTVMFFIFunction: return set_function(f, arg->v_obj, i, out);
    default: {
      char why[160];
      snprintf(why, sizeof why, "a value of type %s cannot travel; pass numbers, text, bytes or tensors",
               fc_type_name(arg->type_index));
      return refuse(f, i, "TypeError", why);
    }
  }
}

/* ---- results ---- */

static int take_result(RemoteFunction* f, const fc_wire_packet* reply, TVMFFIAny* result);

/* A call of one of the server's own helpers, by name; the handle is looked up once. */
static int call_helper(FcEndpoint* ep, const char* name, uint64_t* handle, TVMFFIAny* args, int32_t n,
                       fc_wire_packet* reply) {
  if (*handle == 0) {
    TVMFFIByteArray text = {name, strlen(name)};
    TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &text};
    fc_wire_packet lookup = {.code = FC_WIRE_GET_GLOBAL_FUNC, .num_args = 1, .args = &arg};
    if (fc_endpoint_request(ep, &lookup, name, reply) < 0) return -1;
    if (reply->num_args != 1 || reply->args[0].type_index != kTVMFFIOpaquePtr) return unexpected(ep, name);
    if (reply->args[0].v_uint64 == 0) {
      fc_error_format("RemoteError", "%s gave several results, and has no `%s` to fetch them", ep->peer, name);
      return -1;
    }
    *handle = reply->args[0].v_uint64;
  }
  fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .num_args = n, .args = args, .handle = *handle};
  return fc_endpoint_request(ep, &call, name, reply);
}

/* An Array on the far side becomes a local Array of remote values. */
static int fetch_items(RemoteFunction* f, uint64_t handle, int64_t n, TVMFFIAny* items) {
  FcEndpoint* ep = f->owned.ep;
  for (int64_t i = 0; i < n; ++i) {
    fc_wire_packet reply;
    TVMFFIAny args[2] = {{.type_index = FC_WIRE_OBJECT_REF, .v_uint64 = handle}, {.type_index = kTVMFFIInt,
                                                                                  .v_int64 = i}};
    if (call_helper(ep, "ffi.ArrayGetItem", &ep->array_item, args, 2, &reply) < 0) return -1;
    if (take_result(f, &reply, &items[i]) < 0) return -1;
  }
  return 0;
}

static int take_array(RemoteFunction* f, uint64_t handle, TVMFFIAny* result) {
  FcEndpoint* ep = f->owned.ep;
  fc_wire_packet reply;
  TVMFFIAny ref = {.type_index = FC_WIRE_OBJECT_REF, .v_uint64 = handle};
  TVMFFIObjectHandle array = NULL;
  TVMFFIAny* items = NULL;
  int64_t n = -1;
  int rc = call_helper(ep, "ffi.ArraySize", &ep->array_size, &ref, 1, &reply);
  if (rc == 0) {
    if (reply.num_args == 2 && reply.args[1].type_index == kTVMFFIInt) n = reply.args[1].v_int64;
    if (n < 0 || n > 65536) rc = unexpected(ep, "ffi.ArraySize");
  }
  if (rc == 0) {
    items = calloc((size_t)n + 1, sizeof *items);
    if (!items) fc_error_no_memory();
    rc = items ? fetch_items(f, handle, n, items) : -1;
    if (rc == 0) rc = fc_array_new(items, n, &array); /* the items move in */
    else for (int64_t i = 0; items && i < n; ++i) fc_any_clear(&items[i]);
  }
  free(items);
  fc_endpoint_free_later(ep, handle, NO_DEVICE);
  if (rc == 0) *result = fc_any_object(array);
  return rc;
}

static int take_tensor(RemoteFunction* f, const fc_wire_packet* reply, TVMFFIAny* result) {
  /* (7, tensor) without a handle is how TVM returns a tensor that was an argument: it stays the argument's. */
  uint64_t handle = reply->num_args == 3 && reply->args[2].type_index == kTVMFFIOpaquePtr ? reply->args[2].v_uint64 : 0;
  FcTensorObj* tensor = remote_tensor(f->owned.ep, reply->args[1].v_ptr, handle, false);
  if (!tensor) return -1;
  *result = fc_any_object(tensor);
  return 0;
}

static int take_object(RemoteFunction* f, int64_t type_index, uint64_t handle, TVMFFIAny* result) {
  if (type_index == kTVMFFIArray) return take_array(f, handle, result);
  if (type_index == kTVMFFIFunction) {
    char name[NAME_MAX_SHOWN + 16];
    snprintf(name, sizeof name, "result of %s", f->name);
    TVMFFIObject* function = fc_remote_function(f->owned.ep, handle, name);
    if (!function) return -1;
    *result = fc_any_object(function);
    return 0;
  }
  fc_endpoint_free_later(f->owned.ep, handle, NO_DEVICE);
  fc_error_format("TypeError", "remote `%s` returned an object of type %s, which cannot travel%s", f->name,
                  fc_type_name((int32_t)type_index), type_index == kTVMFFIModule ? "; use session.load_module" : "");
  return -1;
}

/* The reply of kCallFunc: the type that was returned, then the value (then the owner of a tensor). */
static int take_result(RemoteFunction* f, const fc_wire_packet* reply, TVMFFIAny* result) {
  if (reply->num_args < 2 || reply->args[0].type_index != kTVMFFIInt) return unexpected(f->owned.ep, f->name);
  const TVMFFIAny* value = &reply->args[1];
  int64_t type_index = reply->args[0].v_int64;
  bool text = fc_wire_is_text(value->type_index);
  if (text || fc_wire_is_bytes(value->type_index)) {
    const TVMFFIByteArray* string = value->v_ptr;
    return fc_any_from_bytes(text ? kTVMFFIStr : kTVMFFIBytes, string->data, string->size, result);
  }
  switch (value->type_index) {
    case kTVMFFIDLTensorPtr: return take_tensor(f, reply, result);
    case kTVMFFIOpaquePtr:
      if (type_index >= kTVMFFIStaticObjectBegin) return take_object(f, type_index, value->v_uint64, result);
      break;
    case kTVMFFINone:
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIDataType: break;
    case kTVMFFIDevice:
      *result = *value;
      result->v_device = masked(f->owned.ep, value->v_device);
      return 0;
    default: return unexpected(f->owned.ep, f->name);
  }
  *result = *value;
  return 0;
}

/* ---- the trampoline ---- */

static int call_locked(RemoteFunction* f, const TVMFFIAny* args, int32_t n, WireArgs* w, TVMFFIAny* result) {
  for (int32_t i = 0; i < n; ++i) {
    if (set_arg(f, &args[i], &w->slots[i], i, &w->any[i]) < 0) return -1;
  }
  fc_wire_packet reply, call = {.code = FC_WIRE_CALL_FUNC, .num_args = n, .args = w->any, .handle = f->owned.handle};
  if (fc_endpoint_request(f->owned.ep, &call, f->name, &reply) < 0) return -1;
  return take_result(f, &reply, result);
}

static int call_remote(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  RemoteFunction* f = self;
  WireArgs w;
  if (wire_args_begin(&w, num_args) < 0) return -1;
  int rc = fc_endpoint_enter(f->owned.ep);
  if (rc == 0) {
    rc = call_locked(f, args, num_args, &w, result);
    fc_endpoint_leave(f->owned.ep);
  }
  wire_args_end(f->owned.ep, &w, num_args);
  return rc;
}
