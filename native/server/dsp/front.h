/*
 * Calls in the form of FastRPC over a channel: the place of the vendor's driver where there is none, as between a
 * program and an emulated DSP that share a mailbox.
 *
 *   request   u32 scalars, u32 size of what follows, u64 handle, u32 size of each in and out buffer, u64 in handles,
 *             the in buffers
 *   reply     i32 status, u32 size of what follows; if the status is 0: the out buffers, u64 out handles
 *
 * All numbers are little-endian. The sizes of buffers, and each buffer, are filled up to a multiple of 8 bytes.
 */
#ifndef FARCALL_SERVER_DSP_FRONT_H_
#define FARCALL_SERVER_DSP_FRONT_H_

#include <farcall/fastrpc.h>

#include "session/channel.h"

/* The entry of a skel. */
typedef int32_t FcSkel(fc_remote_handle h, uint32_t scalars, fc_remote_arg* args);

/* Passes the calls of a channel's client to a skel of an interface with handles until the client has finished or is
 * gone, then closes the handles that it left open. 0, or a negated errno value; -EPROTO: its bytes are no calls. */
int fc_front_serve(FcChannel* channel, FcSkel* skel);

#endif /* FARCALL_SERVER_DSP_FRONT_H_ */
