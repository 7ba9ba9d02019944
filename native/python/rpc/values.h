/*
 * The Python forms of values in packets. None, bool, int, float, str, bytes, dtype and Device stay as they are; other
 * values are tuples that begin with the type index of their wire value:
 *   (4 | 68 | 73 | 115, handle)                        opaque pointer, function, module, object
 *   (7, data, byte_offset, device, dtype, (dim, ...))  tensor
 *   (9, bytes)                                         bytes as a server returns them
 */
#ifndef FARCALL_PYTHON_RPC_VALUES_H_
#define FARCALL_PYTHON_RPC_VALUES_H_

#include "python/types.h"
#include "session/endpoint.h"

/* The arguments of a packet to send, which borrow from the Python values. */
typedef struct {
  TVMFFIAny* any; /* release with PyMem_Free */
  int32_t n;
} FcWireArgs;

PyObject* fc_wire_args_to_py(const fc_wire_packet* packet);
int fc_wire_args_from_py(PyObject* values, FcWireArgs* out);
/* A tuple of ints, none negative. */
int fc_read_shape(PyObject* dims, int64_t shape[FC_WIRE_MAX_NDIM], int32_t* ndim);

/* The endpoint of an Endpoint, borrowed; NULL with an exception. */
FcEndpoint* fc_endpoint_of_python(PyObject* object);
extern PyTypeObject FcDispatcher_Type;
extern PyMethodDef fc_dispatcher_functions[];

#endif /* FARCALL_PYTHON_RPC_VALUES_H_ */
