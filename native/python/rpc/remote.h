/* The Python types of a client: remote objects, pending calls, pipelines. */
#ifndef FARCALL_PYTHON_RPC_REMOTE_H_
#define FARCALL_PYTHON_RPC_REMOTE_H_

#include "python/args.h"
#include "python/rpc/endpoint.h"
#include "python/session_hooks.h"
#include "session/client/remote.h"

typedef struct {
  PyObject_HEAD FcRemoteObj* object; /* owned */
} PyRemoteRef;

typedef struct {
  PyObject_HEAD FcCall* call;    /* owned */
  PyObject* value; /* the result, once requested */
  PyObject* shape; /* farcall.ffi._async.FutureShape, once requested */
  PyObject* end;   /* of an observed call whose end was not told yet: see fc_function_observe; else NULL */
} PyCall;

extern PyTypeObject FcRemoteRef_Type, FcCall_Type, FcPipeline_Type;
extern PyMethodDef fc_call_functions[], fc_remote_functions[], fc_remote_ref_functions[], fc_remote_tensor_functions[];
/* Methods of the endpoint: see python/rpc/remote_tensor.c. */
extern PyMethodDef fc_remote_tensor_methods[];

/* What python/rpc adds to the module, and the session hooks. 0, or -1 with an exception. */
int fc_sessions_init(PyObject* module);
/* Numbers of sessions that Python code uses, as mappings of the module. 0, or -1 with an exception. */
int fc_session_constants(PyObject* module);

/* The chooser of setters for pending calls and remote objects. */
int fc_choose_remote(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_set_remote_ref(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
/* Session hooks: see python/session_hooks.h. */
const char* fc_remote_function_peer(TVMFFIObject* function);
PyObject* fc_remote_place_text(DLDevice device);
PyObject* fc_remote_wrap_object(TVMFFIObject* object);

/* The Call of a call. Takes ownership of the reference, even on failure. */
PyObject* fc_call_wrap(FcCall* call, PyObject* end);
/* The result of a call that has ended, as a new reference; NULL with its exception. May release the GIL. */
PyObject* fc_call_value(FcCall* call);

#endif /* FARCALL_PYTHON_RPC_REMOTE_H_ */
