/* Functions of the devices behind this server. They take plain values and tensors of their device. */
#include <stdio.h>
#include <stdlib.h>

#include "server/far.h"
#include "server/hops.h"
#include "server/posix/far_module.h"

/* A function of a device. One that was found by its name is found again in the next session. */
typedef struct Function {
  int32_t index;
  uint32_t serial;
  uint64_t handle;
  bool found;
  char name[160];
} Function;

typedef struct Slot {
  TVMFFIByteArray text;
  fc_wire_tensor tensor;
} Slot;

static int call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);

static void drop(void* self) {
  Function* function = self;
  fc_far_release(function->index, function->serial, FC_WIRE_FREE_HANDLE, function->handle);
  free(function);
}

/* Takes a handle of the open session. -1 with an error. */
static int make(int32_t index, uint64_t handle, bool found, const char* name, TVMFFIAny* out) {
  uint32_t serial = fc_far_open(index)->serial;
  Function* made = malloc(sizeof *made);
  TVMFFIObjectHandle object;
  if (!made) {
    fc_far_release(index, serial, FC_WIRE_FREE_HANDLE, handle);
    return fc_error_no_memory(), -1;
  }
  *made = (Function){.index = index, .serial = serial, .handle = handle, .found = found};
  snprintf(made->name, sizeof made->name, "%s", name);
  if (fc_function_new(made, call, drop, &object) != 0) return drop(made), -1;
  *out = fc_any_object(object);
  return 0;
}

int fc_far_function(int32_t index, uint64_t handle, const char* name, TVMFFIAny* out) {
  return make(index, handle, false, name, out);
}

/* ---- finding ---- */

int fc_far_look_up(int32_t index, TVMFFIByteArray name, uint64_t* handle) {
  TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &name};
  fc_wire_packet reply, request = {.code = FC_WIRE_GET_GLOBAL_FUNC, .num_args = 1, .args = &arg};
  FcFar* far = fc_far_open(index);
  if (!far || fc_far_ask(far, &request, NULL, &reply, NULL) != 0) return -1;
  const TVMFFIAny* found = reply.args;
  if (reply.num_args != 1 || (found->type_index != kTVMFFIOpaquePtr && found->type_index != kTVMFFINone)) {
    return fc_far_unexpected(far);
  }
  *handle = found->type_index == kTVMFFINone ? 0 : found->v_uint64;
  if (*handle != 0) return 0;
  fc_error_format("MissingFunctionError", "%s exports no function `%.*s`", far->ep->peer,
                  (int)(name.size < 100 ? name.size : 100), name.data);
  return -1;
}

/* The session in which the function can be called now. NULL with an error. */
static FcFar* session_of(Function* function) {
  if (!function->found) {
    FcFar* far = fc_far_of(function->index, function->serial);
    if (!far) fc_error_set("RemoteError", "it is lost with the session that it belonged to; load it again");
    return far;
  }
  FcFar* far = fc_far_open(function->index);
  if (!far || far->serial == function->serial) return far;
  TVMFFIByteArray name = {function->name, strlen(function->name)};
  uint64_t handle;
  if (fc_far_look_up(function->index, name, &handle) != 0) return NULL;
  function->handle = handle;
  function->serial = far->serial;
  return far;
}

int fc_far_arguments(const FcOptions* options, const TVMFFIAny* args, int32_t n, int32_t* index,
                     TVMFFIByteArray* name) {
  char text[FC_NAME_MAX];
  if (n != 2 || args[0].type_index != kTVMFFIDevice || !fc_any_text(&args[1], name)) {
    fc_error_set("TypeError", "expected (device, text name)");
    return -1;
  }
  DLDevice device = args[0].v_device;
  *index = device.device_id;
  if (device.device_type == kDLHexagon && *index >= 0 && (uint32_t)*index < options->device_count) return 0;
  fc_device_print(device, text);
  return fc_hops_no_device(options, (TVMFFIByteArray){text, strlen(text)});
}

/* farcall.rpc.device_function(device, name) */
static int device_function(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcSession* session = self;
  TVMFFIByteArray name;
  char quoted[160];
  int32_t index;
  uint64_t handle = 0;
  if (fc_far_arguments(session->options, args, n, &index, &name) != 0) return -1;
  snprintf(quoted, sizeof quoted, "`%.*s`", (int)(name.size < 150 ? name.size : 150), name.data);
  int rc = fc_far_look_up(index, name, &handle);
  if (rc == 0) rc = make(index, handle, true, name.data, result);
  return fc_far_named(index, quoted, rc);
}

/* ---- calls ---- */

static int tensor_there(int32_t index, const DLTensor* tensor, Slot* slot, TVMFFIAny* out) {
  char text[FC_NAME_MAX];
  if (tensor->device.device_type != kDLHexagon || tensor->device.device_id != index) {
    fc_device_print(tensor->device, text);
    fc_error_format("ValueError",
                    "a function of hexagon:%d takes tensors of that device, this one is on %s; copy it there first: "
                    "session.tensor(x, 'hexagon:%d')",
                    (int)index, text, (int)index);
    return -1;
  }
  *out = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &slot->tensor};
  if (fc_is_contiguous(tensor)) return fc_far_place(index, tensor, &slot->tensor);
  fc_error_set("ValueError", "a tensor of a device must be contiguous to be an argument; copy it there");
  return -1;
}

static int argument(int32_t index, const TVMFFIAny* arg, Slot* slot, TVMFFIAny* out) {
  const DLTensor* tensor = fc_any_tensor(arg);
  *out = *arg;
  if (tensor) return tensor_there(index, tensor, slot, out);
  if (arg->type_index <= kTVMFFIFloat || arg->type_index == kTVMFFIDataType || arg->type_index == kTVMFFIDevice) {
    return 0;
  }
  bool text = fc_any_text(arg, &slot->text);
  if (text || fc_any_bytes(arg, &slot->text)) {
    *out = (TVMFFIAny){.type_index = text ? kTVMFFIRawStr : kTVMFFIBytes, .v_ptr = &slot->text};
    return 0;
  }
  fc_error_format(
      "TypeError",
      "through this server a function of a device takes numbers, text, bytes and tensors of the device, not "
      "%s; a session via=[\"device:NAME\"] takes all",
      fc_type_name(arg->type_index));
  return -1;
}

static int object_back(const Function* function, int64_t type, uint64_t handle, TVMFFIAny* result) {
  char name[sizeof function->name + 16];
  snprintf(name, sizeof name, "result of %s", function->name);
  if (type == kTVMFFIFunction) return make(function->index, handle, false, name, result);
  fc_far_release(function->index, function->serial, FC_WIRE_FREE_HANDLE, handle);
  fc_error_set("TypeError",
               "its result is an object that stays on the device; a session via=[\"device:NAME\"] can use it");
  return -1;
}

static int back(const Function* function, FcFar* far, const fc_wire_packet* reply, TVMFFIAny* result) {
  const TVMFFIAny* value = reply->args + 1;
  TVMFFIByteArray text;
  if (reply->num_args < 2 || reply->args[0].type_index != kTVMFFIInt) return fc_far_unexpected(far);
  if (value->type_index == kTVMFFIDLTensorPtr) {
    if (reply->num_args != 3 || reply->args[2].type_index != kTVMFFIOpaquePtr) return fc_far_unexpected(far);
    FcTensorObj* taken = fc_far_take(function->index, value->v_ptr, reply->args[2].v_uint64);
    if (taken) *result = fc_any_object(taken);
    return taken ? 0 : -1;
  }
  if (value->type_index == kTVMFFIOpaquePtr && value->v_uint64 != 0) {
    return object_back(function, reply->args[0].v_int64, value->v_uint64, result);
  }
  bool is_text = fc_wire_is_text(value->type_index);
  if (is_text || fc_wire_is_bytes(value->type_index)) {
    text = *(const TVMFFIByteArray*)value->v_ptr;
    return fc_any_from_bytes(is_text ? kTVMFFIStr : kTVMFFIBytes, text.data, text.size, result);
  }
  *result = value->type_index == kTVMFFIOpaquePtr ? fc_any_none() : *value;
  return 0;
}

static int call_there(Function* function, const TVMFFIAny* args, int32_t n, TVMFFIAny* wire, TVMFFIAny* result) {
  Slot* slots = (Slot*)(wire + n);
  FcFar* far = session_of(function);
  int rc = far ? 0 : -1;
  for (int32_t i = 0; rc == 0 && i < n; ++i) rc = argument(function->index, &args[i], &slots[i], &wire[i]);
  fc_wire_packet reply, request = {.code = FC_WIRE_CALL_FUNC, .num_args = n, .args = wire, .handle = function->handle};
  if (rc == 0) rc = fc_far_ask(far, &request, NULL, &reply, NULL);
  return rc == 0 ? back(function, far, &reply, result) : rc;
}

static int call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  Function* function = self;
  TVMFFIAny* wire = malloc(((size_t)n + 1) * (sizeof(TVMFFIAny) + sizeof(Slot)));
  if (!wire) return fc_error_no_memory(), -1;
  char quoted[sizeof function->name + 2];
  snprintf(quoted, sizeof quoted, "`%s`", function->name);
  int rc = fc_far_named(function->index, quoted, call_there(function, args, n, wire, result));
  free(wire);
  return rc;
}

const FcServed fc_served_far[] = {{"farcall.rpc.device_function", device_function, 1},
                                  {"farcall.rpc.device_module", fc_far_load_module, -1},
                                  {NULL, NULL, 0}};
