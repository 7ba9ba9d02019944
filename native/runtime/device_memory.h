/*
 * Device memory: memory that the CPU cannot address, such as an accelerator's.
 *
 * A process registers one FcDeviceMemory for each DLPack device type that it drives. Tensors on that device then carry
 * its addresses in `data`, and every copy goes through the functions below. The CPU's own memory needs no registration.
 *
 * An address may point into an allocation: `data + byte_offset` is passed on as one number. It is never dereferenced.
 */
#ifndef FARCALL_RUNTIME_DEVICE_MEMORY_H_
#define FARCALL_RUNTIME_DEVICE_MEMORY_H_

#include "runtime/runtime.h"

/* Attributes of a device, numbered as kDevGetAttr numbers them (facts A.7). */
enum { FC_DEVICE_EXISTS = 0, FC_DEVICE_ATTRIBUTES = 17 };

/* `index` is the device_id. Functions that return int return 0, or -1 with an error in the thread's slot. */
typedef struct FcDeviceMemory {
  /* Reads one attribute: None when the device does not have it. FC_DEVICE_EXISTS gives 0 or 1, for any index. */
  int (*attribute)(void* context, int32_t index, int32_t kind, TVMFFIAny* out);
  /* Zeroed memory, aligned to 64 bytes. Zeroed, so that a session cannot read another session's data. */
  int (*allocate)(void* context, int32_t index, uint64_t nbytes, void** address);
  void (*release)(void* context, int32_t index, void* address);
  int (*write)(void* context, int32_t index, void* to, const void* from, uint64_t nbytes); /* from the CPU */
  int (*read)(void* context, int32_t index, void* to, const void* from, uint64_t nbytes);  /* to the CPU */
  int (*copy)(void* context, int32_t index, void* to, const void* from, uint64_t nbytes); /* the ranges may overlap */
  int (*synchronize)(void* context, int32_t index); /* returns when the device has finished its work */
  void* context;
} FcDeviceMemory;

/*
 * Registers the memory of a device type, or removes it (NULL). The registry borrows `memory`, which must live as long
 * as the process: its tensors outlive a removal. -1 with an error for the CPU and for invalid device types.
 */
int fc_device_memory_set(int32_t device_type, const FcDeviceMemory* memory);
/* The memory of a device that exists; NULL for the CPU and for devices that nobody registered. */
const FcDeviceMemory* fc_device_memory_of(DLDevice device);
/* Whether this process can allocate on the device: cpu:0, or a registered device that exists. */
bool fc_device_is_here(DLDevice device);
/* The same with an error that lists the device types of this process. */
int fc_device_check(DLDevice device);

/* A zeroed row-major tensor like the prototype, on a device of this process. NULL with an error. */
FcTensorObj* fc_device_tensor_new(const DLTensor* prototype);
/* The same at an address that the device's memory has allocated, which becomes the tensor's. NULL with an error: then it
 * is still the caller's. */
FcTensorObj* fc_device_tensor_at(const DLTensor* prototype, void* address);

/* An address, and the device that it belongs to. */
typedef struct FcPlace {
  void* address;
  DLDevice device;
} FcPlace;
static inline FcPlace fc_place_cpu(const void* address) { return (FcPlace){(void*)address, {kDLCPU, 0}}; }
/* Copies between any two devices of this process. Between two accelerators the bytes pass through the CPU. */
int fc_device_copy(FcPlace to, FcPlace from, uint64_t nbytes);
/* Copies a row-major tensor to another device. NULL with an error. */
FcTensorObj* fc_device_tensor_copy(const DLTensor* from, DLDevice to);

#endif /* FARCALL_RUNTIME_DEVICE_MEMORY_H_ */
