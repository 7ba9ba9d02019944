/*
 * One end of a connection that speaks the packets of farcall/wire.h. This part knows no Python: remote
 * Functions and Tensors are ordinary objects, which native code may call, hold and release from any thread.
 */
#ifndef FARCALL_SESSION_ENDPOINT_H_
#define FARCALL_SESSION_ENDPOINT_H_

#include <farcall/wire.h>

#include "session/channel.h"
#include "runtime/runtime.h"

#define FC_WIRE_MAX_NDIM 32
#define FC_PEER_NAME_MAX 256
#if defined(FARCALL_BARE)
#define FC_INBOX_SIZE 4096
#else
#define FC_INBOX_SIZE 65536
#endif

/* No handle has these bits: numbers that have them are the client's own. */
#define FC_PROMISE_BIT (UINT64_C(1) << 62) /* a result that the server keeps under this number */
#define FC_CLIENT_BIT (UINT64_C(1) << 63)  /* a function of the client's table */

typedef struct FcEndpoint FcEndpoint;

/* Returned by functions that wait when a signal handler raised; the error is then in the thread's slot. */
enum { FC_INTERRUPTED = -2 };

/* The functions that the client's half adds to its endpoint. A server adds none: its side is NULL. */
typedef struct FcSide {
  /* How much longer than a request's own time this side waits for the peer to report its outcome; nanoseconds. */
  int64_t (*grace)(const FcEndpoint* ep);
  /* A send was interrupted: the first n bytes of the outbox are unsent. The next use of the line sends them first. */
  void (*unsent)(FcEndpoint* ep, size_t n);
  /* This side has closed the session. The lock is held. */
  void (*closed)(FcEndpoint* ep);
  /* Called when the last reference is released: frees ep->client. */
  void (*free)(FcEndpoint* ep);
} FcSide;

/*
 * The line has two directions. A thread that holds `lock` may use both, except in these states, in which a thread uses
 * the line without the lock. Both flags change under the lock, and `turn` signals each change
 * (session/endpoint_turn.c).
 *
 *   reading  sending   which thread uses the line         fc_endpoint_enter   fc_endpoint_enter_to_send
 *   false    false     nobody                             enters              enters
 *   true     false     a thread that receives a reply     waits               enters
 *   false    true      a thread that sends; it unlocks    waits               waits
 *                      while the line is full
 *   true     true      both                               waits               waits
 *
 * The receiving thread sets these for one reply:
 *
 *   shared   it receives without the lock (`reading`); otherwise it keeps the lock
 *   patient  the deadline ends only the wait, and sets `late` (the reply is still to come); otherwise it ends the
 *            session
 *
 * A client's endpoint is `resumable` once its session has begun: an error of a signal handler ends only the wait, and
 * sets `late` and `interrupted`. If it comes while a thread sends, the unsent bytes stay in the outbox; when a packet
 * has been sent in part (`torn`), its rest must be sent before anything else.
 *
 * `starved` is for channels that never wait: all bytes were fed, and more may come.
 */
struct FcEndpoint {
  int64_t refs;
  FcChannel* channel;
  const FcSide* side;      /* NULL in a server */
  struct FcClient* client; /* state of the client's half, see session/client/remote.h; NULL in a server */
  FcMutex lock;    /* one exchange at a time; guards the fields below, up to `peer` */
  FcCondition turn;     /* `reading` or `sending` has changed, or a call has ended */
  bool reading, sending;
  bool shared, patient, late;
  bool resumable, interrupted, torn;
  bool starved;
  int64_t timeout_ns;    /* for one exchange; 0: no limit */
  int64_t deadline;      /* until when the exchange in progress waits; 0: as long as it takes */
  int64_t due;           /* when its time is over; the peer may report that until `deadline`. 0: no limit */
  fc_wire_reader reader;
  uint8_t* inbox;        /* bytes that were received and not yet fed */
  size_t inbox_at, inbox_end;
  uint8_t* outbox;
  size_t outbox_capacity;
  size_t queued;         /* bytes of the outbox that wait to be sent: see fc_endpoint_queue */
  FcEndpoint* before_wait; /* its queue is sent before this one waits for bytes: itself, except in relays */
  int64_t allowed_ns;    /* how long the exchange was given, for messages */
  uint64_t bytes_in, bytes_out; /* bytes of packets since the session began */
  int64_t arrived;       /* while tracing: when bytes were last received; else 0 */
  char lost_kind[48];    /* why the connection cannot be used any more; "" while it can */
  char lost_text[1024];
  char peer[FC_PEER_NAME_MAX];
  FcMutex lost_lock; /* two threads of a relay may lose the connection at once */
};

/* Takes a reference to the channel. Lowers limits that exceed what this machine can address. NULL with an error. For a
 * client: fc_client_endpoint_new. */
FcEndpoint* fc_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits);
void fc_endpoint_incref(FcEndpoint* ep);
/* Adds a reference, unless the last one was released and the endpoint is being freed. */
bool fc_endpoint_try_incref(FcEndpoint* ep);
void fc_endpoint_decref(FcEndpoint* ep);
/* Ends calls in progress in other threads. With `farewell`, sends kShutdown first when the line is idle. */
void fc_endpoint_close(FcEndpoint* ep, bool farewell);
/* Sends an empty packet, which says only that this side still runs; not while an exchange says that already. False when
 * the connection is lost. */
bool fc_endpoint_beat(FcEndpoint* ep);

/* ---- both sides; the caller holds the lock (fc_endpoint_enter) ---- */

/* When this thread's calls must have ended (CLOCK_MONOTONIC, ns); 0: no limit. */
extern FC_TLS int64_t fc_deadline;
/* Locks, and starts the deadline. -1 with an error when the connection is lost, or when this thread's deadline passes
 * before its turn comes (the session goes on). */
int fc_endpoint_enter(FcEndpoint* ep);
/* Sets the error for a passed fc_deadline; the session goes on. `what` was not sent (NULL: its turn did not come). */
FC_COLD int fc_endpoint_too_late(const FcEndpoint* ep, const char* what);
static inline bool fc_deadline_has_passed(void) { return FC_UNLIKELY(fc_deadline) && fc_deadline <= fc_now_ns(); }
/* Starts the deadline of this thread's next operation: the endpoint's timeout, or fc_deadline if that is sooner. */
void fc_endpoint_start_deadline(FcEndpoint* ep);
void fc_endpoint_leave(FcEndpoint* ep);
/* Locks, and nothing else. -1 without an error when `until` (0: never) came first; FC_INTERRUPTED. */
int fc_endpoint_lock(FcEndpoint* ep, int64_t until);
/* Locks to send; unlike fc_endpoint_enter, this succeeds while another thread receives. */
int fc_endpoint_enter_to_send(FcEndpoint* ep);
/* Locks again after fc_endpoint_leave, for a thread that continues an operation. */
void fc_endpoint_reenter(FcEndpoint* ep);
/* Waits until no other thread sends or receives; -1 with an error when fc_deadline passes before. */
int fc_endpoint_await_turn(FcEndpoint* ep);
/* Waits until another thread has read something or sent everything, or for a moment. -1 without an error when `until`
 * (0: never) came first; FC_INTERRUPTED. */
int fc_endpoint_await_other(FcEndpoint* ep, int64_t until);
/* Queues a packet and its payload. They are sent before this side next waits for bytes, at the latest; packets that are
 * queued together are sent together. -1 with an error. */
int fc_endpoint_queue(FcEndpoint* ep, const fc_wire_packet* packet, const void* payload);
/* Sends the queue now. */
int fc_endpoint_flush_queue(FcEndpoint* ep);
/* The next event: FC_WIRE_PACKET, FC_WIRE_PAYLOAD or FC_WIRE_PAYLOAD_END; FC_WIRE_MORE when the peer has closed
 * (cleanly when fc_wire_at_boundary), or ep->starved; FC_WIRE_FAILED with an error. */
fc_wire_event fc_endpoint_next(FcEndpoint* ep, fc_wire_packet* out);
/* The same, but without the lock while the line is `shared`. */
fc_wire_event fc_endpoint_next_in_turn(FcEndpoint* ep, fc_wire_packet* out);

/* Ends the connection. The first reason stays, and becomes the error. Returns -1. */
FC_COLD int fc_endpoint_lose(FcEndpoint* ep, const char* kind, const char* format, ...) FC_PRINTF(3, 4);
/* The same for a violation of the protocol by the peer; a server also tells the peer. */
FC_COLD int fc_endpoint_refuse(FcEndpoint* ep, const char* text);
static inline bool fc_endpoint_is_lost(const FcEndpoint* ep) {
  return __atomic_load_n(&ep->lost_kind[0], __ATOMIC_ACQUIRE) != 0;
}
/* Encodes behind `used` bytes of the outbox; -1 with an error. */
int fc_endpoint_encode(FcEndpoint* ep, const fc_wire_packet* packet, size_t* used);
/* Sends the last bytes of a connection, as far as the peer still takes them. */
void fc_endpoint_send_last(FcEndpoint* ep, const void* bytes, size_t n);
/* As fc_endpoint_lose, for a peer that took too long. */
FC_COLD int fc_endpoint_overdue(FcEndpoint* ep, int64_t allowed_ns);
/* As fc_endpoint_lose, for a failure of the channel (a negated errno). */
FC_COLD int fc_endpoint_broken(FcEndpoint* ep, int error);
FC_COLD int fc_endpoint_encode_error(fc_wire_status status);
/* Sends the outbox, and a payload behind it. 1: everything is sent; 0: the peer takes no more (its last bytes may still
 * be read); -1 with an error. When a signal handler raises, a client keeps a copy of what is unsent: see FcSide. */
int fc_endpoint_flush(FcEndpoint* ep, size_t used, const void* payload, size_t nbytes);

/* Ends the span of a copy, if `start` is not 0. tensor: what was copied; NULL if that is not known any more. */
FC_COLD void fc_trace_copy(const char* name, int32_t track, const fc_wire_tensor* tensor, uint64_t bytes,
                           int64_t start);

#endif /* FARCALL_SESSION_ENDPOINT_H_ */
