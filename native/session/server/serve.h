/*
 * The server's half of a session: requests in, what they do here, replies out. It knows no Python: what a server
 * exports, and whatever else is policy, it asks of an FcPolicy.
 *
 * One thread serves. The functions that it calls may use other threads, and these may call functions of the client:
 * see session/server/callback.c.
 */
#ifndef FARCALL_SESSION_SERVER_SERVE_H_
#define FARCALL_SESSION_SERVER_SERVE_H_

#include "runtime/device_memory.h"
#include "session/endpoint.h"
#include "session/watchdog.h"

/* ---- handles: what the peer holds of us, as numbers that mean something in one table only; session/server/handles.c ---- */

/* What a handle may be used as. */
enum {
  FC_KIND_FUNCTION = 1,
  FC_KIND_MODULE = 2,
  FC_KIND_OBJECT = 4,    /* anything else that was returned */
  FC_KIND_TENSOR = 8,    /* the owner of a returned tensor; freed by kFreeHandle */
  FC_KIND_RETURNED = 16, /* data of a returned tensor; lives as long as its owner */
  FC_KIND_ALLOCATED = 32, /* data that is the client's to free, by kDevFreeData */
  FC_KIND_STREAM = 64,   /* (relay) */
  FC_KIND_POINTER = 128, /* (relay) a pointer that the far side returned */
  FC_KIND_HERE = 256,    /* (relay) a function of the relay's own */
  FC_KIND_DATA = FC_KIND_RETURNED | FC_KIND_ALLOCATED,
  FC_KIND_OWNED = FC_KIND_FUNCTION | FC_KIND_MODULE | FC_KIND_OBJECT | FC_KIND_TENSOR
};

/* Functions that the dispatcher serves by itself. */
#define FC_HELLO_NAME "farcall.rpc.hello"
#define FC_KEEP_NAME "farcall.rpc.keep"
#define FC_DEADLINE_NAME "farcall.rpc.deadline"
enum { FC_OWN_NONE, FC_OWN_HELLO, FC_OWN_KEEP, FC_OWN_DEADLINE };

static inline bool fc_is_named(TVMFFIByteArray name, const char* text) {
  return name.size == strlen(text) && memcmp(name.data, text, name.size) == 0;
}

/* What a function's handle names. */
typedef struct FcExport {
  TVMFFIObject* object;
  TVMFFISafeCallType call;
  void* self;
  uint32_t refs;
  uint16_t scope; /* FC_SCOPE_*; 0: open to every session */
  uint16_t name_size;
  bool quick; /* the last call was over at once: replies may wait for the next */
  uint8_t own; /* FC_OWN_*: what the dispatcher itself does for it */
  int8_t naming; /* the argument (text) that names the function which is returned; -1: none */
  char name[];
} FcExport;

typedef struct FcEntry {
  union {
    TVMFFIObject* object;
    FcExport* function;
    uint64_t far; /* (relay) the handle on the next session */
  };
  uint64_t other; /* TENSOR: the handle of its data. ALLOCATED: bytes that count against the session's limit */
  uint32_t generation;
  uint32_t kind; /* 0: free */
} FcEntry;

/* Where random bytes come from. `fill` writes `size` of them, at most FC_RANDOM_AT_ONCE, or returns -1 with an error. */
enum { FC_RANDOM_AT_ONCE = 256 };
typedef struct FcRandom {
  int (*fill)(void* context, void* out, size_t size);
  void* context;
} FcRandom;

/* The operating system's: what every session that a stranger can reach needs. */
extern const FcRandom fc_system_random;

typedef struct FcHandles {
  FcEntry* entries;
  uint32_t* unused; /* slots, the last is taken first */
  uint32_t size, capacity, unused_count, limit;
  FcRandom random;
} FcHandles;

/* A new handle, or 0 with an error; what the entry holds moves in, on success. */
uint64_t fc_handles_add(FcHandles* table, FcEntry entry);
/* What a handle names, until the next add; NULL when it names nothing of these kinds. No error is set. */
static inline FcEntry* fc_handles_find(const FcHandles* table, uint64_t handle, uint32_t kinds) {
  uint32_t slot = (uint32_t)handle;
  if (FC_UNLIKELY(slot >= table->size)) return NULL;
  FcEntry* entry = &table->entries[slot];
  return FC_LIKELY(entry->generation == handle >> 32 && (entry->kind & kinds)) ? entry : NULL;
}
/* The same with an error. */
FcEntry* fc_handles_get(const FcHandles* table, uint64_t handle, uint32_t kinds);
/* Frees a handle; what it named is the caller's. false with an error. */
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
/* What a session needs to call a standard function; false when no standard function has that name. */
bool fc_scope_is_listed(TVMFFIByteArray name, uint32_t* scope);
/* What a session needs to call the function of a name: FC_SCOPE_CALL for one that the host exports. */
uint32_t fc_scope_of(TVMFFIByteArray name);

/* What the host adds to the features of a server: functions that it exports for them. */
enum { FC_OFFER_TRACE = 1, FC_OFFER_DEBUG = 2, FC_OFFER_FILES = 4 };
extern const char* const fc_offer_names[]; /* the same */

/* ---- the page that the supervisor reads when this process is dead: offsets of its fields ---- */

enum {
  FC_PAGE_SENDING = 0, /* not 0 while a reply is being sent: with the counters, written by the channel */
  FC_PAGE_CALLING = 1, /* not 0 while a function runs */
  FC_PAGE_NAME_SIZE = 2, /* u16, little-endian; then the function's name */
  FC_PAGE_NAME = 4,
  FC_PAGE_NAME_MAX = 256,
  FC_PAGE_RECEIVED = 512, /* u64 of the host, as the four below: bytes from the client */
  FC_PAGE_SENT = 520,
  FC_PAGE_CALLS = 528, /* calls that have begun */
  FC_PAGE_DUE = 536,   /* when this process is ended (CLOCK_MONOTONIC, ns); 0: not */
  FC_PAGE_GIVEN = 544, /* how many nanoseconds that gave the call */
  FC_PAGE_LISTENS = 560, /* not 0 once the worker is ready for its client */
  FC_PAGE_BEGUN = 561,   /* kInitServer came */
  FC_PAGE_WORDS_SIZE = 1024, /* u16, little-endian; then how the client broke the protocol. Written by the worker */
  FC_PAGE_WORDS = 1026,
  FC_PAGE_WORDS_MAX = 1024,
  FC_PAGE_SIZE = 4096
};

/* Says what runs now: `who` stands for the name, which is written when another did before (*noted); NULL: nothing. */
void fc_page_note(const void** noted, volatile uint8_t* page, const void* who, const char* name);

/* ---- the server ---- */

typedef struct FcServer FcServer;

/* How long the requests that follow may take, as the client said it; nanoseconds, and 0 is no limit. */
typedef struct FcDeadline {
  int64_t until; /* CLOCK_MONOTONIC: all of them together */
  int64_t given; /* what that was when it was said */
  int64_t each;  /* one of them */
} FcDeadline;

/* When a call must have ended, and how long that gave it. */
typedef struct FcDue {
  int64_t at; /* 0: no limit */
  int64_t given;
} FcDue;

typedef struct FcCallback FcCallback;

/* Results that the client keeps: session/server/promise.c. All zero is an empty table. */
typedef struct FcPromise FcPromise;
typedef struct FcPromises {
  FcPromise* entries;
  uint32_t capacity, count;
} FcPromises;
void fc_promises_free(FcPromises* table);

/* What the host decides. `context` comes first; failures leave an error. */
typedef struct FcPolicy {
  /* The function that the server exports under a name, as a new FcExport; *out NULL when there is none. */
  int (*find)(void* context, TVMFFIByteArray name, FcExport** out);
  /* Serves kInitServer: replies by fc_server_reply, or sets next_hop and next_args. */
  int (*begin)(void* context, FcServer* server, const fc_wire_packet* request);
  /* Serves the rest of a session that goes on to another server, and ends that one: fc_relay_run. NULL: none goes on. */
  int (*forward)(FcServer* server, FcEndpoint* far, const fc_wire_packet* init, int32_t skip);
  /* The runtime's functions that make and read containers, by name: fc_container_function. NULL: clients have none. */
  TVMFFIObject* (*container_function)(const char* name, size_t size);
  /* The error that a function left in the host's own way; NULL when there is none. */
  TVMFFIObject* (*take_error)(void);
} FcPolicy;

struct FcServer {
  FcEndpoint* ep;
  const FcPolicy* policy;
  void* context;
  FcHandles handles;
  uint64_t allocated, tensor_limit;
  uint32_t scopes;       /* FC_SCOPE_* of the session's token */
  char token[64];        /* its name, for messages */
  bool started;          /* kInitServer was served */
  bool ended;            /* kShutdown came */
  FcEndpoint* next_hop;  /* set by `begin`: the session goes on there, see FcPolicy.forward. Owned */
  int32_t next_args;     /* how many values of kInitServer named it */
  uint32_t offers;       /* FC_OFFER_* */
  const char* limits;    /* for the client, as a JSON object; borrowed. NULL: none are told */
  bool waits;            /* the channel can wait, so functions of the client can be called */
  FcDeadline deadline;
  FcDue due;             /* when the watchdog ends this process */
  const FcWatchdog* watchdog; /* NULL: the feature `deadlines` is not offered */
  void* dog;             /* made when the client first gives a time; owned */
  volatile uint8_t* page; /* what runs, for who finds this process dead: see page.py; NULL without */
  const void* noted;     /* whose name stands there */
  FcCallback* callbacks; /* functions of the client that came with the calls in progress, innermost first */
  FcExport* running;     /* the innermost function that runs */
  FcPromises promises;
  TVMFFIObject* filling; /* the allocation that a copy fills now */
  FcPlace filling_place;   /* where in that allocation */
  void* filling_buffer;    /* holds the payload until it moves on to another device than the CPU; owned, or NULL */
  bool keeps_errors;     /* the client wants to ask for the traceback of the last one */
  TVMFFIObject* last_error;
  TVMFFIObject* refusal; /* why the payload that comes now is dropped */
  int64_t copy_began;    /* when that copy began, while it is traced; else 0 */
  DLDataType filling_type; /* of its numbers, which big-endian hosts turn */
};

/* Serves until the client says goodbye or closes (0), or a memory channel has no more bytes (1); -1 with an error
 * when the connection is lost. The caller has entered the endpoint. */
int fc_server_run(FcServer* server);
/* One event of the endpoint. -1 with an error: the connection is lost. */
int fc_server_event(FcServer* server, fc_wire_event event, const fc_wire_packet* packet);
void fc_server_clear(FcServer* server);

/* ---- replies and rules; session/server/reply.c ---- */

/* A kReturn behind what waits in the outbox; -1 with an error when it cannot be encoded. */
int fc_server_reply(FcServer* server, const TVMFFIAny* values, int32_t n);
int fc_server_reply_void(FcServer* server);
int fc_server_reply_handle(FcServer* server, uint64_t handle);
/* A kException with what the error says; takes ownership of it. -1 with an error: the connection is lost. */
int fc_queue_error(FcEndpoint* ep, TVMFFIObject* error);
/* PermissionDeniedError when the session's token does not allow `what`. */
int fc_server_require(const FcServer* server, uint32_t scope, const char* what);
/* ProtocolError before kInitServer was served. */
int fc_server_require_start(const FcServer* server);
/* The values of a syscall have these types (-1 stands for any); a ProtocolError otherwise. */
int fc_server_expect(const fc_wire_packet* request, int32_t n, const int32_t* types);

/* ---- requests; each replies, or leaves an error: session/server/call.c, names.c, exports.c, memory.c ---- */

int fc_server_call(FcServer* server, const fc_wire_packet* request);
int fc_server_get_global(FcServer* server, const fc_wire_packet* request);
int fc_server_free_handle(FcServer* server, const fc_wire_packet* request);
int fc_server_alloc_data(FcServer* server, const fc_wire_packet* request);
int fc_server_alloc_with_scope(FcServer* server, const fc_wire_packet* request);
int fc_server_free_data(FcServer* server, const fc_wire_packet* request);
int fc_server_copy_out(FcServer* server, const fc_wire_packet* request);
int fc_server_copy_among(FcServer* server, const fc_wire_packet* request);
/* The rest: devices and their streams; session/server/devices.c. */
int fc_server_device(FcServer* server, const fc_wire_packet* request);
/* What farcall.rpc.hello gives; session/server/hello.c. */
int fc_server_hello(const FcServer* server, TVMFFIAny* result);
/* The header of a copy is here, and its payload comes; the payload is complete. */
void fc_server_copy_in(FcServer* server, const fc_wire_packet* request);
int fc_server_end_copy_in(FcServer* server);

/* ---- what handles name; session/server/exports.c ---- */

/* What can be called of a Function object. Takes ownership of the reference, even on failure. NULL with an error. */
FcExport* fc_export_new(TVMFFIObject* function, const char* name, size_t size, uint32_t scope);
void fc_export_decref(FcExport* function);
/* Calls it; -1 with its error. */
int fc_export_call(const FcServer* server, const FcExport* function, const TVMFFIAny* args, int32_t n,
                   TVMFFIAny* result);
/* Releases what an entry of a server's table held. */
void fc_server_drop(FcServer* server, FcEntry entry);

/* ---- the time that the client gives; session/server/deadline.c. The host gives a server a watchdog only with a page: without
 * it nobody would say why the process has ended. ---- */

#define FC_DEADLINE_MAX (INT64_C(1) << 60)

/* The arguments of farcall.rpc.deadline. -1 with an error. */
int fc_deadline_tell(FcServer* server, const fc_wire_packet* request, FcDeadline* out);
/* Before a call: ends this process when the call takes too long (until fc_deadline_arm says otherwise). -1 with an
 * error: it is too late to begin. */
int fc_deadline_begin(FcServer* server, const char* name);
/* When something that begins now must have ended. */
FcDue fc_deadline_due(const FcDeadline* deadline, int64_t now);
void fc_deadline_arm(FcServer* server, FcDue due);
static inline bool fc_deadline_is_set(const FcDeadline* deadline) { return deadline->until || deadline->each; }
void fc_deadline_clear(FcServer* server);

/* ---- values; session/server/values.c ---- */

/* A wire value as an argument: objects are new references, text and bytes borrow from the packet. */
int fc_server_argument(FcServer* server, const char* name, int32_t i, const TVMFFIAny* wire, TVMFFIAny* out);
/* Where the values of a result stand. */
typedef struct FcWireResult {
  TVMFFIAny values[3];
  int32_t n;
  TVMFFIByteArray string;
  fc_wire_tensor tensor;
} FcWireResult;
/* Where a result comes from: the function, and how a function that it returns is called (NULL: "result of"). */
typedef struct FcOrigin {
  const char* name;
  const char* called;
} FcOrigin;
/* A result (owned; it moves in, on failure too) as the values of a reply. `out` borrows: text and shapes from *held,
 * which the caller clears when the reply is encoded. */
int fc_server_result(FcServer* server, const FcOrigin* origin, TVMFFIAny* result, FcWireResult* out, TVMFFIAny* held);
/* The same as one value of a kCallFunc that the server sends; `result` is a view. */
int fc_server_outgoing(FcServer* server, const TVMFFIAny* arg, FcWireResult* out, TVMFFIAny* held);

/* The bytes of an allocation that a copy touches; -1 with an error when they are not inside it. */
typedef struct FcSpan {
  FcPlace place;
  TVMFFIObject* allocation; /* borrowed */
} FcSpan;
int fc_server_span(FcServer* server, const fc_wire_tensor* tensor, uint64_t nbytes, FcSpan* out);

/* ---- functions of the client, and promises; session/server/callback.c, session/server/promise.c ---- */

TVMFFIObject* fc_callback_to_client(FcServer* server, uint64_t handle);
/* Ends the life of the callbacks that are newer than `until`, and tells the client. */
int fc_callbacks_end(FcServer* server, FcCallback* until);

/* What was kept under an id, as a new value; -1 with its error, or because there is none. */
int fc_promise_get(FcServer* server, uint64_t handle, TVMFFIAny* out);
/* Keeps a result, or the error that is in the thread's slot (rc != 0), which stays there. */
int fc_promise_set(FcServer* server, int64_t id, int rc, TVMFFIAny* result);
int fc_promise_check(FcServer* server, int64_t id);
bool fc_promise_forget(FcServer* server, uint64_t handle);

#endif /* FARCALL_SESSION_SERVER_SERVE_H_ */
