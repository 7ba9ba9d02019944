/*
 * Channels: how the bytes of a connection travel. A channel moves bytes in order, in both directions, and knows no
 * packets. Kinds: descriptors (sockets, pipes: session/posix/channel_fd.c), shared memory (session/posix/channel_shm.c), memory (session/channel_memory.c).
 *
 * One thread may receive while another sends; any thread may interrupt or close, which ends what the others wait
 * for. Failures are negated errno values:
 *   -ETIMEDOUT  the deadline has passed
 *   -EINTR      a signal handler raised; its error is in the thread's slot
 *   -ECANCELED  this side closed the channel
 *   -ECHILD     the channel is that of the process which this one was forked from
 *   -EAGAIN     a memory channel has no more bytes for now
 *   -EPIPE      send: the peer takes no more (what it said last may still be received)
 *   others      the connection broke, and this is how
 * Deadlines are as fc_now_ns() tells time; 0: none.
 */
#ifndef FARCALL_SESSION_CHANNEL_H_
#define FARCALL_SESSION_CHANNEL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/port.h"

#define FC_AT_ONCE 1 /* a deadline for a send that is to wait for nothing */

typedef struct FcChannel FcChannel;

/* Bytes that are sent behind those of the part before. */
typedef struct FcPart {
  void* data;
  size_t size;
} FcPart;

/* What a kind of channel does. After `close`, which is called once, only `destroy` comes. */
typedef struct FcChannelOps {
  /* > 0: so many bytes of n (not 0) have come; 0: the peer has finished; < 0: failed. */
  ptrdiff_t (*receive)(FcChannel* channel, void* to, size_t n, int64_t deadline);
  /* All of the parts (which it may change), in order: 0, or failed. */
  int (*send)(FcChannel* channel, FcPart* parts, size_t count, int64_t deadline);
  /* Nothing more will be sent: the peer finds the end behind what was. 0, or failed. */
  int (*finish)(FcChannel* channel);
  /* Ends waits in other threads, and what may still come or go. */
  void (*interrupt)(FcChannel* channel);
  /* Gives the line back. No thread is inside any more. */
  void (*close)(FcChannel* channel);
  /* Frees what is left beside the channel itself; NULL when nothing is. */
  void (*destroy)(FcChannel* channel);
  /* See fc_channel_hurry; NULL where nothing is kept back. */
  void (*hurry)(const FcChannel* channel);
} FcChannelOps;

/* The beginning of every channel. */
struct FcChannel {
  const FcChannelOps* ops;
  volatile uint8_t* sending; /* NULL, or what to set while a message may be out in part; see fc_channel_note */
  volatile uint64_t* traffic; /* NULL, or where to count bytes: received, and sent */
  uint32_t refs;
  uint32_t users; /* threads inside, and whether it is closed; see session/channel.c */
  uint32_t forks; /* whose it is: a child process can do nothing with it */
};

/* A channel of `size` bytes that begins with FcChannel, with one reference; NULL with an error. */
void* fc_channel_new(size_t size, const FcChannelOps* ops);
void fc_channel_incref(FcChannel* channel);
/* The last reference closes it. */
void fc_channel_decref(FcChannel* channel);

ptrdiff_t fc_channel_receive(FcChannel* channel, void* to, size_t n, int64_t deadline);
int fc_channel_send(FcChannel* channel, FcPart* parts, size_t count, int64_t deadline);
int fc_channel_finish(FcChannel* channel);
void fc_channel_interrupt(FcChannel* channel);
/* Interrupts; the last thread to leave gives the line back. Safe to repeat. */
void fc_channel_close(FcChannel* channel);
bool fc_channel_is_closed(const FcChannel* channel);

/* A process dies in the middle of a message only where this was noted: then nobody must add anything to it. */
static inline void fc_channel_note(FcChannel* channel) {
  if (channel->sending) *channel->sending = 1;
}
/* Takes `sent` bytes off the parts; answers how many parts are left. */
size_t fc_channel_advance(FcPart** parts, size_t count, size_t sent);

/* Acknowledges what comes next at once: a TCP peer with Nagle's algorithm (TVM's server) keeps each further small
 * reply until then, which is 40 ms otherwise. It holds until the next send. */
void fc_channel_hurry(const FcChannel* channel);

/* Over memory: what was fed is received, and what is sent waits to be taken. Never waits. */
FcChannel* fc_memory_channel_new(void);
int fc_memory_channel_feed(FcChannel* channel, const void* data, size_t n); /* 0, or -1 with an error */
void fc_memory_channel_feed_end(FcChannel* channel);
/* What was sent since the last call: a block for free(), NULL when there is none. */
uint8_t* fc_memory_channel_take(FcChannel* channel, size_t* n);

#endif /* FARCALL_SESSION_CHANNEL_H_ */
