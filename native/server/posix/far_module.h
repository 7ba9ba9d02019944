/* Files of a session, loaded by a device behind this server. */
#ifndef FARCALL_SERVER_POSIX_FAR_MODULE_H_
#define FARCALL_SERVER_POSIX_FAR_MODULE_H_

#include "runtime/runtime.h"

/* Sends a file to the device, which loads it: the handle of its module. -1 with an error. */
int fc_far_load(int32_t index, TVMFFIByteArray name, const uint8_t* data, size_t size, uint64_t* module);
/* The handle of a function of a module of the device. -1 with an error. */
int fc_far_function_of(int32_t index, uint64_t module, TVMFFIByteArray name, uint64_t* function);
/* farcall.rpc.device_module(device, name) */
int fc_far_load_module(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);

#endif /* FARCALL_SERVER_POSIX_FAR_MODULE_H_ */
