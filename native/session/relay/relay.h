/*
 * A relay forwards the packets of a session between the client (`near`) and the next server (`far`), and rewrites
 * handles in both directions. The client's numbers (promises, and functions of the client) pass unchanged.
 *
 * Two threads each receive on one line and send on the other: `forward` (the server's thread) passes on requests,
 * `backward` passes back replies. Requests do not wait for earlier replies: a queue holds the pending requests, which
 * the next server answers in order.
 */
#ifndef FARCALL_SESSION_RELAY_RELAY_H_
#define FARCALL_SESSION_RELAY_RELAY_H_

#include "session/server/serve.h"

/* The name of a function in messages and traces. The relay's lock guards `refs`. */
typedef struct FcName {
  uint32_t refs;
  char text[];
} FcName;

/* A pending request. */
typedef struct FcPending {
  uint64_t nbytes;  /* kCopyFromRemote: size of the payload */
  TVMFFIAny answer; /* if `here`: the answer; an Error becomes an exception. Owned */
  int64_t began;    /* when it began, while tracing; else 0 */
  int32_t code;
  bool here;        /* this server answers it and does not forward it */
  bool tells;       /* it calls farcall.rpc.deadline */
  uint32_t scope;   /* kGetGlobalFunc: the scope that the function requires; FC_RELAY_KEEPS, FC_RELAY_DEADLINE */
  FcDeadline deadline; /* time limits of this request */
  FcDue due;        /* when it must have ended; set when the next server begins it */
  FcName* name;     /* of the called function; NULL: unknown. Owned */
  FcName* gives;    /* of a function that the request may return; NULL: unknown. Owned */
} FcPending;

#define FC_RELAY_KEEPS UINT32_C(0x100)    /* the function is farcall.rpc.keep */
#define FC_RELAY_DEADLINE UINT32_C(0x200) /* the function is farcall.rpc.deadline */

/* Extra time, in which the next server can report where the time went. */
#define FC_DEADLINE_HOP_NS INT64_C(100000000)

typedef struct FcRelay {
  FcServer* server;
  FcEndpoint *near, *far;
  FcMutex lock; /* guards the fields below */
  FcCondition moved; /* signalled when the queue becomes shorter */
  FcHandles handles;    /* maps the client's handles to those of the next server */
  FcName** names;       /* names of the functions among them, by slot */
  uint32_t names_size;
  FcPending* queue;     /* a ring */
  size_t first, count, capacity;
  FcPending* suspended; /* calls in which the next server has called the client; the innermost is last */
  size_t suspended_count, suspended_capacity;
  FcDeadline deadline;  /* time limits of the next requests */
  bool done;            /* the next server is lost, and all pending requests are answered */
  char name[FC_PEER_NAME_MAX + 16]; /* for the status page */
  char lost[1024];      /* the reason, as "Kind: message" for the client */
} FcRelay;

/* Forwards the rest of the session to the next server, and ends that session. Returns as fc_server_run. */
int fc_relay_run(FcServer* server, FcEndpoint* far, const fc_wire_packet* init, int32_t skip);

/* ---- session/relay/relay.c: used by both directions; the caller holds the lock ---- */

FcPending fc_relay_pop(FcRelay* relay);
/* Releases the references of an entry, except its answer. The caller holds the lock. */
void fc_relay_drop(FcPending* entry);
/* Queues the reply of a request that this server answers itself. */
int fc_relay_send_here(FcRelay* relay, FcPending* entry);
/* The next server calls the client: the reply of the call in progress comes after the client's nested requests. */
int fc_relay_suspend(FcRelay* relay);
/* The client has answered: the reply of the call that was suspended last comes after the pending requests. -1 without
 * an error: no call is suspended. */
int fc_relay_resume(FcRelay* relay);
/* Forwards the payload that `from` announced to `to`, in pieces, after the queue of `to`. Drops it if `to` is NULL. 0;
 * 1 when `to` was lost (the payload was read); -1 when `from` was lost. */
int fc_relay_stream(FcEndpoint* from, FcEndpoint* to, uint8_t* buffer);
enum { FC_RELAY_PIECE = 1 << 18 };

/* ---- session/relay/names.c; the caller holds the lock ---- */

/* `prefix` and `text`, cut to the length that traces keep; NULL without memory, since names are only for display. */
FcName* fc_name_new(const char* prefix, const char* text);
FcName* fc_name_share(FcName* name);
void fc_name_drop(FcName* name);
/* The name of a handle's function, as a new reference; NULL when it is unknown. */
FcName* fc_relay_name_of(const FcRelay* relay, uint64_t handle);
/* Names a handle's function; adds a reference to the name. */
void fc_relay_set_name(FcRelay* relay, uint64_t handle, FcName* name);
void fc_relay_clear_names(FcRelay* relay);

/* ---- session/relay/values.c: rewrites handles of packets in place ---- */

/* A request of the client to the next server; -1 with an error. The caller holds the lock. */
int fc_relay_request(FcRelay* relay, fc_wire_packet* request, FcPending* entry);
/* A value from the client to the next server. */
int fc_relay_to_far(FcRelay* relay, TVMFFIAny* value);
/* A reply of the next server to the client. */
int fc_relay_reply(FcRelay* relay, fc_wire_packet* reply, const FcPending* entry);
/* A call by the next server of a function of the client. */
int fc_relay_callback(FcRelay* relay, fc_wire_packet* call);

/* ---- session/relay/here.c: requests for traces, which the relay answers itself ---- */

/* 1: the request is for this server, and *out is its answer; 0: forward it; -1 with an error. */
int fc_relay_here(FcRelay* relay, const fc_wire_packet* request, TVMFFIAny* out);

/* ---- session/relay/back.c ---- */

/* The thread that passes back replies; its argument is the relay. */
void* fc_relay_backward(void* relay);

#endif /* FARCALL_SESSION_RELAY_RELAY_H_ */
