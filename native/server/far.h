/*
 * The devices behind this server as devices of its own, hexagon:N: their memory, and functions that use it. The worker
 * opens a session with each of them at its first use, and opens another when that is lost.
 */
#ifndef FARCALL_SERVER_FAR_H_
#define FARCALL_SERVER_FAR_H_

#include "runtime/builtins.h"
#include "server/session.h"

/* ---- server/far.c: sessions with devices ---- */

/* One session at a time with a device, in which this side asks and waits. It serves no callbacks. */
typedef struct FcFar {
  FcEndpoint* ep;  /* NULL: none is open */
  uint32_t serial; /* of the session; 0: there was none yet */
  uint64_t own[4]; /* handles of the device's own functions, see server/posix/far_module.c; 0: not looked up */
} FcFar;

/* The session with the device of that index, opened if there is none. NULL with an error. */
FcFar* fc_far_open(int32_t index);
/* The session if it is open, and has that serial number. */
FcFar* fc_far_of(int32_t index, uint32_t serial);
/* Sends a request and reads its reply, which is valid until the next one; a payload goes to `sink`. -1 with an error;
 * the session may be lost then. */
int fc_far_ask(FcFar* far, const fc_wire_packet* request, const void* payload, fc_wire_packet* reply, void* sink);
/* A request of several that are sent together. */
typedef struct FcFarRequest {
  fc_wire_packet packet;
  const void* payload; /* of a copy to the device */
  void* sink;          /* of a copy from there */
} FcFarRequest;
/* Sends all requests, then reads all replies, in one round trip, and drops their values. -1 with the first error. */
int fc_far_ask_all(FcFar* far, const FcFarRequest* requests, int32_t n);
/* The error for a reply of another form than the protocol has for the request; returns -1. */
int fc_far_unexpected(FcFar* far);
/* Sends a release to the session, if it is open, and keeps the error of the thread's slot. */
void fc_far_release(int32_t index, uint32_t serial, int32_t code, uint64_t handle);
/* Names the hop in front of the error, and `what` was done, if rc is not 0. Returns rc. The end of the device's session
 * is not that of the client's: the error has another kind then. */
int fc_far_named(int32_t index, const char* what, int rc);
const FcOptions* fc_far_options(void);

/* Before a session of the client, and after it. */
void fc_far_begin(FcSession* session);
void fc_far_end(void);

/* ---- server/far_memory.c ---- */

/* The driver of hexagon:N. */
extern const FcDeviceMemory fc_far_memory;
/* Allocates bytes in the device's memory, by a handle of the open session. -1 with an error. */
int fc_far_allocate(FcFar* far, uint64_t nbytes, uint64_t* data);
/* Describes a tensor of the device as its session knows it; `to` borrows the shape. -1 with an error. */
int fc_far_place(int32_t index, const DLTensor* tensor, fc_wire_tensor* to);
/* Takes a tensor that the device returned, and its owner's handle: a tensor of hexagon:N. NULL with an error. */
FcTensorObj* fc_far_take(int32_t index, const fc_wire_tensor* tensor, uint64_t owner);
void fc_far_forget(void);

/* ---- server/far_functions.c ---- */

extern const FcServed fc_served_far[];
/* Reads the arguments (device, text) of such a function: the index of a device that there is. -1 with an error. */
int fc_far_arguments(const FcOptions* options, const TVMFFIAny* args, int32_t n, int32_t* index, TVMFFIByteArray* name);
/* The handle of the function that the device exports under a name. -1 with an error, also when there is none. */
int fc_far_look_up(int32_t index, TVMFFIByteArray name, uint64_t* handle);
/* A function of the session that is open, which ends with it. Takes the handle. -1 with an error. */
int fc_far_function(int32_t index, uint64_t handle, const char* name, TVMFFIAny* out);

/* ---- server/far_regions.c ---- */

/* The loader of modules of kind farcall.remote: regions of an artifact that a device computes. */
extern const FcBuiltin fc_far_builtins[];

#endif /* FARCALL_SERVER_FAR_H_ */
