/* Remote tensors: allocation, and copies in both directions, in pieces where the server limits the size of packets. */
#include <stdlib.h>

#include "session/client/remote.h"
#include "runtime/trace.h"

static void release_tensor(FcTensorObj* tensor) {
  FcOwned* owned = tensor->context;
  if (owned->handle) fc_remote_free_later(owned->ep, owned->handle, owned->device);
  fc_endpoint_decref(owned->ep);
  free(owned);
}

DLDevice fc_remote_masked(const FcEndpoint* ep, DLDevice device) {
  device.device_type = (DLDeviceType)((int)device.device_type + FC_REMOTE_STEP * (ep->client->slot + 1));
  return device;
}

DLDevice fc_remote_unmasked(DLDevice device) {
  device.device_type = (DLDeviceType)((int)device.device_type % FC_REMOTE_STEP);
  return device;
}

int fc_remote_own_device(const FcEndpoint* ep, DLDevice* device) {
  if (fc_device_is_remote(*device) && (int)device->device_type / FC_REMOTE_STEP - 1 != ep->client->slot) {
    char text[FC_NAME_MAX];
    fc_device_print(*device, text);
    fc_error_format("ValueError", "device %s belongs to another session, not to the one with %s", text, ep->peer);
    return -1;
  }
  *device = fc_remote_unmasked(*device);
  return 0;
}

FcTensorObj* fc_remote_tensor(FcEndpoint* ep, const fc_wire_tensor* wire, uint64_t handle, bool owns_data) {
  FcOwned* owned = malloc(sizeof *owned);
  DLTensor dl = {.data = (void*)(uintptr_t)wire->data,
                 .device = fc_remote_masked(ep, wire->device),
                 .ndim = wire->ndim,
                 .dtype = wire->dtype,
                 .shape = (int64_t*)wire->shape,
                 .byte_offset = wire->byte_offset};
  FcTensorObj* tensor = owned ? fc_tensor_new(&dl, release_tensor, owned) : NULL;
  DLDevice device = owns_data ? wire->device : fc_no_device();
  if (owns_data) handle = wire->data;
  if (!tensor) {
    if (!owned) fc_error_no_memory();
    free(owned);
    if (handle) fc_remote_free_later(ep, handle, device);
    return NULL;
  }
  fc_endpoint_incref(ep);
  *owned = (FcOwned){ep, handle, device};
  return tensor;
}

static void release_base(FcTensorObj* view) { fc_decref(view->context); }

FcTensorObj* fc_remote_view(TVMFFIObject* base, const DLTensor* part) {
  FcTensorObj* view = fc_tensor_new(part, release_base, base);
  if (view) fc_incref(base);
  return view;
}

void fc_remote_to_wire(const DLTensor* dl, fc_wire_tensor* out) {
  *out = (fc_wire_tensor){.data = (uint64_t)(uintptr_t)dl->data,
                          .byte_offset = dl->byte_offset,
                          .shape = dl->shape,
                          .device = fc_remote_unmasked(dl->device),
                          .ndim = dl->ndim,
                          .dtype = dl->dtype};
}

/* ---- memory ---- */

int fc_remote_alloc(FcEndpoint* ep, const fc_wire_tensor* like, uint64_t* data) {
  static const char what[] = "kDevAllocDataWithScope";
  fc_wire_tensor empty = *like;
  empty.data = empty.byte_offset = 0;
  TVMFFIAny args[2] = {{.type_index = kTVMFFIDLTensorPtr, .v_ptr = &empty}, {.type_index = kTVMFFINone}};
  fc_wire_packet reply, request = {.code = FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE, .num_args = 2, .args = args};
  if (fc_remote_request(ep, &request, what, &reply) < 0) return -1;
  if (reply.num_args != 1 || reply.args[0].type_index != kTVMFFIOpaquePtr) return fc_remote_unexpected(ep, what);
  *data = reply.args[0].v_uint64;
  return 0;
}

FcTensorObj* fc_remote_empty(FcEndpoint* ep, DLDevice device, int32_t ndim, const int64_t* shape, DLDataType dtype) {
  fc_wire_tensor wire = {.shape = shape, .device = device, .ndim = ndim, .dtype = dtype};
  if (fc_endpoint_enter(ep) < 0) return NULL;
  int rc = fc_remote_alloc(ep, &wire, &wire.data);
  fc_endpoint_leave(ep);
  return rc < 0 ? NULL : fc_remote_tensor(ep, &wire, 0, true);
}

/* ---- strided memory of this process ---- */

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

const void* fc_remote_wire_bytes(const DLTensor* local, int64_t nbytes, void** packed) {
  const uint8_t* data = (const uint8_t*)local->data + local->byte_offset;
  bool contiguous = fc_is_contiguous(local);
  *packed = NULL;
  if (contiguous && (!fc_wire_host_is_big() || fc_wire_number_bytes(local->dtype) == 1)) return data;
  size_t bits = (size_t)local->dtype.bits * local->dtype.lanes;
  if (!contiguous && bits % 8 != 0) {
    fc_error_set("ValueError", "a tensor of a type below one byte must be contiguous to be copied");
    return NULL;
  }
  uint8_t* to = *packed = malloc((size_t)nbytes + 1);
  if (!to) {
    fc_error_no_memory();
    return NULL;
  }
  if (contiguous) memcpy(to, data, (size_t)nbytes);
  else pack_strided(local, 0, bits / 8, data, &to);
  fc_wire_turn(*packed, (uint64_t)nbytes, local->dtype);
  return *packed;
}

/* ---- copies ---- */

/* Asks once for the largest packet that the server takes; servers for small devices have such a limit (facts A.10). */
int fc_remote_ask_max_packet(FcEndpoint* ep) {
  static const char name[] = "tvm.rpc.server.GetCRTMaxPacketSize";
  FcClient* client = ep->client;
  uint64_t handle = 0;
  if (client->asked_max_packet) return 0;
  if (!(client->features & FC_PEER_FARCALL) || client->features & FC_PEER_PACKETS) {
    if (fc_remote_lookup(ep, name, &handle) < 0) return -1;
    fc_wire_packet reply, call = {.code = FC_WIRE_CALL_FUNC, .handle = handle};
    if (handle && fc_remote_request(ep, &call, name, &reply) < 0) return -1;
    if (handle && reply.num_args == 2 && reply.args[1].type_index == kTVMFFIInt) {
      client->max_packet = reply.args[1].v_int64;
    }
    if (handle) fc_remote_free_later(ep, handle, fc_no_device());
  }
  client->asked_max_packet = true;
  return 0;
}

/* How many bytes of a copy fit into one packet, in whole elements; 0 with an error when not even one fits. */
static uint64_t piece_size(const FcEndpoint* ep, const fc_wire_tensor* tensor, uint64_t nbytes) {
  enum { OVERHEAD = 44 + 8 }; /* bytes of a copy packet of rank 1, without its length field and data */
  int64_t most = ep->client->max_packet;
  uint64_t element = ((uint64_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
  if (most <= 0 || nbytes + OVERHEAD + UINT64_C(8) * 31 <= (uint64_t)most) return nbytes;
  uint64_t room = most > OVERHEAD ? (uint64_t)most - OVERHEAD : 0;
  room -= room % (element ? element : 1);
  if (room == 0) {
    fc_error_format("ValueError", "%s takes packets of at most %lld bytes, which is too few for one element", ep->peer,
                    (long long)most);
  }
  return room;
}

/* Part of a tensor, as a tensor of rank 1. Adds `at` to the tensor's byte_offset. */
static void piece_of(const fc_wire_tensor* whole, uint64_t at, uint64_t nbytes, int64_t* dim, fc_wire_tensor* out) {
  uint64_t bits = (uint64_t)whole->dtype.bits * whole->dtype.lanes;
  *out = *whole;
  if (bits % 8 != 0) out->dtype = (DLDataType){kDLUInt, 8, 1};
  *dim = (int64_t)(bits % 8 != 0 ? nbytes : nbytes / (bits / 8));
  out->ndim = 1;
  out->shape = dim;
  out->byte_offset += at;
}

typedef struct Copy {
  int32_t code;
  const fc_wire_tensor* remote;
  uint8_t* memory;
  uint64_t nbytes;
} Copy;

/* Copies one packet. */
static int copy_bytes(FcEndpoint* ep, int32_t code, const fc_wire_tensor* tensor, uint8_t* place, uint64_t size) {
  fc_wire_packet reply, request = {.code = code, .tensor = *tensor, .nbytes = size};
  bool in = code == FC_WIRE_COPY_TO_REMOTE;
  return fc_remote_exchange(ep, &request, in ? place : NULL, fc_wire_code_name(code), &reply, in ? NULL : place);
}

static int copy_there_among(FcEndpoint* ep, const fc_wire_tensor* from, const fc_wire_tensor* to) {
  TVMFFIAny args[3] = {{.type_index = kTVMFFIDLTensorPtr, .v_ptr = (void*)from},
                       {.type_index = kTVMFFIDLTensorPtr, .v_ptr = (void*)to},
                       {.type_index = kTVMFFIOpaquePtr, .v_uint64 = 0}};
  fc_wire_packet reply, request = {.code = FC_WIRE_COPY_AMONG_REMOTE, .num_args = 3, .args = args};
  return fc_remote_request(ep, &request, "kCopyAmongRemote", &reply);
}

/* Copies through a temporary tensor with offset 0; the server copies between the two, and keeps the offset. */
static int copy_through_temporary(FcEndpoint* ep, int32_t code, const fc_wire_tensor* part, uint8_t* place,
                                  uint64_t size) {
  bool in = code == FC_WIRE_COPY_TO_REMOTE;
  fc_wire_tensor way = *part;
  way.byte_offset = 0;
  if (fc_remote_alloc(ep, part, &way.data) < 0) return -1;
  int rc = in ? 0 : copy_there_among(ep, part, &way);
  if (rc == 0) rc = copy_bytes(ep, code, &way, place, size);
  if (rc == 0 && in) rc = copy_there_among(ep, &way, part);
  fc_remote_free_later(ep, way.data, way.device);
  return rc;
}

static int copy_piece(FcEndpoint* ep, const Copy* copy, uint64_t at, uint64_t size) {
  fc_wire_tensor part = *copy->remote;
  int64_t dim;
  if (size != copy->nbytes) piece_of(copy->remote, at, size, &dim, &part);
  bool by_way = part.byte_offset != 0 && ep->client->features & FC_PEER_BEHIND_TVM;
  return (by_way ? copy_through_temporary : copy_bytes)(ep, copy->code, &part, copy->memory + at, size);
}

/* Waits for the device's pending work; the CPU has none. */
static int sync_device(FcEndpoint* ep, DLDevice device) {
  TVMFFIAny args[2] = {{.type_index = kTVMFFIDevice, .v_device = device},
                       {.type_index = kTVMFFIOpaquePtr, .v_uint64 = 0}};
  fc_wire_packet reply, request = {.code = FC_WIRE_DEV_STREAM_SYNC, .num_args = 2, .args = args};
  if (device.device_type == kDLCPU) return 0;
  return fc_remote_request(ep, &request, "kDevStreamSync", &reply);
}

/* The caller holds the lock. */
static int copy_all(FcEndpoint* ep, const Copy* copy) {
  FcClient* client = ep->client;
  if (fc_remote_ask_max_packet(ep) < 0) return -1;
  uint64_t piece = piece_size(ep, copy->remote, copy->nbytes);
  if (piece == 0) return -1;
  for (uint64_t at = 0; at < copy->nbytes; at += piece) {
    uint64_t left = copy->nbytes - at;
    if (copy_piece(ep, copy, at, left < piece ? left : piece) < 0) return -1;
  }
  ++client->copies;
  *(copy->code == FC_WIRE_COPY_TO_REMOTE ? &client->copied_in : &client->copied_out) += copy->nbytes;
  return sync_device(ep, copy->remote->device);
}

int fc_remote_write(FcEndpoint* ep, const fc_wire_tensor* remote, const DLTensor* local) {
  void* packed = NULL;
  int64_t nbytes = fc_nbytes(local);
  const void* bytes = nbytes < 0 ? NULL : fc_remote_wire_bytes(local, nbytes, &packed);
  if (nbytes < 0 || (!bytes && nbytes > 0)) return -1;
  Copy copy = {FC_WIRE_COPY_TO_REMOTE, remote, (uint8_t*)bytes, (uint64_t)nbytes};
  int rc = nbytes > 0 ? copy_all(ep, &copy) : 0;
  free(packed);
  return rc;
}

int fc_remote_read(FcEndpoint* ep, const fc_wire_tensor* remote, const DLTensor* local) {
  const int64_t nbytes = fc_nbytes(local);
  Copy copy = {FC_WIRE_COPY_FROM_REMOTE, remote, (uint8_t*)local->data + local->byte_offset, (uint64_t)nbytes};
  return nbytes > 0 ? copy_all(ep, &copy) : (int)nbytes;
}

int fc_remote_copy_in(FcEndpoint* ep, const DLTensor* remote, const DLTensor* local) {
  fc_wire_tensor wire;
  fc_remote_to_wire(remote, &wire);
  if (fc_endpoint_enter(ep) < 0) return -1;
  int rc = fc_remote_write(ep, &wire, local);
  fc_endpoint_leave(ep);
  return rc;
}

int fc_remote_copy_out(FcEndpoint* ep, const DLTensor* remote, void* memory) {
  fc_wire_tensor wire;
  fc_remote_to_wire(remote, &wire);
  int64_t nbytes = fc_nbytes(remote);
  if (nbytes <= 0) return nbytes < 0 ? -1 : 0;
  Copy copy = {FC_WIRE_COPY_FROM_REMOTE, &wire, memory, (uint64_t)nbytes};
  if (fc_endpoint_enter(ep) < 0) return -1;
  int rc = copy_all(ep, &copy);
  fc_endpoint_leave(ep);
  if (rc == 0) fc_wire_turn(memory, (uint64_t)nbytes, remote->dtype);
  return rc;
}

/* ---- runs: a strided part, copied without the bytes in between ---- */

enum { RUNS_AT_ONCE = 256 }; /* pending requests: so few headers and replies fill up neither side's buffers */

/* copy->nbytes is the size of one run; copy->memory holds all runs. *begun is the number of requests that were at least
 * encoded. */
static int queue_runs(FcEndpoint* ep, const Copy* copy, const int64_t* offsets, int64_t n, int64_t* begun) {
  bool in = copy->code == FC_WIRE_COPY_TO_REMOTE;
  fc_wire_packet request = {.code = copy->code, .tensor = *copy->remote, .nbytes = copy->nbytes};
  for (int64_t i = 0; i < n; ++i) {
    *begun = i + 1;
    request.tensor.byte_offset = copy->remote->byte_offset + (uint64_t)offsets[i];
    if (fc_endpoint_queue(ep, &request, in ? copy->memory + (uint64_t)i * copy->nbytes : NULL) < 0) return -1;
  }
  return fc_endpoint_flush_queue(ep);
}

/* One round trip. Reads every reply, even after one that failed. */
static int exchange_runs(FcEndpoint* ep, const Copy* copy, const int64_t* offsets, int64_t n) {
  const char* what = fc_wire_code_name(copy->code);
  bool in = copy->code == FC_WIRE_COPY_TO_REMOTE;
  const fc_wire_packet run = {.code = copy->code};
  TVMFFIObject* failure = NULL;
  int64_t begin = fc_trace_begin(), begun = 0;
  if (queue_runs(ep, copy, offsets, n, &begun) < 0) {
    if (fc_endpoint_is_lost(ep) || ep->interrupted) return fc_remote_leave(ep, &run, 0, (size_t)begun);
    return fc_endpoint_lose(ep, "ConnectionLostError", "no memory for packets to %s", ep->peer);
  }
  ++ep->client->round_trips;
  for (int64_t i = 0; i < n; ++i) {
    fc_wire_packet reply;
    uint8_t* place = in ? NULL : copy->memory + (uint64_t)i * copy->nbytes;
    int rc = fc_remote_read_reply(ep, what, &reply, place, in ? 0 : copy->nbytes);
    if (rc != 0 && fc_remote_keep_failure(ep, &failure) < 0) return fc_remote_leave(ep, &run, 0, (size_t)(n - i));
  }
  fc_trace_copy(what, ep->client->slot, copy->remote, copy->nbytes * (uint64_t)n, begin);
  if (failure) fc_error_raise(failure);
  return failure ? -1 : 0;
}

/* For a server that takes only small packets: sends each run in pieces; behind a TVM server, through a temporary
 * tensor. */
static int copy_one_by_one(FcEndpoint* ep, const Copy* copy, const int64_t* offsets, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    fc_wire_tensor run = *copy->remote;
    Copy one = {copy->code, &run, copy->memory + (uint64_t)i * copy->nbytes, copy->nbytes};
    run.byte_offset += (uint64_t)offsets[i];
    if (copy_all(ep, &one) < 0) return -1;
  }
  return 0;
}

static int copy_runs(FcEndpoint* ep, const Copy* copy, const int64_t* offsets, int64_t n) {
  FcClient* client = ep->client;
  if (fc_remote_ask_max_packet(ep) < 0 || fc_call_drain(ep) < 0) return -1;
  uint64_t piece = piece_size(ep, copy->remote, copy->nbytes), total = copy->nbytes * (uint64_t)n;
  if (piece == 0) return -1;
  if (piece < copy->nbytes || client->features & FC_PEER_BEHIND_TVM) return copy_one_by_one(ep, copy, offsets, n);
  Copy batch = *copy;
  for (int64_t at = 0; at < n; at += RUNS_AT_ONCE) {
    int64_t count = n - at < RUNS_AT_ONCE ? n - at : RUNS_AT_ONCE;
    if (exchange_runs(ep, &batch, offsets + at, count) < 0) return -1;
    batch.memory += (uint64_t)count * copy->nbytes;
  }
  ++client->copies;
  *(copy->code == FC_WIRE_COPY_TO_REMOTE ? &client->copied_in : &client->copied_out) += total;
  return sync_device(ep, copy->remote->device);
}

int fc_remote_copy_runs(FcEndpoint* ep, const DLTensor* run, const int64_t* offsets, int64_t n, const DLTensor* local,
                        bool in) {
  fc_wire_tensor wire;
  void* packed = NULL;
  int64_t size = fc_nbytes(run), total = fc_nbytes(local);
  if (size <= 0 || n <= 0 || total / size != n || total % size != 0 || (!in && !fc_is_contiguous(local))) {
    fc_error_set("ValueError", "the runs do not match the local tensor");
    return -1;
  }
  const void* bytes =
      in ? fc_remote_wire_bytes(local, total, &packed) : (const uint8_t*)local->data + local->byte_offset;
  if (!bytes) return -1;
  fc_remote_to_wire(run, &wire);
  Copy copy = {in ? FC_WIRE_COPY_TO_REMOTE : FC_WIRE_COPY_FROM_REMOTE, &wire, (uint8_t*)bytes, (uint64_t)size};
  int rc = fc_endpoint_enter(ep);
  if (rc == 0) {
    rc = copy_runs(ep, &copy, offsets, n);
    fc_endpoint_leave(ep);
  }
  if (rc == 0 && !in) fc_wire_turn(copy.memory, (uint64_t)total, local->dtype);
  free(packed);
  return rc;
}

int fc_remote_copy_among(FcEndpoint* ep, const DLTensor* from, const DLTensor* to) {
  fc_wire_tensor ends[2];
  fc_remote_to_wire(from, &ends[0]);
  fc_remote_to_wire(to, &ends[1]);
  if (fc_endpoint_enter(ep) < 0) return -1;
  int rc = copy_there_among(ep, &ends[0], &ends[1]);
  if (rc == 0) ++ep->client->copies;
  if (rc == 0) rc = sync_device(ep, ends[1].device.device_type == kDLCPU ? ends[0].device : ends[1].device);
  fc_endpoint_leave(ep);
  return rc;
}
