/*
 * Two byte rings in memory that two processes share, one for each direction: what channels over shared memory
 * (channel_shm.c) and over mailboxes (channel_mailbox.c) have in common.
 *
 * The sender copies into a ring while the receiver copies out of it. A side that waits spins for a moment, then sleeps.
 * The peer can write anything into the memory at any time. So this side keeps its own positions in private memory,
 * reads the peer's once and checks them, and copies bytes out before it interprets them.
 */
#ifndef FARCALL_SESSION_POSIX_RINGS_H_
#define FARCALL_SESSION_POSIX_RINGS_H_

#include "session/channel.h"

enum { FC_RING_MIN = 4096, FC_RING_MAX = 1 << 24 };

/* One direction: words (see words.h). Each side writes a cache line of its own. */
typedef struct FcLane {
  _Alignas(64) uint32_t written; /* by the sender, which waits on `taken` */
  uint32_t sender_sleeps;
  _Alignas(64) uint32_t taken; /* by the receiver, which waits on `written` */
  uint32_t receiver_sleeps;
} FcLane;

/* The beginning of a channel over rings. */
typedef struct FcRings {
  FcChannel base;
  /* Whether a waiting side may go on to wait. False: the peer writes and reads no more. Called between sleeps. */
  bool (*peer_lives)(const struct FcRings* rings);
  FcLane *out, *in;
  uint8_t *out_ring, *in_ring;
  uint32_t capacity; /* of a ring, a power of two */
  uint32_t written;  /* this side's positions; those in the lanes are for the peer only */
  uint32_t taken;
  uint32_t out_spins, in_spins; /* see changes_soon */
  bool finished;                /* this side sends no more */
  uint32_t broken;              /* interrupted */
} FcRings;

/* Whether a ring may have this capacity. */
bool fc_rings_capacity(int64_t capacity);
/* Sets the rings up: lanes[0] and the first ring carry what the connecting side sends. Goes on at this side's positions
 * in the lanes. */
void fc_rings_init(FcRings* rings, FcLane* lanes, uint8_t* memory, uint32_t capacity, bool accepting);

/* As the operations of a channel (session/channel.h), except that receive gives -ECONNRESET when the peer is gone: it
 * has neither sent more nor finished. */
ptrdiff_t fc_rings_receive(FcRings* rings, void* to, size_t n, int64_t deadline);
int fc_rings_send(FcChannel* rings, FcPart* parts, size_t count, int64_t deadline);
int fc_rings_finish(FcChannel* rings);
/* Wakes the threads of both sides, which find the rings closed. */
void fc_rings_interrupt(FcRings* rings);
/* Tells the threads of both sides that nobody uses the lanes any more. */
void fc_lanes_end(FcLane* lanes);

#endif /* FARCALL_SESSION_POSIX_RINGS_H_ */
