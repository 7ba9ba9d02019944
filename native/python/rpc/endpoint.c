/*
 * farcall._core.Endpoint: the endpoint for Python. A client session uses its client half; a Dispatcher
 * (python/rpc/serve.c) serves the requests that arrive.
 */
#include "python/errors.h"
#include "python/rpc/endpoint.h"

#include "python/rpc/channel.h"
#include "session/client/remote.h"
#include "session/server/serve.h"

/* ---- limits ---- */

/* Reads an attribute that must be an int from 0 to `most`; else -1 with an exception. */
static int read_limit(PyObject* limits, const char* name, uint64_t most, uint64_t* out) {
  PyObject* value = PyObject_GetAttrString(limits, name);
  if (!value) return -1;
  *out = PyLong_AsUnsignedLongLong(value);
  bool wrong = PyErr_Occurred() || *out > most;
  if (wrong) {
    PyErr_Format(PyExc_ValueError, "limits: %s is an int from 0 to %llu, got %R", name, (unsigned long long)most,
                 value);
  }
  Py_DECREF(value);
  return wrong ? -1 : 0;
}

/* From the attributes of a farcall.rpc.Limits. */
static int read_limits(PyObject* limits, fc_wire_limits* out) {
  uint64_t values, rank;
  if (read_limit(limits, "control_bytes", UINT64_MAX, &out->max_control) != 0) return -1;
  if (read_limit(limits, "call_bytes", UINT64_MAX, &out->max_call) != 0) return -1;
  if (read_limit(limits, "copy_bytes", UINT64_MAX, &out->max_payload) != 0) return -1;
  if (read_limit(limits, "string_bytes", UINT64_MAX, &out->max_string) != 0) return -1;
  if (read_limit(limits, "values", INT32_MAX, &values) != 0) return -1;
  if (read_limit(limits, "rank", FC_WIRE_MAX_NDIM, &rank) != 0) return -1;
  out->max_args = (int32_t)values;
  out->max_ndim = (int32_t)rank;
  return 0;
}

/* ---- life ---- */

static PyObject* endpoint_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"channel", "peer", "limits", "client", "page", NULL};
  int client = 1;
  PyObject* line;
  const char* peer;
  PyObject* page = Py_None;
  PyObject* asked;
  fc_wire_limits limits;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsO|$pO:Endpoint", names, &line, &peer, &asked, &client, &page)) {
    return NULL;
  }
  if (read_limits(asked, &limits) != 0) return NULL;
  PyEndpoint* self = (PyEndpoint*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  if (page != Py_None && PyObject_GetBuffer(page, &self->page, PyBUF_WRITABLE) < 0) goto fail;
  if (page != Py_None && self->page.len < FC_PAGE_SIZE) {
    PyErr_Format(PyExc_ValueError, "the page has %d bytes, got %zd", (int)FC_PAGE_SIZE, self->page.len);
    goto fail;
  }
  FcChannel* channel = fc_channel_of(line);
  if (!channel) goto fail;
  self->ep = (client ? fc_client_endpoint_new : fc_endpoint_new)(channel, peer, &limits);
  fc_channel_decref(channel);
  if (!self->ep) {
    fc_raise_slot();
    goto fail;
  }
  if (self->page.buf) channel->sending = self->page.buf;
  if (self->page.buf) channel->traffic = (uint64_t*)((uint8_t*)self->page.buf + FC_PAGE_RECEIVED);
  return (PyObject*)self;
fail:
  Py_DECREF(self);
  return NULL;
}

/* Functions and tensors of the session keep the connection open; releasing the last of them closes it. */
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
  Py_BEGIN_ALLOW_THREADS fc_endpoint_close(self->ep, self->ep->client != NULL);
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject* endpoint_beat(PyEndpoint* self, PyObject* Py_UNUSED(none)) {
  bool goes_on;
  Py_BEGIN_ALLOW_THREADS goes_on = fc_endpoint_beat(self->ep);
  Py_END_ALLOW_THREADS return PyBool_FromLong(goes_on);
}

/* beat_if_held(serial): for callers that must not keep the endpoint alive. */
static PyObject* beat_if_held(PyObject* Py_UNUSED(module), PyObject* serial) {
  unsigned long long number = PyLong_AsUnsignedLongLong(serial);
  bool goes_on = false;
  if (number == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS FcEndpoint* ep = fc_remote_endpoint_of_serial(number);
  if (ep) goes_on = fc_endpoint_beat(ep);
  if (ep) fc_endpoint_decref(ep);
  Py_END_ALLOW_THREADS return PyBool_FromLong(goes_on);
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

static PyObject* get_slot(PyEndpoint* self, void* Py_UNUSED(closure)) {
  return PyLong_FromLong(self->ep->client ? self->ep->client->slot : -1);
}

static PyObject* get_serial(PyEndpoint* self, void* Py_UNUSED(closure)) {
  return PyLong_FromUnsignedLongLong(self->ep->client ? self->ep->client->serial : 0);
}

static PyObject* get_closed(PyEndpoint* self, void* Py_UNUSED(closure)) {
  return PyBool_FromLong(fc_endpoint_is_lost(self->ep));
}

/* ---- the type ---- */

static PyMethodDef endpoint_methods[] = {{"close", (PyCFunction)endpoint_close, METH_NOARGS, NULL},
                                         {"beat", (PyCFunction)endpoint_beat, METH_NOARGS, NULL},
                                         {NULL, NULL, 0, NULL}};

static PyGetSetDef endpoint_getset[] = {
    {"timeout", (getter)get_timeout, (setter)set_timeout, "The timeout of a call, in seconds, or None.", NULL},
    {"slot", (getter)get_slot, NULL, "The number of the session in this process.", NULL},
    {"serial", (getter)get_serial, NULL, "A number unique among this process's client endpoints; 0 for a server's.",
     NULL},
    {"closed", (getter)get_closed, NULL, "Whether the connection has ended.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PyTypeObject FcEndpoint_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.Endpoint",
    .tp_basicsize = sizeof(PyEndpoint),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "One end of a connection, over a Channel, or over a descriptor, of which it takes ownership.",
    .tp_new = endpoint_new,
    .tp_dealloc = (destructor)endpoint_dealloc,
    .tp_methods = endpoint_methods,
    .tp_getset = endpoint_getset,
};

FcEndpoint* fc_endpoint_of_python(PyObject* object) {
  if (PyObject_TypeCheck(object, &FcEndpoint_Type)) return ((PyEndpoint*)object)->ep;
  PyErr_Format(PyExc_TypeError, "expected an Endpoint, got %s", Py_TYPE(object)->tp_name);
  return NULL;
}

PyMethodDef fc_endpoint_functions[] = {
    {"beat_if_held", beat_if_held, METH_O,
     "beat_if_held(serial): send an empty packet on the connection of that endpoint; False if the connection has "
     "ended or the endpoint no longer exists."},
    {NULL, NULL, 0, NULL}};
