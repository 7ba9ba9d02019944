/* Spans of time, for farcall.rpc.trace. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "core.h"

typedef struct Span {
  const char* category;
  int64_t start, end;
  int32_t track;
  char name[60];
} Span;

enum { SPANS_MAX = 1 << 20 }; /* then the trace is full: what comes later is left out */

int fc_trace_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Span* spans;
static size_t count, capacity;

static bool make_room(void) {
  if (count < capacity) return true;
  size_t wanted = capacity ? 2 * capacity : 1024;
  Span* grown = wanted <= SPANS_MAX ? realloc(spans, wanted * sizeof *grown) : NULL;
  if (!grown) return false;
  spans = grown;
  capacity = wanted;
  return true;
}

void fc_trace_add(const char* category, const char* name, int32_t track, int64_t start, int64_t end) {
  pthread_mutex_lock(&lock);
  if (fc_trace_on && make_room()) {
    Span* span = &spans[count++];
    span->category = category;
    span->start = start;
    span->end = end;
    span->track = track;
    snprintf(span->name, sizeof span->name, "%s", name);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- for Python ---- */

static PyObject* trace_start(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  pthread_mutex_lock(&lock);
  count = 0;
  __atomic_store_n(&fc_trace_on, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
  Py_RETURN_NONE;
}

static PyObject* to_python(const Span* taken, size_t n) {
  PyObject* list = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; list && i < n; ++i) {
    const Span* s = &taken[i];
    PyObject* name = PyUnicode_DecodeUTF8(s->name, (Py_ssize_t)strlen(s->name), "replace"); /* it may be cut short */
    PyObject* item = name ? Py_BuildValue("(isNLL)", (int)s->track, s->category, name, (long long)s->start,
                                          (long long)(s->end - s->start)) : NULL;
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, (Py_ssize_t)i, item);
  }
  return list;
}

static PyObject* trace_stop(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  pthread_mutex_lock(&lock);
  Span* taken = spans;
  size_t n = count;
  __atomic_store_n(&fc_trace_on, 0, __ATOMIC_RELAXED);
  spans = NULL;
  count = capacity = 0;
  pthread_mutex_unlock(&lock);
  PyObject* list = to_python(taken, n);
  free(taken);
  return list;
}

PyMethodDef fc_trace_functions[] = {
    {"trace_start", trace_start, METH_NOARGS, "trace_start()\n--\n\nNote from now on what takes how long."},
    {"trace_stop", trace_stop, METH_NOARGS,
     "trace_stop()\n--\n\nWhat was noted: (track, category, name, start_ns, duration_ns)."},
    {NULL, NULL, 0, NULL}};
