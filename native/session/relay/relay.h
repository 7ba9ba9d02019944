/*
 * A session that goes on to the next one: requests are forwarded, and handles rewritten, both ways. The client's
 * numbers (promises, and functions of the client) go through as they are.
 *
 * Two threads work, each of which receives on one line and sends on the other: `forward` (the server's own) takes
 * requests of the client, `backward` takes the replies. Requests do not wait for replies of earlier ones: what is on
 * its way stands in a queue, since a server answers in order.
 */
#ifndef FARCALL_SESSION_RELAY_RELAY_H_
#define FARCALL_SESSION_RELAY_RELAY_H_

#include "session/server/serve.h"

/* What messages and traces call a function. Counted under the relay's lock. */
typedef struct FcName {
  uint32_t refs;
  char text[];
} FcName;

/* A request whose reply is still to come. */
typedef struct FcPending {
  uint64_t nbytes;  /* kCopyFromRemote: of the payload */
  TVMFFIAny answer; /* here: what the client is told; an Error is an exception. Owned */
  int64_t began;    /* while somebody traces */
  int32_t code;
  bool here;        /* the far side is not asked */
  bool tells;       /* it is a call of farcall.rpc.deadline */
  uint32_t scope;   /* kGetGlobalFunc: what a session needs to call the function; FC_RELAY_KEEPS, FC_RELAY_DEADLINE */
  FcDeadline deadline; /* of this request */
  FcDue due;        /* the same, from when the far side came to it */
  FcName* name;     /* of the function that is called; NULL: not known. Owned */
  FcName* gives;    /* of the function that may be the result; the same */
} FcPending;

#define FC_RELAY_KEEPS UINT32_C(0x100)    /* the function is farcall.rpc.keep */
#define FC_RELAY_DEADLINE UINT32_C(0x200) /* farcall.rpc.deadline */

/* For the word of the server that follows, which says where the time went. */
#define FC_DEADLINE_HOP_NS INT64_C(100000000)

typedef struct FcRelay {
  FcServer* server;
  FcEndpoint *near, *far;
  FcMutex lock; /* guards what follows */
  FcCondition moved; /* the queue became shorter */
  FcHandles handles;    /* the client's handle -> the far side's */
  FcName** names;       /* of the functions among them, by slot */
  uint32_t names_size;
  FcPending* queue;     /* a ring */
  size_t first, count, capacity;
  FcPending* suspended; /* calls during which the far side has called the client; the innermost is last */
  size_t suspended_count, suspended_capacity;
  FcDeadline deadline;  /* of the requests that come now */
  bool done;            /* the far side is lost, and all that was asked of it is answered */
  char name[FC_PEER_NAME_MAX + 16]; /* for the page */
  char lost[1024];      /* "Kind: message" of that, as the client is told */
} FcRelay;

/* Serves the rest of the session by the next one, and ends that. As fc_server_run. */
int fc_relay_run(FcServer* server, FcEndpoint* far, const fc_wire_packet* init, int32_t skip);

/* ---- session/relay/relay.c: what both directions use; the caller holds the lock ---- */

FcPending fc_relay_pop(FcRelay* relay);
/* Releases what an entry holds beside its answer. Under the lock. */
void fc_relay_drop(FcPending* entry);
/* Queues the reply of a request that was answered here. */
int fc_relay_send_here(FcRelay* relay, FcPending* entry);
/* The far side calls the client: the reply of the call in progress comes later, behind what the client asks now. */
int fc_relay_suspend(FcRelay* relay);
/* The client has answered: the reply of the call that was suspended last comes behind what is on its way now.
 * -1 without an error: none is suspended. */
int fc_relay_resume(FcRelay* relay);
/* The payload that `from` announced, in pieces, to `to`, behind what is queued there. `to` NULL drops it. 0; 1 when
 * `to` was lost (all was read); -1 when `from` was. */
int fc_relay_stream(FcEndpoint* from, FcEndpoint* to, uint8_t* buffer);
enum { FC_RELAY_PIECE = 1 << 18 };

/* ---- session/relay/names.c; the caller holds the lock ---- */

/* "PREFIX TEXT", cut where traces cut it; NULL without memory: names are there for who looks, and nothing needs them. */
FcName* fc_name_new(const char* prefix, const char* text);
FcName* fc_name_share(FcName* name);
void fc_name_drop(FcName* name);
/* What the function of a handle is called, as a new reference; NULL when that is not known. */
FcName* fc_relay_name_of(const FcRelay* relay, uint64_t handle);
/* It is called so from now on; the name is shared. */
void fc_relay_set_name(FcRelay* relay, uint64_t handle, FcName* name);
void fc_relay_clear_names(FcRelay* relay);

/* ---- session/relay/values.c: handles of packets, rewritten in place ---- */

/* A request of the client, for the far side; -1 with an error. Under the lock. */
int fc_relay_request(FcRelay* relay, fc_wire_packet* request, FcPending* entry);
/* A value of the client's, for the far side. */
int fc_relay_to_far(FcRelay* relay, TVMFFIAny* value);
/* A reply of the far side, for the client. */
int fc_relay_reply(FcRelay* relay, fc_wire_packet* reply, const FcPending* entry);
/* A call of the client by the far side. */
int fc_relay_callback(FcRelay* relay, fc_wire_packet* call);

/* ---- session/relay/here.c: what the server between answers itself, for those who trace ---- */

/* 1: the request is for this server, and *out is its answer; 0: it goes on; -1 with an error. */
int fc_relay_here(FcRelay* relay, const fc_wire_packet* request, TVMFFIAny* out);

/* ---- session/relay/back.c ---- */

/* The thread of replies; its argument is the relay. */
void* fc_relay_backward(void* relay);

#endif /* FARCALL_SESSION_RELAY_RELAY_H_ */
