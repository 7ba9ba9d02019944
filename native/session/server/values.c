/* The server: converts between values of packets and of calls. Looks up and checks every handle. */
#include <stdio.h>

#include "runtime/device_memory.h"
#include "session/server/serve.h"

/* ---- memory that handles name ---- */

/* A request must name the memory's device; otherwise an accelerator's address would be used as one of the CPU. */
static int check_device(DLDevice named, DLDevice device) {
  if (FC_LIKELY(named.device_type == device.device_type && named.device_id == device.device_id)) return 0;
  if (fc_device_check(named) != 0) return -1;
  char wrong[FC_NAME_MAX], right[FC_NAME_MAX];
  fc_device_print(named, wrong);
  fc_device_print(device, right);
  fc_error_format("ValueError", "the request places the memory on %s; it is on %s", wrong, right);
  return -1;
}

int fc_server_span(FcServer* server, const fc_wire_tensor* t, uint64_t nbytes, FcSpan* out) {
  const FcEntry* entry = fc_handles_get(&server->handles, t->data, FC_KIND_DATA);
  if (!entry) return -1;
  const DLTensor* whole = fc_tensor_dl(entry->object);
  if (check_device(t->device, whole->device) != 0) return -1;
  uint64_t size = (uint64_t)fc_nbytes(whole);
  if (t->byte_offset > size || nbytes > size - t->byte_offset) {
    fc_error_format("ValueError", "%llu bytes at offset %llu are beyond the allocation of %llu bytes",
                    (unsigned long long)nbytes, (unsigned long long)t->byte_offset, (unsigned long long)size);
    return -1;
  }
  *out = (FcSpan){{(char*)whole->data + whole->byte_offset + t->byte_offset, whole->device}, entry->object};
  return 0;
}

static void release_allocation(FcTensorObj* view) { fc_decref(view->context); }

/* A Tensor inside an allocation. It keeps the allocation alive, since the function may keep the Tensor. */
static int tensor_argument(FcServer* server, const fc_wire_tensor* t, TVMFFIAny* out) {
  FcSpan span;
  uint64_t nbytes;
  if (t->dtype.bits == 0 || t->dtype.lanes == 0 || fc_wire_tensor_nbytes(t, &nbytes) != 0) {
    fc_error_set("ValueError", "the tensor's type has no bits, or its size does not fit in 64 bits");
    return -1;
  }
  if (fc_server_span(server, t, nbytes, &span) != 0) return -1;
  DLTensor view = {
      .data = span.place.address, .device = t->device, .ndim = t->ndim, .dtype = t->dtype, .shape = (int64_t*)t->shape};
  FcTensorObj* tensor = fc_tensor_new(&view, release_allocation, span.allocation);
  if (!tensor) return -1;
  fc_incref(span.allocation);
  *out = fc_any_object(tensor);
  return 0;
}

/* ---- wire -> arguments ---- */

/* Borrows text as a C string; text that contains a NUL becomes a String object. */
static int text_argument(const TVMFFIByteArray* text, TVMFFIAny* out) {
  if (text->size != 0 && memchr(text->data, 0, text->size)) {
    return fc_any_from_bytes(kTVMFFIStr, text->data, text->size, out);
  }
  *out = (TVMFFIAny){.type_index = kTVMFFIRawStr, .v_c_str = text->data};
  return 0;
}

static int object_argument(FcServer* server, const TVMFFIAny* wire, TVMFFIAny* out) {
  uint32_t kind = wire->type_index == kTVMFFIModule ? FC_KIND_MODULE : FC_KIND_OBJECT;
  const FcEntry* entry = fc_handles_get(&server->handles, wire->v_uint64, kind);
  if (!entry) return -1;
  fc_incref(entry->object);
  *out = fc_any_object(entry->object);
  return 0;
}

static int function_argument(FcServer* server, uint64_t handle, TVMFFIAny* out) {
  TVMFFIObject* object = NULL;
  if (handle & FC_CLIENT_BIT) {
    object = fc_callback_to_client(server, handle);
  } else {
    const FcEntry* entry = fc_handles_get(&server->handles, handle, FC_KIND_FUNCTION);
    if (entry) fc_incref(object = entry->function->object);
  }
  if (!object) return -1;
  *out = fc_any_object(object);
  return 0;
}

static int pointer_argument(FcServer* server, const char* name, int32_t i, uint64_t pointer, TVMFFIAny* out) {
  *out = fc_any_none();
  if (pointer == 0) return 0;
  if (pointer & FC_PROMISE_BIT) return fc_promise_get(server, pointer, out);
  fc_error_format("TypeError", "argument %d of `%s`: a client's pointer has no meaning on the server", (int)i + 1,
                  name);
  return -1;
}

int fc_server_argument(FcServer* server, const char* name, int32_t i, const TVMFFIAny* wire, TVMFFIAny* out) {
  switch (wire->type_index) {
    case kTVMFFIOpaquePtr: return pointer_argument(server, name, i, wire->v_uint64, out);
    case kTVMFFIDLTensorPtr: return tensor_argument(server, wire->v_ptr, out);
    case kTVMFFIFunction: return function_argument(server, wire->v_uint64, out);
    case kTVMFFIModule:
    case FC_WIRE_OBJECT_REF: return object_argument(server, wire, out);
    default: break;
  }
  if (fc_wire_is_text(wire->type_index)) return text_argument(wire->v_ptr, out);
  *out = *wire;
  if (fc_wire_is_bytes(wire->type_index)) out->type_index = kTVMFFIByteArrayPtr;
  return 0;
}

/* ---- results -> wire ---- */

static uint64_t add(FcServer* server, uint32_t kind, TVMFFIObject* object, uint64_t other) {
  fc_incref(object);
  uint64_t handle = fc_handles_add(&server->handles, (FcEntry){.object = object, .other = other, .kind = kind});
  if (handle == 0) fc_decref(object);
  return handle;
}

static uint64_t add_function(FcServer* server, const FcOrigin* origin, TVMFFIObject* object) {
  char made[160];
  snprintf(made, sizeof made, "result of %s", origin->name);
  const char* name = origin->called ? origin->called : made;
  fc_incref(object);
  FcExport* function = fc_export_new(object, name, strlen(name), FC_SCOPE_CALL);
  if (!function) return 0;
  uint64_t handle = fc_handles_add(&server->handles, (FcEntry){.function = function, .kind = FC_KIND_FUNCTION});
  if (handle == 0) fc_export_decref(function);
  return handle;
}

static FcTensorObj* row_major_copy(const DLTensor* dl) {
  return dl->device.device_type == kDLCPU ? fc_tensor_compact(dl) : fc_device_tensor_copy(dl, dl->device);
}

/* The tensor as one that may travel: on a device of this process, in row-major order. *held owns it from then on. */
static const DLTensor* presentable(TVMFFIAny* held) {
  const DLTensor* dl = fc_tensor_dl(held->v_obj);
  if (fc_device_check(dl->device) != 0) return NULL;
  if (fc_is_contiguous(dl)) return dl;
  FcTensorObj* compact = row_major_copy(dl);
  if (!compact) return NULL;
  fc_any_clear(held);
  *held = fc_any_object(compact);
  return &compact->dl;
}

static void describe_tensor(const DLTensor* dl, uint64_t data, FcWireResult* out, TVMFFIAny* value) {
  out->tensor =
      (fc_wire_tensor){.data = data, .shape = dl->shape, .device = dl->device, .ndim = dl->ndim, .dtype = dl->dtype};
  *value = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &out->tensor};
}

static int tensor_result(FcServer* server, FcWireResult* out, TVMFFIAny* held) {
  const DLTensor* dl = presentable(held);
  uint64_t data = dl ? add(server, FC_KIND_RETURNED, held->v_obj, 0) : 0;
  if (data == 0) return -1;
  uint64_t owner = add(server, FC_KIND_TENSOR, held->v_obj, data);
  if (owner == 0) {
    FcEntry entry;
    if (fc_handles_remove(&server->handles, data, FC_KIND_RETURNED, &entry)) fc_server_drop(server, entry);
    return -1;
  }
  describe_tensor(dl, data, out, &out->values[1]);
  out->values[2] = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_uint64 = owner};
  out->n = 3;
  return 0;
}

static uint64_t object_handle(FcServer* server, const FcOrigin* origin, TVMFFIObject* object) {
  if (object->type_index == kTVMFFIFunction) return add_function(server, origin, object);
  return add(server, object->type_index == kTVMFFIModule ? FC_KIND_MODULE : FC_KIND_OBJECT, object, 0);
}

/* Plain values, text and bytes, which results and arguments encode alike. 1: another kind of value. */
static int plain_value(const TVMFFIAny* value, FcWireResult* out, TVMFFIAny* wire) {
  *wire = *value;
  if (fc_any_text(value, &out->string) || fc_any_bytes(value, &out->string)) {
    bool text = fc_wire_is_text(value->type_index);
    *wire = (TVMFFIAny){.type_index = text ? kTVMFFIRawStr : kTVMFFIByteArrayPtr, .v_ptr = &out->string};
    return 0;
  }
  switch (value->type_index) {
    case kTVMFFINone:
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIDataType:
    case kTVMFFIDevice: return 0;
    default: return 1;
  }
}

FC_COLD static int cannot_travel(const char* name, const TVMFFIAny* value) {
  fc_error_format("TypeError", "`%s` returned a value of type %s, which cannot travel", name,
                  fc_type_name(value->type_index));
  return -1;
}

int fc_server_result(FcServer* server, const FcOrigin* origin, TVMFFIAny* result, FcWireResult* out, TVMFFIAny* held) {
  *held = *result;
  *result = fc_any_none();
  if (fc_any_is_object(held) && !held->v_obj) *held = fc_any_none();
  out->values[0] = fc_any_int(held->type_index);
  out->n = 2;
  /* A client could use an address only for an attack on this process. */
  bool borrowed = held->type_index >= kTVMFFIDLTensorPtr && held->type_index <= kTVMFFIObjectRValueRef;
  if (borrowed || (held->type_index == kTVMFFIOpaquePtr && held->v_ptr)) return cannot_travel(origin->name, held);
  if (plain_value(held, out, &out->values[1]) == 0 || held->type_index == kTVMFFIOpaquePtr) return 0;
  if (!fc_any_is_object(held)) return cannot_travel(origin->name, held);
  if (held->type_index == kTVMFFITensor) return tensor_result(server, out, held);
  uint64_t handle = object_handle(server, origin, held->v_obj);
  out->values[1] = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_uint64 = handle};
  return handle != 0 ? 0 : -1;
}

/* The client frees the data of such a tensor, so the table treats it as an allocation of the client. */
static int outgoing_tensor(FcServer* server, FcWireResult* out, TVMFFIAny* held) {
  const DLTensor* dl = presentable(held);
  uint64_t data = dl ? add(server, FC_KIND_ALLOCATED, held->v_obj, 0) : 0;
  if (data != 0) describe_tensor(dl, data, out, &out->values[0]);
  return data != 0 ? 0 : -1;
}

/* Copies a tensor that is only borrowed, since the client may keep it. */
static int take_hold(const TVMFFIAny* arg, TVMFFIAny* held) {
  if (arg->type_index != kTVMFFIDLTensorPtr) return fc_any_to_owned(arg, held);
  FcTensorObj* copy = row_major_copy(arg->v_ptr);
  if (copy) *held = fc_any_object(copy);
  return copy ? 0 : -1;
}

int fc_server_outgoing(FcServer* server, const TVMFFIAny* arg, FcWireResult* out, TVMFFIAny* held) {
  static const FcOrigin here = {"a call to the client", NULL};
  *held = fc_any_none();
  if (plain_value(arg, out, &out->values[0]) == 0) return 0;
  if (take_hold(arg, held) != 0) return -1;
  if (held->type_index == kTVMFFITensor) return outgoing_tensor(server, out, held);
  if (!fc_any_is_object(held)) return cannot_travel(here.name, held);
  int32_t type = held->type_index;
  bool own = type == kTVMFFIFunction || type == kTVMFFIModule;
  uint64_t handle = object_handle(server, &here, held->v_obj);
  out->values[0] = (TVMFFIAny){.type_index = own ? type : FC_WIRE_OBJECT_REF, .v_uint64 = handle};
  return handle != 0 ? 0 : -1;
}
