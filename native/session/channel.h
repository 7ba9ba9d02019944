/*
 * Channels move the bytes of a connection in order, in both directions, without knowledge of packets. Kinds:
 * descriptors (sockets, pipes: session/posix/channel_fd.c), shared memory (session/posix/channel_shm.c), mailboxes
 * (session/posix/channel_mailbox.c), memory (session/channel_memory.c).
 *
 * One thread may receive while another sends; any thread may interrupt or close, which ends the waits of the others.
 * Failures are negated errno values:
 *   -ETIMEDOUT  the deadline has passed
 *   -EINTR      a signal handler raised; its error is in the thread's slot
 *   -ECANCELED  this side closed the channel
 *   -ECHILD     the channel belongs to the process from which this one was forked
 *   -EAGAIN     a memory channel has no more bytes for now
 *   -EPIPE      send: the peer takes no more (its last bytes may still be received)
 *   others      why the connection broke
 * Deadlines are times of fc_now_ns(); 0: none.
 */
#ifndef FARCALL_SESSION_CHANNEL_H_
#define FARCALL_SESSION_CHANNEL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/port.h"

#define FC_AT_ONCE 1 /* the deadline of a send that must not wait */

typedef struct FcChannel FcChannel;

/* One piece of a message. */
typedef struct FcPart {
  void* data;
  size_t size;
} FcPart;

/* The operations of one kind of channel. After `close`, which is called once, only `destroy` is called. */
typedef struct FcChannelOps {
  /* > 0: the number of bytes received, at most n (not 0); 0: the peer has finished; < 0: failed. */
  ptrdiff_t (*receive)(FcChannel* channel, void* to, size_t n, int64_t deadline);
  /* Sends all parts, in order. 0, or failed; then `parts` holds what is unsent. */
  int (*send)(FcChannel* channel, FcPart* parts, size_t count, int64_t deadline);
  /* Ends sending: the peer finds the end behind the bytes sent so far. 0, or failed. */
  int (*finish)(FcChannel* channel);
  /* Ends waits in other threads; nothing more is received or sent. */
  void (*interrupt)(FcChannel* channel);
  /* Releases the descriptors or the memory. No thread is inside any more. */
  void (*close)(FcChannel* channel);
  /* Frees the rest, but not the channel itself; NULL when there is none. */
  void (*destroy)(FcChannel* channel);
  /* See fc_channel_hurry; NULL for kinds that delay nothing. */
  void (*hurry)(const FcChannel* channel);
} FcChannelOps;

/* The beginning of every channel. */
struct FcChannel {
  const FcChannelOps* ops;
  volatile uint8_t* sending; /* NULL, or a flag that is set while a message may be sent in part; see fc_channel_note */
  volatile uint64_t* traffic; /* NULL, or two counters: bytes received, bytes sent */
  uint32_t refs;
  uint32_t users; /* number of threads inside, and a flag for closed; see session/channel.c */
  uint32_t forks; /* fc_forks of the process that owns it; a child process cannot use it */
};

/* A channel of `size` bytes that begins with FcChannel, with one reference; NULL with an error. */
void* fc_channel_new(size_t size, const FcChannelOps* ops);
void fc_channel_incref(FcChannel* channel);
/* Releasing the last reference closes it. */
void fc_channel_decref(FcChannel* channel);

ptrdiff_t fc_channel_receive(FcChannel* channel, void* to, size_t n, int64_t deadline);
int fc_channel_send(FcChannel* channel, FcPart* parts, size_t count, int64_t deadline);
int fc_channel_finish(FcChannel* channel);
void fc_channel_interrupt(FcChannel* channel);
/* Interrupts; the last thread to leave releases the descriptors or the memory. Safe to repeat. */
void fc_channel_close(FcChannel* channel);
bool fc_channel_is_closed(const FcChannel* channel);

/* Notes that a message may be sent in part. If this process dies then, the supervisor must not send anything after
 * it. */
static inline void fc_channel_note(FcChannel* channel) {
  if (channel->sending) *channel->sending = 1;
}
/* Takes `sent` bytes off the parts; returns the number of parts that are left. Parts that were sent become empty. */
size_t fc_channel_advance(FcPart** parts, size_t count, size_t sent);

/* Acknowledges the next bytes immediately, until the next send: a TCP peer with Nagle's algorithm (TVM's server) holds
 * each further small reply until the acknowledgement, which otherwise takes 40 ms. */
void fc_channel_hurry(const FcChannel* channel);

/* A channel over memory: it receives the bytes that were fed, and keeps sent bytes until they are taken. Never
 * waits. */
FcChannel* fc_memory_channel_new(void);
int fc_memory_channel_feed(FcChannel* channel, const void* data, size_t n); /* 0, or -1 with an error */
void fc_memory_channel_feed_end(FcChannel* channel);
/* The bytes sent since the last call, in a block that the caller must free(); NULL when there are none. */
uint8_t* fc_memory_channel_take(FcChannel* channel, size_t* n);

#endif /* FARCALL_SESSION_CHANNEL_H_ */
