/* The client's half of farcall._core.Endpoint. */
#include "remote_py.h"

#include <stdio.h>

/* ---- requests ---- */

/* One request; the reply's values under the lock. */
static PyObject* exchange(PyEndpoint* self, fc_wire_packet* request, const char* what) {
  fc_wire_packet reply;
  PyObject* values = NULL;
  int entered, rc = -1;
  Py_BEGIN_ALLOW_THREADS
  entered = fc_endpoint_enter(self->ep);
  if (entered == 0) rc = fc_endpoint_request(self->ep, request, what, &reply);
  Py_END_ALLOW_THREADS
  if (rc == 0) values = fc_wire_args_to_py(&reply);
  if (entered == 0) fc_endpoint_leave(self->ep);
  return rc < 0 ? fc_raise_slot() : values;
}

static PyObject* endpoint_request(PyEndpoint* self, PyObject* args) {
  int code;
  const char* what;
  PyObject* values;
  unsigned long long handle = 0;
  FcWireArgs wire;
  if (!PyArg_ParseTuple(args, "isO!|K:request", &code, &what, &PyTuple_Type, &values, &handle)) return NULL;
  if (fc_wire_args_from_py(values, &wire) < 0) return NULL;
  fc_wire_packet request = {.code = code, .handle = handle, .num_args = wire.n, .args = wire.any};
  PyObject* reply = exchange(self, &request, what);
  PyMem_Free(wire.any);
  return reply;
}

/* ---- the beginning of a session ---- */

/* What a session begins with. */
typedef struct Beginning {
  fc_wire_packet init;
  FcWireArgs between;  /* names of functions that the servers between have, one each, when they are farcall's */
  int32_t known;       /* how many of these there are */
  uint64_t hello;      /* handle of the server's function; 0: it is a TVM server */
} Beginning;

static int encode_lookup(FcEndpoint* ep, const TVMFFIAny* name, size_t* used) {
  fc_wire_packet lookup = {.code = FC_WIRE_GET_GLOBAL_FUNC, .num_args = 1, .args = name};
  return fc_endpoint_encode(ep, &lookup, used);
}

/* The handle; 0 when there is no such function, or this client may not have it. */
static int read_lookup(FcEndpoint* ep, uint64_t* handle) {
  fc_wire_packet reply;
  *handle = 0;
  if (fc_remote_read_reply(ep, "kGetGlobalFunc", &reply, NULL, 0) == 0) {
    bool pointer = reply.num_args == 1 && reply.args[0].type_index == kTVMFFIOpaquePtr;
    if (pointer) *handle = reply.args[0].v_uint64;
    return 0;
  }
  if (fc_endpoint_is_lost(ep)) return -1;
  fc_decref(fc_error_take());
  return 0;
}

/*
 * kInitServer, and in the same write the question for a function that only farcall's servers have: what they can do
 * beyond the protocol costs no round trip to learn, and a TVM server answers with a null pointer.
 */
static int begin_session(FcEndpoint* ep, Beginning* begin) {
  static const char name[] = "farcall.rpc.hello";
  TVMFFIByteArray text = {name, sizeof name - 1};
  TVMFFIAny arg = {.type_index = kTVMFFIRawStr, .v_ptr = &text};
  fc_wire_packet reply;
  size_t used = 0;
  if (fc_endpoint_encode(ep, &begin->init, &used) < 0 || encode_lookup(ep, &arg, &used) < 0) return -1;
  for (int32_t i = 0; i < begin->between.n; ++i) {
    if (encode_lookup(ep, &begin->between.any[i], &used) < 0) return -1;
  }
  if (fc_endpoint_flush(ep, used, NULL, 0) < 0) return -1;
  ++ep->client->round_trips;
  if (fc_remote_read_reply(ep, "kInitServer", &reply, NULL, 0) < 0) return -1; /* the caller closes */
  if (read_lookup(ep, &begin->hello) < 0) return -1;
  for (int32_t i = 0; i < begin->between.n; ++i) {
    uint64_t handle;
    if (read_lookup(ep, &handle) < 0) return -1;
    if (handle) fc_endpoint_free_later(ep, handle, fc_no_device());
    begin->known += handle != 0;
  }
  return 0;
}

static int say_hello(FcEndpoint* ep, uint64_t handle, const TVMFFIByteArray* wishes, TVMFFIAny* answer) {
  TVMFFIAny args[2] = {fc_any_int(1), {.type_index = kTVMFFIRawStr, .v_ptr = (void*)wishes}};
  fc_wire_packet reply, call = {.code = FC_WIRE_CALL_FUNC, .num_args = 2, .args = args, .handle = handle};
  int rc = fc_endpoint_request(ep, &call, "farcall.rpc.hello", &reply);
  fc_endpoint_free_later(ep, handle, fc_no_device());
  return rc < 0 ? -1 : fc_remote_result(ep, "farcall.rpc.hello", &reply, answer);
}

/* The answer to the hello, and how many of the names are known. */
static PyObject* start(FcEndpoint* ep, Beginning* begin, const TVMFFIByteArray* wishes) {
  TVMFFIAny answer = fc_any_none();
  int rc;
  Py_BEGIN_ALLOW_THREADS
  rc = fc_endpoint_enter(ep);
  if (rc == 0) {
    rc = begin_session(ep, begin);
    if (rc == 0 && begin->hello) rc = say_hello(ep, begin->hello, wishes, &answer);
    fc_endpoint_leave(ep);
  }
  Py_END_ALLOW_THREADS
  if (rc < 0) return fc_raise_slot();
  PyObject* object = fc_any_to_python(&answer);
  return object ? Py_BuildValue("(Ni)", object, (int)begin->known) : NULL;
}

static PyObject* endpoint_start(PyEndpoint* self, PyObject* args) {
  PyObject *values, *names, *answer = NULL;
  FcWireArgs wire;
  Py_ssize_t size;
  TVMFFIByteArray wishes;
  if (!PyArg_ParseTuple(args, "O!s#O!:start", &PyTuple_Type, &values, &wishes.data, &size, &PyTuple_Type, &names)) {
    return NULL;
  }
  wishes.size = (size_t)size;
  if (fc_wire_args_from_py(values, &wire) < 0) return NULL;
  Beginning begin = {.init = {.code = FC_WIRE_INIT_SERVER, .version = {FC_WIRE_VERSION, sizeof FC_WIRE_VERSION - 1},
                              .num_args = wire.n, .args = wire.any}};
  if (fc_wire_args_from_py(names, &begin.between) == 0) {
    answer = start(self->ep, &begin, &wishes);
    PyMem_Free(begin.between.any);
  }
  PyMem_Free(wire.any);
  return answer;
}

static PyObject* endpoint_set_features(PyEndpoint* self, PyObject* args) {
  unsigned int bits;
  int args_max;
  if (!PyArg_ParseTuple(args, "Ii:set_features", &bits, &args_max)) return NULL;
  self->ep->client->features = bits;
  self->ep->client->args_max = args_max;
  Py_RETURN_NONE;
}

/* ---- functions and tensors ---- */

const char* fc_function_peer(TVMFFIObject* function) {
  const FcRemoteFunction* remote = fc_remote_function_of(function);
  return remote ? remote->owned.ep->peer : NULL;
}

PyObject* fc_place_text(DLDevice device) {
  char name[FC_NAME_MAX];
  FcEndpoint* ep = fc_device_is_remote(device) ? fc_endpoint_of(device) : NULL;
  if (fc_device_is_remote(device) && !ep) fc_error_drop();
  fc_device_print(ep ? fc_remote_unmasked(device) : device, name);
  PyObject* text = PyUnicode_FromFormat("%s%s%s", name, ep ? " of " : "", ep ? ep->peer : "");
  if (ep) fc_endpoint_decref(ep);
  return text;
}

static PyObject* endpoint_function(PyEndpoint* self, PyObject* args) {
  unsigned long long handle;
  const char* name;
  if (!PyArg_ParseTuple(args, "Ks:function", &handle, &name)) return NULL;
  TVMFFIObject* function = fc_remote_function(self->ep, handle, name);
  if (!function) return fc_raise_slot();
  PyObject* text = PyUnicode_FromString(name);
  PyObject* wrapped = text ? fc_function_wrap(function, text) : NULL;
  /* Tensors are read during the call: a view is enough. */
  if (wrapped) ((FcFunction*)wrapped)->views = ~UINT64_C(0);
  Py_XDECREF(text);
  return wrapped;
}

/* rename_remote(function, name): what messages call it. */
static PyObject* rename_remote(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *object, *name;
  if (!PyArg_ParseTuple(args, "O!U:rename_remote", &FcFunction_Type, &object, &name)) return NULL;
  TVMFFIObject* function = ((FcFunction*)object)->object;
  FcRemoteFunction* remote = function ? fc_remote_function_of(function) : NULL;
  const char* text = PyUnicode_AsUTF8(name);
  if (!remote) return PyErr_Format(PyExc_TypeError, "rename_remote: %R is no function of a session", object);
  if (!text) return NULL;
  snprintf(remote->name, sizeof remote->name, "%s", text);
  fc_incref(function);
  PyObject* wrapped = fc_function_wrap(function, name);
  if (wrapped) ((FcFunction*)wrapped)->views = ~UINT64_C(0);
  return wrapped;
}

static PyObject* endpoint_release(PyEndpoint* self, PyObject* handle) {
  unsigned long long value = PyLong_AsUnsignedLongLong(handle);
  if (value == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
  fc_endpoint_free_later(self->ep, value, fc_no_device());
  Py_RETURN_NONE;
}

static PyObject* endpoint_empty(PyEndpoint* self, PyObject* args) {
  PyObject *dims, *dtype, *device;
  int64_t shape[FC_WIRE_MAX_NDIM];
  int32_t ndim;
  DLDataType type;
  DLDevice place;
  FcTensorObj* tensor;
  if (!PyArg_ParseTuple(args, "OOO:empty", &dims, &dtype, &device)) return NULL;
  if (fc_read_shape(dims, shape, &ndim) < 0 || fc_dtype_from_python(dtype, &type) < 0) return NULL;
  if (fc_device_from_python(device, &place) < 0) return NULL;
  if (fc_remote_own_device(self->ep, &place) < 0) return fc_raise_slot();
  Py_BEGIN_ALLOW_THREADS
  tensor = fc_remote_empty(self->ep, place, ndim, shape, type);
  Py_END_ALLOW_THREADS
  return tensor ? fc_tensor_wrap(&tensor->header) : fc_raise_slot();
}

/* ---- copies between here and there ---- */

/* The tensor behind any Python tensor; FcArgs keeps it until fc_args_end. */
static const DLTensor* local_tensor(FcArgs* args, PyObject* object, const char* what) {
  PyObject* name = PyUnicode_FromString(what);
  int rc = name ? fc_args_begin(args, &object, 1, name) : -1;
  Py_XDECREF(name);
  if (rc < 0) return NULL;
  const DLTensor* dl = fc_any_tensor(&args->any[0]);
  if (dl && dl->device.device_type == kDLCPU && dl->ndim <= FC_WIRE_MAX_NDIM) return dl;
  if (dl && fc_device_is_remote(dl->device)) {
    PyErr_Format(PyExc_ValueError, "%s: the tensor is on a session already; session.copy copies among the tensors of one, "
                 "and .numpy() brings it here", what);
  } else if (dl) {
    PyErr_Format(PyExc_ValueError, "%s: expected a tensor on the CPU, of at most %d dims, got one of %d on device type %d; "
                 "move it to the CPU first", what, FC_WIRE_MAX_NDIM, (int)dl->ndim, (int)dl->device.device_type);
  } else {
    PyErr_Format(PyExc_TypeError, "%s: expected a tensor, got `%s`; numpy.asarray makes one of numbers and lists", what,
                 Py_TYPE(object)->tp_name);
  }
  fc_args_end(args);
  return NULL;
}

static PyObject* endpoint_tensor(PyEndpoint* self, PyObject* args) {
  PyObject *object, *device;
  FcArgs held;
  DLDevice place;
  FcTensorObj* tensor;
  int rc = -1;
  if (!PyArg_ParseTuple(args, "OO:tensor", &object, &device) || fc_device_from_python(device, &place) < 0) return NULL;
  if (fc_remote_own_device(self->ep, &place) < 0) return fc_raise_slot();
  const DLTensor* dl = local_tensor(&held, object, "tensor");
  if (!dl) return NULL;
  Py_BEGIN_ALLOW_THREADS
  tensor = fc_remote_empty(self->ep, place, dl->ndim, dl->shape, dl->dtype);
  if (tensor) rc = fc_remote_copy_in(self->ep, &tensor->dl, dl);
  Py_END_ALLOW_THREADS
  fc_args_end(&held);
  if (rc == 0) return fc_tensor_wrap(&tensor->header);
  if (tensor) fc_decref(&tensor->header);
  return fc_raise_slot();
}

/* The endpoint of a row-major remote tensor, as a new reference; NULL with an exception. */
static FcEndpoint* endpoint_of(PyObject* object, DLTensor** remote) {
  if (!PyObject_TypeCheck(object, &FcTensor_Type)) {
    return (FcEndpoint*)PyErr_Format(PyExc_TypeError, "expected a farcall Tensor, got `%s`", Py_TYPE(object)->tp_name);
  }
  *remote = fc_tensor_view(object);
  if (!*remote) return NULL;
  if (!fc_is_contiguous(*remote)) {
    return (FcEndpoint*)PyErr_Format(PyExc_ValueError, "a remote tensor must be row-major to be copied");
  }
  FcEndpoint* ep = fc_endpoint_of((*remote)->device);
  if (!ep) fc_raise_slot();
  return ep;
}

static PyObject* fetch_remote(PyObject* Py_UNUSED(module), PyObject* object) {
  DLTensor* remote;
  FcEndpoint* ep = endpoint_of(object, &remote);
  if (!ep) return NULL;
  DLTensor like = *remote;
  like.device = (DLDevice){kDLCPU, 0};
  like.byte_offset = 0;
  FcTensorObj* local = NULL;
  int rc = -1;
  Py_BEGIN_ALLOW_THREADS
  local = fc_tensor_alloc(&like);
  if (local) rc = fc_remote_copy_out(ep, remote, local->dl.data);
  fc_endpoint_decref(ep);
  Py_END_ALLOW_THREADS
  if (rc == 0) return fc_tensor_wrap(&local->header);
  if (local) fc_decref(&local->header);
  return fc_raise_slot();
}

/* Whether one may be copied into the other; false with an exception. */
static bool same_layout(const DLTensor* source, const DLTensor* target) {
  bool same = source->ndim == target->ndim && fc_dtype_equal(source->dtype, target->dtype);
  for (int32_t i = 0; same && i < source->ndim; ++i) same = source->shape[i] == target->shape[i];
  if (same) return true;
  PyObject* from = fc_tensor_type_text(source);
  PyObject* to = from ? fc_tensor_type_text(target) : NULL;
  if (to) PyErr_Format(PyExc_ValueError, "copy: the target is %U, the source is %U; they must agree", to, from);
  Py_XDECREF(from);
  Py_XDECREF(to);
  return false;
}

/* (remote tensor, local tensor): one into the other. */
static PyObject* copy_between(PyObject* args, bool in) {
  PyObject *there, *here;
  DLTensor* remote;
  FcArgs held;
  if (!PyArg_ParseTuple(args, "OO", &there, &here)) return NULL;
  FcEndpoint* ep = endpoint_of(there, &remote);
  const DLTensor* local = ep ? local_tensor(&held, here, "copy") : NULL;
  int rc = -1;
  if (local && same_layout(in ? local : remote, in ? remote : local) && !in && !fc_is_contiguous(local)) {
    PyErr_SetString(PyExc_ValueError, "copy: the local target must be row-major");
  } else if (local && !PyErr_Occurred()) {
    Py_BEGIN_ALLOW_THREADS
    rc = in ? fc_remote_copy_in(ep, remote, local)
            : fc_remote_copy_out(ep, remote, (uint8_t*)local->data + local->byte_offset);
    Py_END_ALLOW_THREADS
    if (rc < 0) fc_raise_slot();
  }
  if (local) fc_args_end(&held);
  if (ep) fc_endpoint_decref(ep);
  if (rc < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* copy_to_remote(PyObject* Py_UNUSED(module), PyObject* args) { return copy_between(args, true); }
static PyObject* copy_from_remote(PyObject* Py_UNUSED(module), PyObject* args) { return copy_between(args, false); }

static PyObject* copy_among_remote(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *source, *target;
  DLTensor *from, *to;
  if (!PyArg_ParseTuple(args, "OO", &source, &target)) return NULL;
  FcEndpoint* ep = endpoint_of(source, &from);
  FcEndpoint* other = ep ? endpoint_of(target, &to) : NULL;
  int rc = -1;
  if (other && other != ep) PyErr_SetString(PyExc_ValueError, "copy: the tensors live on different sessions");
  if (other == ep && other && same_layout(from, to)) {
    Py_BEGIN_ALLOW_THREADS
    rc = fc_remote_copy_among(ep, from, to);
    Py_END_ALLOW_THREADS
    if (rc < 0) fc_raise_slot();
  }
  if (ep) fc_endpoint_decref(ep);
  if (other) fc_endpoint_decref(other);
  if (rc < 0) return NULL;
  Py_RETURN_NONE;
}

/* copy_runs(run, offsets, local, to_remote): see fc_remote_copy_runs; the offsets are bytes of int64. */
static PyObject* copy_runs(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *there, *here;
  Py_buffer offsets;
  int in, rc = -1;
  DLTensor* run;
  FcArgs held;
  if (!PyArg_ParseTuple(args, "Oy*Op:copy_runs", &there, &offsets, &here, &in)) return NULL;
  FcEndpoint* ep = endpoint_of(there, &run);
  const DLTensor* local = ep ? local_tensor(&held, here, "copy") : NULL;
  if (local) {
    Py_BEGIN_ALLOW_THREADS
    rc = fc_remote_copy_runs(ep, run, offsets.buf, offsets.len / 8, local, in);
    Py_END_ALLOW_THREADS
    if (rc < 0) fc_raise_slot();
    fc_args_end(&held);
  }
  if (ep) fc_endpoint_decref(ep);
  PyBuffer_Release(&offsets);
  if (rc < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- views ---- */

/* A view of a remote tensor: its data is a handle, so where it begins is said by byte_offset alone. */
static PyObject* remote_view(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *base, *dims, *steps;
  long long byte_offset;
  int64_t shape[FC_WIRE_MAX_NDIM], strides[FC_WIRE_MAX_NDIM];
  DLTensor view;
  if (!PyArg_ParseTuple(args, "O!O!O!L:remote_view", &FcTensor_Type, &base, &PyTuple_Type, &dims, &PyTuple_Type,
                        &steps, &byte_offset)) {
    return NULL;
  }
  DLTensor* whole = fc_tensor_view(base);
  if (!whole) return NULL;
  view = *whole;
  if (fc_read_shape(dims, shape, &view.ndim) < 0) return NULL;
  if (PyTuple_GET_SIZE(steps) != view.ndim) return PyErr_Format(PyExc_ValueError, "one stride for each dim");
  for (int32_t i = 0; i < view.ndim; ++i) {
    strides[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(steps, i));
    if (strides[i] == -1 && PyErr_Occurred()) return NULL;
  }
  view.shape = shape;
  view.strides = strides;
  view.byte_offset = (uint64_t)((int64_t)whole->byte_offset + byte_offset);
  FcTensorObj* tensor = fc_remote_view(((FcTensor*)base)->object, &view);
  return tensor ? fc_tensor_wrap(&tensor->header) : fc_raise_slot();
}

/* ---- limits of time, counters ---- */

static PyObject* set_deadline(PyObject* Py_UNUSED(module), PyObject* at) {
  long long value = PyLong_AsLongLong(at), before = fc_deadline;
  if (value == -1 && PyErr_Occurred()) return NULL;
  fc_deadline = value;
  return PyLong_FromLongLong(before);
}

static PyObject* get_stats(PyEndpoint* self, void* Py_UNUSED(closure)) {
  const FcClient* c = self->ep->client;
  const uint64_t in = self->ep->bytes_in, out = self->ep->bytes_out;
  return Py_BuildValue("(KKKKKKK)", (unsigned long long)c->calls, (unsigned long long)c->round_trips,
                       (unsigned long long)c->copies, (unsigned long long)c->copied_in,
                       (unsigned long long)c->copied_out, (unsigned long long)in, (unsigned long long)out);
}

/* ---- entering it all ---- */

static PyMethodDef methods[] = {
    {"start", (PyCFunction)endpoint_start, METH_VARARGS, NULL},
    {"set_features", (PyCFunction)endpoint_set_features, METH_VARARGS, NULL},
    {"request", (PyCFunction)endpoint_request, METH_VARARGS, NULL},
    {"function", (PyCFunction)endpoint_function, METH_VARARGS, NULL},
    {"release", (PyCFunction)endpoint_release, METH_O, NULL},
    {"empty", (PyCFunction)endpoint_empty, METH_VARARGS, NULL},
    {"tensor", (PyCFunction)endpoint_tensor, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyObject* get_peer(PyEndpoint* self, void* Py_UNUSED(closure)) { return PyUnicode_FromString(self->ep->peer); }

/* Read by the thread of a progress bar while another sends. */
static PyObject* get_sent(PyEndpoint* self, void* Py_UNUSED(closure)) {
  return PyLong_FromUnsignedLongLong(__atomic_load_n(&self->ep->bytes_out, __ATOMIC_RELAXED));
}

static PyGetSetDef getset[] = {
    {"stats", (getter)get_stats, NULL, "Counters; see farcall.rpc.Stats.", NULL},
    {"peer", (getter)get_peer, NULL, "Who the other side is.", NULL},
    {"sent", (getter)get_sent, NULL, "Bytes sent so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef functions[] = {
    {"fetch_remote", fetch_remote, METH_O, "Copies a remote Tensor into a local one."},
    {"copy_to_remote", copy_to_remote, METH_VARARGS, "copy_to_remote(remote, local): the local one into the remote."},
    {"copy_from_remote", copy_from_remote, METH_VARARGS, "copy_from_remote(remote, local): the other way."},
    {"copy_among_remote", copy_among_remote, METH_VARARGS, "copy_among_remote(source, target), of one session."},
    {"copy_runs", copy_runs, METH_VARARGS, "copy_runs(run, offsets, local, to_remote): parts of remote memory."},
    {"remote_view", remote_view, METH_VARARGS, "remote_view(base, shape, strides, byte_offset) of a remote Tensor."},
    {"rename_remote", rename_remote, METH_VARARGS, "rename_remote(function, name): the same one by another name."},
    {"set_deadline", set_deadline, METH_O, "When this thread's remote calls must have ended; answers the one before."},
    {NULL, NULL, 0, NULL}};

static int add(PyObject* descriptor, const char* name) {
  int rc = descriptor ? PyDict_SetItemString(FcEndpoint_Type.tp_dict, name, descriptor) : -1;
  Py_XDECREF(descriptor);
  return rc;
}

int fc_remote_types_init(PyObject* module) {
  for (PyMethodDef* method = methods; method->ml_name; ++method) {
    if (add(PyDescr_NewMethod(&FcEndpoint_Type, method), method->ml_name) < 0) return -1;
  }
  for (PyGetSetDef* attribute = getset; attribute->name; ++attribute) {
    if (add(PyDescr_NewGetSet(&FcEndpoint_Type, attribute), attribute->name) < 0) return -1;
  }
  PyType_Modified(&FcEndpoint_Type);
  PyMethodDef* const tables[] = {functions, fc_call_functions, fc_remote_ref_functions};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    if (PyModule_AddFunctions(module, tables[i]) < 0) return -1;
  }
  PyTypeObject* const types[] = {&FcRemoteRef_Type, &FcCall_Type, &FcPipeline_Type};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    if (PyModule_AddType(module, types[i]) != 0) return -1;
  }
  return 0;
}
