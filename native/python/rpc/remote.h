/* The Python side of what a client holds: objects of the far side, calls on their way, pipelines. */
#ifndef FARCALL_PYTHON_RPC_REMOTE_H_
#define FARCALL_PYTHON_RPC_REMOTE_H_

#include "python/rpc/endpoint.h"
#include "session/client/remote.h"

typedef struct {
  PyObject_HEAD FcRemoteObj* object; /* owned */
} PyRemoteRef;

typedef struct {
  PyObject_HEAD FcCall* call;    /* owned */
  PyObject* value; /* the result, once it was asked for */
  PyObject* shape; /* farcall.ffi._async.FutureShape, once it was asked for */
} PyCall;

extern PyTypeObject FcRemoteRef_Type, FcCall_Type, FcPipeline_Type;
extern PyMethodDef fc_call_functions[], fc_remote_ref_functions[];
/* Of the endpoint, and of the module: see python/rpc/remote_tensor.c. */
extern PyMethodDef fc_remote_tensor_methods[], fc_remote_tensor_functions[];

/* A call, whose reference moves in, on failure too. */
PyObject* fc_call_wrap(FcCall* call);
/* The result of a call that has ended, as a new reference; NULL with its exception. Drops the GIL. */
PyObject* fc_call_value(FcCall* call);

#endif /* FARCALL_PYTHON_RPC_REMOTE_H_ */
