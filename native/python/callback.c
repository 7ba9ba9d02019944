/* Python callables as native functions, callable from any thread, with or without the GIL. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/function.h"
#include "python/gil.h"
#include "python/init.h"

enum { INLINE = 8 };

/* Python's cached objects of small ints: looking one up here saves most callbacks a call. */
enum { SMALL_INTS = 257 };
static PyObject* small_ints[SMALL_INTS];

int fc_callbacks_init(void) {
  for (int i = 0; i < SMALL_INTS; ++i) {
    if (!(small_ints[i] = PyLong_FromLong(i))) return -1;
  }
  return 0;
}

static inline PyObject* argument(const TVMFFIAny* any) {
  if (FC_UNLIKELY(any->type_index != kTVMFFIInt)) return fc_view_to_python(any);
  uint64_t value = (uint64_t)any->v_int64;
  return FC_LIKELY(value < SMALL_INTS) ? Py_NewRef(small_ints[value]) : PyLong_FromLongLong(any->v_int64);
}

/* Converts the arguments. objects[-1] is free, as PY_VECTORCALL_ARGUMENTS_OFFSET requires. */
static inline int convert_arguments(const TVMFFIAny* args, int32_t n, PyObject** objects) {
  for (int32_t i = 0; i < n; ++i) {
    objects[i] = argument(&args[i]);
    if (FC_LIKELY(objects[i] != NULL)) continue;
    while (i-- > 0) Py_DECREF(objects[i]);
    return -1;
  }
  return 0;
}

/* Drops the arguments. Tensors that borrow the caller's memory expire; -1 if a view of one is still in use. */
static inline int release_arguments(int32_t n, PyObject** objects) {
  int rc = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (Py_IS_TYPE(objects[i], &FcTensor_Type)) {
      rc |= fc_view_expire(objects[i]);
    } else {
      Py_DECREF(objects[i]);
    }
  }
  return rc;
}

/* Skips the checks of PyObject_Vectorcall for a Python function, which never breaks its rules. */
static inline PyObject* vectorcall(PyObject* callable, PyObject** objects, int32_t n) {
  size_t nargsf = (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET;
  if (FC_LIKELY(PyFunction_Check(callable))) {
    return ((PyFunctionObject*)callable)->vectorcall(callable, objects, nargsf, NULL);
  }
  return PyObject_Vectorcall(callable, objects, nargsf, NULL);
}

static FC_COLD int bad_result(PyObject* callable) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyObject* name = fc_callable_name(callable);
  if (name) PyErr_Format(PyExc_TypeError, "the result of `%U`: %S", name, error ? error : Py_None);
  Py_XDECREF(name);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  return -1;
}

static inline int call_converted(PyObject* callable, PyObject** objects, int32_t n, TVMFFIAny* result) {
  PyObject* value = vectorcall(callable, objects, n);
  if (FC_UNLIKELY(!value)) return -1;
  int rc = 0;
  if (FC_LIKELY(value == Py_None)) {
    *result = fc_any_none();
  } else if ((rc = fc_any_from_python(value, result)) != 0) {
    rc = bad_result(callable);
  }
  Py_DECREF(value);
  return rc;
}

/* Fails, and drops the result, if the callable kept a view of a lent tensor. */
static inline int call_with(PyObject* callable, const TVMFFIAny* args, int32_t n, TVMFFIAny* result,
                            PyObject** objects) {
  int rc = convert_arguments(args, n, objects);
  if (FC_UNLIKELY(rc != 0)) return rc;
  rc = call_converted(callable, objects, n, result);
  if (FC_UNLIKELY(release_arguments(n, objects) != 0) && rc == 0) {
    fc_any_clear(result);
    rc = -1;
  }
  return rc;
}

static FC_COLD int call_many(PyObject* callable, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  PyObject** objects = PyMem_Malloc(((size_t)n + 1) * sizeof *objects);
  if (!objects) return PyErr_NoMemory(), -1;
  int rc = call_with(callable, args, n, result, objects + 1);
  PyMem_Free(objects);
  return rc;
}

static inline int call_python(PyObject* callable, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  PyObject* objects[INLINE + 1];
  int rc =
      FC_LIKELY(n <= INLINE) ? call_with(callable, args, n, result, objects + 1) : call_many(callable, args, n, result);
  if (FC_UNLIKELY(rc != 0)) fc_error_from_python();
  return rc;
}

static FC_COLD int shutting_down(void) {
  fc_error_set("RuntimeError", "a Python callback was called while the interpreter shuts down");
  return -1;
}

/* In any thread, even one without a Python thread state. */
static __attribute__((noinline)) int call_from_outside(void* self, const TVMFFIAny* args, int32_t n,
                                                       TVMFFIAny* result) {
  PyGILState_STATE state;
  if (!fc_gil_take(&state)) return shutting_down();
  int rc = call_python(self, args, n, result);
  PyGILState_Release(state);
  return rc;
}

/* Inside a call from Python that released the GIL: the thread state is known, which saves looking it up. */
static __attribute__((noinline)) int call_without_gil(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  PyThreadState* state = fc_thread.python_state;
  if (!state || FC_IS_FINALIZING) return call_from_outside(self, args, n, result);
  PyEval_RestoreThread(state);
  int rc = call_python(self, args, n, result);
  PyEval_SaveThread();
  return rc;
}

static int callback_call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  PyThreadState* state = fc_thread.python_state;
  bool has_gil = FC_LIKELY(state != NULL) && fc_current_state() == state;
  int rc;
  FC_BEGIN_STOP_UNWINDING;
  rc = has_gil ? call_python(self, args, n, result) : call_without_gil(self, args, n, result);
  FC_END_STOP_UNWINDING;
  return rc;
}

TVMFFIObject* fc_callback_new(PyObject* callable) {
  TVMFFIObjectHandle function;
  if (fc_function_new(Py_NewRef(callable), callback_call, fc_drop_anywhere, &function) != 0) {
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
