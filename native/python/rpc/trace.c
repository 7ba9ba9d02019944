/* Spans of the session's trace for Python (farcall.rpc.trace). */
#include "runtime/trace.h"

#include <stdlib.h>

#include "python/init.h"

static PyObject* trace_start(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  fc_trace_start();
  Py_RETURN_NONE;
}

static PyObject* span_to_python(const FcTraceSpan* s) {
  PyObject* name = PyUnicode_DecodeUTF8(s->name, (Py_ssize_t)strlen(s->name), "replace"); /* it may be cut short */
  if (!name) return NULL;
  PyObject* args = PyUnicode_DecodeUTF8(s->args, (Py_ssize_t)strlen(s->args), "replace");
  if (args) {
    return Py_BuildValue("(isNLLKN)", (int)s->track, s->category, name, (long long)s->start,
                         (long long)(s->end - s->start), (unsigned long long)s->bytes, args);
  }
  Py_DECREF(name);
  return NULL;
}

static PyObject* to_python(const FcTraceSpan* spans, size_t n) {
  PyObject* list = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; list && i < n; ++i) {
    PyObject* item = span_to_python(&spans[i]);
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, (Py_ssize_t)i, item);
  }
  return list;
}

static PyObject* trace_stop(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  size_t n, dropped;
  FcTraceSpan* spans = fc_trace_stop(&n, &dropped);
  PyObject* list = to_python(spans, n);
  free(spans);
  return list ? Py_BuildValue("(Nn)", list, (Py_ssize_t)dropped) : NULL;
}

PyMethodDef fc_trace_functions[] = {
    {"trace_start", trace_start, METH_NOARGS, "trace_start()\n--\n\nStart recording spans."},
    {"trace_stop", trace_stop, METH_NOARGS,
     "trace_stop()\n--\n\nStop. Returns the spans, (track, category, name, start_ns, duration_ns, bytes, args), and "
     "the number of spans "
     "for which there was no room."},
    {NULL, NULL, 0, NULL}};
