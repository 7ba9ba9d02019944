/* Functions of JIT compilers: from an address, and an object that keeps the code alive. */
#include <stdlib.h>

#include "python/convert.h"
#include "python/errors.h"
#include "python/function.h"
#include "python/gil.h"

/* MLIR's calling convention (its C interface): one array of pointers, to each argument and to the result. */
typedef void (*PackedCall)(void** arguments);

typedef struct {
  void* code;
  PyObject* owner; /* keeps the code alive; may be NULL */
} Address;

static int call_direct(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFISafeCallType call;
  memcpy(&call, &((Address*)self)->code, sizeof call);
  return call(NULL, args, num_args, result);
}

static int call_packed(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  PackedCall call;
  void* handle = NULL;
  int rc = -1;
  void* arguments[] = {&handle, &args, &num_args, &result, &rc};
  memcpy(&call, &((Address*)self)->code, sizeof call);
  call(arguments);
  return rc;
}

static void release(void* handle) {
  Address* address = handle;
  if (address->owner) fc_drop_anywhere(address->owner);
  free(address);
}

static PyObject* wrap(void* code, PyObject* owner, TVMFFISafeCallType call) {
  TVMFFIObjectHandle function;
  Address* address = malloc(sizeof *address);
  if (!address) return PyErr_NoMemory();
  *address = (Address){code, owner == Py_None ? NULL : Py_NewRef(owner)};
  if (fc_function_new(address, call, release, &function) == 0) return fc_function_wrap(function, NULL);
  release(address);
  return fc_raise_slot();
}

static PyObject* from_address(PyObject* args, PyObject* kwargs, char** names, TVMFFISafeCallType call) {
  PyObject *number, *owner = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|$O", names, &PyLong_Type, &number, &owner)) return NULL;
  void* code = PyLong_AsVoidPtr(number);
  if (code) return wrap(code, owner, call);
  if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s: expected the address of a function, got 0", names[0]);
  return NULL;
}

static PyObject* from_extern_c(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"c_symbol", "keep_alive_object", NULL};
  (void)self;
  return from_address(args, kwargs, names, call_direct);
}

static PyObject* from_packed(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"mlir_packed_symbol", "keep_alive_object", NULL};
  (void)self;
  return from_address(args, kwargs, names, call_packed);
}

FC_PYTHON_METHOD(submit, "farcall.ffi._async", "submit")
FC_PYTHON_METHOD(call_async, "farcall.ffi._async", "call_async")
FC_PYTHON_METHOD(to_html, "farcall.ffi._modules", "function_html")

#define STATIC_WITH_KEYWORDS(f) FC_WITH_KEYWORDS(f) | METH_STATIC

PyMethodDef fc_function_methods[] = {
    {"__from_extern_c__", STATIC_WITH_KEYWORDS(from_extern_c),
     "__from_extern_c__(c_symbol, *, keep_alive_object=None)\n--\n\n"
     "A Function of the TVMFFISafeCallType at an address, which is called with self NULL. The Function holds\n"
     "`keep_alive_object`."},
    {"__from_mlir_packed_safe_call__", STATIC_WITH_KEYWORDS(from_packed),
     "__from_mlir_packed_safe_call__(mlir_packed_symbol, *, keep_alive_object=None)\n--\n\n"
     "The same for MLIR's C interface: the code gets an array of pointers to self, the arguments, their number, the\n"
     "result and the return code."},
    {"submit", FC_WITH_KEYWORDS(submit),
     "submit($self, *args)\n--\n\nBegin a call: a future with result(), exception(), cancel(), add_done_callback()."},
    {"call_async", FC_WITH_KEYWORDS(call_async),
     "call_async($self, *args, timeout=None)\n--\n\n`await f.call_async(x)`: call without blocking the event loop."},
    {"_repr_html_", FC_WITH_KEYWORDS(to_html), "_repr_html_($self)\n--\n\nThe table that notebooks show."},
    FC_SAME_AS_METHOD,
    {NULL, NULL, 0, NULL},
};
