/*
 * Identity: a Function, Tensor, Module or Object wraps a native object, and each result makes a new wrapper. Two
 * wrappers of one object are equal, as in TVM FFI.
 */
#include "python/convert.h"
#include "python/module.h"

/* The wrapped object, borrowed; NULL for other Python objects, and if it has expired or was collected. */
static TVMFFIObject* native_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &FcFunction_Type) return ((FcFunction*)object)->object;
  if (type == &FcTensor_Type) return ((FcTensor*)object)->object;
  if (type == &FcModule_Type) return ((FcModule*)object)->object;
  return type == &FcObject_Type ? ((FcObject*)object)->object : NULL;
}

static bool is_same(PyObject* a, PyObject* b) { return a == b || (native_of(a) && native_of(a) == native_of(b)); }

PyObject* fc_identity_compare(PyObject* self, PyObject* other, int operation) {
  bool comparable = Py_TYPE(other) == Py_TYPE(self) && (operation == Py_EQ || operation == Py_NE);
  if (!comparable) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong(is_same(self, other) == (operation == Py_EQ));
}

Py_hash_t fc_identity_hash(PyObject* self) {
  TVMFFIObject* object = native_of(self);
  if (object) return _Py_HashPointer(object);
  PyErr_Format(PyExc_TypeError, "%R no longer refers to a native object, so it has no hash", self);
  return -1;
}

PyObject* fc_identity_same_as(PyObject* self, PyObject* other) { return PyBool_FromLong(is_same(self, other)); }
