/* Values of native code as Python objects, and back. */
#ifndef FARCALL_PYTHON_CONVERT_H_
#define FARCALL_PYTHON_CONVERT_H_

#include "python/types.h"

/* ---- any value ---- */

/* One object -> a value of its own (owned Any). */
int fc_any_from_python(PyObject* object, TVMFFIAny* out);
/* An owned value -> new reference; the value is consumed, on failure too. Tensors become farcall Tensors. */
PyObject* fc_any_to_python(TVMFFIAny* any);
/* A borrowed view (the arguments of a callback) -> new reference. A DLTensorPtr becomes a Tensor that expires. */
PyObject* fc_view_to_python(const TVMFFIAny* view);
/* Ends the life of a Tensor that fc_view_to_python made, and drops the reference. -1 when a view of it lives on. */
int fc_view_expire(PyObject* object);

/*
 * Around each level of a nested list. Python's own limit counts its frames, not the bytes of ours.
 */
int fc_enter_nested(void);
static inline void fc_leave_nested(void) { --fc_thread.depth; }

/* ---- objects ---- */

/* An Object around a native object of an unknown type, whose reference moves in, on failure too. */
PyObject* fc_object_wrap(TVMFFIObject* object);
/* A Function around a Function object, whose reference moves in, on failure too. name may be NULL. */
PyObject* fc_function_wrap(TVMFFIObject* object, PyObject* name);
/* A Function object that calls a Python callable. New reference, or NULL with an exception. */
TVMFFIObject* fc_callback_new(PyObject* callable);
bool fc_is_callback(const TVMFFIObject* function);
/* The Module around a module, whose reference moves in, on failure too: always the same one. */
PyObject* fc_module_wrap(TVMFFIObject* module);
/* What JSON says, by Python's own reader; the text, a str, moves in. */
PyObject* fc_read_json(PyObject* text);

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

/* ---- DLPack ---- */

/* The names of DLPack's capsules, of version 1 and before it. */
#define FC_CAPSULE "dltensor_versioned"
#define FC_CAPSULE_LEGACY "dltensor"
PyObject* fc_tensor_dlpack(PyObject* self, PyObject* args, PyObject* kwargs);

/* ---- numpy: imported when the first array or dtype is met ---- */

/* A Tensor object (its reference moves in) -> ndarray that shares the memory. */
PyObject* fc_numpy_wrap(TVMFFIObject* tensor);
/* An ndarray -> Tensor object that shares the memory and holds the array. */
TVMFFIObject* fc_numpy_import(PyObject* array);
bool fc_numpy_is_array(PyObject* object);
/* 0: read; 1: not a numpy dtype; -1: a dtype without counterpart, exception set. */
PyObject* fc_numpy_dtype(DLDataType dtype);
int fc_numpy_read_dtype(PyObject* object, DLDataType* out);

/* ---- dtypes, devices and shapes ---- */

PyObject* fc_dtype_new(DLDataType value);
PyObject* fc_device_new(DLDevice value);
PyObject* fc_shape_new_python(const int64_t* dims, Py_ssize_t n);
/* dtype, str, numpy or torch dtype, numpy scalar class; TypeError or ValueError otherwise. */
int fc_dtype_from_python(PyObject* object, DLDataType* out);
/* Device, str, torch.device, (type, id). */
int fc_device_from_python(PyObject* object, DLDevice* out);
/* The text of an object of a type whose module and name are these, such as torch.dtype; NULL when it is another. */
bool fc_type_is(PyTypeObject* type, const char* module, const char* name);

#endif /* FARCALL_PYTHON_CONVERT_H_ */
