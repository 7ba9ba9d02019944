/* Function.submit and Function.call_async. */
#include "python/function.h"

/* farcall.ffi._async begins the calls: in a thread, or as a request to another machine. */
static PyObject* begin(PyObject* self, const char* how, PyObject* args, PyObject* kwargs) {
  PyObject* module = PyImport_ImportModule("farcall.ffi._async");
  PyObject* function = module ? PyObject_GetAttrString(module, how) : NULL;
  PyObject* first = function ? PyTuple_Pack(1, self) : NULL;
  PyObject* all = first ? PySequence_Concat(first, args) : NULL;
  PyObject* out = all ? PyObject_Call(function, all, kwargs) : NULL;
  Py_XDECREF(all);
  Py_XDECREF(first);
  Py_XDECREF(function);
  Py_XDECREF(module);
  return out;
}

PyObject* fc_function_submit(PyObject* self, PyObject* args, PyObject* kwargs) {
  return begin(self, "submit", args, kwargs);
}

PyObject* fc_function_call_async(PyObject* self, PyObject* args, PyObject* kwargs) {
  return begin(self, "call_async", args, kwargs);
}
