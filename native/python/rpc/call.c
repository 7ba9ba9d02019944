/* farcall._core.Call: a pending remote call, with the interface of a concurrent.futures.Future. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/rpc/remote.h"

/* ---- results ---- */

PyObject* fc_call_wrap(FcCall* call, PyObject* end) {
  PyCall* self = PyObject_New(PyCall, &FcCall_Type);
  if (!self) {
    fc_decref(&call->header);
    Py_XDECREF(end);
    return NULL;
  }
  self->call = call;
  self->value = self->shape = NULL;
  self->end = end;
  return (PyObject*)self;
}

static PyObject* futures_error(const char* name) {
  PyObject* module = PyImport_ImportModule("concurrent.futures");
  PyObject* type = module ? PyObject_GetAttrString(module, name) : NULL;
  if (type) PyErr_SetNone(type);
  Py_XDECREF(module);
  Py_XDECREF(type);
  return NULL;
}

/* Fetches an Array result at its first use. */
static int finish(FcCall* call) {
  int rc;
  Py_BEGIN_ALLOW_THREADS rc = fc_endpoint_lock(call->ep, 0);
  if (rc == 0) {
    rc = fc_endpoint_await_turn(call->ep);
    if (rc == 0 && !call->finished)
      rc = fc_remote_finish(call->ep, fc_remote_function_of(call->function)->name, &call->value);
    call->finished = call->finished || rc == 0;
    fc_mutex_unlock(&call->ep->lock);
  }
  Py_END_ALLOW_THREADS return rc;
}

PyObject* fc_call_value(FcCall* call) {
  if (fc_call_state(call) == FC_CALL_CANCELLED) return futures_error("CancelledError");
  if (fc_call_state(call) == FC_CALL_FAILED) {
    fc_incref(call->error);
    return fc_raise_error(call->error);
  }
  if (FC_UNLIKELY(!call->finished) && finish(call) < 0) return fc_raise_slot();
  TVMFFIAny value = call->value;
  if (fc_any_is_object(&value) && value.v_obj) fc_incref(value.v_obj);
  return fc_any_to_python(&value);
}

static PyObject* error_of(const FcCall* call) {
  if (fc_call_state(call) != FC_CALL_FAILED) return Py_NewRef(Py_None);
  TVMFFIAny value = fc_any_object(call->error);
  fc_incref(call->error);
  return fc_any_to_python(&value);
}

/* Tells the observer, once, how and when the call ended. The exception of the thread stays. */
static void tell_end(PyCall* self) {
  PyObject *end = self->end, *type, *raised, *traceback;
  if (FC_LIKELY(!end)) return;
  self->end = NULL;
  PyErr_Fetch(&type, &raised, &traceback);
  PyObject* error = error_of(self->call);
  PyObject* done = error ? PyObject_CallFunction(end, "OL", error, (long long)self->call->ended) : NULL;
  if (!done) PyErr_WriteUnraisable(end);
  Py_XDECREF(done);
  Py_XDECREF(error);
  Py_DECREF(end);
  PyErr_Restore(type, raised, traceback);
}

/* Waits until the call has ended: 0. */
static int join(PyCall* self, PyObject* timeout) {
  FcCall* call = self->call;
  int rc;
  if (fc_call_state(call) != FC_CALL_WAITING) return tell_end(self), 0;
  int64_t deadline = fc_deadline;
  if (timeout != Py_None) {
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1 && PyErr_Occurred()) return -1;
    int64_t limit = fc_now_ns() + (int64_t)((seconds > 0 ? seconds < 1e9 ? seconds : 1e9 : 0) * 1e9);
    if (!deadline || limit < deadline) deadline = limit;
  }
  Py_BEGIN_ALLOW_THREADS rc = fc_call_join(call, deadline);
  Py_END_ALLOW_THREADS if (rc < 0) {
    fc_raise_slot();
    return -1;
  }
  tell_end(self);
  return 0;
}

static PyObject* parse_timeout(PyObject* args, PyObject* kwargs) {
  static char* names[] = {"timeout", NULL};
  PyObject* timeout = Py_None;
  return PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &timeout) ? timeout : NULL;
}

static PyObject* call_result(PyCall* self, PyObject* args, PyObject* kwargs) {
  PyObject* timeout = parse_timeout(args, kwargs);
  if (!timeout || join(self, timeout) < 0) return NULL;
  if (!self->value) {
    PyObject* value = fc_call_value(self->call);
    if (!value) return NULL;
    if (self->value) Py_DECREF(value); /* another thread set it meanwhile */
    else self->value = value;
  }
  return Py_NewRef(self->value);
}

static PyObject* call_exception(PyCall* self, PyObject* args, PyObject* kwargs) {
  PyObject* timeout = parse_timeout(args, kwargs);
  if (!timeout || join(self, timeout) < 0) return NULL;
  if (fc_call_state(self->call) == FC_CALL_CANCELLED) return futures_error("CancelledError");
  if (fc_call_state(self->call) == FC_CALL_DONE) Py_RETURN_NONE;
  PyObject *type, *value, *traceback;
  fc_call_value(self->call);
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

/* ---- states ---- */

static int state_of(const PyCall* self) { return fc_call_state(self->call); }

static PyObject* call_done(PyCall* self, PyObject* none) {
  (void)none;
  return PyBool_FromLong(state_of(self) != FC_CALL_WAITING);
}

static PyObject* call_running(PyCall* self, PyObject* none) {
  (void)none;
  return PyBool_FromLong(state_of(self) == FC_CALL_WAITING);
}

static PyObject* call_cancelled(PyCall* self, PyObject* none) {
  (void)none;
  return PyBool_FromLong(state_of(self) == FC_CALL_CANCELLED);
}

/* ---- methods that farcall.ffi._async implements ---- */

static PyObject* in_python(const char* function, PyObject* self, PyObject* more) {
  PyObject* module = PyImport_ImportModule("farcall.ffi._async");
  PyObject* out = module ? PyObject_CallMethod(module, function, more ? "OO" : "O", self, more) : NULL;
  Py_XDECREF(module);
  return out;
}

static PyObject* call_cancel(PyCall* self, PyObject* none) {
  (void)none;
  if (!fc_call_cancel(self->call)) return PyBool_FromLong(state_of(self) == FC_CALL_CANCELLED);
  PyObject* told = in_python("cancelled", (PyObject*)self, NULL);
  if (!told) return NULL;
  Py_DECREF(told);
  Py_RETURN_TRUE;
}

static PyObject* call_add_done_callback(PyObject* self, PyObject* function) {
  return in_python("add_done_callback", self, function);
}

static PyObject* call_await(PyObject* self) { return in_python("await_call", self, NULL); }

/* The attributes that concurrent.futures.wait and as_completed read. */
static PyObject* get_shape(PyCall* self, void* closure) {
  PyObject* shape = self->shape ? NULL : in_python("shape_of", (PyObject*)self, NULL);
  if (!self->shape) self->shape = Py_XNewRef(shape); /* unless another thread set it meanwhile */
  Py_XDECREF(shape);
  return self->shape ? PyObject_GetAttrString(self->shape, closure) : NULL;
}

/* The endpoint that receives the replies: calls of one endpoint end in the order in which they began. */
static PyObject* get_slot(PyCall* self, void* closure) {
  (void)closure;
  return PyLong_FromLong(self->call->ep->client->slot);
}

/* ---- the type ---- */

static void call_dealloc(PyCall* self) {
  tell_end(self);
  Py_XDECREF(self->value);
  Py_XDECREF(self->shape);
  fc_decref(&self->call->header);
  PyObject_Free(self);
}

static PyObject* call_repr(PyCall* self) {
  static const char* const states[] = {"pending", "done", "failed", "cancelled"};
  return PyUnicode_FromFormat("<farcall call of remote `%s`, %s>", fc_remote_function_of(self->call->function)->name,
                              states[state_of(self)]);
}

static int set_call(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  TVMFFIObject* call = &((PyCall*)object)->call->header;
  (void)setter, (void)i;
  if (fc_owned_mode(args)) fc_incref(call);
  *out = fc_any_object(call);
  return 0;
}

int fc_choose_remote(PyTypeObject* type, PyObject* object, FcSetter* out) {
  (void)object;
  if (type == &FcCall_Type) out->set = set_call;
  if (PyType_IsSubtype(type, &FcRemoteRef_Type)) out->set = fc_set_remote_ref;
  return out->set != NULL;
}

static PyMethodDef methods[] = {
    {"result", FC_WITH_KEYWORDS(call_result),
     "result($self, timeout=None)\n--\n\n"
     "Wait for the result. Raises the call's exception if it failed, DeadlineExceededError at the timeout (the call\n"
     "goes on), CancelledError if it was cancelled."},
    {"exception", FC_WITH_KEYWORDS(call_exception),
     "exception($self, timeout=None)\n--\n\nWait; return the exception, or None if the call succeeded."},
    {"done", (PyCFunction)call_done, METH_NOARGS, "done($self, /)\n--\n\nWhether the call has ended."},
    {"running", (PyCFunction)call_running, METH_NOARGS, "running($self, /)\n--\n\nWhether the call is pending."},
    {"cancelled", (PyCFunction)call_cancelled, METH_NOARGS, "cancelled($self, /)\n--\n\nWhether it was cancelled."},
    {"cancel", (PyCFunction)call_cancel, METH_NOARGS,
     "cancel($self, /)\n--\n\n"
     "Give up the result; return False if the call has ended. A request that was not sent yet is dropped; otherwise\n"
     "the server still runs the call, and the client ignores its reply."},
    {"add_done_callback", call_add_done_callback, METH_O,
     "add_done_callback($self, fn, /)\n--\n\n"
     "Call fn(call) when the call has ended: in another thread, or in the thread that cancels it."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef getset[] = {{"slot", (getter)get_slot, NULL, "The number of the session in this process.", NULL},
                               {"_condition", (getter)get_shape, NULL, NULL, "condition"},
                               {"_waiters", (getter)get_shape, NULL, NULL, "waiters"},
                               {"_state", (getter)get_shape, NULL, NULL, "state"},
                               {NULL, NULL, NULL, NULL, NULL}};

static PyAsyncMethods async_methods = {.am_await = call_await};

PyTypeObject FcCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Call",
    .tp_doc = "A pending remote call: result(), exception(), done(), cancel(), add_done_callback(), await.",
    .tp_basicsize = sizeof(PyCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)call_dealloc,
    .tp_repr = (reprfunc)call_repr,
    .tp_methods = methods,
    .tp_getset = getset,
    .tp_as_async = &async_methods,
};
