/*
 * The Python types of values. Callers of functions in native/python hold the GIL, unless a comment says otherwise.
 * Functions that return PyObject* or int follow CPython: NULL or -1 with a Python exception set.
 */
#ifndef FARCALL_PYTHON_TYPES_H_
#define FARCALL_PYTHON_TYPES_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

typedef struct {
  PyObject_HEAD vectorcallfunc vectorcall;
  TVMFFISafeCallType call; /* called directly: no hop through the object */
  void* self;              /* first argument of call */
  TVMFFIObject* object;    /* the Function object, owned */
  PyObject* name;          /* str */
  PyObject* signature;     /* any object; None by default */
  PyObject* program;       /* of a Signature: see python/abi/abi.h; NULL without one, or before it is needed */
  TVMFFISafeCallType metadata, doc; /* return the library's texts about the function; NULL without */
  PyObject* source; /* returns the metadata of a server's function; then the text itself; NULL without */
  PyObject* description;       /* of the parameters: see python/params.c; NULL until first needed, None without one */
  uint64_t views; /* bit i: parameter i borrows its tensor for the call; bit 63 is for all later ones too */
  uint64_t writes; /* bit i: parameter i may write to its tensor, so that it must not be read-only */
  Py_ssize_t arity; /* if the function has a description; else -1 */
  PyObject* around;     /* called around each call: see fc_function_observe; NULL without */
  vectorcallfunc inner; /* the path that a function with `around` takes between its two calls */
  int threads;          /* that its calls compute on; 0: not said */
  char release_gil;
  char owned_args; /* the callee is Python and may keep its arguments */
  char views_set; /* the user set `views` */
  char kernel;    /* of a library, so that it reads memory: see fc_args_begin_for */
} FcFunction;

typedef struct {
  PyObject_HEAD TVMFFIObject* object; /* owned; NULL once a borrowed view has expired */
  PyObject* weakrefs;
  char borrowed; /* a caller owns the memory: see fc_view_to_python */
  char exported; /* another object views that memory */
} FcTensor;

typedef struct {
  PyObject_HEAD TVMFFIObject* object; /* owned */
} FcObject;

typedef struct {
  PyObject_HEAD DLDataType value;
} FcDType;

typedef struct {
  PyObject_HEAD DLDevice value;
} FcDevice;

extern PyTypeObject FcFunction_Type, FcTensor_Type, FcDType_Type, FcDevice_Type, FcShape_Type, FcModule_Type;
extern PyTypeObject FcOpaque_Type, FcObject_Type;

/* Slots and a method of the wrapper types: two wrappers of one native object are equal. */
PyObject* fc_identity_compare(PyObject* self, PyObject* other, int operation);
Py_hash_t fc_identity_hash(PyObject* self);
PyObject* fc_identity_same_as(PyObject* self, PyObject* other);
#define FC_SAME_AS_METHOD                  \
  {"same_as", fc_identity_same_as, METH_O, \
   "same_as($self, other, /)\n--\n\nWhether both refer to one native object, as `==` does."}

/* For a PyMethodDef: a function of (self, args, kwargs). */
#define FC_WITH_KEYWORDS(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS

/* The result of a function of farcall's Python code: module.name(self, *args, **kwargs). kwargs may be NULL. */
PyObject* fc_in_python(const char* module, const char* name, PyObject* self, PyObject* args, PyObject* kwargs);
/* Defines a method, with keywords, that such a function implements. */
#define FC_PYTHON_METHOD(method, module, name)                                \
  static PyObject* method(PyObject* self, PyObject* args, PyObject* kwargs) { \
    return fc_in_python(module, name, self, args, kwargs);                    \
  }

#endif /* FARCALL_PYTHON_TYPES_H_ */
