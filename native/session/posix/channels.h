/* Channels of POSIX systems: over sockets, pipes and shared memory. */
#ifndef FARCALL_SESSION_POSIX_CHANNELS_H_
#define FARCALL_SESSION_POSIX_CHANNELS_H_

#include "session/channel.h"

/* A channel over descriptors: one for both directions, or one to read and one to write. Takes ownership of them, except
 * on failure: NULL with an error. */
FcChannel* fc_channel_from_fds(int in, int out);
/* The descriptor from which such a channel reads, for poll; -1 for another kind. */
int fc_channel_fd(const FcChannel* channel);

/*
 * A channel over a memory file with two rings (one page, then 2^n bytes for each direction). It maps the file; the
 * caller keeps the descriptor. `line` is the socket over which the file was passed: the channel adds a reference, and
 * the caller must not use it otherwise. accepting: this side listened. NULL with an error.
 */
FcChannel* fc_shared_channel_new(FcChannel* line, int memory, bool accepting);

#endif /* FARCALL_SESSION_POSIX_CHANNELS_H_ */
