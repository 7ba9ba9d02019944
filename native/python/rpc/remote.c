/* The client's half of farcall._core.Endpoint. */
#include "python/function.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/rpc/remote.h"

#include <stdio.h>

/* ---- requests ---- */

/* One request; the reply's values under the lock. */
static PyObject* exchange(PyEndpoint* self, fc_wire_packet* request, const char* what) {
  fc_wire_packet reply;
  PyObject* values = NULL;
  int entered, rc = -1;
  Py_BEGIN_ALLOW_THREADS entered = fc_endpoint_enter(self->ep);
  if (entered == 0) rc = fc_remote_request(self->ep, request, what, &reply);
  Py_END_ALLOW_THREADS if (rc == 0) values = fc_wire_args_to_py(&reply);
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

/* The reply to the first requests of a session. */
typedef struct Beginning {
  fc_wire_packet init;
  FcWireArgs between;  /* names of functions, one for each relay, which the relay knows if it is farcall's */
  int32_t known;       /* how many of these names are known */
  uint64_t hello;      /* handle of the server's hello function; 0: a TVM server */
} Beginning;

static int encode_lookup(FcEndpoint* ep, const TVMFFIAny* name, size_t* used) {
  fc_wire_packet lookup = {.code = FC_WIRE_GET_GLOBAL_FUNC, .num_args = 1, .args = name};
  return fc_endpoint_encode(ep, &lookup, used);
}

/* The handle; 0 if the function does not exist or this client may not use it. */
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
 * Sends kInitServer, and in the same write a lookup of a function that only farcall servers have: learning their
 * features costs no round trip. A TVM server answers the lookup with a null pointer.
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
    if (handle) fc_remote_free_later(ep, handle, fc_no_device());
    begin->known += handle != 0;
  }
  return 0;
}

static int say_hello(FcEndpoint* ep, uint64_t handle, const TVMFFIByteArray* wishes, TVMFFIAny* answer) {
  TVMFFIAny args[2] = {fc_any_int(1), {.type_index = kTVMFFIRawStr, .v_ptr = (void*)wishes}};
  fc_wire_packet reply, call = {.code = FC_WIRE_CALL_FUNC, .num_args = 2, .args = args, .handle = handle};
  int rc = fc_remote_request(ep, &call, "farcall.rpc.hello", &reply);
  fc_remote_free_later(ep, handle, fc_no_device());
  return rc < 0 ? -1 : fc_remote_result(ep, "farcall.rpc.hello", &reply, answer);
}

/* The answer to the hello, and how many of the names are known. */
static PyObject* start(FcEndpoint* ep, Beginning* begin, const TVMFFIByteArray* wishes) {
  TVMFFIAny answer = fc_any_none();
  int rc;
  Py_BEGIN_ALLOW_THREADS rc = fc_endpoint_enter(ep);
  if (rc == 0) {
    rc = begin_session(ep, begin);
    if (rc == 0 && begin->hello) rc = say_hello(ep, begin->hello, wishes, &answer);
    ep->resumable = rc == 0;
    fc_endpoint_leave(ep);
  }
  Py_END_ALLOW_THREADS if (rc < 0) return fc_raise_slot();
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
  Beginning begin = {.init = {.code = FC_WIRE_INIT_SERVER,
                              .version = {FC_WIRE_VERSION, sizeof FC_WIRE_VERSION - 1},
                              .num_args = wire.n,
                              .args = wire.any}};
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

/* The handle of the server's farcall.rpc.span: observed calls tell it their spans. */
static PyObject* endpoint_set_span(PyEndpoint* self, PyObject* handle) {
  uint64_t number = PyLong_AsUnsignedLongLong(handle);
  if (PyErr_Occurred()) return NULL;
  self->ep->client->span = number;
  Py_RETURN_NONE;
}

/* ---- functions ---- */

const char* fc_remote_function_peer(TVMFFIObject* function) {
  const FcRemoteFunction* remote = fc_remote_function_of(function);
  return remote ? remote->owned.ep->peer : NULL;
}

static PyObject* endpoint_function(PyEndpoint* self, PyObject* args) {
  unsigned long long handle;
  const char* name;
  if (!PyArg_ParseTuple(args, "Ks:function", &handle, &name)) return NULL;
  TVMFFIObject* function = fc_remote_function(self->ep, handle, name);
  if (!function) return fc_raise_slot();
  PyObject* text = PyUnicode_FromString(name);
  PyObject* wrapped = text ? fc_function_wrap(function, text) : NULL;
  /* The call reads tensors while it runs: views suffice. */
  if (wrapped) ((FcFunction*)wrapped)->views = ~UINT64_C(0);
  Py_XDECREF(text);
  return wrapped;
}

/* rename_remote(function, name): sets the function's name in messages. */
static PyObject* rename_remote(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *object, *name;
  if (!PyArg_ParseTuple(args, "O!U:rename_remote", &FcFunction_Type, &object, &name)) return NULL;
  TVMFFIObject* function = ((FcFunction*)object)->object;
  FcRemoteFunction* remote = function ? fc_remote_function_of(function) : NULL;
  const char* text = PyUnicode_AsUTF8(name);
  if (!remote) return PyErr_Format(PyExc_TypeError, "rename_remote: %R is not a function of a session", object);
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
  fc_remote_free_later(self->ep, value, fc_no_device());
  Py_RETURN_NONE;
}

/* ---- deadlines and counters ---- */

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

/* ---- registration ---- */

static PyMethodDef methods[] = {{"start", (PyCFunction)endpoint_start, METH_VARARGS, NULL},
                                {"set_features", (PyCFunction)endpoint_set_features, METH_VARARGS, NULL},
                                {"set_span", (PyCFunction)endpoint_set_span, METH_O, NULL},
                                {"request", (PyCFunction)endpoint_request, METH_VARARGS, NULL},
                                {"function", (PyCFunction)endpoint_function, METH_VARARGS, NULL},
                                {"release", (PyCFunction)endpoint_release, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};

static PyObject* get_peer(PyEndpoint* self, void* Py_UNUSED(closure)) { return PyUnicode_FromString(self->ep->peer); }

/* The thread of a progress bar reads it while another thread sends. */
static PyObject* get_sent(PyEndpoint* self, void* Py_UNUSED(closure)) {
  return PyLong_FromUnsignedLongLong(__atomic_load_n(&self->ep->bytes_out, __ATOMIC_RELAXED));
}

static PyGetSetDef getset[] = {{"stats", (getter)get_stats, NULL, "Counters; see farcall.rpc.Stats.", NULL},
                               {"peer", (getter)get_peer, NULL, "The address of the peer.", NULL},
                               {"sent", (getter)get_sent, NULL, "Bytes sent so far.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

PyMethodDef fc_remote_functions[] = {
    {"rename_remote", rename_remote, METH_VARARGS, "rename_remote(function, name): the same function by another name."},
    {"describe_by", fc_function_describe_by, METH_VARARGS,
     "describe_by(function, source): source() returns the metadata of a server's function, or None."},
    {"observe", fc_function_observe, METH_VARARGS,
     "observe(function, around): parent, end = around(function, waits) and end(exception or None, when) surround each "
     "call."},
    {"set_deadline", set_deadline, METH_O, "Set the deadline of this thread's remote calls; return the previous one."},
    {NULL, NULL, 0, NULL}};

static int add(PyObject* descriptor, const char* name) {
  int rc = descriptor ? PyDict_SetItemString(FcEndpoint_Type.tp_dict, name, descriptor) : -1;
  Py_XDECREF(descriptor);
  return rc;
}

int fc_endpoint_add_client(void) {
  PyMethodDef* const own[] = {methods, fc_remote_tensor_methods};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    for (PyMethodDef* method = own[i]; method->ml_name; ++method) {
      if (add(PyDescr_NewMethod(&FcEndpoint_Type, method), method->ml_name) < 0) return -1;
    }
  }
  for (PyGetSetDef* attribute = getset; attribute->name; ++attribute) {
    if (add(PyDescr_NewGetSet(&FcEndpoint_Type, attribute), attribute->name) < 0) return -1;
  }
  PyType_Modified(&FcEndpoint_Type);
  return 0;
}
