/*
 * One end of a connection that speaks the packets of farcall/wire.h. This part knows no Python: remote
 * Functions and Tensors are ordinary objects, which native code may call, hold and release from any thread.
 */
#ifndef FARCALL_SESSION_ENDPOINT_H_
#define FARCALL_SESSION_ENDPOINT_H_

#include <farcall/wire.h>
#include <pthread.h>

#include "session/channel.h"
#include "runtime/runtime.h"

#define FC_WIRE_MAX_NDIM 32
#define FC_PEER_NAME_MAX 256
#define FC_INBOX_SIZE 65536

/* No handle has these bits: numbers that have them are the client's own. */
#define FC_PROMISE_BIT (UINT64_C(1) << 62) /* a result that the server keeps under this number */
#define FC_CLIENT_BIT (UINT64_C(1) << 63)  /* a function of the client's table */

/* What the other side holds for us, to be released with a later request. */
typedef struct FcPendingFree {
  uint64_t handle;
  DLDevice device; /* device_type 0: kFreeHandle, else kDevFreeData */
} FcPendingFree;

typedef struct FcEndpoint {
  int64_t refs;
  int32_t slot;          /* place in the table of client sessions; -1 on the server's side */
  uint64_t serial;       /* of this one alone, in this process */
  FcChannel* channel;
  pthread_mutex_t lock;  /* one exchange at a time; also guards what follows, up to `frees` */
  int64_t timeout_ns;    /* for one exchange; 0: no limit */
  int64_t deadline;      /* until when the exchange in progress waits; 0: as long as it takes */
  int64_t due;           /* when its time is over: the far side may say so until the deadline. 0: no limit */
  fc_wire_reader reader;
  uint8_t* inbox;        /* bytes that were received and not yet fed */
  size_t inbox_at, inbox_end;
  uint8_t* outbox;
  size_t outbox_capacity;
  size_t queued;         /* bytes of it that wait to be sent: see fc_endpoint_queue */
  struct FcEndpoint* before_wait; /* whose queue is sent before this one waits for bytes: its own, but in relays */
  int64_t allowed_ns;    /* how long that deadline gave, for messages */
  uint64_t bytes_in, bytes_out; /* of packets, since the session began */
  int64_t arrived;       /* when bytes were last received, while that is traced; else 0 */
  bool patient;          /* what comes too late is waited for later: the deadline does not end the session */
  bool shared;           /* other threads may send while this one receives */
  bool late;             /* that has happened: what is awaited is still to come */
  struct FcClient* client; /* the client's half, see session/client/remote.h; NULL on the server's side */
  bool starved;          /* fc_endpoint_next has fed all that a memory channel has, and more may come */
  char lost_kind[48];    /* why the connection cannot be used any more; "" while it can */
  char lost_text[1024];
  char peer[FC_PEER_NAME_MAX];
  pthread_mutex_t free_lock; /* guards the queue below; taken in destructors, held for moments */
  FcPendingFree* frees;
  size_t frees_count, frees_capacity;
} FcEndpoint;

/* Takes a reference of its own. client: enters the table of client sessions. NULL with an error. */
FcEndpoint* fc_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits, bool client);
void fc_endpoint_incref(FcEndpoint* ep);
void fc_endpoint_decref(FcEndpoint* ep);
/* Says kShutdown when the line is idle, and ends calls in progress in other threads. */
void fc_endpoint_close(FcEndpoint* ep, bool farewell);
/* The client's endpoint of that serial number, as a new reference; NULL when nothing holds it any more. */
FcEndpoint* fc_endpoint_of_serial(uint64_t serial);
/* An empty packet, which means nothing but that this side still runs; none where an exchange says that already.
 * False when the connection is lost. */
bool fc_endpoint_beat(FcEndpoint* ep);
/* The endpoint behind a remote device, as a new reference; NULL with an error. */
FcEndpoint* fc_endpoint_of(DLDevice device);

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
/* Sends a packet, and its payload, at the latest before this side waits for bytes; what is queued at the same time
 * goes out in one piece. -1 with an error. */
int fc_endpoint_queue(FcEndpoint* ep, const fc_wire_packet* packet, const void* payload);
/* Sends what is queued now. */
int fc_endpoint_flush_queue(FcEndpoint* ep);
/* The next event: FC_WIRE_PACKET, FC_WIRE_PAYLOAD or FC_WIRE_PAYLOAD_END; FC_WIRE_MORE when the peer has closed
 * (in good order when fc_wire_at_boundary), or ep->starved; FC_WIRE_FAILED with an error. */
fc_wire_event fc_endpoint_next(FcEndpoint* ep, fc_wire_packet* out);

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
int fc_endpoint_flush(FcEndpoint* ep, size_t used, const void* payload, uint64_t nbytes);

/* "Kind: message", the form in which exceptions travel: the message, and its kind (RemoteError when it has none). */
enum { FC_KIND_MAX = 48 };
const char* fc_endpoint_split_kind(const char* text, char kind[FC_KIND_MAX]);
/* The number behind "hop ", and where the text goes on with "(URL): "; 0 when the text is none of a hop. */
int fc_endpoint_read_hop(const char* message, const char** rest);
/* Whether a kException of this kind says that the session is over. */
bool fc_endpoint_is_last_word(const char* kind);

/* ---- client ---- */

/* One request and its reply (kReturn), in *reply until the next exchange. `what` is named in errors. */
int fc_endpoint_request(FcEndpoint* ep, const fc_wire_packet* request, const char* what, fc_wire_packet* reply);
/* The same with a payload behind the request, or with a place for the payload of the reply (request->nbytes). */
int fc_endpoint_exchange(FcEndpoint* ep, const fc_wire_packet* request, const void* payload, const char* what,
                         fc_wire_packet* reply, void* sink);
/* Queues a release. Never blocks, never fails loudly: without memory the far side keeps it until the end. */
void fc_endpoint_free_later(FcEndpoint* ep, uint64_t handle, DLDevice device);

/* A remote Function; `handle` moves in. The result is a Function object, or NULL with an error. */
TVMFFIObject* fc_remote_function(FcEndpoint* ep, uint64_t handle, const char* name);
/* An uninitialised tensor on the remote device (its plain number). */
FcTensorObj* fc_remote_empty(FcEndpoint* ep, DLDevice device, int32_t ndim, const int64_t* shape, DLDataType dtype);
/* Copies between a contiguous remote tensor and memory of this process, of the same size. */
int fc_remote_copy_in(FcEndpoint* ep, const DLTensor* remote, const DLTensor* local);
int fc_remote_copy_out(FcEndpoint* ep, const DLTensor* remote, void* memory);

#endif /* FARCALL_SESSION_ENDPOINT_H_ */
