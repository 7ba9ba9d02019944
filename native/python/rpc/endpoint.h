/* farcall._core.Endpoint: what its two halves share. */
#ifndef FARCALL_PYTHON_RPC_ENDPOINT_H_
#define FARCALL_PYTHON_RPC_ENDPOINT_H_

#include "python/rpc/values.h"

typedef struct {
  PyObject_HEAD FcEndpoint* ep;
  Py_buffer page; /* server: byte 0 is set while a reply is being sent; .buf NULL without one */
} PyEndpoint;

extern PyTypeObject FcEndpoint_Type;
/* The client's half: methods of the type above, and types of its own. */
int fc_remote_types_init(PyObject* module);

#endif /* FARCALL_PYTHON_RPC_ENDPOINT_H_ */
