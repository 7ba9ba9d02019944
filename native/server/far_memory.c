/* The memory of hexagon:N. An address of it means nothing to this machine: it says which block of a device it is in. */
#include <stdlib.h>

#include "server/far.h"

enum { FIRST = 1 << 16, ALIGNMENT = 64, NAME = 5 };

typedef struct Block {
  uintptr_t at, size;
  uint64_t data, owner; /* handles of the device; owner 0: this side allocated the data */
  int32_t index;
  uint32_t serial; /* of the session that has it */
} Block;

static Block* blocks; /* by address */
static size_t count, capacity;

/* ---- addresses ---- */

/* Adds a block at the first gap that is long enough. -1 with an error. */
static int add(Block block, void** address) {
  uintptr_t at = FIRST, room = (block.size + ALIGNMENT) & ~(uintptr_t)(ALIGNMENT - 1);
  size_t i = 0;
  if (count == capacity) {
    size_t wanted = capacity ? 2 * capacity : 16;
    Block* grown = realloc(blocks, wanted * sizeof *grown);
    if (!grown) return fc_error_no_memory(), -1;
    blocks = grown;
    capacity = wanted;
  }
  for (; i < count && blocks[i].at - at < room; ++i) {
    at = blocks[i].at + ((blocks[i].size + ALIGNMENT) & ~(uintptr_t)(ALIGNMENT - 1));
  }
  if (room < block.size || at > UINTPTR_MAX / 2 || room > UINTPTR_MAX / 2 - at) return fc_error_no_memory(), -1;
  memmove(blocks + i + 1, blocks + i, (count - i) * sizeof *blocks);
  ++count;
  block.at = at;
  blocks[i] = block;
  *address = (void*)at;
  return 0;
}

/* The block that has these bytes; NULL with an error. */
static const Block* find(int32_t index, const void* address, uint64_t nbytes) {
  uintptr_t at = (uintptr_t)address;
  for (size_t i = 0; i < count; ++i) {
    const Block* block = &blocks[i];
    uintptr_t offset = at - block->at;
    if (at < block->at || offset > block->size || nbytes > block->size - offset || block->index != index) continue;
    if (fc_far_of(index, block->serial)) return block;
    fc_error_set("RemoteError", "the tensor is lost with the session that it belonged to; make it again");
    return NULL;
  }
  fc_error_format("IndexError", "%llu bytes are not inside a tensor of hexagon:%d", (unsigned long long)nbytes,
                  (int)index);
  return NULL;
}

/* Bytes of the device's memory as a tensor of its session; `size` is its shape. -1 with an error. */
static int bytes_at(int32_t index, const void* address, const int64_t* size, fc_wire_tensor* out) {
  const Block* block = find(index, address, (uint64_t)*size);
  if (!block) return -1;
  *out = (fc_wire_tensor){.data = block->data,
                          .byte_offset = (uintptr_t)address - block->at,
                          .shape = size,
                          .device = {kDLCPU, 0},
                          .ndim = 1,
                          .dtype = {kDLUInt, 8, 1}};
  return 0;
}

int fc_far_place(int32_t index, const DLTensor* tensor, fc_wire_tensor* to) {
  int64_t nbytes = fc_nbytes(tensor);
  if (nbytes < 0 || bytes_at(index, (const char*)tensor->data + tensor->byte_offset, &nbytes, to) != 0) return -1;
  to->shape = tensor->shape;
  to->ndim = tensor->ndim;
  to->dtype = tensor->dtype;
  return 0;
}

FcTensorObj* fc_far_take(int32_t index, const fc_wire_tensor* tensor, uint64_t owner) {
  DLTensor like = {
      .device = {kDLHexagon, index}, .ndim = tensor->ndim, .dtype = tensor->dtype, .shape = (int64_t*)tensor->shape};
  int64_t nbytes = fc_nbytes(&like);
  const FcFar* far = fc_far_open(index);
  Block block = {
      .size = (uintptr_t)nbytes, .data = tensor->data, .owner = owner, .index = index, .serial = far->serial};
  void* address;
  if (tensor->byte_offset != 0) fc_error_set("ProtocolError", "it returned a tensor that begins inside its memory");
  else if (nbytes >= 0 && add(block, &address) == 0) {
    FcTensorObj* taken = fc_device_tensor_at(&like, address);
    if (!taken) fc_far_memory.release(NULL, index, address);
    return taken;
  }
  fc_far_release(index, far->serial, FC_WIRE_FREE_HANDLE, owner);
  return NULL;
}

void fc_far_forget(void) {
  free(blocks);
  blocks = NULL;
  count = capacity = 0;
}

/* ---- the driver ---- */

static int ask_attribute(int32_t index, int32_t kind, TVMFFIAny* out) {
  TVMFFIAny args[2] = {{.type_index = kTVMFFIDevice, .v_device = {kDLCPU, 0}}, fc_any_int(kind)};
  fc_wire_packet reply, request = {.code = FC_WIRE_DEV_GET_ATTR, .num_args = 2, .args = args};
  FcFar* far = fc_far_open(index);
  if (!far || fc_far_ask(far, &request, NULL, &reply, NULL) != 0) return -1;
  if (reply.num_args == 1 && reply.args[0].type_index == kTVMFFIInt) *out = reply.args[0];
  return 0;
}

static int attribute(void* context, int32_t index, int32_t kind, TVMFFIAny* out) {
  const FcOptions* options = fc_far_options();
  bool exists = index >= 0 && (uint32_t)index < options->device_count;
  (void)context;
  *out = kind == FC_DEVICE_EXISTS ? fc_any_int(exists) : fc_any_none();
  if (kind == FC_DEVICE_EXISTS || !exists) return 0;
  const FcFarDevice* device = &options->devices[index];
  if (kind == NAME) return fc_any_from_bytes(kTVMFFIStr, device->name, device->name_size, out);
  return fc_far_named(index, "an attribute", ask_attribute(index, kind, out));
}

int fc_far_allocate(FcFar* far, uint64_t nbytes, uint64_t* data) {
  TVMFFIAny args[4] = {{.type_index = kTVMFFIDevice, .v_device = {kDLCPU, 0}},
                       fc_any_int((int64_t)nbytes),
                       fc_any_int(ALIGNMENT),
                       {.type_index = kTVMFFIDataType, .v_dtype = {kDLUInt, 8, 1}}};
  fc_wire_packet reply, request = {.code = FC_WIRE_DEV_ALLOC_DATA, .num_args = 4, .args = args};
  if (nbytes > UINTPTR_MAX / 2) return fc_error_no_memory(), -1;
  if (fc_far_ask(far, &request, NULL, &reply, NULL) != 0) return -1;
  if (reply.num_args != 1 || reply.args[0].type_index != kTVMFFIOpaquePtr) return fc_far_unexpected(far);
  *data = reply.args[0].v_uint64;
  return 0;
}

static int allocate_there(int32_t index, uint64_t nbytes, void** address) {
  FcFar* far = fc_far_open(index);
  uint64_t data;
  if (!far || fc_far_allocate(far, nbytes, &data) != 0) return -1;
  Block block = {.size = (uintptr_t)nbytes, .data = data, .index = index, .serial = far->serial};
  if (add(block, address) == 0) return 0;
  fc_far_release(index, far->serial, FC_WIRE_DEV_FREE_DATA, data);
  return -1;
}

static int allocate(void* context, int32_t index, uint64_t nbytes, void** address) {
  (void)context;
  return fc_far_named(index, "an allocation", allocate_there(index, nbytes, address));
}

static void release(void* context, int32_t index, void* address) {
  size_t i = 0;
  (void)context;
  while (i < count && blocks[i].at != (uintptr_t)address) ++i;
  if (i == count) return;
  Block block = blocks[i];
  memmove(blocks + i, blocks + i + 1, (--count - i) * sizeof *blocks);
  fc_far_release(index, block.serial, block.owner ? FC_WIRE_FREE_HANDLE : FC_WIRE_DEV_FREE_DATA,
                 block.owner ? block.owner : block.data);
}

/* Copies between this machine and the device. */
static int transfer(int32_t index, int32_t code, const void* there, void* here, uint64_t nbytes) {
  int64_t size = (int64_t)nbytes;
  bool in = code == FC_WIRE_COPY_TO_REMOTE;
  fc_wire_packet reply, request = {.code = code, .nbytes = nbytes};
  if (bytes_at(index, there, &size, &request.tensor) != 0) return -1;
  return fc_far_ask(fc_far_open(index), &request, in ? here : NULL, &reply, in ? NULL : here);
}

static int write_there(void* context, int32_t index, void* to, const void* from, uint64_t nbytes) {
  (void)context;
  return fc_far_named(index, "a copy", transfer(index, FC_WIRE_COPY_TO_REMOTE, to, (void*)from, nbytes));
}

static int read_there(void* context, int32_t index, void* to, const void* from, uint64_t nbytes) {
  (void)context;
  return fc_far_named(index, "a copy", transfer(index, FC_WIRE_COPY_FROM_REMOTE, from, to, nbytes));
}

static int copy_there(int32_t index, const void* to, const void* from, uint64_t nbytes) {
  int64_t size = (int64_t)nbytes;
  fc_wire_tensor source, target;
  TVMFFIAny args[3] = {{.type_index = kTVMFFIDLTensorPtr, .v_ptr = &source},
                       {.type_index = kTVMFFIDLTensorPtr, .v_ptr = &target},
                       {.type_index = kTVMFFIOpaquePtr}};
  fc_wire_packet reply, request = {.code = FC_WIRE_COPY_AMONG_REMOTE, .num_args = 3, .args = args};
  if (bytes_at(index, from, &size, &source) != 0 || bytes_at(index, to, &size, &target) != 0) return -1;
  return fc_far_ask(fc_far_open(index), &request, NULL, &reply, NULL);
}

static int copy(void* context, int32_t index, void* to, const void* from, uint64_t nbytes) {
  (void)context;
  return fc_far_named(index, "a copy", copy_there(index, to, from, nbytes));
}

static int synchronize(void* context, int32_t index) { /* each request waits for the device's answer */
  (void)context, (void)index;
  return 0;
}

const FcDeviceMemory fc_far_memory = {attribute, allocate, release, write_there, read_there, copy, synchronize, NULL};
