/*
 * The client's half of an endpoint: requests and their replies, and remote Functions, Tensors and objects. These are
 * ordinary objects, which native code may call, hold and release from any thread.
 */
#ifndef FARCALL_SESSION_CLIENT_REMOTE_H_
#define FARCALL_SESSION_CLIENT_REMOTE_H_

#include "session/endpoint.h"

/* The features that the server offers beyond TVM's protocol. */
enum { FC_PEER_FARCALL = 1, FC_PEER_CALLBACKS = 2, FC_PEER_PROMISES = 4, FC_PEER_DEADLINES = 8 };
/* The server takes packets up to a size that it tells (docs/spec/wire.md, feature `packets`). */
enum { FC_PEER_PACKETS = 32 };
/* A TVM server is among the hops: it treats the byte_offset of a copy as 0 (facts A.10). */
enum { FC_PEER_BEHIND_TVM = 16 };

static inline DLDevice fc_no_device(void) { return (DLDevice){(DLDeviceType)0, 0}; }

/* A handle of the server that this client owns and releases once. */
typedef struct FcOwned {
  FcEndpoint* ep;
  uint64_t handle; /* 0: nothing to release */
  DLDevice device; /* see FcPendingFree */
} FcOwned;

enum { FC_REMOTE_NAME_MAX = 128 };

typedef struct FcRemoteFunction {
  FcOwned owned;
  char name[FC_REMOTE_NAME_MAX]; /* for messages */
} FcRemoteFunction;

/* A new Function object, which takes ownership of `handle`; NULL with an error. */
TVMFFIObject* fc_remote_function(FcEndpoint* ep, uint64_t handle, const char* name);
/* The remote function behind a Function object; NULL when the Function is local. */
FcRemoteFunction* fc_remote_function_of(TVMFFIObject* function);
/* The label of a function in messages; a remote function keeps the name by which it was found. */
const char* fc_function_label(TVMFFIObject* function);

/* ---- remote objects: an Array, a Map, a Module. Their type index is fc_remote_object_index(). ---- */

typedef struct FcRemoteObj {
  TVMFFIObject header;
  FcOwned owned;
  int32_t kind; /* the type index that the server gave, such as kTVMFFIModule */
} FcRemoteObj;

int32_t fc_remote_object_index(void);
/* Takes ownership of the handle, even on failure. */
TVMFFIObject* fc_remote_object(FcEndpoint* ep, uint64_t handle, int32_t kind);

/* ---- arguments and results of calls; the caller holds the lock ---- */

enum { FC_REMOTE_INLINE_ARGS = 8 };

typedef struct FcWireSlot {
  union {
    TVMFFIByteArray string;
    fc_wire_tensor tensor;
  };
  TVMFFIObject* lent; /* the Tensor that travels; NULL: none, or a DLTensor without an object */
  bool copied;        /* `tensor` is a temporary copy of a local tensor, which this call owns */
  uint64_t callback; /* handle of a local function that was exported for this call; 0: none */
  uint64_t made;     /* handle of a list that the server made for this call; 0: none */
} FcWireSlot;

typedef struct FcRemoteArgs {
  TVMFFIAny* any;
  FcWireSlot* slots;
  void* heap;
  int32_t n;
  bool inherits; /* after a failure: the error is that of a call whose result is an argument */
  TVMFFIAny inline_any[FC_REMOTE_INLINE_ARGS];
  FcWireSlot inline_slots[FC_REMOTE_INLINE_ARGS];
} FcRemoteArgs;

/* Converts arguments to wire values. May send requests: the server gets copies of local tensors, lists and dicts for
 * the call. */
int fc_remote_args_begin(FcRemoteArgs* wire, FcEndpoint* ep, const char* name, const TVMFFIAny* args, int32_t n);
/* Releases temporaries with the next request. sent: the call was sent, so the server releases the functions among
 * them. */
void fc_remote_args_end(FcRemoteArgs* wire, FcEndpoint* ep, bool sent);
/* Received text or bytes as a value. Text that is not UTF-8 is a ProtocolError, which names `what` as its source. */
int fc_remote_string(const char* what, const TVMFFIAny* wire, TVMFFIAny* out);

/*
 * TVM servers return an argument tensor without a handle (facts A.8): the result must keep the argument alive.
 */
typedef struct FcLenders {
  int32_t n;
  TVMFFIObject* tensors[];
} FcLenders;

/* New references to the tensors among the arguments; NULL when there are none. */
FcLenders* fc_remote_lenders(const FcRemoteArgs* wire);
void fc_lenders_free(FcLenders* lenders);
/* Makes a result without a handle a view of the tensor that owns the memory. */
int fc_remote_borrow(const fc_wire_packet* reply, const FcLenders* lenders, TVMFFIAny* result);

/* The reply of kCallFunc as a value. A value that needs further requests (an Array) stays a remote object. */
int fc_remote_result(FcEndpoint* ep, const char* name, const fc_wire_packet* reply, TVMFFIAny* result);
/* Fetches the values that fc_remote_result left on the server. Takes the lock. */
int fc_remote_finish(FcEndpoint* ep, const char* name, TVMFFIAny* result);

/* A Tensor for a remote tensor. Takes ownership of `handle` (kFreeHandle) or, with owns_data, of the data
 * (kDevFreeData). */
FcTensorObj* fc_remote_tensor(FcEndpoint* ep, const fc_wire_tensor* wire, uint64_t handle, bool owns_data);
/* An uninitialised tensor on a remote device, which has its plain number (without the session's mask). */
FcTensorObj* fc_remote_empty(FcEndpoint* ep, DLDevice device, int32_t ndim, const int64_t* shape, DLDataType dtype);
/* A view of part of a remote tensor, which it keeps alive. */
FcTensorObj* fc_remote_view(TVMFFIObject* base, const DLTensor* part);
/* A tensor of this endpoint in its wire form. */
void fc_remote_to_wire(const DLTensor* dl, fc_wire_tensor* out);
int fc_remote_alloc(FcEndpoint* ep, const fc_wire_tensor* like, uint64_t* data);
int fc_remote_write(FcEndpoint* ep, const fc_wire_tensor* remote, const DLTensor* local);
/* Copies between a contiguous remote tensor and memory of this process, of the same size. */
int fc_remote_copy_in(FcEndpoint* ep, const DLTensor* remote, const DLTensor* local);
int fc_remote_copy_out(FcEndpoint* ep, const DLTensor* remote, void* memory);
/* A device with its plain number; a device with the mask of this endpoint's session. */
DLDevice fc_remote_unmasked(DLDevice device);
/* Converts a device that a user named to the server's number; -1 with an error for a device of another session. */
int fc_remote_own_device(const FcEndpoint* ep, DLDevice* device);
DLDevice fc_remote_masked(const FcEndpoint* ep, DLDevice device);

/* ---- exchanges ---- */

/* Returned instead of -1 when nothing of the request was sent, nor ever will be. */
enum { FC_NOT_SENT = -3 };
/* Sends a request and reads its reply (kReturn); *reply is valid until the next exchange. Errors name `what`. */
int fc_remote_request(FcEndpoint* ep, const fc_wire_packet* request, const char* what, fc_wire_packet* reply);
/* The same with a payload behind the request, or with a buffer for the reply's payload (request->nbytes). */
int fc_remote_exchange(FcEndpoint* ep, const fc_wire_packet* request, const void* payload, const char* what,
                       fc_wire_packet* reply, void* sink);
/* Queues a release. Never blocks and never fails: without memory, the server keeps the object until the session
 * ends. */
void fc_remote_free_later(FcEndpoint* ep, uint64_t handle, DLDevice device);

/* Ends the session, because the server's answer to `what` breaks the protocol. Returns -1. */
FC_COLD int fc_remote_unexpected(FcEndpoint* ep, const char* what);
/* Sets the error of a kException. Always returns -1. */
FC_COLD int fc_remote_error(FcEndpoint* ep, const fc_wire_packet* packet);
/* Looks up a function of the server unless *handle is set, which the caller keeps; 0 when there is no such function. */
int fc_remote_lookup(FcEndpoint* ep, const char* name, uint64_t* handle);
/* All that comes before a request is encoded: the replies to earlier ones, and releases beyond one batch. */
int fc_remote_prepare(FcEndpoint* ep, const fc_wire_packet* request, const char* what);
/* Encodes queued releases (at most 256), and changed time limits, ahead of the next packet. *count is the
 * number of these requests. */
int fc_remote_encode_ahead(FcEndpoint* ep, size_t* used, size_t* count);
/* Prepares for several small replies: see fc_channel_hurry. */
void fc_remote_expect_many(const FcEndpoint* ep);
/* Reads the replies to those requests. A refusal is not an error, unless the connection ends now: it then gives the
 * reason, so it stays the thread's error until the next reply is read. */
int fc_remote_read_ahead(FcEndpoint* ep, size_t n, const char* what);
/* Keeps the first error of several replies in *failure. -1 with the error when no more replies are read, since the
 * session is lost, or a signal handler raised. */
int fc_remote_keep_failure(FcEndpoint* ep, TVMFFIObject** failure);
/* Always returns -1, after n like requests were sent, perhaps in part, and failed. If a signal handler raised, the next
 * thread that uses the line sends the rest, and drops the replies: those to `ahead` other requests, then n. */
FC_COLD int fc_remote_leave(FcEndpoint* ep, const fc_wire_packet* request, size_t ahead, size_t n);
/* Reads the next reply of any kind and drops its payload. For a request that no thread waits for: the server's callbacks
 * are declined. */
int fc_remote_read_any(FcEndpoint* ep, const char* what, fc_wire_packet* reply);
/* Reads the next reply, and serves the server's callbacks until it comes. 0, or -1 with an error. */
int fc_remote_read_reply(FcEndpoint* ep, const char* what, fc_wire_packet* reply, void* sink, uint64_t nbytes);

/* ---- time limits of requests, which the server enforces, too; session/client/deadline.c ---- */

/* Whether there is a limit, but the server's farcall.rpc.deadline was not looked up yet. */
bool fc_remote_must_learn(const FcEndpoint* ep);
int fc_remote_learn(FcEndpoint* ep);
/* Encodes one more request when the limits differ from those that the server knows. */
int fc_remote_encode_deadline(FcEndpoint* ep, size_t* used, size_t* count);
/* Whether the server does not know the limits of the next request yet. */
bool fc_remote_deadline_is_new(const FcEndpoint* ep);
/* How much longer than the server this side waits, so that the server can report the outcome; ns. */
int64_t fc_remote_grace(const FcEndpoint* ep);

/* ---- local functions that the server may call ---- */

/* Adds a Function to the endpoint's table and returns its handle; 0 with an error. */
uint64_t fc_remote_export(FcEndpoint* ep, TVMFFIObject* function);
void fc_remote_unexport(FcEndpoint* ep, uint64_t handle);
/* Serves kCallFunc and kFreeHandle of the server. declines: no thread waits for the open call any more, so its functions
 * are not called. -1 when the session is lost, or when a signal handler raised (ep->interrupted). */
int fc_remote_serve(FcEndpoint* ep, const fc_wire_packet* packet, bool declines);
/* Answers a call of the server with an error, since this client was interrupted. 0, -1, or FC_INTERRUPTED when the rest
 * of the answer is sent later. */
int fc_remote_decline(FcEndpoint* ep);
/* Whether the server may call functions of this process, or waits for one: no other request may follow then. */
bool fc_remote_may_be_called(const FcEndpoint* ep);
void fc_exports_delete(struct FcClient* client);

/* ---- calls without waiting: see session/client/call.c and session/client/queue.c ---- */

enum { FC_CALL_WAITING, FC_CALL_DONE, FC_CALL_FAILED, FC_CALL_CANCELLED };

/* A pending call. An object, so that it can be an argument of a later call. */
typedef struct FcCall {
  TVMFFIObject header;
  struct FcCall* next;
  FcEndpoint* ep;
  TVMFFIObject* function; /* errors name it; NULL: a request that no thread waits for, see fc_call_leave */
  int32_t code;           /* of such a request; kException: not a request, but an answer that is owed to the server */
  DLDevice device;        /* where such a request allocates */
  uint64_t promise;       /* the number under which the server keeps the result; 0: it does not */
  uint64_t end;           /* end of its packet, in bytes since the session began */
  uint64_t size;          /* size of its packet */
  int64_t due, allowed;   /* the value of fc_deadline, and the time that it gave the call. 0: no limit */
  int64_t began;          /* when it began, while tracing; else 0 */
  uint32_t ahead;         /* number of replies to other requests that come before its own */
  int32_t state;          /* FC_CALL_*; see fc_call_state */
  bool finished;          /* the whole value is fetched */
  FcLenders* lent;        /* for a TVM server: the tensors among its arguments */
  bool taken;             /* a later call has its promise as an argument */
  bool withdrawn;         /* cancelled before it was sent: no reply comes */
  bool observed;          /* a span ends with it */
  int64_t ended;          /* when its reply was read, if it is observed; else 0 */
  TVMFFIAny value;
  TVMFFIObject* error;
} FcCall;

typedef struct FcQueue {
  FcCall *first, *last;   /* encoded or sent, but the reply is not read yet */
  size_t used;            /* bytes of the outbox that are not sent yet */
  uint32_t owed;          /* number of answers that are owed to the server; see fc_call_owe */
  uint64_t encoded, sent; /* bytes since the session began */
} FcQueue;

int32_t fc_call_index(void);
static inline const char* fc_call_name(const FcCall* call) {
  return call->function ? fc_remote_function_of(call->function)->name : "a call that was interrupted";
}
static inline int32_t fc_call_state(const FcCall* call) { return __atomic_load_n(&call->state, __ATOMIC_ACQUIRE); }
/* A call without a function does not keep the endpoint alive. NULL with an error. */
FcCall* fc_call_new(FcEndpoint* ep, TVMFFIObject* function);
/* Appends a call to the queue, which adds a reference. */
void fc_call_push(FcQueue* queue, FcCall* call);
/* Encodes the call of a remote function. fc_call_flush sends it, when enough bytes have gathered or a thread waits. */
FcCall* fc_call_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep);
/* The same without waiting, so the caller may hold the GIL; NULL without an error when it would have to wait. */
FcCall* fc_call_try_begin(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, bool keep);
/* Ends a call with the value stored in it or, if rc < 0, with this thread's error. The caller holds the lock. */
void fc_call_settle(FcCall* call, int rc);
/* Sends encoded calls, and reads replies while the server is busy sending them. The caller holds the lock. */
int fc_call_flush(FcEndpoint* ep);
/* Stops waiting for a request that was sent: the next thread that uses the line drops its reply, which comes behind the
 * replies of `ahead` others. -1 with an error. */
int fc_call_leave(FcEndpoint* ep, const fc_wire_packet* request, size_t ahead);
/* The same for the answer to a call of the server, which comes behind the replies of the requests that its function left
 * on the line: the server would take it for the answer to a call that one of these makes. */
int fc_call_owe(FcEndpoint* ep);
/* Adds bytes at the beginning of the outbox to those that the next flush sends. */
void fc_call_unsent(FcEndpoint* ep, size_t n);
/* Frees the requests that no thread waits for, when the endpoint is freed. */
void fc_call_forget(FcQueue* queue);
/* Waits until this call has ended. The caller holds the lock and has the line to itself. */
int fc_call_wait(FcCall* call);
/* The same for a caller that does not hold the lock, until `patience` (0: for ever) passes. That is a
 * DeadlineExceededError, after which one may wait again. When the call's own time passes, the session ends. */
int fc_call_join(FcCall* call, int64_t patience);
/* Ends all unanswered calls, after the session has ended. The caller holds the lock. */
void fc_call_abandon(FcEndpoint* ep);
/* Waits until every sent call is answered. The caller holds the lock. */
int fc_call_drain(FcEndpoint* ep);
/* Cancels a call: if it was not sent, it never is; otherwise its reply is dropped. False when it has ended already. */
bool fc_call_cancel(FcCall* call);

/* ---- the client's state ---- */

/* An object of the server that this client releases with a later request. */
typedef struct FcPendingFree {
  uint64_t handle;
  DLDevice device; /* device_type 0: kFreeHandle, else kDevFreeData */
} FcPendingFree;

typedef struct FcClient {
  FcQueue queue;
  int32_t slot;              /* index in the table of client sessions; -1: none yet */
  uint64_t serial;           /* unique to this session in this process */
  FcMutex free_lock; /* guards the releases; destructors take it and hold it briefly */
  FcPendingFree* frees;
  size_t frees_count, frees_capacity;
  uint32_t features;         /* FC_PEER_* */
  int32_t args_max;          /* most arguments of one call; 0: the peer gave no limit */
  bool asked_max_packet;
  int64_t max_packet;        /* bytes of a copy packet, without its length field; 0: no limit */
  uint64_t array_size, array_item, keep, deadline, span; /* handles of the server's functions; 0: not looked up */
  uint64_t make_array, make_map, make_shape;
  int64_t told_until, told_each; /* the fc_deadline and timeout_ns that the server knows; -1: unknown */
  uint64_t promises;         /* the last number that was used */
  struct FcLent* exports;
  uint32_t exports_size, exports_live, exports_free;
  uint64_t calls, round_trips, copies, copied_in, copied_out; /* counters */
} FcClient;

/* As fc_endpoint_new, with a client's half, and entered into the table of client sessions. */
FcEndpoint* fc_client_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits);
/* The endpoint behind a remote device, as a new reference; NULL with an error. */
FcEndpoint* fc_remote_endpoint_of(DLDevice device);
/* The client endpoint with that serial number, as a new reference; NULL when it was freed. */
FcEndpoint* fc_remote_endpoint_of_serial(uint64_t serial);

/* Copies n runs of memory to or from a contiguous local tensor, without waiting for each. Run i has the size of `run`
 * (of rank 1) and begins `offsets[i]` bytes behind its start. */
int fc_remote_copy_runs(FcEndpoint* ep, const DLTensor* run, const int64_t* offsets, int64_t n, const DLTensor* local,
                        bool in);
int fc_remote_copy_among(FcEndpoint* ep, const DLTensor* from, const DLTensor* to);
/* The bytes of a local tensor in wire form (row-major, little-endian): in place, or in *packed, which the caller
 * frees. NULL with an error. */
const void* fc_remote_wire_bytes(const DLTensor* local, int64_t nbytes, void** packed);
/* Copies a row-major tensor to this machine. The caller holds the lock. */
int fc_remote_read(FcEndpoint* ep, const fc_wire_tensor* remote, const DLTensor* local);
/* Asks once for the largest packet that the server takes: client->max_packet. The caller holds the lock. */
int fc_remote_ask_max_packet(FcEndpoint* ep);

/* An input or output of a computation: its memory on the server, and the tensor of this machine to copy to there or from
 * there. NULL: the value stays there. */
typedef struct FcRemoteOperand {
  const DLTensor *there, *here;
} FcRemoteOperand;
/* Calls function(inputs), a function of the same session as `compute`, its farcall.rpc.compute, for the outputs. */
int fc_remote_compute(TVMFFIObject* compute, TVMFFIObject* function, const FcRemoteOperand* operands, int32_t inputs,
                      int32_t n);

#endif /* FARCALL_SESSION_CLIENT_REMOTE_H_ */
