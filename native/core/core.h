/*
 * The Python half of the core: what its files, and the endpoint, share.
 *
 * Everything here is called with the GIL held. Functions that return PyObject* or int follow CPython: NULL or -1
 * with a Python exception set.
 *
 * A native caller's four steps, as Function itself does them (function.c):
 *
 *     FcArgs args;
 *     if (fc_args_begin(&args, objects, n, name) != 0) return NULL;       // Python -> args.any[0..n)
 *     TVMFFIAny result = fc_any_none();
 *     int rc = ...;                                                       // may release the GIL
 *     PyObject* value = fc_args_result(&args, rc, &result, name);         // result or error -> Python
 *     fc_args_end(&args);
 */
#ifndef FARCALL_CORE_H_
#define FARCALL_CORE_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime.h"

/* ---- the Python types ---- */

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  TVMFFISafeCallType call; /* called directly: no hop through the object */
  void* self;              /* first argument of call */
  TVMFFIObject* object;    /* the Function object, owned */
  PyObject* name;          /* str */
  PyObject* signature;     /* anything; None by default */
  char release_gil;
  char owned_args; /* the callee is Python: it may keep its arguments */
} FcFunction;

typedef struct {
  PyObject_HEAD
  TVMFFIObject* object; /* owned; NULL once a borrowed view has expired */
  PyObject* weakrefs;
  char borrowed; /* the memory is a caller's: see fc_view_to_python */
  char exported; /* a view of that memory was handed out */
} FcTensor;

typedef struct {
  PyObject_HEAD
  DLDataType value;
} FcDType;

typedef struct {
  PyObject_HEAD
  DLDevice value;
} FcDevice;

extern PyTypeObject FcFunction_Type, FcTensor_Type, FcDType_Type, FcDevice_Type, FcModule_Type;

/* ---- arguments ---- */

/* Which frameworks the tensor arguments of a call belong to: decides the framework of its results. */
enum { FC_SEEN_NUMPY = 1, FC_SEEN_EXCHANGE = 2, FC_SEEN_OTHER = 4 };

enum { FC_INLINE_ARGS = 8, FC_INLINE_DIMS = 8 };

/* What one argument may need beside its Any. */
typedef struct {
  union {
    DLTensor dl;
    TVMFFIByteArray bytes;
  };
} FcSlot;

/* Something to release after the call. */
typedef struct {
  void (*release)(void*);
  void* what;
} FcKeep;

/*
 * The arguments of one call. It is large and lives on the C stack; only what is used is written.
 * An argument never needs memory beyond it unless there are more than 8, or a numpy array has more than 8 dims.
 */
typedef struct FcArgs {
  TVMFFIAny* any;
  FcSlot* slots; /* NULL: values are wanted, which outlive the call (owned mode) */
  int64_t* dims; /* FC_INLINE_DIMS for each argument, for strides */
  FcKeep* keeps;
  int32_t n;
  int32_t n_keeps, max_keeps;
  uint32_t seen; /* FC_SEEN_* */
  const DLPackExchangeAPI* exchange;
  void* heap; /* one block for all of the above when there are many arguments */
  TVMFFIAny inline_any[FC_INLINE_ARGS];
  FcSlot inline_slots[FC_INLINE_ARGS];
  FcKeep inline_keeps[FC_INLINE_ARGS * 2];
  int64_t inline_dims[FC_INLINE_ARGS * FC_INLINE_DIMS];
} FcArgs;

/*
 * Converts objects to borrowed views in args->any. The objects must stay alive until fc_args_end. Tensors become
 * tag 7 (own Tensors tag 70), text becomes tag 8 (or 65 when it contains a NUL), bytes tag 9.
 * On failure everything is released, and the exception names the argument (from 1) and the function.
 */
int fc_args_begin(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name);
/* The same, but each tensor, text and bytes value becomes an object of its own, which the callee may keep. */
int fc_args_begin_owned(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name);
void fc_args_end(FcArgs* args);
/* rc and result of a call -> new reference, or NULL with the kernel's error as the Python exception. */
PyObject* fc_args_result(const FcArgs* args, int rc, TVMFFIAny* result, PyObject* name);
/* Remembers something to release in fc_args_end; releases it at once and fails without memory. */
int fc_args_keep(FcArgs* args, void (*release)(void*), void* what);
void fc_release_object(void* object); /* an FcKeep release: fc_decref */
void fc_release_python(void* object); /* an FcKeep release: Py_DECREF */

/*
 * Around each level of a nested list. Python's own limit counts its frames, not the bytes of ours.
 */
int fc_enter_nested(void);
static inline void fc_leave_nested(void) { --fc_thread.depth; }

/* One object -> a value of its own (owned Any). */
int fc_any_from_python(PyObject* object, TVMFFIAny* out);
/* An owned value -> new reference; the value is consumed, on failure too. Tensors become farcall Tensors. */
PyObject* fc_any_to_python(TVMFFIAny* any);
/* A borrowed view (the arguments of a callback) -> new reference. A DLTensorPtr becomes a Tensor that expires. */
PyObject* fc_view_to_python(const TVMFFIAny* view);
/* Ends the life of a Tensor that fc_view_to_python made, and drops the reference. -1 when a view of it lives on. */
int fc_view_expire(PyObject* object);

/* ---- the setter of a type: chosen once per Python type ---- */

typedef struct FcSetter FcSetter;
typedef int (*FcSetFunction)(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
struct FcSetter {
  PyTypeObject* type; /* NULL: an empty place */
  FcSetFunction set;
  const DLPackExchangeAPI* exchange;
};

/*
 * Each looks whether a type is its business: 1 and a setter in `out`, 0 when it is not, -1 with an exception.
 * The first that says 1 wins.
 */
int fc_choose_value(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_numpy(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_tensor(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_other(PyTypeObject* type, PyObject* object, FcSetter* out);

int fc_set_sequence(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);

/* The setter of an object's type, made on first sight; `made` is storage for a type that is not remembered. */
const FcSetter* fc_setter_of(PyObject* object, FcSetter* made);
/* An object whose reference moves in becomes the value; in a call's views it is released after the call. */
int fc_give_object(FcArgs* args, TVMFFIObject* object, TVMFFIAny* out);
static inline bool fc_owned_mode(const FcArgs* args) { return args->slots == NULL; }
static inline int64_t* fc_dims_of(FcArgs* args, int32_t i) { return args->dims + (size_t)i * FC_INLINE_DIMS; }

/* ---- functions ---- */

/* A Function around a Function object, whose reference moves in, on failure too. name may be NULL. */
PyObject* fc_function_wrap(TVMFFIObject* object, PyObject* name);
/* A Function object that calls a Python callable. New reference, or NULL with an exception. */
TVMFFIObject* fc_callback_new(PyObject* callable);
bool fc_is_callback(const TVMFFIObject* function);

/* ---- tensors ---- */

/* A Tensor around a Tensor object, whose reference moves in, on failure too. */
PyObject* fc_tensor_wrap(TVMFFIObject* object);
/* The DLTensor of a Tensor; NULL with an exception when it has expired. */
DLTensor* fc_tensor_view(PyObject* tensor);
/* Anything with __dlpack__ (or a capsule) -> Tensor object, new reference. */
TVMFFIObject* fc_tensor_import(PyObject* object);
/* What numpy() and __dlpack__ do on a tensor behind a session: hook(tensor) -> numpy.ndarray. */
PyObject* fc_remote_to_numpy(PyObject* tensor);
PyObject* fc_tensor_dlpack(PyObject* self, PyObject* args, PyObject* kwargs);
int fc_dlpack_init(void);

/* ---- numpy: imported when the first array or dtype is met ---- */

/* A Tensor object (its reference moves in) -> ndarray that shares the memory. */
PyObject* fc_numpy_wrap(TVMFFIObject* tensor);
/* An ndarray -> Tensor object that shares the memory and holds the array. */
TVMFFIObject* fc_numpy_import(PyObject* array);
bool fc_numpy_is_array(PyObject* object);
/* 0: read; 1: not a numpy dtype; -1: a dtype without counterpart, exception set. */
int fc_numpy_read_dtype(PyObject* object, DLDataType* out);

/* ---- dtypes and devices ---- */

PyObject* fc_dtype_new(DLDataType value);
PyObject* fc_device_new(DLDevice value);
/* dtype, str, numpy or torch dtype, numpy scalar class; TypeError or ValueError otherwise. */
int fc_dtype_from_python(PyObject* object, DLDataType* out);
/* Device, str, torch.device, (type, id). */
int fc_device_from_python(PyObject* object, DLDevice* out);
/* The text of an object of a type whose module and name are these, such as torch.dtype; NULL when it is another. */
bool fc_type_is(PyTypeObject* type, const char* module, const char* name);

/* ---- errors ---- */

/* The thread's error (or the given one, whose reference moves in) -> Python exception. Always returns NULL. */
FC_COLD PyObject* fc_raise_error(TVMFFIObject* error);
FC_COLD PyObject* fc_raise_slot(void);
/* The current Python exception -> the thread's slot; the exception object itself travels along. */
FC_COLD void fc_error_from_python(void);
/* "Kind" and text -> exception of that class. Always returns NULL. */
FC_COLD PyObject* fc_raise_kind(const char* kind, size_t kind_size, const char* message, size_t size);

/* ---- the module ---- */

extern PyMethodDef fc_registry_functions[], fc_module_functions[], fc_error_functions[], fc_tensor_functions[];
int fc_args_init(void);
int fc_errors_init(void);
/* The endpoint's functions and types; defined in endpoint.c. */
int fc_endpoint_init(PyObject* module) __attribute__((weak));

#endif /* FARCALL_CORE_H_ */
