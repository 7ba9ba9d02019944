/* Files of a session, loaded by a device behind this server. */
#ifndef FARCALL_SERVER_POSIX_FAR_MODULE_H_
#define FARCALL_SERVER_POSIX_FAR_MODULE_H_

#include "runtime/runtime.h"

/* farcall.rpc.device_module(device, name) */
int fc_far_load_module(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);

#endif /* FARCALL_SERVER_POSIX_FAR_MODULE_H_ */
