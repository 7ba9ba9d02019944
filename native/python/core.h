/*
 * The Python half of the core: what its files, and the endpoint, share.
 *
 * Everything here is called with the GIL held. Functions that return PyObject* or int follow CPython: NULL or -1
 * with a Python exception set.
 *
 * A native caller's four steps, as Function itself does them (python/function.c):
 *
 *     FcArgs args;
 *     if (fc_args_begin(&args, objects, n, name) != 0) return NULL;       // Python -> args.any[0..n)
 *     TVMFFIAny result = fc_any_none();
 *     int rc = ...;                                                       // may release the GIL
 *     PyObject* value = fc_args_result(&args, rc, &result, name);         // result or error -> Python
 *     fc_args_end(&args);
 */
#ifndef FARCALL_PYTHON_CORE_H_
#define FARCALL_PYTHON_CORE_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

/* ---- the Python types ---- */

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
  PyObject_HEAD DLDataType value;
} FcDType;

typedef struct {
  PyObject_HEAD DLDevice value;
} FcDevice;

extern PyTypeObject FcFunction_Type, FcTensor_Type, FcDType_Type, FcDevice_Type, FcShape_Type, FcModule_Type;
extern PyTypeObject FcOpaque_Type, FcObject_Type;

/* ---- arguments ---- */

/* Which frameworks the tensor arguments of a call belong to: decides the framework of its results. */
enum { FC_SEEN_NUMPY = 1, FC_SEEN_EXCHANGE = 2, FC_SEEN_OTHER = 4, FC_SEEN_IMPORTER = 8 };

/* An argument leaves at most three things to release: what stands for the object, its buffer, and a tensor of that. */
enum { FC_INLINE_ARGS = 8, FC_INLINE_DIMS = 8, FC_KEEPS_EACH = 3 };

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
  uint64_t views, writes; /* of the function: see FcFunction */
  const DLPackExchangeAPI* exchange;
  PyObject* importer; /* with FC_SEEN_IMPORTER: the from_dlpack of the framework, borrowed from its setter */
  void* heap; /* one block for all of the above when there are many arguments */
  TVMFFIAny inline_any[FC_INLINE_ARGS];
  FcSlot inline_slots[FC_INLINE_ARGS];
  FcKeep inline_keeps[FC_INLINE_ARGS * FC_KEEPS_EACH];
  int64_t inline_dims[FC_INLINE_ARGS * FC_INLINE_DIMS];
} FcArgs;

/*
 * Converts objects to borrowed views in args->any. The objects must stay alive until fc_args_end. Tensors become
 * tag 7 (own Tensors tag 70), text becomes tag 8 (or 65 when it contains a NUL), bytes tag 9.
 * On failure everything is released, and the exception names the argument (from 1) and the function.
 */
int fc_args_begin(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name);
/*
 * The same for a Function, which knows its parameters: a tensor becomes tag 7 only where the parameter is a view.
 * Elsewhere it becomes tag 70, lent for the call: see python/lend.c.
 */
int fc_args_begin_for(FcArgs* args, PyObject* const* objects, Py_ssize_t n, const FcFunction* function);
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
  PyObject* importer; /* the framework's from_dlpack, owned by the table; NULL when its tensors come back as ours */
};

/* Finds the setter of a type: 1 and the setter in `out`, 0 when another chooser must, -1 with an exception. */
typedef int (*FcChooser)(PyTypeObject* type, PyObject* object, FcSetter* out);
/* The choosers (n of them, static) are asked in this order; the first that answers 1 wins. See python/init.c. */
int fc_args_init(const FcChooser* choosers, size_t n);
int fc_choose_value(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_object_protocol(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_numpy(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_tensor(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_protocol(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_other(PyTypeObject* type, PyObject* object, FcSetter* out);

/* A tensor by its __dlpack__. */
int fc_set_dlpack(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
/* A setter for arrays that have the buffer protocol beside __dlpack__; NULL when the type has not. See python/buffer.c. */
FcSetFunction fc_buffer_setter(PyTypeObject* type);
int fc_set_object(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_shape(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_dict(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_sequence(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);

/* An element of a container, as an owned value; the frameworks that it shows are noted in args (may be NULL). */
int fc_set_element(FcArgs* args, PyObject* object, TVMFFIAny* out);

/* The setter of an object's type, made on first sight; `made` is storage for a type that is not remembered. */
const FcSetter* fc_setter_of(PyObject* object, FcSetter* made);
/* An object whose reference moves in becomes the value; in a call's views it is released after the call. */
int fc_give_object(FcArgs* args, TVMFFIObject* object, TVMFFIAny* out);
static inline bool fc_owned_mode(const FcArgs* args) { return args->slots == NULL; }
static inline int64_t* fc_dims_of(FcArgs* args, int32_t i) { return args->dims + (size_t)i * FC_INLINE_DIMS; }
static inline bool fc_has_bit(uint64_t bits, int32_t i) { return bits >> (i < 63 ? i : 63) & 1; }
/* Whether parameter i gets a borrowed DLTensor; in owned mode none does. */
static inline bool fc_wants_view(const FcArgs* args, int32_t i) { return fc_has_bit(args->views, i); }
/* The importer of a framework becomes the one of the results, unless another framework came before. */
static inline void fc_note_importer(FcArgs* args, PyObject* importer) {
  args->seen |= importer ? FC_SEEN_IMPORTER : FC_SEEN_OTHER;
  if (FC_UNLIKELY(args->importer && args->importer != importer)) args->seen |= FC_SEEN_OTHER;
  args->importer = importer;
}

/* ---- lent tensors: Tensor objects from a pool that stand for a framework's tensor during a call ---- */

enum { FC_POOL = 64 };
extern FcTensorObj* fc_pool[FC_POOL]; /* guarded by the GIL */
extern int fc_pool_count;
FcTensorObj* fc_pool_new(void);
void fc_pool_put(FcTensorObj* tensor);
/* A Tensor object with room for FC_INLINE_DIMS dims; NULL with an exception. Its dl is whatever it was. */
static inline FcTensorObj* fc_pool_take(void) {
  return FC_LIKELY(fc_pool_count > 0) ? fc_pool[--fc_pool_count] : fc_pool_new();
}
static inline int64_t* fc_pool_dims(FcTensorObj* tensor) { return (int64_t*)(tensor + 1); }
/* The tensor stands for `object` (borrowed) until fc_args_end; who keeps it longer makes it keep the object. */
/* The object that a tensor stands for, borrowed; NULL when it is not lent now. */
static inline PyObject* fc_lender(const TVMFFIObject* tensor) {
  const FcTensorObj* own = (const FcTensorObj*)tensor;
  return fc_tensor_is_ours(tensor) && !own->release ? (PyObject*)own->context : NULL;
}
int fc_lend(FcArgs* args, FcTensorObj* tensor, PyObject* object, TVMFFIAny* out);

/* The state of the thread that has the GIL; from 3.12 on, this thread's while it has the GIL. From 3.13 on public. */
static inline PyThreadState* fc_current_state(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked();
#else
  return _PyThreadState_UncheckedGet();
#endif
}

/* ---- functions ---- */

/* An Object around a native object of an unknown type, whose reference moves in, on failure too. */
PyObject* fc_object_wrap(TVMFFIObject* object);
/* A Function around a Function object, whose reference moves in, on failure too. name may be NULL. */
PyObject* fc_function_wrap(TVMFFIObject* object, PyObject* name);
/* A Function object that calls a Python callable. New reference, or NULL with an exception. */
TVMFFIObject* fc_callback_new(PyObject* callable);
bool fc_is_callback(const TVMFFIObject* function);
/*
 * Looks for what a module's library says of the function: `find` gives the exported symbol of a name, or NULL. The
 * texts are read when they are first needed.
 */
typedef TVMFFISafeCallType (*FcFindSymbol)(PyObject* module, const char* name);
void fc_function_describe(PyObject* function, PyObject* module, FcFindSymbol find);
/* Reads the description, once. 0, or -1 with an exception. */
int fc_params_resolve(FcFunction* function);
/* "argument 2 `x` of `f`: expected float" for a function that is described; NULL without an exception otherwise. */
PyObject* fc_params_place(const FcFunction* function, int32_t i);
/* A call with keywords, or with another number of arguments than there are parameters. */
PyObject* fc_params_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames);
/* The native call itself, with arguments that were begun for this function. */
int fc_function_invoke(FcFunction* function, FcArgs* args, TVMFFIAny* result);
/* A call with exactly these arguments. */
PyObject* fc_function_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n);
/* What the function knows of itself has changed: the next call chooses its path anew. */
void fc_function_reset(FcFunction* function);
/* The number of parameters; -1 when the function does not say. */
Py_ssize_t fc_params_count(const FcFunction* function);
/* One of the fields below, borrowed; NULL without an exception when there is no description. */
PyObject* fc_params_field(const FcFunction* function, Py_ssize_t field);
/* farcall.ffi._describe's "signature" or "document" of the function. */
PyObject* fc_params_ask(FcFunction* function, const char* question);
enum {
  FC_PARAM_NAMES,
  FC_PARAM_DEFAULTS,
  FC_PARAM_TYPES,
  FC_PARAM_VIEWS,
  FC_PARAM_WRITES,
  FC_PARAM_TEXT,
  FC_PARAM_FIELDS
};

/* ---- tensors ---- */

/* A Tensor around a Tensor object, whose reference moves in, on failure too. */
PyObject* fc_tensor_wrap(TVMFFIObject* object);
/* The DLTensor of a Tensor; NULL with an exception when it has expired. */
DLTensor* fc_tensor_view(PyObject* tensor);
/* A row-major copy on the CPU of a CPU tensor. New reference, or NULL with an exception. */
TVMFFIObject* fc_tensor_copy(const DLTensor* from);
/* Anything with __dlpack__ (or a capsule) -> Tensor object, new reference. */
TVMFFIObject* fc_tensor_import(PyObject* object);
/* What numpy() and __dlpack__ do on a tensor behind a session: hook(tensor) -> numpy.ndarray. */
PyObject* fc_remote_to_numpy(PyObject* tensor);
/* "float32[2, 3]" */
PyObject* fc_tensor_type_text(const DLTensor* dl);
/* The names of DLPack's capsules, of version 1 and before it. */
#define FC_CAPSULE "dltensor_versioned"
#define FC_CAPSULE_LEGACY "dltensor"
PyObject* fc_tensor_dlpack(PyObject* self, PyObject* args, PyObject* kwargs);
int fc_dlpack_init(void);

/* ---- numpy: imported when the first array or dtype is met ---- */

/* A Tensor object (its reference moves in) -> ndarray that shares the memory. */
PyObject* fc_numpy_wrap(TVMFFIObject* tensor);
/* An ndarray -> Tensor object that shares the memory and holds the array. */
TVMFFIObject* fc_numpy_import(PyObject* array);
bool fc_numpy_is_array(PyObject* object);
/* 0: read; 1: not a numpy dtype; -1: a dtype without counterpart, exception set. */
PyObject* fc_numpy_dtype(DLDataType dtype);
int fc_numpy_read_dtype(PyObject* object, DLDataType* out);

/* ---- dtypes and devices ---- */

PyObject* fc_dtype_new(DLDataType value);
PyObject* fc_device_new(DLDevice value);
PyObject* fc_shape_new_python(const int64_t* dims, Py_ssize_t n);
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
/* The lines of a backtrace as frames around those that the traceback of the current exception has already. */
FC_COLD void fc_traceback_add(TVMFFIByteArray lines);
/* The traceback of an exception as such lines: str, or NULL, without an exception, when there is none. */
FC_COLD PyObject* fc_traceback_lines(PyObject* exception);
/* An exception as an Error object, new reference. */
TVMFFIObject* fc_error_object(PyObject* exception);
/* The exception that is raised, as a new reference; nothing is raised any more. */
PyObject* fc_raised_as_value(void);

/* ---- modules and the registry ---- */

/* The Module around a module, whose reference moves in, on failure too: always the same one. */
PyObject* fc_module_wrap(TVMFFIObject* module);
int fc_set_opaque(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_module(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
/* What JSON says, by Python's own reader; the text, a str, moves in. */
PyObject* fc_read_json(PyObject* text);
/* Registers a callable as a global function; -1 with an exception. */
int fc_register_global(PyObject* name, PyObject* callable, bool override);

/* ---- the module ---- */

/* Of a PyMethodDef: a function of (self, args, kwargs). */
#define FC_WITH_KEYWORDS(f) (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

extern PyMethodDef fc_function_methods[]; /* of the class: see python/function_address.c */
PyObject* fc_function_submit(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* fc_function_call_async(PyObject* self, PyObject* args, PyObject* kwargs);
extern PyMethodDef fc_registry_functions[], fc_module_functions[], fc_error_functions[], fc_tensor_functions[],
    fc_stream_functions[], fc_timing_functions[], fc_file_functions[], fc_trace_functions[],
    fc_device_memory_functions[];
int fc_errors_init(void);
int fc_callbacks_init(void);
void fc_streams_init(void);
/* What python/rpc adds to the module, and the session hooks. 0, or -1 with an exception. */
int fc_sessions_init(PyObject* module);

#endif /* FARCALL_PYTHON_CORE_H_ */
