/* The numbers of the runtime that Python code uses, and how such numbers become mappings. */
#include "python/constants.h"

#include "runtime/runtime.h"

static int fill(PyObject* mapping, const FcNumber* numbers) {
  for (; numbers->name; ++numbers) {
    PyObject* value = PyLong_FromLongLong(numbers->value);
    if (!value || PyDict_SetItemString(mapping, numbers->name, value) != 0) {
      Py_XDECREF(value);
      return -1;
    }
    Py_DECREF(value);
  }
  return 0;
}

int fc_add_numbers(PyObject* module, const char* name, const FcNumber* numbers) {
  PyObject* mapping = PyDict_New();
  PyObject* proxy = mapping && fill(mapping, numbers) == 0 ? PyDictProxy_New(mapping) : NULL;
  int rc = proxy ? PyModule_AddObjectRef(module, name, proxy) : -1;
  Py_XDECREF(proxy);
  Py_XDECREF(mapping);
  return rc;
}

static const FcNumber type_indices[] = {{"pointer", kTVMFFIOpaquePtr}, {"raw_str", kTVMFFIRawStr},
                                        {"module", kTVMFFIModule},     {"map", kTVMFFIMap},
                                        {"dict", kTVMFFIDict},         {NULL, 0}};

int fc_runtime_constants(PyObject* module) {
  if (fc_add_numbers(module, "TYPE_INDICES", type_indices) != 0) return -1;
  return PyModule_AddIntConstant(module, "REMOTE_STEP", FC_REMOTE_STEP);
}
