/* The server: memory, and copies to and from it. */
#include <stdlib.h>

#include "runtime/device_memory.h"
#include "session/server/serve.h"
#include "runtime/trace.h"

/* ---- memory ---- */

static int allocate(FcServer* server, DLDevice device, uint64_t nbytes) {
  if (fc_device_check(device) != 0 || fc_server_require(server, FC_SCOPE_COPY, "an allocation") != 0) return -1;
  if (nbytes > server->tensor_limit - server->allocated || nbytes > INT64_MAX) {
    fc_error_format("MemoryError", "%llu bytes: the session has allocated %llu already, its limit is %llu",
                    (unsigned long long)nbytes, (unsigned long long)server->allocated,
                    (unsigned long long)server->tensor_limit);
    return -1;
  }
  int64_t size = (int64_t)nbytes;
  DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &size};
  FcTensorObj* memory = fc_device_tensor_new(&like);
  if (!memory) return -1;
  FcEntry entry = {.object = &memory->header, .other = nbytes, .kind = FC_KIND_ALLOCATED};
  uint64_t handle = fc_handles_add(&server->handles, entry);
  if (handle == 0) {
    fc_decref(memory);
    return -1;
  }
  server->allocated += nbytes;
  return fc_server_reply_handle(server, handle);
}

/* Allocations are aligned to 64 bytes, for any type. */
int fc_server_alloc_data(FcServer* server, const fc_wire_packet* p) {
  static const int32_t types[] = {kTVMFFIDevice, kTVMFFIInt, kTVMFFIInt, kTVMFFIDataType};
  if (fc_server_expect(p, 4, types) != 0) return -1;
  return allocate(server, p->args[0].v_device, (uint64_t)p->args[1].v_int64);
}

int fc_server_alloc_with_scope(FcServer* server, const fc_wire_packet* p) {
  if (fc_server_expect(p, 2, (int32_t[]){kTVMFFIDLTensorPtr, -1}) != 0) return -1;
  const fc_wire_tensor* like = p->args[0].v_ptr;
  if (fc_wire_is_text(p->args[1].type_index)) {
    const TVMFFIByteArray* scope = p->args[1].v_ptr;
    if (scope->size != 0 && strcmp(scope->data, "global") != 0) {
      fc_error_format("ValueError", "memory scope '%.40s': the CPU has only 'global'", scope->data);
      return -1;
    }
  }
  uint64_t nbytes;
  if (fc_wire_tensor_nbytes(like, &nbytes) != 0) nbytes = UINT64_MAX;
  return allocate(server, like->device, nbytes);
}

int fc_server_free_data(FcServer* server, const fc_wire_packet* p) {
  FcEntry entry;
  if (fc_server_expect(p, 2, (int32_t[]){kTVMFFIDevice, kTVMFFIOpaquePtr}) != 0) return -1;
  if (!fc_handles_remove(&server->handles, p->args[1].v_uint64, FC_KIND_ALLOCATED, &entry)) return -1;
  fc_server_drop(server, entry);
  return fc_server_reply_void(server);
}

/* ---- copies ---- */

/* The bytes of a copy, if the session's token allows copies. */
static int copy_span(FcServer* server, const fc_wire_tensor* tensor, uint64_t nbytes, FcSpan* out) {
  if (fc_server_require(server, FC_SCOPE_COPY, "a copy") != 0) return -1;
  return fc_server_span(server, tensor, nbytes, out);
}

/* The same for a copy whose bytes travel in a packet. */
static int payload_span(FcServer* server, const fc_wire_tensor* tensor, uint64_t nbytes, FcSpan* out) {
  if (!fc_wire_can_turn(nbytes, tensor->dtype)) {
    fc_error_format("ValueError",
                    "a copy of %llu bytes ends inside a number, which this big-endian server cannot convert",
                    (unsigned long long)nbytes);
    return -1;
  }
  return copy_span(server, tensor, nbytes, out);
}

/* Receives the payload for a device that is not the CPU into a buffer. Without memory for it, refuses the copy. */
static FC_COLD bool buffer_payload(FcServer* server, uint64_t nbytes) {
  server->filling_buffer = malloc((size_t)nbytes + 1);
  if (server->filling_buffer) return true;
  fc_error_no_memory();
  server->refusal = fc_error_take();
  return false;
}

/* Prepares to receive the payload. If the copy is refused, its payload is read and dropped. */
void fc_server_copy_in(FcServer* server, const fc_wire_packet* p) {
  FcSpan span;
  if (fc_server_require_start(server) != 0 || payload_span(server, &p->tensor, p->nbytes, &span) != 0) {
    server->refusal = fc_error_take();
    return;
  }
  if (span.place.device.device_type != kDLCPU && !buffer_payload(server, p->nbytes)) return;
  fc_incref(server->filling = span.allocation);
  server->filling_place = span.place;
  server->copy_began = fc_trace_begin();
  server->filling_type = p->tensor.dtype;
  server->ep->reader.sink = server->filling_buffer ? server->filling_buffer : span.place.address;
}

/* Copies the payload to its device. */
static int deliver(FcServer* server, uint64_t nbytes) {
  if (!server->filling_buffer) return 0;
  int rc = fc_device_copy(server->filling_place, fc_place_cpu(server->filling_buffer), nbytes);
  free(server->filling_buffer);
  server->filling_buffer = NULL;
  return rc;
}

int fc_server_end_copy_in(FcServer* server) {
  TVMFFIObject *refusal = server->refusal, *filling = server->filling;
  const fc_wire_reader* reader = &server->ep->reader;
  server->refusal = server->filling = NULL;
  if (refusal) return fc_queue_error(server->ep, refusal);
  fc_wire_turn(reader->sink, reader->payload_size, server->filling_type);
  int rc = deliver(server, reader->payload_size);
  fc_decref(filling);
  if (rc != 0) return -1;
  fc_trace_copy("kCopyToRemote", -1, NULL, reader->payload_size, server->copy_began);
  return fc_server_reply_void(server);
}

/* Sends a converted copy of memory that is not on the CPU, or is in big-endian order. */
static FC_COLD int send_buffered(FcServer* server, const fc_wire_packet* ack, FcPlace place, DLDataType dtype) {
  uint8_t* buffer = malloc((size_t)ack->nbytes + 1);
  if (!buffer) {
    fc_error_no_memory();
    return -1;
  }
  int rc = fc_device_copy(fc_place_cpu(buffer), place, ack->nbytes);
  if (rc == 0) fc_wire_turn(buffer, ack->nbytes, dtype);
  if (rc == 0) rc = fc_endpoint_queue(server->ep, ack, buffer);
  free(buffer);
  return rc;
}

int fc_server_copy_out(FcServer* server, const fc_wire_packet* p) {
  FcSpan span;
  if (payload_span(server, &p->tensor, p->nbytes, &span) != 0) return -1;
  fc_wire_packet ack = {.code = FC_WIRE_COPY_ACK, .nbytes = p->nbytes};
  int64_t begin = fc_trace_begin();
  bool direct = span.place.device.device_type == kDLCPU && !fc_wire_host_is_big();
  int rc = direct ? fc_endpoint_queue(server->ep, &ack, span.place.address)
                  : send_buffered(server, &ack, span.place, p->tensor.dtype);
  fc_trace_copy("kCopyFromRemote", -1, &p->tensor, p->nbytes, begin);
  return rc;
}

int fc_server_copy_among(FcServer* server, const fc_wire_packet* p) {
  static const int32_t types[] = {kTVMFFIDLTensorPtr, kTVMFFIDLTensorPtr, -1};
  if (fc_server_expect(p, 3, types) != 0) return -1;
  const fc_wire_tensor *from = p->args[0].v_ptr, *to = p->args[1].v_ptr;
  FcSpan source, target;
  uint64_t nbytes;
  if (fc_wire_tensor_nbytes(from, &nbytes) != 0) nbytes = UINT64_MAX; /* beyond any allocation */
  if (copy_span(server, from, nbytes, &source) != 0 || copy_span(server, to, nbytes, &target) != 0) return -1;
  if (fc_device_copy(target.place, source.place, nbytes) != 0) return -1;
  return fc_server_reply_void(server);
}
