/*
 * The Python types of values. Everything in native/python is called with the GIL held, unless its comment says
 * otherwise. Functions that return PyObject* or int follow CPython: NULL or -1 with a Python exception set.
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
  PyObject* signature;     /* anything; None by default */
  PyObject* program;       /* of a Signature: see python/abi/abi.h; NULL without one, or before it is needed */
  TVMFFISafeCallType metadata, doc; /* give the library's texts about the function; NULL when it has none */
  PyObject* description;       /* of its parameters: see python/params.c; NULL until it is asked for, None without */
  uint64_t views;              /* bit i: parameter i borrows its tensor for the call; bit 63 is for all others too */
  uint64_t writes;             /* bit i: parameter i may write to its tensor, so that it must not be read-only */
  Py_ssize_t arity;            /* of a function that is described; else -1 */
  char release_gil;
  char owned_args; /* the callee is Python: it may keep its arguments */
  char views_set;  /* `views` was chosen by hand */
} FcFunction;

typedef struct {
  PyObject_HEAD TVMFFIObject* object; /* owned; NULL once a borrowed view has expired */
  PyObject* weakrefs;
  char borrowed; /* the memory is a caller's: see fc_view_to_python */
  char exported; /* a view of that memory was handed out */
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

/* Two wrappers of one native object are equal: slots and a method of the types that stand for such. */
PyObject* fc_identity_compare(PyObject* self, PyObject* other, int operation);
Py_hash_t fc_identity_hash(PyObject* self);
PyObject* fc_identity_same_as(PyObject* self, PyObject* other);
#define FC_SAME_AS_METHOD                  \
  {"same_as", fc_identity_same_as, METH_O, \
   "same_as($self, other, /)\n--\n\nWhether both stand for one native object, as `==` has it."}

/* Of a PyMethodDef: a function of (self, args, kwargs). */
#define FC_WITH_KEYWORDS(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS

#endif /* FARCALL_PYTHON_TYPES_H_ */
