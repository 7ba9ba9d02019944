/*
 * farcall._core.Dispatcher: the server for Python. Its policy is a Python object with two methods:
 *   find(name) -> None | (Function, scope, naming)      see FcExport
 *   begin(values) -> values                             the reply to kInitServer, or (Endpoint, number of values) for
 *                                                       the next hop
 *   span(name, parent) -> end(error or None)            around a call, with the offer `spans`; never raises
 */
#include "python/convert.h"
#include "python/errors.h"
#include "python/rpc/values.h"
#include "runtime/builtins.h"
#include "session/posix/watchdog.h"
#include "session/relay/relay.h"
#include "session/server/serve.h"

typedef struct {
  PyObject_HEAD PyObject* endpoint;
  PyObject* policy;
  PyObject* limits;  /* a str, which the server borrows */
  PyObject* entropy; /* NULL: the system's random source */
  FcServer server;
  bool serving; /* under the GIL */
  PyObject* weakrefs;
} PyDispatcher;

/* ---- the policy; called without the GIL ---- */

static int found(PyObject* answer, TVMFFIByteArray name, FcExport** out) {
  PyObject* function;
  unsigned int scope;
  int naming;
  if (answer == Py_None) return 0;
  if (!PyArg_ParseTuple(answer, "O!Ii", &FcFunction_Type, &function, &scope, &naming)) return -1;
  fc_incref(((FcFunction*)function)->object);
  *out = fc_export_new(((FcFunction*)function)->object, name.data, name.size, scope);
  if (!*out) return fc_raise_slot(), -1;
  (*out)->naming = (int8_t)naming;
  return 0;
}

/* Bytes that are not UTF-8 name no function. */
static PyObject* ask_for(PyDispatcher* self, TVMFFIByteArray name) {
  PyObject* text = PyUnicode_DecodeUTF8(name.data, (Py_ssize_t)name.size, "replace");
  return text ? PyObject_CallMethod(self->policy, "find", "N", text) : NULL;
}

static int find(void* context, TVMFFIByteArray name, FcExport** out) {
  PyDispatcher* self = context;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* answer = ask_for(self, name);
  int rc = answer ? found(answer, name, out) : -1;
  Py_XDECREF(answer);
  if (rc != 0) fc_error_from_python();
  PyGILState_Release(state);
  return rc;
}

static int reply_python(FcServer* server, PyObject* values) {
  FcWireArgs wire;
  if (!PyTuple_Check(values)) return PyErr_Format(PyExc_TypeError, "begin() must return a tuple, got %R", values), -1;
  if (fc_wire_args_from_py(values, &wire) < 0) return -1;
  int rc = fc_server_reply(server, wire.any, wire.n);
  PyMem_Free(wire.any);
  if (rc != 0) fc_raise_slot();
  return rc;
}

/* (Endpoint, int): the next hop of the session, and how many values of kInitServer named it. */
static int go_on(FcServer* server, PyObject* values) {
  int taken;
  PyObject* endpoint;
  if (!PyArg_ParseTuple(values, "Oi", &endpoint, &taken)) return -1;
  FcEndpoint* ep = fc_endpoint_of_python(endpoint);
  if (!ep) return -1;
  fc_endpoint_incref(ep);
  ep->resumable = false; /* a relay forwards packets, and waits for no reply itself */
  server->next_hop = ep;
  server->next_args = taken;
  return 0;
}

static PyObject* ask(PyDispatcher* self, const fc_wire_packet* p) {
  PyObject* values = fc_wire_args_to_py(p);
  return values ? PyObject_CallMethod(self->policy, "begin", "(N)", values) : NULL;
}

static int begin(void* context, FcServer* server, const fc_wire_packet* p) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* values = ask(context, p);
  bool hop = values && PyTuple_Check(values) && PyTuple_GET_SIZE(values) == 2;
  int rc = !values ? -1 : hop ? go_on(server, values) : reply_python(server, values);
  Py_XDECREF(values);
  if (rc != 0) fc_error_from_python();
  PyGILState_Release(state);
  return rc;
}

static TVMFFIObject* take_error(void) {
  PyGILState_STATE state = PyGILState_Ensure();
  bool raised = PyErr_Occurred() != NULL;
  if (raised) fc_error_from_python();
  PyGILState_Release(state);
  return raised ? fc_error_take() : NULL;
}

static void* span_begin(void* context, const char* name, const char* parent) {
  PyDispatcher* self = context;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* end = PyObject_CallMethod(self->policy, "span", "ss", name, parent);
  if (!end) PyErr_WriteUnraisable(self->policy);
  PyGILState_Release(state);
  return end;
}

/* The thread's error as a Python exception, which stays the thread's; None when there is none. */
static PyObject* copy_of_error(void) {
  TVMFFIObject* error = fc_error_take();
  if (!error) return Py_NewRef(Py_None);
  TVMFFIAny value = fc_any_object(error);
  fc_incref(error);
  fc_error_raise(error);
  return fc_any_to_python(&value);
}

static void span_end(void* span, bool failed) {
  PyObject* end = span;
  if (!end) return;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* error = failed ? copy_of_error() : Py_NewRef(Py_None);
  PyObject* done = error ? PyObject_CallOneArg(end, error) : NULL;
  if (!done) PyErr_WriteUnraisable(end);
  Py_XDECREF(done);
  Py_XDECREF(error);
  Py_DECREF(end);
  PyGILState_Release(state);
}

static const FcPolicy policy = {find, begin, fc_relay_run, fc_container_function, take_error, span_begin, span_end};

/* ---- random bytes from Python; called without the GIL ---- */

static int copy_bytes(PyObject* bytes, void* out, size_t size) {
  if (!PyBytes_Check(bytes) || (size_t)PyBytes_GET_SIZE(bytes) != size) {
    return PyErr_Format(PyExc_TypeError, "entropy(%zu): expected %zu bytes, got %.80R", size, size, bytes), -1;
  }
  memcpy(out, PyBytes_AS_STRING(bytes), size);
  return 0;
}

static int fill_from_python(void* context, void* out, size_t size) {
  PyDispatcher* self = context;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* bytes = PyObject_CallFunction(self->entropy, "n", (Py_ssize_t)size);
  int rc = bytes ? copy_bytes(bytes, out, size) : -1;
  Py_XDECREF(bytes);
  if (rc != 0) fc_error_from_python();
  PyGILState_Release(state);
  return rc;
}

/* ---- the type ---- */

static PyObject* dispatcher_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"endpoint", "policy", "handles", "tensor_bytes", "scopes", "token",
                          "waits",    "offers", "limits",  "entropy",      NULL};
  PyObject *endpoint, *decides, *limits, *entropy = Py_None;
  unsigned int handles, scopes, offers;
  unsigned long long tensor_bytes;
  const char* token;
  int waits;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOIKIspIU|O:Dispatcher", names, &endpoint, &decides, &handles,
                                   &tensor_bytes, &scopes, &token, &waits, &offers, &limits, &entropy)) {
    return NULL;
  }
  FcEndpoint* ep = fc_endpoint_of_python(endpoint);
  PyDispatcher* self = ep ? (PyDispatcher*)type->tp_alloc(type, 0) : NULL;
  if (!self) return NULL;
  self->endpoint = Py_NewRef(endpoint);
  self->policy = Py_NewRef(decides);
  self->limits = Py_NewRef(limits);
  if (entropy != Py_None) self->entropy = Py_NewRef(entropy);
  FcRandom random = self->entropy ? (FcRandom){fill_from_python, self} : fc_system_random;
  self->server = (FcServer){.ep = ep,
                            .policy = &policy,
                            .context = self,
                            .handles = {.limit = handles, .random = random},
                            .tensor_limit = tensor_bytes,
                            .scopes = scopes,
                            .waits = waits,
                            .offers = offers,
                            .limits = PyUnicode_AsUTF8(limits),
                            .page = ep->channel->sending,
                            .watchdog = ep->channel->sending ? &fc_timer_watchdog : NULL};
  strncpy(self->server.token, token, sizeof self->server.token - 1);
  return (PyObject*)self;
}

static int dispatcher_traverse(PyDispatcher* self, visitproc visit, void* arg) {
  Py_VISIT(self->policy);
  Py_VISIT(self->entropy);
  return 0;
}

static int dispatcher_clear(PyDispatcher* self) {
  Py_CLEAR(self->policy);
  Py_CLEAR(self->entropy);
  return 0;
}

static void dispatcher_dealloc(PyDispatcher* self) {
  PyObject_GC_UnTrack(self);
  if (self->weakrefs) PyObject_ClearWeakRefs((PyObject*)self);
  fc_server_clear(&self->server);
  dispatcher_clear(self);
  Py_XDECREF(self->limits);
  Py_XDECREF(self->endpoint);
  Py_TYPE(self)->tp_free((PyObject*)self);
}

/* Sets the thread state, so that Python functions called during serving need not look it up. */
static int run(FcServer* server) {
  PyThreadState* state = PyEval_SaveThread();
  void* outer = fc_thread.python_state;
  fc_thread.python_state = state;
  int rc = fc_endpoint_enter(server->ep);
  if (rc == 0) {
    rc = fc_server_run(server);
    fc_endpoint_leave(server->ep);
  }
  fc_thread.python_state = outer;
  PyEval_RestoreThread(state);
  return rc;
}

/* A function that is being served must not call serve() or close(). */
static bool is_serving(const PyDispatcher* self) {
  if (self->serving) PyErr_SetString(PyExc_RuntimeError, "this session is being served already");
  return self->serving;
}

static PyObject* dispatcher_serve(PyDispatcher* self, PyObject* Py_UNUSED(none)) {
  if (is_serving(self)) return NULL;
  self->serving = true;
  int rc = run(&self->server);
  self->serving = false;
  return rc < 0 ? fc_raise_slot() : PyBool_FromLong(rc == 0);
}

static PyObject* dispatcher_close(PyDispatcher* self, PyObject* Py_UNUSED(none)) {
  if (is_serving(self)) return NULL;
  self->server.ended = true;
  fc_server_clear(&self->server);
  Py_RETURN_NONE;
}

static PyObject* get_handles(PyDispatcher* self, void* Py_UNUSED(closure)) {
  return PyLong_FromUnsignedLong(fc_handles_count(&self->server.handles));
}

static PyObject* get_last_error(PyDispatcher* self, void* Py_UNUSED(closure)) {
  TVMFFIObject* error = self->server.last_error;
  if (!error) Py_RETURN_NONE;
  TVMFFIAny value = fc_any_object(error);
  fc_incref(error);
  return fc_any_to_python(&value);
}

static PyObject* keep_errors(PyDispatcher* self, PyObject* Py_UNUSED(none)) {
  self->server.keeps_errors = true;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"serve", (PyCFunction)dispatcher_serve, METH_NOARGS, NULL},
                                {"close", (PyCFunction)dispatcher_close, METH_NOARGS, NULL},
                                {"keep_errors", (PyCFunction)keep_errors, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static PyObject* get_serving(PyDispatcher* self, void* Py_UNUSED(closure)) { return PyBool_FromLong(self->serving); }

static PyGetSetDef getset[] = {{"last_error", (getter)get_last_error, NULL, "See keep_errors.", NULL},
                               {"serving", (getter)get_serving, NULL, "Whether serve() runs.", NULL},
                               {"handles", (getter)get_handles, NULL, "The number of the client's handles.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

PyTypeObject FcDispatcher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.Dispatcher",
    .tp_basicsize = sizeof(PyDispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Serves the requests of one session, in order.",
    .tp_new = dispatcher_new,
    .tp_dealloc = (destructor)dispatcher_dealloc,
    .tp_traverse = (traverseproc)dispatcher_traverse,
    .tp_clear = (inquiry)dispatcher_clear,
    .tp_methods = methods,
    .tp_getset = getset,
    .tp_weaklistoffset = offsetof(PyDispatcher, weakrefs),
};

static PyObject* standard_scope(PyObject* Py_UNUSED(module), PyObject* name) {
  Py_ssize_t size;
  uint32_t scope;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  if (!text) return NULL;
  if (!fc_scope_is_listed((TVMFFIByteArray){text, (size_t)size}, &scope)) Py_RETURN_NONE;
  return PyLong_FromUnsignedLong(scope);
}

PyMethodDef fc_dispatcher_functions[] = {
    {"standard_scope", standard_scope, METH_O,
     "standard_scope(name, /)\n--\n\nThe scope that a standard function requires; None if `name` is not one."},
    {NULL, NULL, 0, NULL}};
