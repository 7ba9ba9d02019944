/* Channels of POSIX systems: over sockets, pipes and shared memory. */
#ifndef FARCALL_SESSION_POSIX_CHANNELS_H_
#define FARCALL_SESSION_POSIX_CHANNELS_H_

#include "session/channel.h"

/* Over descriptors: one for both ways, or one to read and one to write. Takes ownership of them, unless it fails: NULL
 * with an error. */
FcChannel* fc_channel_from_fds(int in, int out);
/* The socket of such a channel (or where it reads), for poll; -1 for another kind. */
int fc_channel_fd(const FcChannel* channel);

/*
 * Over a memory file with two rings (one page, then 2^n bytes for each direction), which is mapped: the descriptor
 * stays the caller's. `line` is the socket over which the file was handed; it is kept, and used for nothing else by
 * this side. accepting: this is the side that listened. NULL with an error.
 */
FcChannel* fc_shared_channel_new(FcChannel* line, int memory, bool accepting);

#endif /* FARCALL_SESSION_POSIX_CHANNELS_H_ */
