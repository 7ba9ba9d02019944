/*
 * The server's half of a session: it reads requests, carries them out, and replies. It contains no Python: an FcPolicy
 * decides what the server exports, and all other policy.
 *
 * One thread serves. The functions that it calls may use other threads, and these may call functions of the client: see
 * session/server/callback.c.
 */
#ifndef FARCALL_SESSION_SERVER_SERVE_H_
#define FARCALL_SESSION_SERVER_SERVE_H_

#include "runtime/device_memory.h"
#include "session/endpoint.h"
#include "session/watchdog.h"

/* ---- handles: numbers by which the client names objects of this server, valid in one session only;
 * session/server/handles.c ---- */

/* The kinds of objects that a handle names. */
enum {
  FC_KIND_FUNCTION = 1,
  FC_KIND_MODULE = 2,
  FC_KIND_OBJECT = 4,    /* any other returned object */
  FC_KIND_TENSOR = 8,    /* the owner of a returned tensor; freed by kFreeHandle */
  FC_KIND_RETURNED = 16, /* data of a returned tensor; valid as long as its owner */
  FC_KIND_ALLOCATED = 32, /* data that the client must free, by kDevFreeData */
  FC_KIND_STREAM = 64,   /* (relay) */
  FC_KIND_POINTER = 128, /* (relay) a pointer that the next server returned */
  FC_KIND_HERE = 256,    /* (relay) a function of the relay itself */
  FC_KIND_DATA = FC_KIND_RETURNED | FC_KIND_ALLOCATED,
  FC_KIND_OWNED = FC_KIND_FUNCTION | FC_KIND_MODULE | FC_KIND_OBJECT | FC_KIND_TENSOR
};

/* Functions that the dispatcher itself serves. */
#define FC_HELLO_NAME "farcall.rpc.hello"
#define FC_KEEP_NAME "farcall.rpc.keep"
#define FC_DEADLINE_NAME "farcall.rpc.deadline"
#define FC_SPAN_NAME "farcall.rpc.span"
#define FC_COMPUTE_NAME "farcall.rpc.compute"
enum { FC_OWN_NONE, FC_OWN_HELLO, FC_OWN_KEEP, FC_OWN_DEADLINE, FC_OWN_SPAN };

static inline bool fc_is_named(TVMFFIByteArray name, const char* text) {
  return name.size == strlen(text) && memcmp(name.data, text, name.size) == 0;
}

/* The object behind a function's handle. */
typedef struct FcExport {
  TVMFFIObject* object;
  TVMFFISafeCallType call;
  void* self;
  uint32_t refs;
  uint16_t scope; /* FC_SCOPE_*; 0: open to every session */
  uint16_t name_size;
  bool quick; /* the last call was short, so replies may wait in the outbox for the next call */
  uint8_t own; /* FC_OWN_*: which function of the dispatcher this is */
  int8_t naming; /* index of the text argument that names the returned function; -1: none */
  char name[];
} FcExport;

typedef struct FcEntry {
  union {
    TVMFFIObject* object;
    FcExport* function;
    uint64_t far; /* (relay) the handle in the next session */
  };
  uint64_t other; /* TENSOR: the handle of its data. ALLOCATED: bytes that count against the session's limit */
  uint32_t generation;
  uint32_t kind; /* 0: free */
} FcEntry;

/* A source of random bytes. `fill` writes `size` bytes, at most FC_RANDOM_AT_ONCE, or returns -1 with an error. */
enum { FC_RANDOM_AT_ONCE = 256 };
typedef struct FcRandom {
  int (*fill)(void* context, void* out, size_t size);
  void* context;
} FcRandom;

/* The operating system's source, which every session that a stranger can reach must use. */
extern const FcRandom fc_system_random;

typedef struct FcHandles {
  FcEntry* entries;
  uint32_t* unused; /* free slots; the last is used first */
  uint32_t size, capacity, unused_count, limit;
  FcRandom random;
} FcHandles;

/* A new handle, or 0 with an error. On success, takes ownership of the object in the entry. */
uint64_t fc_handles_add(FcHandles* table, FcEntry entry);
/* The entry of a handle, valid until the next add; NULL when it names nothing of these kinds. Sets no error. */
static inline FcEntry* fc_handles_find(const FcHandles* table, uint64_t handle, uint32_t kinds) {
  uint32_t slot = (uint32_t)handle;
  if (FC_UNLIKELY(slot >= table->size)) return NULL;
  FcEntry* entry = &table->entries[slot];
  return FC_LIKELY(entry->generation == handle >> 32 && (entry->kind & kinds)) ? entry : NULL;
}
/* The same, but sets an error. */
FcEntry* fc_handles_get(const FcHandles* table, uint64_t handle, uint32_t kinds);
/* Frees a handle and passes ownership of its object to the caller. False with an error. */
bool fc_handles_remove(FcHandles* table, uint64_t handle, uint32_t kinds, FcEntry* out);
static inline uint32_t fc_handles_count(const FcHandles* table) { return table->size - table->unused_count; }
void fc_handles_free(FcHandles* table);

/* ---- scopes: what a token allows ---- */

enum {
  FC_SCOPE_CALL = 1,
  FC_SCOPE_COPY = 2,
  FC_SCOPE_LOAD = 4,
  FC_SCOPE_FILES = 8,
  FC_SCOPE_RELAY = 16,
  FC_SCOPE_ALL = 31
};
/* In the order of the bits; NULL ends them. */
extern const char* const fc_scope_names[];
/* The scope that a standard function requires; false when no standard function has that name. */
bool fc_scope_is_listed(TVMFFIByteArray name, uint32_t* scope);
/* The scope that a call of the named function requires: FC_SCOPE_CALL for a function that the host exports. */
uint32_t fc_scope_of(TVMFFIByteArray name);

/* Features that the host adds to a server: by functions that it exports, and spans by its policy. */
enum { FC_OFFER_TRACE = 1, FC_OFFER_DEBUG = 2, FC_OFFER_FILES = 4, FC_OFFER_SPANS = 8, FC_OFFER_PACKETS = 16 };
extern const char* const fc_offer_names[]; /* in the order of the bits; NULL ends them */

/* ---- the status page, which the supervisor reads when this worker has died: offsets of its fields ---- */

enum {
  FC_PAGE_SENDING = 0, /* not 0 while a reply is being sent; the channel writes it and the counters */
  FC_PAGE_CALLING = 1, /* not 0 while a function runs */
  FC_PAGE_NAME_SIZE = 2, /* u16, little-endian; then the function's name */
  FC_PAGE_NAME = 4,
  FC_PAGE_NAME_MAX = 256,
  FC_PAGE_RECEIVED = 512, /* bytes from the client; this and the next four are u64 in host order */
  FC_PAGE_SENT = 520,
  FC_PAGE_CALLS = 528, /* number of calls that have begun */
  FC_PAGE_DUE = 536,   /* when the watchdog ends this process (CLOCK_MONOTONIC, ns); 0: never */
  FC_PAGE_GIVEN = 544, /* nanoseconds that the call was given */
  FC_PAGE_LISTENS = 560, /* not 0 once the worker is ready for its client */
  FC_PAGE_BEGUN = 561,   /* not 0 once kInitServer has come */
  FC_PAGE_WORKING = 562, /* not 0 while a request is carried out, a call or another one */
  FC_PAGE_WORDS_SIZE = 1024, /* u16, little-endian; then how the client broke the protocol. Written by the worker */
  FC_PAGE_WORDS = 1026,
  FC_PAGE_WORDS_MAX = 1024,
  FC_PAGE_SIZE = 4096
};

/* Notes the running function. `who` identifies it, so that `name` is written only when *noted differs; NULL: none
 * runs. */
void fc_page_note(const void** noted, volatile uint8_t* page, const void* who, const char* name);

/* ---- the server ---- */

typedef struct FcServer FcServer;

/* The client's time limits for the requests that follow, in nanoseconds; 0: no limit. */
typedef struct FcDeadline {
  int64_t until; /* CLOCK_MONOTONIC: end of the time for all of them */
  int64_t given; /* the time that `until` gave when the client sent it */
  int64_t each;  /* limit of each request */
} FcDeadline;

/* When a call must have ended, and how much time it was given. */
typedef struct FcDue {
  int64_t at; /* 0: no limit */
  int64_t given;
} FcDue;

typedef struct FcCallback FcCallback;

/* Results that the server keeps for the client: session/server/promise.c. All zero is an empty table. */
typedef struct FcPromise FcPromise;
typedef struct FcPromises {
  FcPromise* entries;
  uint32_t capacity, count;
} FcPromises;
void fc_promises_free(FcPromises* table);

/* The host's decisions. `context` is FcServer.context; failures leave an error. */
typedef struct FcPolicy {
  /* Finds the function that the server exports under a name, as a new FcExport; *out is NULL when there is none. */
  int (*find)(void* context, TVMFFIByteArray name, FcExport** out);
  /* Serves kInitServer: replies with fc_server_reply, or sets next_hop and next_args. */
  int (*begin)(void* context, FcServer* server, const fc_wire_packet* request);
  /* Forwards the rest of the session to the next server, and ends that session: fc_relay_run. NULL: no relaying. */
  int (*forward)(FcServer* server, FcEndpoint* far, const fc_wire_packet* init, int32_t skip);
  /* Finds the runtime's functions that make and read containers: fc_container_function. NULL: clients get none. */
  TVMFFIObject* (*container_function)(const char* name, size_t size);
  /* Takes the error that a function left in the host's own form (a Python exception); NULL when there is none. */
  TVMFFIObject* (*take_error)(void);
  /* With FC_OFFER_SPANS, around each call of a function of the user. `parent` is the client's traceparent, or empty.
   * span_begin returns what span_end gets, and span_end leaves a failed call's error as it is. */
  void* (*span_begin)(void* context, const char* name, const char* parent);
  void (*span_end)(void* span, bool failed);
} FcPolicy;

enum { FC_SPAN_MAX = 64 }; /* room for a traceparent, which has 55 characters */

struct FcServer {
  FcEndpoint* ep;
  const FcPolicy* policy;
  void* context;
  FcHandles handles;
  uint64_t allocated, tensor_limit;
  uint32_t scopes;       /* FC_SCOPE_* of the session's token */
  char token[64];        /* the token's name, for messages */
  bool started;          /* kInitServer was served */
  bool ended;            /* kShutdown came */
  FcEndpoint* next_hop;  /* owned; `begin` sets it to forward the session, see FcPolicy.forward */
  int32_t next_args;     /* number of values of kInitServer that named it */
  uint32_t offers;       /* FC_OFFER_* */
  const char* limits;    /* the limits that hello tells, as a JSON object; borrowed. NULL: none */
  char span[FC_SPAN_MAX]; /* the traceparent of the next call; empty: none */
  bool waits;            /* the channel can wait, so the server can call functions of the client */
  FcDeadline deadline;
  FcDue due;             /* of the call in progress; then the watchdog ends this process */
  const FcWatchdog* watchdog; /* NULL: the feature `deadlines` is not offered */
  void* dog;             /* the watchdog's timer, made when the client first sets a limit; owned */
  volatile uint8_t* page; /* the status page, for the supervisor; NULL without one */
  const void* noted;     /* the function whose name is on the page */
  FcCallback* callbacks; /* functions of the client that the open calls may use, innermost first */
  FcExport* running;     /* the innermost running function */
  FcPromises promises;
  TVMFFIObject* filling; /* the allocation that a copy is filling */
  FcPlace filling_place;   /* the place in that allocation */
  void* filling_buffer;    /* holds the payload for a device that is not the CPU; owned, or NULL */
  bool keeps_errors;     /* keep last_error, so that the client can ask for its traceback */
  TVMFFIObject* last_error;
  TVMFFIObject* refusal; /* the error for which the current payload is dropped; owned */
  int64_t copy_began;    /* when that copy began, while tracing; else 0 */
  DLDataType filling_type; /* dtype of the copy; big-endian hosts swap its bytes */
};

/* Serves until the client ends the session or closes (0), or a memory channel has no more bytes (1); -1 with an error
 * when the connection is lost. The caller has entered the endpoint. */
int fc_server_run(FcServer* server);
/* Serves one event of the endpoint. -1 with an error: the connection is lost. */
int fc_server_event(FcServer* server, fc_wire_event event, const fc_wire_packet* packet);
void fc_server_clear(FcServer* server);

/* ---- replies and rules; session/server/reply.c ---- */

/* Queues a kReturn; -1 with an error when it cannot be encoded. */
int fc_server_reply(FcServer* server, const TVMFFIAny* values, int32_t n);
int fc_server_reply_void(FcServer* server);
int fc_server_reply_handle(FcServer* server, uint64_t handle);
/* Queues a kException for the error, which it takes ownership of. -1 with an error: the connection is lost. */
int fc_queue_error(FcEndpoint* ep, TVMFFIObject* error);
/* -1 with a PermissionDeniedError when the session's token does not have the scope; `what` is for the message. */
int fc_server_require(const FcServer* server, uint32_t scope, const char* what);
/* -1 with a ProtocolError before kInitServer was served. */
int fc_server_require_start(const FcServer* server);
/* -1 with a ProtocolError unless the values of a syscall have these types (-1: any). */
int fc_server_expect(const fc_wire_packet* request, int32_t n, const int32_t* types);

/* ---- requests; each handler replies, or leaves an error: session/server/call.c, names.c, exports.c, memory.c ---- */

int fc_server_call(FcServer* server, const fc_wire_packet* request);
int fc_server_compute(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result); /* session/server/compute.c */
int fc_server_get_global(FcServer* server, const fc_wire_packet* request);
int fc_server_free_handle(FcServer* server, const fc_wire_packet* request);
int fc_server_alloc_data(FcServer* server, const fc_wire_packet* request);
int fc_server_alloc_with_scope(FcServer* server, const fc_wire_packet* request);
int fc_server_free_data(FcServer* server, const fc_wire_packet* request);
int fc_server_copy_out(FcServer* server, const fc_wire_packet* request);
int fc_server_copy_among(FcServer* server, const fc_wire_packet* request);
/* All other requests: devices and their streams; session/server/devices.c. */
int fc_server_device(FcServer* server, const fc_wire_packet* request);
/* The result of farcall.rpc.hello; session/server/hello.c. */
int fc_server_hello(const FcServer* server, TVMFFIAny* result);
/* Called for the header of a copy, before its payload; and when the payload is complete. */
void fc_server_copy_in(FcServer* server, const fc_wire_packet* request);
int fc_server_end_copy_in(FcServer* server);

/* ---- exported functions; session/server/exports.c ---- */

/* An FcExport for a Function object. Takes ownership of the reference, even on failure. NULL with an error. */
FcExport* fc_export_new(TVMFFIObject* function, const char* name, size_t size, uint32_t scope);
void fc_export_decref(FcExport* function);
/* Calls the function; -1 with its error. */
int fc_export_call(const FcServer* server, const FcExport* function, const TVMFFIAny* args, int32_t n,
                   TVMFFIAny* result);
/* Releases the object of an entry that was removed from a server's table. */
void fc_server_drop(FcServer* server, FcEntry entry);

/* ---- the client's time limits; session/server/deadline.c. The host gives a server a watchdog only with a status page:
 * without one, the supervisor could not tell why the process ended. ---- */

#define FC_DEADLINE_MAX (INT64_C(1) << 60)

/* Reads the arguments of farcall.rpc.deadline. -1 with an error. */
int fc_deadline_tell(FcServer* server, const fc_wire_packet* request, FcDeadline* out);
/* Before a call: sets the watchdog to the call's time limit (until the next fc_deadline_arm). -1 with an error: it is
 * too late to begin. */
int fc_deadline_begin(FcServer* server, const char* name);
/* When a call that begins at `now` must have ended. */
FcDue fc_deadline_due(const FcDeadline* deadline, int64_t now);
void fc_deadline_arm(FcServer* server, FcDue due);
static inline bool fc_deadline_is_set(const FcDeadline* deadline) { return deadline->until || deadline->each; }
void fc_deadline_clear(FcServer* server);

/* ---- values; session/server/values.c ---- */

/* Converts a wire value to an argument: objects are new references, text and bytes borrow from the packet. */
int fc_server_argument(FcServer* server, const char* name, int32_t i, const TVMFFIAny* wire, TVMFFIAny* out);
/* Storage for the values of a result. */
typedef struct FcWireResult {
  TVMFFIAny values[3];
  int32_t n;
  TVMFFIByteArray string;
  fc_wire_tensor tensor;
} FcWireResult;
/* The source of a result: the function, and the name of a function that it returns (NULL: "result of NAME"). */
typedef struct FcOrigin {
  const char* name;
  const char* called;
} FcOrigin;
/* Converts a result to the values of a reply. Takes ownership of the result, even on failure. `out` borrows text and
 * shapes from *held, which the caller clears when the reply is encoded. */
int fc_server_result(FcServer* server, const FcOrigin* origin, TVMFFIAny* result, FcWireResult* out, TVMFFIAny* held);
/* Converts an argument, which stays the caller's, to one value of a kCallFunc that the server sends. */
int fc_server_outgoing(FcServer* server, const TVMFFIAny* arg, FcWireResult* out, TVMFFIAny* held);

/* The bytes of an allocation that a copy uses; -1 with an error when they are not inside it. */
typedef struct FcSpan {
  FcPlace place;
  TVMFFIObject* allocation; /* borrowed */
} FcSpan;
int fc_server_span(FcServer* server, const fc_wire_tensor* tensor, uint64_t nbytes, FcSpan* out);

/* ---- functions of the client, and promises; session/server/callback.c, session/server/promise.c ---- */

TVMFFIObject* fc_callback_to_client(FcServer* server, uint64_t handle);
/* Closes the callbacks that are newer than `until`, and tells the client. */
int fc_callbacks_end(FcServer* server, FcCallback* until);

/* The result that is kept under an id, as a new value; -1 with the kept error, or when nothing is kept. */
int fc_promise_get(FcServer* server, uint64_t handle, TVMFFIAny* out);
/* Keeps a result or, if rc != 0, the error in the thread's slot, which also stays there. */
int fc_promise_set(FcServer* server, int64_t id, int rc, TVMFFIAny* result);
int fc_promise_check(FcServer* server, int64_t id);
bool fc_promise_forget(FcServer* server, uint64_t handle);

#endif /* FARCALL_SESSION_SERVER_SERVE_H_ */
