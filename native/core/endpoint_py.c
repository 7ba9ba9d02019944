/*
 * farcall._core.Endpoint: the endpoint for Python. The session uses its client half; a Dispatcher
 * (serve_py.c) serves what comes in.
 */
#include "channel_py.h"
#include "endpoint_values.h"

enum { PAGE_TRAFFIC = 512 }; /* of farcall/rpc/page.py */

typedef struct {
  PyObject_HEAD
  FcEndpoint* ep;
  Py_buffer page; /* server: byte 0 is set while a reply is being sent; .buf NULL without one */
} PyEndpoint;

/* ---- life ---- */

static PyObject* endpoint_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"channel", "peer", "limits", "client", "page", NULL};
  int client = 1;
  PyObject* line;
  const char* peer;
  PyObject* page = Py_None;
  unsigned long long control, call, payload, string;
  int max_args, max_ndim;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os(KKKKii)|$pO:Endpoint", names, &line, &peer, &control, &call,
                                   &payload, &string, &max_args, &max_ndim, &client, &page)) {
    return NULL;
  }
  if (max_ndim < 0 || max_ndim > FC_WIRE_MAX_NDIM || max_args < 0) {
    return PyErr_Format(PyExc_ValueError, "limits: max_args must not be negative, max_ndim between 0 and %d",
                        FC_WIRE_MAX_NDIM);
  }
  PyEndpoint* self = (PyEndpoint*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  if (page != Py_None && PyObject_GetBuffer(page, &self->page, PyBUF_WRITABLE) < 0) goto fail;
  fc_wire_limits limits = {control, call, payload, string, max_args, max_ndim};
  FcChannel* channel = fc_channel_of(line);
  if (!channel) goto fail;
  self->ep = fc_endpoint_new(channel, peer, &limits, client);
  fc_channel_decref(channel);
  if (!self->ep) {
    fc_raise_slot();
    goto fail;
  }
  if (self->page.buf && self->page.len > 0) channel->sending = self->page.buf;
  if (self->page.len >= PAGE_TRAFFIC + 16) channel->traffic = (uint64_t*)((uint8_t*)self->page.buf + PAGE_TRAFFIC);
  return (PyObject*)self;
fail:
  Py_DECREF(self);
  return NULL;
}

/* What it gave out (functions, tensors) keeps the connection; the last of them closes it. */
static void endpoint_dealloc(PyEndpoint* self) {
  if (self->ep) {
    self->ep->channel->sending = NULL;
    self->ep->channel->traffic = NULL;
    fc_endpoint_decref(self->ep);
  }
  if (self->page.buf) PyBuffer_Release(&self->page);
  Py_TYPE(self)->tp_free((PyObject*)self);
}

static PyObject* endpoint_close(PyEndpoint* self, PyObject* Py_UNUSED(none)) {
  Py_BEGIN_ALLOW_THREADS
  fc_endpoint_close(self->ep, self->ep->slot >= 0);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject* get_timeout(PyEndpoint* self, void* Py_UNUSED(closure)) {
  if (self->ep->timeout_ns == 0) Py_RETURN_NONE;
  return PyFloat_FromDouble((double)self->ep->timeout_ns / 1e9);
}

static int set_timeout(PyEndpoint* self, PyObject* value, void* Py_UNUSED(closure)) {
  double seconds = value && value != Py_None ? PyFloat_AsDouble(value) : 0;
  if (seconds == -1 && PyErr_Occurred()) return -1;
  if (value && value != Py_None && !(seconds > 0 && seconds < 1e9)) {
    PyErr_Format(PyExc_ValueError, "a timeout is a positive number of seconds or None, got %R", value);
    return -1;
  }
  self->ep->timeout_ns = (int64_t)(seconds * 1e9);
  return 0;
}

static PyObject* get_slot(PyEndpoint* self, void* Py_UNUSED(closure)) { return PyLong_FromLong(self->ep->slot); }

static PyObject* get_closed(PyEndpoint* self, void* Py_UNUSED(closure)) {
  return PyBool_FromLong(fc_endpoint_is_lost(self->ep));
}

/* ---- client ---- */

/* One request; the reply's values under the lock. `version` for kInitServer. */
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

static PyObject* endpoint_start(PyEndpoint* self, PyObject* Py_UNUSED(none)) {
  fc_wire_packet request = {.code = FC_WIRE_INIT_SERVER, .version = {FC_WIRE_VERSION, sizeof FC_WIRE_VERSION - 1}};
  PyObject* values = exchange(self, &request, "kInitServer");
  if (!values) return NULL;
  Py_DECREF(values);
  Py_RETURN_NONE;
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

static PyObject* endpoint_release(PyEndpoint* self, PyObject* handle) {
  unsigned long long value = PyLong_AsUnsignedLongLong(handle);
  if (value == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
  fc_endpoint_free_later(self->ep, value, (DLDevice){(DLDeviceType)0, 0});
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
  if (dl) PyErr_Format(PyExc_ValueError, "%s: expected a CPU tensor of at most %d dims", what, FC_WIRE_MAX_NDIM);
  else PyErr_Format(PyExc_TypeError, "%s: expected a tensor, got %s", what, Py_TYPE(object)->tp_name);
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

static FcEndpoint* endpoint_of(const DLTensor* remote) {
  FcEndpoint* ep = fc_endpoint_of(remote->device);
  if (!ep) fc_raise_slot();
  return ep;
}

static PyObject* fetch_remote(PyObject* Py_UNUSED(module), PyObject* object) {
  if (!PyObject_TypeCheck(object, &FcTensor_Type)) return PyErr_Format(PyExc_TypeError, "expected a farcall Tensor");
  DLTensor* remote = fc_tensor_view(object);
  FcEndpoint* ep = remote ? endpoint_of(remote) : NULL;
  if (!ep) return NULL;
  DLTensor like = *remote;
  like.device = (DLDevice){kDLCPU, 0};
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

/* ---- the type ---- */

static PyMethodDef endpoint_methods[] = {
    {"close", (PyCFunction)endpoint_close, METH_NOARGS, NULL},
    {"start", (PyCFunction)endpoint_start, METH_NOARGS, NULL},
    {"request", (PyCFunction)endpoint_request, METH_VARARGS, NULL},
    {"function", (PyCFunction)endpoint_function, METH_VARARGS, NULL},
    {"release", (PyCFunction)endpoint_release, METH_O, NULL},
    {"empty", (PyCFunction)endpoint_empty, METH_VARARGS, NULL},
    {"tensor", (PyCFunction)endpoint_tensor, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef endpoint_getset[] = {
    {"timeout", (getter)get_timeout, (setter)set_timeout, "Seconds for one call, or None.", NULL},
    {"slot", (getter)get_slot, NULL, "Number of this session in this process.", NULL},
    {"closed", (getter)get_closed, NULL, "Whether the connection has ended.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyTypeObject Endpoint_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.Endpoint",
    .tp_basicsize = sizeof(PyEndpoint),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "One end of a connection, over a Channel (or a descriptor, which moves in).",
    .tp_new = endpoint_new,
    .tp_dealloc = (destructor)endpoint_dealloc,
    .tp_methods = endpoint_methods,
    .tp_getset = endpoint_getset,
};

static PyMethodDef functions[] = {
    {"fetch_remote", fetch_remote, METH_O, "Copies a remote Tensor into a local one."},
    {NULL, NULL, 0, NULL}};

FcEndpoint* fc_endpoint_of_python(PyObject* object) {
  if (PyObject_TypeCheck(object, &Endpoint_Type)) return ((PyEndpoint*)object)->ep;
  PyErr_Format(PyExc_TypeError, "expected an Endpoint, got %s", Py_TYPE(object)->tp_name);
  return NULL;
}

int fc_endpoint_init(PyObject* module) {
  if (PyModule_AddFunctions(module, functions) < 0) return -1;
  if (fc_dispatcher_init(module) < 0 || fc_channel_types_init(module) < 0 || PyType_Ready(&Endpoint_Type) < 0) return -1;
  return PyModule_AddObjectRef(module, "Endpoint", (PyObject*)&Endpoint_Type);
}
