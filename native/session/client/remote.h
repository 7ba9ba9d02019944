/*
 * The client's half of an endpoint: requests and their replies, and what lives on the other side. Remote Functions,
 * Tensors and objects are ordinary objects, which native code may call, hold and release from any thread.
 */
#ifndef FARCALL_SESSION_CLIENT_REMOTE_H_
#define FARCALL_SESSION_CLIENT_REMOTE_H_

#include "session/endpoint.h"

/* What the far side said that it can do, beyond TVM's protocol. */
enum { FC_PEER_FARCALL = 1, FC_PEER_CALLBACKS = 2, FC_PEER_PROMISES = 4, FC_PEER_DEADLINES = 8 };
/* A TVM server stands between: it takes the byte_offset of a copy for 0 (facts A.10). */
enum { FC_PEER_BEHIND_TVM = 16 };

static inline DLDevice fc_no_device(void) { return (DLDevice){(DLDeviceType)0, 0}; }

/* Something over there that is released once. */
typedef struct FcOwned {
  FcEndpoint* ep;
  uint64_t handle; /* 0: nothing to release */
  DLDevice device; /* as FcPendingFree has it */
} FcOwned;

enum { FC_REMOTE_NAME_MAX = 128 };

typedef struct FcRemoteFunction {
  FcOwned owned;
  char name[FC_REMOTE_NAME_MAX]; /* for messages */
} FcRemoteFunction;

/* A remote Function; `handle` moves in. The result is a Function object, or NULL with an error. */
TVMFFIObject* fc_remote_function(FcEndpoint* ep, uint64_t handle, const char* name);
/* The remote function behind a Function object; NULL when it is none. */
FcRemoteFunction* fc_remote_function_of(TVMFFIObject* function);
/* What a function without a name is called: a remote one knows where it came from. */
const char* fc_function_label(TVMFFIObject* function);

/* ---- objects: an Array, a Map, a Module over there. Their type index is fc_remote_object_index(). ---- */

typedef struct FcRemoteObj {
  TVMFFIObject header;
  FcOwned owned;
  int32_t kind; /* type index that the far side gave, such as kTVMFFIModule */
} FcRemoteObj;

int32_t fc_remote_object_index(void);
/* The handle moves in, on failure too. */
TVMFFIObject* fc_remote_object(FcEndpoint* ep, uint64_t handle, int32_t kind);

/* ---- arguments and results of calls; the caller holds the lock ---- */

enum { FC_REMOTE_INLINE_ARGS = 8 };

typedef struct FcWireSlot {
  union {
    TVMFFIByteArray string;
    fc_wire_tensor tensor;
  };
  TVMFFIObject* lent; /* the Tensor that travels; NULL: none, or one that is no object */
  bool copied;        /* it is a temporary that holds a local tensor for this call, and belongs to it */
  uint64_t callback; /* handle of a local function that was entered for this call; 0: none */
  uint64_t made;     /* handle of a list that was made for this call; 0: none */
} FcWireSlot;

typedef struct FcRemoteArgs {
  TVMFFIAny* any;
  FcWireSlot* slots;
  void* heap;
  int32_t n;
  bool inherits; /* after a failure: it is that of a call whose result was to be an argument */
  TVMFFIAny inline_any[FC_REMOTE_INLINE_ARGS];
  FcWireSlot inline_slots[FC_REMOTE_INLINE_ARGS];
} FcRemoteArgs;

/* Arguments as wire values. May talk to the far side: tensors, lists and dicts of this process are made there for the
 * call. */
int fc_remote_args_begin(FcRemoteArgs* wire, FcEndpoint* ep, const char* name, const TVMFFIAny* args, int32_t n);
/* Temporaries go with the next request. sent: the far side knows the functions among them, and releases those. */
void fc_remote_args_end(FcRemoteArgs* wire, FcEndpoint* ep, bool sent);
/* Text or bytes that came, as a value. Text that is not UTF-8 is a ProtocolError, which says that `what` gave it. */
int fc_remote_string(const char* what, const TVMFFIAny* wire, TVMFFIAny* out);

/*
 * TVM servers return a tensor that was an argument without a handle (facts A.8): what it was lent from has to stay.
 */
typedef struct FcLenders {
  int32_t n;
  TVMFFIObject* tensors[];
} FcLenders;

/* The tensors among the arguments, kept; NULL when there are none. */
FcLenders* fc_remote_lenders(const FcRemoteArgs* wire);
void fc_lenders_free(FcLenders* lenders);
/* A result without a handle becomes a view of the tensor whose memory it is. */
int fc_remote_borrow(const fc_wire_packet* reply, const FcLenders* lenders, TVMFFIAny* result);

/* The reply of kCallFunc as a value. What needs further requests (an Array) stays a remote object. */
int fc_remote_result(FcEndpoint* ep, const char* name, const fc_wire_packet* reply, TVMFFIAny* result);
/* Fetches what fc_remote_result left there. Takes the lock. */
int fc_remote_finish(FcEndpoint* ep, const char* name, TVMFFIAny* result);

/* A Tensor around a remote tensor. `handle` (kFreeHandle), or the data (kDevFreeData) with owns_data, moves in. */
FcTensorObj* fc_remote_tensor(FcEndpoint* ep, const fc_wire_tensor* wire, uint64_t handle, bool owns_data);
/* An uninitialised tensor on the remote device (its plain number). */
FcTensorObj* fc_remote_empty(FcEndpoint* ep, DLDevice device, int32_t ndim, const int64_t* shape, DLDataType dtype);
/* Part of a remote tensor, which it keeps. */
FcTensorObj* fc_remote_view(TVMFFIObject* base, const DLTensor* part);
/* A tensor of this endpoint as it travels. */
void fc_remote_to_wire(const DLTensor* dl, fc_wire_tensor* out);
int fc_remote_alloc(FcEndpoint* ep, const fc_wire_tensor* like, uint64_t* data);
int fc_remote_write(FcEndpoint* ep, const fc_wire_tensor* remote, const DLTensor* local);
/* Copies between a contiguous remote tensor and memory of this process, of the same size. */
int fc_remote_copy_in(FcEndpoint* ep, const DLTensor* remote, const DLTensor* local);
int fc_remote_copy_out(FcEndpoint* ep, const DLTensor* remote, void* memory);
/* Plain numbers of a device, and as things of this endpoint carry it. */
DLDevice fc_remote_unmasked(DLDevice device);
/* A device that a user named, as the far side numbers it; -1 with an error for one of another session. */
int fc_remote_own_device(const FcEndpoint* ep, DLDevice* device);
DLDevice fc_remote_masked(const FcEndpoint* ep, DLDevice device);

/* ---- exchanges ---- */

/* One request and its reply (kReturn), in *reply until the next exchange. `what` is named in errors. */
int fc_remote_request(FcEndpoint* ep, const fc_wire_packet* request, const char* what, fc_wire_packet* reply);
/* The same with a payload behind the request, or with a place for the payload of the reply (request->nbytes). */
int fc_remote_exchange(FcEndpoint* ep, const fc_wire_packet* request, const void* payload, const char* what,
                       fc_wire_packet* reply, void* sink);
/* Queues a release. Never blocks, never fails loudly: without memory the far side keeps it until the end. */
void fc_remote_free_later(FcEndpoint* ep, uint64_t handle, DLDevice device);

/* The other side broke the protocol in its answer to `what`: ends the session. Answers -1. */
FC_COLD int fc_remote_unexpected(FcEndpoint* ep, const char* what);
/* The error of a kException: always -1. */
FC_COLD int fc_remote_error(FcEndpoint* ep, const fc_wire_packet* packet);
/* Finds one of the server's own functions, once: *handle is remembered by the caller; 0 stays when there is none. */
int fc_remote_lookup(FcEndpoint* ep, const char* name, uint64_t* handle);
/* Puts queued releases (FC_FREES_MAX at most), and how long requests may take where that has changed, in front of what
 * is encoded next; answers how many requests that are in *count. */
int fc_remote_encode_ahead(FcEndpoint* ep, size_t* used, size_t* count);
/* Several small replies come for what was sent: see fc_channel_hurry. */
void fc_remote_expect_many(const FcEndpoint* ep);
/* Replies to those. What one of them refuses is no error, unless the connection ends now: then it said why. Until the
 * reply behind them is read, it is the thread's error. */
int fc_remote_read_ahead(FcEndpoint* ep, size_t n, const char* what);
/* A reply failed among several that are read: the first error goes to *failure. -1 with the error when the session is
 * lost: no more replies come. */
int fc_remote_keep_failure(FcEndpoint* ep, TVMFFIObject** failure);
/* The next reply, whatever it is; a payload is dropped. For a request that nobody waits for. */
int fc_remote_read_any(FcEndpoint* ep, const char* what, fc_wire_packet* reply);
/* The next reply, after serving what the far side asks meanwhile. 0, or -1 with an error. */
int fc_remote_read_reply(FcEndpoint* ep, const char* what, fc_wire_packet* reply, void* sink, uint64_t nbytes);

/* ---- the time that requests may take, which the far side keeps, too; session/client/deadline.c ---- */

/* Whether the far side has to be asked for its farcall.rpc.deadline, now that there is a limit. */
bool fc_remote_must_learn(const FcEndpoint* ep);
int fc_remote_learn(FcEndpoint* ep);
/* One more request, when what the far side knows is not so any more. */
int fc_remote_encode_deadline(FcEndpoint* ep, size_t* used, size_t* count);
/* Whether the far side has yet to hear of the limits of what comes next. */
bool fc_remote_deadline_is_new(const FcEndpoint* ep);
/* How much longer than the far side this side waits, for its word of what happened; ns. */
int64_t fc_remote_grace(const FcEndpoint* ep);

/* ---- local functions that the far side may call ---- */

/* Enters a Function into the endpoint's table: its handle; 0 with an error. */
uint64_t fc_remote_export(FcEndpoint* ep, TVMFFIObject* function);
void fc_remote_unexport(FcEndpoint* ep, uint64_t handle);
/* kCallFunc and kFreeHandle of the server. -1 when the session is lost. */
int fc_remote_serve(FcEndpoint* ep, const fc_wire_packet* packet);
bool fc_remote_has_exports(const FcEndpoint* ep);
void fc_exports_delete(struct FcClient* client);

/* ---- calls without waiting: see session/client/call.c and session/client/queue.c ---- */

enum { FC_CALL_WAITING, FC_CALL_DONE, FC_CALL_FAILED, FC_CALL_CANCELLED };

/* A call that is on its way. An object, so that it can be an argument of a later call. */
typedef struct FcCall {
  TVMFFIObject header;
  struct FcCall* next;
  FcEndpoint* ep;
  TVMFFIObject* function; /* whose name is said in errors; NULL: a request that nobody waits for, see fc_call_leave */
  int32_t code;           /* of such a request */
  DLDevice device;        /* where such a request allocates */
  uint64_t promise;       /* number under which the far side keeps the result; 0: it does not */
  uint64_t end;           /* of its packet, in bytes since the session began */
  uint64_t size;          /* of its packet */
  int64_t due, allowed;   /* when its time is over, as fc_deadline was; and how long that gave it. 0: no limit */
  int64_t began;          /* while calls are traced; else 0 */
  uint32_t ahead;         /* replies to other requests that come in front of its own */
  int32_t state;          /* FC_CALL_*; see fc_call_state */
  bool finished;          /* the value is fetched whole */
  FcLenders* lent;        /* at a TVM server: the tensors among its arguments */
  bool taken;             /* a later call has its promise as an argument */
  bool withdrawn;         /* cancelled before it was sent: no reply comes */
  TVMFFIAny value;
  TVMFFIObject* error;
} FcCall;

typedef struct FcQueue {
  FcCall *first, *last;   /* sent or encoded, the reply not yet read */
  size_t used;            /* bytes of the outbox that are encoded and not yet sent */
  uint64_t encoded, sent; /* bytes since the session began */
} FcQueue;

int32_t fc_call_index(void);
static inline const char* fc_call_name(const FcCall* call) {
  return call->function ? fc_remote_function_of(call->function)->name : "a call that was interrupted";
}
static inline int32_t fc_call_state(const FcCall* call) { return __atomic_load_n(&call->state, __ATOMIC_ACQUIRE); }
/* Without a function it does not keep the endpoint. NULL with an error. */
FcCall* fc_call_new(FcEndpoint* ep, TVMFFIObject* function);
/* Puts a call behind the others, as a new reference. */
void fc_call_push(FcQueue* queue, FcCall* call);
/* Encodes the call of a remote function; it is sent by fc_call_flush, when enough has gathered, or by who waits. */
FcCall* fc_call_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep);
/* The same where that needs no waiting, so that the GIL may be held; NULL without an error where it does. */
FcCall* fc_call_try_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep);
/* It has ended: the error of this thread, or the value that is in it, is its own. The caller holds the lock. */
void fc_call_settle(FcCall* call, int rc);
/* Sends what was encoded, and reads replies while the far side is busy sending those. The caller holds the lock. */
int fc_call_flush(FcEndpoint* ep);
/* A request that was sent is not waited for any more: its reply, behind those of `ahead` others, is left for whoever
 * uses the line next, who drops it. -1 with an error. */
int fc_call_leave(FcEndpoint* ep, const fc_wire_packet* request, size_t ahead);
/* The endpoint goes: so do the requests that nobody waits for. */
void fc_call_forget(FcQueue* queue);
/* Until this call has ended. The caller holds the lock, and the line is its own. */
int fc_call_wait(FcCall* call);
/* The same for who does not hold it, until `patience` (0: for ever) is over, which is a DeadlineExceededError: it may
 * be waited for again. When the call's own time is over, so is the session. */
int fc_call_join(FcCall* call, int64_t patience);
/* The session has ended: so have the calls that it did not answer. The caller holds the lock. */
void fc_call_abandon(FcEndpoint* ep);
/* Everything that was sent is answered. The caller holds the lock. */
int fc_call_drain(FcEndpoint* ep);
/* Nobody wants its result any more: what was not sent never is, and other replies are passed over. False when it has
 * ended already. */
bool fc_call_cancel(FcCall* call);

/* ---- what the endpoint holds for all this ---- */

/* What the far side holds for us, to be released with a later request. */
typedef struct FcPendingFree {
  uint64_t handle;
  DLDevice device; /* device_type 0: kFreeHandle, else kDevFreeData */
} FcPendingFree;

typedef struct FcClient {
  FcQueue queue;
  int32_t slot;              /* place in the table of client sessions; -1: none yet */
  uint64_t serial;           /* of this session alone, in this process */
  FcMutex free_lock; /* guards the releases; taken in destructors, held for moments */
  FcPendingFree* frees;
  size_t frees_count, frees_capacity;
  uint32_t features;         /* FC_PEER_* */
  int32_t args_max;          /* of one call; 0: the peer told of no limit */
  bool asked_max_packet;
  int64_t max_packet;        /* of a copy, without its length field; 0: no limit */
  uint64_t array_size, array_item, keep, deadline; /* handles of the server's functions; 0: not looked up */
  uint64_t make_array, make_map, make_shape;
  int64_t told_until, told_each; /* what it knows of fc_deadline and timeout_ns; -1: unknown */
  uint64_t promises;         /* the last number that was given */
  struct FcLent* exports;
  uint32_t exports_size, exports_live, exports_free;
  uint64_t calls, round_trips, copies, copied_in, copied_out; /* counters */
} FcClient;

/* An endpoint with a client's half, in the table of client sessions. As fc_endpoint_new. */
FcEndpoint* fc_client_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits);
/* The endpoint behind a remote device, as a new reference; NULL with an error. */
FcEndpoint* fc_remote_endpoint_of(DLDevice device);
/* The client's endpoint of that serial number, as a new reference; NULL when nothing holds it any more. */
FcEndpoint* fc_remote_endpoint_of_serial(uint64_t serial);

/* Copies many runs of memory, each as large as `run` (of rank 1) and `offsets[i]` bytes behind where that begins, to
 * or from a contiguous local tensor, without waiting for each. */
int fc_remote_copy_runs(FcEndpoint* ep, const DLTensor* run, const int64_t* offsets, int64_t n, const DLTensor* local,
                        bool in);
int fc_remote_copy_among(FcEndpoint* ep, const DLTensor* from, const DLTensor* to);

#endif /* FARCALL_SESSION_CLIENT_REMOTE_H_ */
