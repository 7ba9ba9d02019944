/* farcall._core.Endpoint: declarations for its two halves. */
#ifndef FARCALL_PYTHON_RPC_ENDPOINT_H_
#define FARCALL_PYTHON_RPC_ENDPOINT_H_

#include "python/rpc/values.h"

typedef struct {
  PyObject_HEAD FcEndpoint* ep;
  Py_buffer page; /* server: byte 0 is set while a reply is being sent; .buf NULL without one */
} PyEndpoint;

extern PyTypeObject FcEndpoint_Type;
extern PyMethodDef fc_endpoint_functions[];
/* Adds the client's methods to the type, which is ready: see python/rpc/remote.c. 0, or -1 with an exception. */
int fc_endpoint_add_client(void);

#endif /* FARCALL_PYTHON_RPC_ENDPOINT_H_ */
