/* Methods that are written in Python. */
#include "python/types.h"

PyObject* fc_in_python(const char* module, const char* name, PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* imported = PyImport_ImportModule(module);
  PyObject* function = imported ? PyObject_GetAttrString(imported, name) : NULL;
  PyObject* first = function ? PyTuple_Pack(1, self) : NULL;
  PyObject* all = first ? PySequence_Concat(first, args) : NULL;
  PyObject* out = all ? PyObject_Call(function, all, kwargs) : NULL;
  Py_XDECREF(all);
  Py_XDECREF(first);
  Py_XDECREF(function);
  Py_XDECREF(imported);
  return out;
}
