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
#define FC_INBOX_SIZE 65536

/* No handle has these bits: numbers that have them are the client's own. */
#define FC_PROMISE_BIT (UINT64_C(1) << 62) /* a result that the server keeps under this number */
#define FC_CLIENT_BIT (UINT64_C(1) << 63)  /* a function of the client's table */

typedef struct FcEndpoint FcEndpoint;

/* What functions that wait answer when a signal handler raised, whose error is the thread's; else they answer -1. */
enum { FC_INTERRUPTED = -2 };

/* What the half of a session that owns an endpoint adds to it. A server's half adds nothing: its side is NULL. */
typedef struct FcSide {
  /* How much longer than a request's own time this side waits for the peer's word of what happened; nanoseconds. */
  int64_t (*grace)(const FcEndpoint* ep);
  /* This side has closed the session. The lock is held. */
  void (*closed)(FcEndpoint* ep);
  /* The last reference is gone: frees ep->client. */
  void (*free)(FcEndpoint* ep);
} FcSide;

/*
 * The line has two directions. A thread that holds `lock` has both, except in these states, in which a thread is on
 * the line without the lock. Both flags change under the lock, and `turn` says so (session/endpoint_turn.c).
 *
 *   reading  sending   who is on the line                 fc_endpoint_enter   fc_endpoint_enter_to_send
 *   false    false     nobody                             enters              enters
 *   true     false     a thread that receives a reply     waits               enters
 *   false    true      a thread that sends, and lets      waits               waits
 *                      the lock go while the line is full
 *   true     true      both                               waits               waits
 *
 * The thread that receives chooses how, for one reply:
 *
 *   shared   it receives without the lock (`reading`); else it keeps the lock
 *   patient  the deadline ends the wait alone, and sets `late`: the reply is still to come; else it ends the session
 *   resumable  so does the error of a signal handler, which sets `interrupted`, too
 *
 * A signal handler may also raise while a thread sends. What is not out then stays in the outbox; when a packet is out
 * in part (`torn`), nothing else may be sent before the rest of it.
 *
 * `starved` is of channels that never wait: all bytes were fed, and more may come.
 */
struct FcEndpoint {
  int64_t refs;
  FcChannel* channel;
  const FcSide* side;      /* NULL: a server's */
  struct FcClient* client; /* the side's own, see session/client/remote.h; NULL without one */
  FcMutex lock;    /* one exchange at a time; guards what follows, up to `peer` */
  FcCondition turn;     /* `reading` or `sending` has changed, or a call has ended */
  bool reading, sending;
  bool shared, patient, late;
  bool resumable, interrupted, torn;
  bool starved;
  int64_t timeout_ns;    /* for one exchange; 0: no limit */
  int64_t deadline;      /* until when the exchange in progress waits; 0: as long as it takes */
  int64_t due;           /* when its time is over: the far side may say so until the deadline. 0: no limit */
  fc_wire_reader reader;
  uint8_t* inbox;        /* bytes that were received and not yet fed */
  size_t inbox_at, inbox_end;
  uint8_t* outbox;
  size_t outbox_capacity;
  size_t queued;         /* bytes of it that wait to be sent: see fc_endpoint_queue */
  FcEndpoint* before_wait; /* whose queue is sent before this one waits for bytes: its own, but in relays */
  int64_t allowed_ns;    /* how long that deadline gave, for messages */
  uint64_t bytes_in, bytes_out; /* of packets, since the session began */
  int64_t arrived;       /* when bytes were last received, while that is traced; else 0 */
  char lost_kind[48];    /* why the connection cannot be used any more; "" while it can */
  char lost_text[1024];
  char peer[FC_PEER_NAME_MAX];
  FcMutex lost_lock; /* two threads of a relay may lose the connection at once */
};

/* Takes a reference to the channel. Limits beyond what this machine can address are lowered to that. NULL with an
 * error. The client's is made by fc_client_endpoint_new. */
FcEndpoint* fc_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits);
void fc_endpoint_incref(FcEndpoint* ep);
/* A new reference, unless the last one is gone already and the endpoint is being freed. */
bool fc_endpoint_try_incref(FcEndpoint* ep);
void fc_endpoint_decref(FcEndpoint* ep);
/* Says kShutdown when the line is idle, and ends calls in progress in other threads. */
void fc_endpoint_close(FcEndpoint* ep, bool farewell);
/* An empty packet, which means nothing but that this side still runs; none where an exchange says that already.
 * False when the connection is lost. */
bool fc_endpoint_beat(FcEndpoint* ep);

/* ---- both sides; the caller holds the lock (fc_endpoint_enter) ---- */

/* When this thread's calls must have ended (CLOCK_MONOTONIC, ns); 0: no limit. */
extern FC_TLS int64_t fc_deadline;
/* Locks, and starts the deadline. -1 with an error when the connection is lost already, or when this thread's deadline
 * passes before its turn comes (the session goes on). */
int fc_endpoint_enter(FcEndpoint* ep);
/* fc_deadline has passed: an error, and the session goes on. `what` was not sent (NULL: its turn did not come). */
FC_COLD int fc_endpoint_too_late(const FcEndpoint* ep, const char* what);
static inline bool fc_deadline_has_passed(void) { return FC_UNLIKELY(fc_deadline) && fc_deadline <= fc_now_ns(); }
/* Starts the deadline of what this thread does next: the endpoint's own timeout, or fc_deadline where that is sooner. */
void fc_endpoint_start_deadline(FcEndpoint* ep);
void fc_endpoint_leave(FcEndpoint* ep);
/* Locks, and nothing else. -1 without an error when `until` (0: never) came first; FC_INTERRUPTED. */
int fc_endpoint_lock(FcEndpoint* ep, int64_t until);
/* Locks to send: unlike fc_endpoint_enter also while another thread receives. */
int fc_endpoint_enter_to_send(FcEndpoint* ep);
/* Locks again after fc_endpoint_leave, for a thread that goes on with what it has begun. */
void fc_endpoint_reenter(FcEndpoint* ep);
/* Waits until no other thread sends or receives; -1 with an error when fc_deadline passes before. */
int fc_endpoint_await_turn(FcEndpoint* ep);
/* Waits until another thread has read something, or has sent all, or for a moment. -1 without an error when `until`
 * (0: never) came first; FC_INTERRUPTED. */
int fc_endpoint_await_other(FcEndpoint* ep, int64_t until);
/* Sends a packet, and its payload, at the latest before this side waits for bytes; what is queued at the same time
 * goes out in one piece. -1 with an error. */
int fc_endpoint_queue(FcEndpoint* ep, const fc_wire_packet* packet, const void* payload);
/* Sends what is queued now. */
int fc_endpoint_flush_queue(FcEndpoint* ep);
/* The next event: FC_WIRE_PACKET, FC_WIRE_PAYLOAD or FC_WIRE_PAYLOAD_END; FC_WIRE_MORE when the peer has closed
 * (in good order when fc_wire_at_boundary), or ep->starved; FC_WIRE_FAILED with an error. */
fc_wire_event fc_endpoint_next(FcEndpoint* ep, fc_wire_packet* out);
/* The same; where the line is `shared`, without the lock. */
fc_wire_event fc_endpoint_next_in_turn(FcEndpoint* ep, fc_wire_packet* out);

/* Ends the connection. The first reason stays, and becomes the error. Answers -1. */
FC_COLD int fc_endpoint_lose(FcEndpoint* ep, const char* kind, const char* format, ...) FC_PRINTF(3, 4);
/* The same for what the peer did wrong; a server says it to the peer, too. */
FC_COLD int fc_endpoint_refuse(FcEndpoint* ep, const char* text);
static inline bool fc_endpoint_is_lost(const FcEndpoint* ep) {
  return __atomic_load_n(&ep->lost_kind[0], __ATOMIC_ACQUIRE) != 0;
}
/* Encodes behind `used` bytes of the outbox; -1 with an error. */
int fc_endpoint_encode(FcEndpoint* ep, const fc_wire_packet* packet, size_t* used);
/* Bytes that the peer hears if it can, whatever comes after them. */
void fc_endpoint_send_last(FcEndpoint* ep, const void* bytes, size_t n);
/* The same when the far side took too long. */
FC_COLD int fc_endpoint_overdue(FcEndpoint* ep, int64_t allowed_ns);
/* As fc_endpoint_lose, for a failure of the channel (a negated errno). */
FC_COLD int fc_endpoint_broken(FcEndpoint* ep, int error);
FC_COLD int fc_endpoint_encode_error(fc_wire_status status);
/* Sends what is in the outbox, and a payload behind it. 1: all is out; 0: the peer takes no more (what it said
 * last may still be read); -1 with an error. */
int fc_endpoint_flush(FcEndpoint* ep, size_t used, const void* payload, size_t nbytes);

#endif /* FARCALL_SESSION_ENDPOINT_H_ */
