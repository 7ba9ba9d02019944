/*
 * On how many threads a call computes: its keyword `threads`, else Function.threads, else what use_threads() says in
 * this thread, else the default of native/runtime/pool.h. Loops of a call never wait for threads of another one.
 */
#include "python/threads.h"

#include "python/init.h"
#include "runtime/pool.h"

int fc_threads_from_python(PyObject* value) {
  if (value == Py_None) return 0;
  const long count = PyLong_Check(value) ? PyLong_AsLong(value) : -1;
  if (count >= 1 && count <= FC_MOST_THREADS) return (int)count;
  if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Format(PyLong_Check(value) ? PyExc_ValueError : PyExc_TypeError,
                 "threads=%R: expected a number of threads, from 1 to %d, or None", value, FC_MOST_THREADS);
  }
  return -1;
}

PyObject* fc_threads_to_python(int count) {
  if (count == 0) Py_RETURN_NONE;
  return PyLong_FromLong(count);
}

static PyObject* set_threads(PyObject* module, PyObject* value) {
  (void)module;
  const int count = fc_threads_from_python(value), old = fc_thread.threads;
  if (count < 0) return NULL;
  fc_thread.threads = count;
  return fc_threads_to_python(old);
}

PyMethodDef fc_threads_functions[] = {
    {"set_threads", set_threads, METH_O,
     "set_threads(count, /)\n--\n\n"
     "Set on how many threads the calls of this thread compute, and return what was set before. Prefer use_threads()."},
    {NULL, NULL, 0, NULL},
};

/* ---- the keyword ---- */

static Py_ssize_t place_of(PyObject* names, PyObject* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) return i;
  }
  return -1;
}

Py_ssize_t fc_threads_keyword(FcFunction* function, PyObject* kwnames) {
  static PyObject* name;
  if (!name) name = PyUnicode_InternFromString("threads");
  const Py_ssize_t place = name ? place_of(kwnames, name) : -1;
  if (place < 0 || !function->kernel) return -1;
  if (fc_params_resolve(function) != 0) {
    PyErr_Clear(); /* the call itself will say so */
    return -1;
  }
  PyObject* names = fc_params_field(function, FC_PARAM_NAMES);
  return names && names != Py_None && place_of(names, name) >= 0 ? -1 : place;
}

/* The names without the one at `place`; NULL with an exception. */
static PyObject* without(PyObject* names, Py_ssize_t place) {
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  PyObject* out = PyTuple_New(count - 1);
  for (Py_ssize_t i = 0; out && i < count; ++i) {
    if (i != place) PyTuple_SET_ITEM(out, i - (i > place), Py_NewRef(PyTuple_GET_ITEM(names, i)));
  }
  return out;
}

PyObject* fc_threads_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames,
                          Py_ssize_t place) {
  const int count = fc_threads_from_python(objects[n + place]);
  const Py_ssize_t all = n + PyTuple_GET_SIZE(kwnames);
  PyObject* names = count < 0 ? NULL : without(kwnames, place);
  PyObject** rest = names ? PyMem_New(PyObject*, all) : NULL;
  PyObject* out = NULL;
  if (rest) {
    for (Py_ssize_t i = 0; i < all; ++i) {
      if (i != n + place) rest[i - (i > n + place)] = objects[i];
    }
    fc_thread.threads_asked = count;
    out = function->vectorcall((PyObject*)function, rest, (size_t)n, names);
    fc_thread.threads_asked = 0; /* also where the call ended before its function ran */
  } else if (names) {
    PyErr_NoMemory();
  }
  PyMem_Free(rest);
  Py_XDECREF(names);
  return out;
}
