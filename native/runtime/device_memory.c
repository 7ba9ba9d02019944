/* The registry of device memory, tensors in it, and copies between devices. */
#include "runtime/device_memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICE_TYPES = FC_REMOTE_STEP, PIECE = 1 << 20 };

static _Atomic(const FcDeviceMemory*) memories[DEVICE_TYPES];

/* ---- the registry ---- */

int fc_device_memory_set(int32_t device_type, const FcDeviceMemory* memory) {
  if (device_type > kDLCPU && device_type < DEVICE_TYPES) {
    atomic_store(&memories[device_type], memory);
    return 0;
  }
  fc_error_format("ValueError", "device type %d: expected one from 2 to %d; the CPU's memory needs no registration",
                  (int)device_type, DEVICE_TYPES - 1);
  return -1;
}

static bool exists(const FcDeviceMemory* memory, int32_t index) {
  TVMFFIAny answer = fc_any_none();
  if (memory->attribute(memory->context, index, FC_DEVICE_EXISTS, &answer) == 0) return answer.v_int64 != 0;
  fc_decref(fc_error_take());
  return false;
}

static const FcDeviceMemory* registered(int32_t device_type) {
  return device_type > kDLCPU && device_type < DEVICE_TYPES ? atomic_load(&memories[device_type]) : NULL;
}

const FcDeviceMemory* fc_device_memory_of(DLDevice device) {
  const FcDeviceMemory* memory = registered((int32_t)device.device_type);
  return memory && exists(memory, device.device_id) ? memory : NULL;
}

static bool is_cpu(DLDevice device) { return device.device_type == kDLCPU && device.device_id == 0; }

bool fc_device_is_here(DLDevice device) { return is_cpu(device) || fc_device_memory_of(device); }

static FC_COLD int no_device(DLDevice device) {
  char text[FC_NAME_MAX], known[512] = "cpu:0";
  size_t used = strlen(known);
  for (int32_t type = kDLCPU + 1; type < DEVICE_TYPES && used < sizeof known - FC_NAME_MAX; ++type) {
    if (!registered(type)) continue;
    fc_device_print((DLDevice){(DLDeviceType)type, 0}, text);
    used += (size_t)snprintf(known + used, sizeof known - used, ", %s", text);
  }
  fc_device_print(device, text);
  fc_error_format("ValueError", "no device %s here; this server has %s", text, known);
  return -1;
}

int fc_device_check(DLDevice device) { return fc_device_is_here(device) ? 0 : no_device(device); }

/* ---- tensors ---- */

static void release(FcTensorObj* self) {
  const FcDeviceMemory* memory = self->context;
  memory->release(memory->context, self->dl.device.device_id, self->dl.data);
}

FcTensorObj* fc_device_tensor_at(const DLTensor* prototype, void* address) {
  const FcDeviceMemory* memory = fc_device_memory_of(prototype->device);
  DLTensor like = *prototype;
  like.strides = NULL;
  like.byte_offset = 0;
  like.data = address;
  if (!memory) return no_device(prototype->device), NULL;
  return fc_tensor_new(&like, release, (void*)memory);
}

FcTensorObj* fc_device_tensor_new(const DLTensor* prototype) {
  if (is_cpu(prototype->device)) return fc_tensor_zeros(prototype);
  const FcDeviceMemory* memory = fc_device_memory_of(prototype->device);
  int64_t nbytes = memory ? fc_nbytes(prototype) : no_device(prototype->device);
  int32_t index = prototype->device.device_id;
  void* address;
  if (nbytes < 0 || memory->allocate(memory->context, index, (uint64_t)nbytes, &address) != 0) return NULL;
  FcTensorObj* tensor = fc_device_tensor_at(prototype, address);
  if (!tensor) memory->release(memory->context, index, address);
  return tensor;
}

FcTensorObj* fc_device_tensor_copy(const DLTensor* from, DLDevice to) {
  if (!fc_is_contiguous(from)) {
    char text[FC_NAME_MAX];
    fc_device_print(from->device, text);
    fc_error_format("BufferError", "a strided tensor on %s cannot be copied; copy it to row-major order there", text);
    return NULL;
  }
  DLTensor like = *from;
  like.device = to;
  FcTensorObj* tensor = fc_device_tensor_new(&like);
  FcPlace source = {(char*)from->data + from->byte_offset, from->device};
  if (!tensor || fc_device_copy((FcPlace){tensor->dl.data, to}, source, (uint64_t)fc_nbytes(from)) == 0) return tensor;
  fc_decref(&tensor->header);
  return NULL;
}

/* ---- copies ---- */

static int write_to(FcPlace to, const void* from, uint64_t nbytes) {
  const FcDeviceMemory* memory = fc_device_memory_of(to.device);
  if (!memory) return no_device(to.device);
  return memory->write(memory->context, to.device.device_id, to.address, from, nbytes);
}

static int read_from(void* to, FcPlace from, uint64_t nbytes) {
  const FcDeviceMemory* memory = fc_device_memory_of(from.device);
  if (!memory) return no_device(from.device);
  return memory->read(memory->context, from.device.device_id, to, from.address, nbytes);
}

static int copy_within(FcPlace to, FcPlace from, uint64_t nbytes) {
  const FcDeviceMemory* memory = fc_device_memory_of(to.device);
  if (!memory) return no_device(to.device);
  return memory->copy(memory->context, to.device.device_id, to.address, from.address, nbytes);
}

static int copy_through_cpu(FcPlace to, FcPlace from, uint64_t nbytes) {
  char* piece = malloc(PIECE);
  int rc = piece ? 0 : -1;
  if (!piece) fc_error_no_memory();
  for (uint64_t done = 0; rc == 0 && done < nbytes; done += PIECE) {
    uint64_t size = nbytes - done < PIECE ? nbytes - done : PIECE;
    rc = read_from(piece, (FcPlace){(char*)from.address + done, from.device}, size);
    if (rc == 0) rc = write_to((FcPlace){(char*)to.address + done, to.device}, piece, size);
  }
  free(piece);
  return rc;
}

int fc_device_copy(FcPlace to, FcPlace from, uint64_t nbytes) {
  if (nbytes == 0) return 0;
  bool to_cpu = is_cpu(to.device), from_cpu = is_cpu(from.device);
  if (to_cpu && from_cpu) return memmove(to.address, from.address, (size_t)nbytes), 0;
  if (from_cpu) return write_to(to, from.address, nbytes);
  if (to_cpu) return read_from(to.address, from, nbytes);
  bool same = to.device.device_type == from.device.device_type && to.device.device_id == from.device.device_id;
  return same ? copy_within(to, from, nbytes) : copy_through_cpu(to, from, nbytes);
}
