/* Python callables as native functions. They may be called from any thread, with or without the GIL. */
#include "core.h"

static void release_callable(void* callable) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject*)callable);
  PyGILState_Release(state);
}

enum { INLINE = 8 };

/* Arguments, with one free place in front, as vectorcall likes it. */
static int convert_arguments(const TVMFFIAny* args, int32_t n, PyObject** objects) {
  for (int32_t i = 0; i < n; ++i) {
    objects[i] = fc_view_to_python(&args[i]);
    if (objects[i]) continue;
    while (i-- > 0) Py_DECREF(objects[i]);
    return -1;
  }
  return 0;
}

/* A view of the caller's memory must end with the call. */
static int release_arguments(int32_t n, PyObject** objects) {
  int rc = 0;
  for (int32_t i = 0; i < n; ++i) rc |= fc_view_expire(objects[i]);
  return rc;
}

static int call_converted(PyObject* callable, PyObject** objects, int32_t n, TVMFFIAny* result) {
  PyObject* value = PyObject_Vectorcall(callable, objects, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
  int rc = value ? fc_any_from_python(value, result) : -1;
  if (rc != 0 && value) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_Format(PyExc_TypeError, "the result of %R: %S", callable, error ? error : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
  }
  Py_XDECREF(value);
  return rc;
}

static int call_python(PyObject* callable, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  PyObject* inline_objects[INLINE + 1];
  PyObject** objects = n <= INLINE ? inline_objects : PyMem_Malloc(((size_t)n + 1) * sizeof *objects);
  int rc = -1;
  if (!objects) {
    PyErr_NoMemory();
  } else if (convert_arguments(args, n, objects + 1) == 0) {
    rc = call_converted(callable, objects + 1, n, result);
    if (release_arguments(n, objects + 1) != 0 && rc == 0) {
      fc_any_clear(result);
      rc = -1;
    }
  }
  if (objects != inline_objects) PyMem_Free(objects);
  if (rc != 0) fc_error_from_python();
  return rc;
}

/* From 3.13 on the test has a public name. */
#if PY_VERSION_HEX >= 0x030D0000
#define IS_FINALIZING Py_IsFinalizing()
#else
#define IS_FINALIZING _Py_IsFinalizing()
#endif

static int callback_call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  if (!Py_IsInitialized() || IS_FINALIZING) {
    fc_error_set("RuntimeError", "a Python callback was called while the interpreter shuts down");
    return -1;
  }
  PyGILState_STATE state = PyGILState_Ensure();
  int rc = call_python(self, args, n, result);
  PyGILState_Release(state);
  return rc;
}

TVMFFIObject* fc_callback_new(PyObject* callable) {
  TVMFFIObjectHandle function;
  if (fc_function_new(Py_NewRef(callable), callback_call, release_callable, &function) != 0) {
    Py_DECREF(callable);
    return (TVMFFIObject*)fc_raise_slot();
  }
  return function;
}

bool fc_is_callback(const TVMFFIObject* function) {
  TVMFFISafeCallType call;
  void* self;
  fc_function_target((TVMFFIObject*)function, &call, &self);
  return call == callback_call;
}
