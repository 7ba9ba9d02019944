/* Results of remote calls: converts a reply to a local value. */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"
#include "runtime/text.h"

static int take_tensor(FcEndpoint* ep, const fc_wire_packet* reply, TVMFFIAny* result) {
  /* TVM returns an argument tensor as (7, tensor) without a handle: the argument still owns the memory. */
  uint64_t handle = reply->num_args == 3 && reply->args[2].type_index == kTVMFFIOpaquePtr ? reply->args[2].v_uint64 : 0;
  FcTensorObj* tensor = fc_remote_tensor(ep, reply->args[1].v_ptr, handle, false);
  if (!tensor) return -1;
  *result = fc_any_object(tensor);
  return 0;
}

static int take_object(FcEndpoint* ep, const char* name, int64_t type_index, uint64_t handle, TVMFFIAny* result) {
  TVMFFIObject* object;
  if (type_index == kTVMFFIFunction) {
    char called[FC_REMOTE_NAME_MAX + 16];
    snprintf(called, sizeof called, "result of %s", name);
    object = fc_remote_function(ep, handle, called);
  } else {
    object = fc_remote_object(ep, handle, (int32_t)type_index);
  }
  if (!object) return -1;
  *result = fc_any_object(object);
  return 0;
}

int fc_remote_string(const char* what, const TVMFFIAny* wire, TVMFFIAny* out) {
  const TVMFFIByteArray* string = wire->v_ptr;
  if (!fc_wire_is_text(wire->type_index)) return fc_any_from_bytes(kTVMFFIBytes, string->data, string->size, out);
  size_t valid = fc_text_valid(string->data, string->size);
  if (FC_LIKELY(valid == string->size)) return fc_any_from_bytes(kTVMFFIStr, string->data, string->size, out);
  fc_error_format("ProtocolError",
                  "remote `%s` gave a text that is not UTF-8 (byte 0x%02x at %zu of %zu); let it give "
                  "bytes",
                  what, (unsigned)(uint8_t)string->data[valid], valid, string->size);
  *out = fc_any_none();
  return -1;
}

int fc_remote_result(FcEndpoint* ep, const char* name, const fc_wire_packet* reply, TVMFFIAny* result) {
  if (reply->num_args < 2 || reply->args[0].type_index != kTVMFFIInt) return fc_remote_unexpected(ep, name);
  const TVMFFIAny* value = &reply->args[1];
  int64_t type_index = reply->args[0].v_int64;
  *result = *value;
  switch (value->type_index) {
    case kTVMFFINone:
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIDataType: return 0;
    case kTVMFFIDevice: result->v_device = fc_remote_masked(ep, value->v_device); return 0;
    case kTVMFFIDLTensorPtr: return take_tensor(ep, reply, result);
    case kTVMFFIOpaquePtr:
      if (type_index < kTVMFFIStaticObjectBegin) return 0;
      return take_object(ep, name, type_index, value->v_uint64, result);
    default: break;
  }
  if (fc_wire_is_text(value->type_index) || fc_wire_is_bytes(value->type_index)) {
    return fc_remote_string(name, value, result);
  }
  return fc_remote_unexpected(ep, name);
}

/* ---- a remote Array becomes a local Array of remote values ---- */

enum { ITEMS_MAX = 65536, AT_ONCE = 256 }; /* pending requests: so few fill up neither side's buffers */

static int need(FcEndpoint* ep, const char* name, uint64_t* handle) {
  if (fc_remote_lookup(ep, name, handle) < 0) return -1;
  if (*handle) return 0;
  fc_error_format("RemoteError", "%s returned a list, but has no `%s` to fetch its items", ep->peer, name);
  return -1;
}

static int array_size(FcEndpoint* ep, TVMFFIAny* array, int64_t* n) {
  FcClient* client = ep->client;
  fc_wire_packet reply;
  if (need(ep, "ffi.ArraySize", &client->array_size) < 0) return -1;
  fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .num_args = 1, .args = array, .handle = client->array_size};
  if (fc_remote_request(ep, &call, "ffi.ArraySize", &reply) < 0) return -1;
  *n = reply.num_args == 2 && reply.args[1].type_index == kTVMFFIInt ? reply.args[1].v_int64 : -1;
  return *n < 0 || *n > ITEMS_MAX ? fc_remote_unexpected(ep, "ffi.ArraySize") : 0;
}

static int encode_get(FcEndpoint* ep, const TVMFFIAny* array, int64_t i, size_t* used) {
  TVMFFIAny args[2] = {*array, fc_any_int(i)};
  fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .num_args = 2, .args = args, .handle = ep->client->array_item};
  return fc_endpoint_encode(ep, &call, used);
}

/* Fetches items [from, to) in one round trip. Reads every reply, even after one that failed. */
static int get_items(FcEndpoint* ep, const char* name, const TVMFFIAny* array, int64_t from, int64_t to,
                     TVMFFIAny* items) {
  static const fc_wire_packet get = {.code = FC_WIRE_CALL_FUNC};
  size_t used = 0;
  TVMFFIObject* failure = NULL;
  for (int64_t i = from; i < to; ++i) {
    if (encode_get(ep, array, i, &used) < 0) return -1;
  }
  if (fc_endpoint_flush(ep, used, NULL, 0) < 0) return fc_remote_leave(ep, &get, 0, (size_t)(to - from));
  ++ep->client->round_trips;
  for (int64_t i = from; i < to; ++i) {
    fc_wire_packet reply;
    int rc = fc_remote_read_reply(ep, name, &reply, NULL, 0);
    if (rc == 0) rc = fc_remote_result(ep, name, &reply, &items[i]);
    if (rc != 0 && fc_remote_keep_failure(ep, &failure) < 0) return fc_remote_leave(ep, &get, 0, (size_t)(to - i));
  }
  if (failure) fc_error_raise(failure);
  return failure ? -1 : 0;
}

/* The caller holds the lock. */
static int get_all(FcEndpoint* ep, const char* name, TVMFFIAny* array, TVMFFIAny** items, int64_t* n) {
  if (fc_call_drain(ep) < 0 || array_size(ep, array, n) < 0) return -1;
  if (need(ep, "ffi.ArrayGetItem", &ep->client->array_item) < 0) return -1;
  *items = calloc((size_t)*n + 1, sizeof **items);
  if (!*items) {
    fc_error_no_memory();
    return -1;
  }
  for (int64_t from = 0; from < *n; from += AT_ONCE) {
    if (get_items(ep, name, array, from, from + AT_ONCE < *n ? from + AT_ONCE : *n, *items) < 0) return -1;
  }
  return 0;
}

static int finish_items(FcEndpoint* ep, const char* name, TVMFFIAny* items, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (fc_remote_finish(ep, name, &items[i]) < 0) return -1;
  }
  return 0;
}

static int fetch_array(FcEndpoint* ep, const char* name, const FcRemoteObj* object, TVMFFIAny* result) {
  TVMFFIAny ref = {.type_index = FC_WIRE_OBJECT_REF, .v_uint64 = object->owned.handle};
  TVMFFIAny* items = NULL;
  TVMFFIObjectHandle array = NULL;
  int64_t n = 0;
  if (fc_endpoint_enter(ep) < 0) return -1;
  int rc = get_all(ep, name, &ref, &items, &n);
  fc_endpoint_leave(ep);
  if (rc == 0) rc = finish_items(ep, name, items, n);
  if (rc == 0) rc = fc_array_new(items, n, &array); /* takes ownership of the items */
  else
    for (int64_t i = 0; items && i < n; ++i) fc_any_clear(&items[i]);
  free(items);
  if (rc == 0) *result = fc_any_object(array);
  return rc;
}

int fc_remote_finish(FcEndpoint* ep, const char* name, TVMFFIAny* result) {
  if (result->type_index != fc_remote_object_index()) return 0;
  FcRemoteObj* object = (FcRemoteObj*)result->v_obj;
  if (object->kind != kTVMFFIArray) return 0;
  if (fc_thread.depth > 32) {
    fc_error_format("ValueError", "remote `%s` returned lists that are nested too deeply", name);
    return -1;
  }
  ++fc_thread.depth;
  TVMFFIAny array = fc_any_none();
  int rc = fetch_array(ep, name, object, &array);
  --fc_thread.depth;
  fc_any_clear(result);
  *result = array;
  return rc;
}
