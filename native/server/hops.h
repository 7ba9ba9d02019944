/* The devices behind this server, by the names that its owner gave them. */
#ifndef FARCALL_SERVER_HOPS_H_
#define FARCALL_SERVER_HOPS_H_

#include "server/session.h"

/* Connects to the device at a URL that a client wrote, "device:NAME", if the session's token allows that: up to the end
 * of the handshake. The error names the hop. */
FcEndpoint* fc_hops_open(FcSession* session, TVMFFIByteArray url);
/* The index of the device that the owner named so; -1 without an error. */
int32_t fc_hops_find(const FcOptions* options, TVMFFIByteArray name);
/* The error for a device that the owner did not name; returns -1. */
int fc_hops_no_device(const FcOptions* options, TVMFFIByteArray name);

#endif /* FARCALL_SERVER_HOPS_H_ */
