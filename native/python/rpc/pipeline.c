/* farcall._core.Pipeline sends calls of one session without waiting for replies; submit sends one such call. */
#include <stdlib.h>

#include "python/errors.h"
#include "python/function.h"
#include "python/rpc/remote.h"

typedef struct {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyEndpoint* endpoint; /* owned */
  char keep;            /* results stay on the server as promises, which later calls can take */
} PyPipeline;

/* ---- beginning a call ---- */

/* A Function of a session; NULL with an exception. */
static FcFunction* remote_function(PyObject* object) {
  FcFunction* function = Py_IS_TYPE(object, &FcFunction_Type) ? (FcFunction*)object : NULL;
  if (function && function->object && fc_remote_function_of(function->object)) return function;
  return (FcFunction*)PyErr_Format(PyExc_TypeError,
                                   "expected a Function of a session, got %R; "
                                   "session.get_function(name) and module[name] return one",
                                   object);
}

/* Sends without waiting if possible; otherwise waits without the GIL. */
static FcCall* begin_plain(FcFunction* function, PyObject* const* objects, Py_ssize_t n, bool keep) {
  FcArgs args;
  if (fc_args_begin_for(&args, objects, n, function) != 0) return NULL;
  FcCall* call = fc_call_try_begin(function->object, args.any, (int32_t)n, keep);
  if (FC_UNLIKELY(!call)) {
    PyThreadState* state = PyEval_SaveThread();
    fc_thread.python_state = state;
    call = fc_call_begin(function->object, args.any, (int32_t)n, keep);
    fc_thread.python_state = NULL;
    PyEval_RestoreThread(state);
    if (!call) fc_raise_slot();
  }
  fc_args_end(&args);
  return call;
}

/* As begin_plain, between the calls of an observer. Returns a Call. */
FC_COLD static PyCall* begin_observed(FcFunction* function, PyObject* const* objects, Py_ssize_t n, bool keep) {
  FcObserved observed;
  if (fc_observed_begin(function, false, &observed) < 0) return NULL;
  FcCall* call = begin_plain(function, objects, n, keep);
  PyObject* end = fc_observed_sent(&observed);
  return (PyCall*)(call ? fc_call_wrap(call, end) : fc_observed_end(end, NULL));
}

static PyCall* begin(FcFunction* function, PyObject* const* objects, Py_ssize_t n, bool keep) {
  if (FC_UNLIKELY(function->around != NULL)) return begin_observed(function, objects, n, keep);
  FcCall* call = begin_plain(function, objects, n, keep);
  return call ? (PyCall*)fc_call_wrap(call, NULL) : NULL;
}

/* Sends the queued requests. resume: also the bytes whose sending a signal handler interrupted. */
static int flush(FcEndpoint* ep, bool resume) {
  int rc;
  Py_BEGIN_ALLOW_THREADS rc = fc_endpoint_lock(ep, 0);
  if (rc == 0) {
    if (!ep->sending && !ep->reading) fc_endpoint_start_deadline(ep);
    if (!ep->sending && (resume || !ep->torn)) rc = fc_call_flush(ep);
    fc_mutex_unlock(&ep->lock);
  }
  Py_END_ALLOW_THREADS if (rc < 0) fc_raise_slot();
  return rc;
}

/* submit(function, args, keep): None for a function of this process. */
static PyObject* submit(PyObject* module, PyObject* args) {
  PyObject *object, *items;
  int keep = 0;
  (void)module;
  if (!PyArg_ParseTuple(args, "OO!|p:submit", &object, &PyTuple_Type, &items, &keep)) return NULL;
  FcFunction* function = Py_IS_TYPE(object, &FcFunction_Type) ? (FcFunction*)object : NULL;
  if (!function || !function->object || !fc_remote_function_of(function->object)) Py_RETURN_NONE;
  PyCall* call = begin(function, &PyTuple_GET_ITEM(items, 0), PyTuple_GET_SIZE(items), keep);
  if (call && flush(call->call->ep, true) != 0) Py_CLEAR(call);
  return (PyObject*)call;
}

/* ---- the pipeline ---- */

static FcFunction* function_of(PyPipeline* self, PyObject* object) {
  FcFunction* function = remote_function(object);
  if (!function || fc_remote_function_of(function->object)->owned.ep == self->endpoint->ep) return function;
  return (FcFunction*)PyErr_Format(PyExc_ValueError, "`%U` is a function of another session", function->name);
}

static PyObject* pipeline_call(PyObject* object, PyObject* const* objects, size_t nargsf, PyObject* kwnames) {
  PyPipeline* self = (PyPipeline*)object;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (n < 1 || (kwnames && PyTuple_GET_SIZE(kwnames))) {
    return PyErr_Format(PyExc_TypeError, "a pipeline is called as p(function, *args)");
  }
  FcFunction* function = function_of(self, objects[0]);
  return function ? (PyObject*)begin(function, objects + 1, n - 1, self->keep) : NULL;
}

static PyObject* pipeline_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"endpoint", "keep", NULL};
  PyObject* endpoint;
  int keep = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|p:Pipeline", names, &FcEndpoint_Type, &endpoint, &keep))
    return NULL;
  PyPipeline* self = (PyPipeline*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = pipeline_call;
  self->endpoint = (PyEndpoint*)Py_NewRef(endpoint);
  self->keep = (char)keep;
  return (PyObject*)self;
}

static void pipeline_dealloc(PyPipeline* self) {
  Py_XDECREF(self->endpoint);
  Py_TYPE(self)->tp_free((PyObject*)self);
}

static PyObject* pipeline_flush(PyPipeline* self, PyObject* none) {
  (void)none;
  if (flush(self->endpoint->ep, true) < 0) return NULL;
  Py_RETURN_NONE;
}

/* Waits until all calls are answered. */
static PyObject* pipeline_wait(PyPipeline* self, PyObject* none) {
  FcEndpoint* ep = self->endpoint->ep;
  int rc;
  (void)none;
  Py_BEGIN_ALLOW_THREADS rc = fc_endpoint_enter(ep);
  if (rc == 0) {
    rc = fc_call_drain(ep);
    fc_endpoint_leave(ep);
  }
  Py_END_ALLOW_THREADS if (rc < 0) return fc_raise_slot();
  Py_RETURN_NONE;
}

/* ---- map: the calls need no object each ---- */

enum { WINDOW = 4096 }; /* pending calls: enough to keep both peers busy */

typedef struct Window {
  FcCall* calls[WINDOW];
  size_t begun, taken; /* counts; modulo WINDOW they are indices */
  PyObject* results;
  const char* span; /* of all these calls, which each of them takes along; NULL: none */
} Window;

/* The result of the oldest call. */
static int take_one(Window* window) {
  FcCall* call = window->calls[window->taken++ % WINDOW];
  PyObject* value = fc_call_value(call);
  int rc = value ? PyList_Append(window->results, value) : -1;
  Py_XDECREF(value);
  fc_decref(&call->header);
  return rc;
}

/* Waits for the oldest `n` calls, and takes their results. */
static int take(Window* window, size_t n) {
  FcCall* last = window->calls[(window->taken + n - 1) % WINDOW];
  int rc;
  Py_BEGIN_ALLOW_THREADS rc = fc_call_join(last, fc_deadline);
  Py_END_ALLOW_THREADS if (rc < 0) {
    fc_raise_slot();
    return -1;
  }
  for (size_t i = 0; i < n; ++i) {
    if (take_one(window) < 0) return -1;
  }
  return 0;
}

static int begin_item(Window* window, FcFunction* function, PyObject* item) {
  bool many = PyTuple_CheckExact(item);
  PyObject* const* objects = many ? &PyTuple_GET_ITEM(item, 0) : &item;
  if (FC_UNLIKELY(window->span != NULL)) fc_thread.span = window->span;
  FcCall* call = begin_plain(function, objects, many ? PyTuple_GET_SIZE(item) : 1, false);
  if (!call) return -1;
  window->calls[window->begun++ % WINDOW] = call;
  return window->begun - window->taken == WINDOW ? take(window, WINDOW / 2) : 0;
}

static int map_all(Window* window, FcFunction* function, PyObject* items) {
  PyObject* item;
  while ((item = PyIter_Next(items))) {
    int rc = begin_item(window, function, item);
    Py_DECREF(item);
    if (rc < 0) return -1;
  }
  if (PyErr_Occurred()) return -1;
  return window->begun != window->taken ? take(window, window->begun - window->taken) : 0;
}

static PyObject* map_iterable(FcFunction* function, PyObject* iterable) {
  PyObject* items = PyObject_GetIter(iterable);
  Window* window = items ? malloc(sizeof *window) : NULL;
  if (items && !window) PyErr_NoMemory();
  PyObject* results = window ? PyList_New(0) : NULL;
  int rc = -1;
  if (results) {
    window->begun = window->taken = 0;
    window->results = results;
    window->span = fc_thread.span;
    rc = map_all(window, function, items);
    while (window->taken != window->begun) {
      FcCall* call = window->calls[window->taken++ % WINDOW];
      fc_call_cancel(call); /* after a failure: its result is not needed */
      fc_decref(&call->header);
    }
  }
  free(window);
  Py_XDECREF(items);
  if (rc < 0) Py_CLEAR(results);
  return results;
}

/* All calls of an observed map are one for its observer. */
static PyObject* pipeline_map(PyPipeline* self, PyObject* args) {
  PyObject *object, *iterable;
  FcObserved observed;
  if (!PyArg_ParseTuple(args, "OO:map", &object, &iterable)) return NULL;
  FcFunction* function = function_of(self, object);
  if (!function) return NULL;
  if (FC_LIKELY(!function->around)) return map_iterable(function, iterable);
  if (fc_observed_begin(function, true, &observed) < 0) return NULL;
  PyObject* results = map_iterable(function, iterable);
  return fc_observed_end(fc_observed_sent(&observed), results);
}

/* ---- the type ---- */

static PyObject* pipeline_enter(PyObject* self, PyObject* none) {
  (void)none;
  return Py_NewRef(self);
}

/* The end of the block waits for all calls, unless the block raised. */
static PyObject* pipeline_exit(PyPipeline* self, PyObject* args) {
  PyObject* kind = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : Py_None;
  if (kind == Py_None) return pipeline_wait(self, NULL);
  if (flush(self->endpoint->ep, false) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* pipeline_repr(PyPipeline* self) {
  return PyUnicode_FromFormat("<farcall pipeline with %s>", self->endpoint->ep->peer);
}

static PyMethodDef methods[] = {
    {"map", (PyCFunction)pipeline_map, METH_VARARGS,
     "map($self, function, items, /)\n--\n\n"
     "The results of function(item) for each item (a tuple is several arguments), in order. Stops at the first\n"
     "exception."},
    {"flush", (PyCFunction)pipeline_flush, METH_NOARGS, "flush($self, /)\n--\n\nSend the queued requests."},
    {"wait", (PyCFunction)pipeline_wait, METH_NOARGS, "wait($self, /)\n--\n\nWait until all calls have ended."},
    {"__enter__", pipeline_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)pipeline_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

PyTypeObject FcPipeline_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Pipeline",
    .tp_doc = "Sends calls of one session without waiting for replies: p(function, *args) returns a Call.",
    .tp_basicsize = sizeof(PyPipeline),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = pipeline_new,
    .tp_dealloc = (destructor)pipeline_dealloc,
    .tp_repr = (reprfunc)pipeline_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(PyPipeline, vectorcall),
    .tp_methods = methods,
};

PyMethodDef fc_call_functions[] = {{"submit", submit, METH_VARARGS,
                                    "submit(function, args, keep=False, /)\n--\n\nBegin a call of a remote Function; "
                                    "return a Call, or None for a function of this process."},
                                   {NULL, NULL, 0, NULL}};
