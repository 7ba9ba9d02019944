/* Values of native code as Python objects, and back. */
#ifndef FARCALL_PYTHON_CONVERT_H_
#define FARCALL_PYTHON_CONVERT_H_

#include "python/types.h"

/* ---- any value ---- */

/* A Python object -> an owned value. */
int fc_any_from_python(PyObject* object, TVMFFIAny* out);
/* A value -> new reference. Takes ownership of the value, even on failure. Tensors become farcall Tensors. */
PyObject* fc_any_to_python(TVMFFIAny* any);
/* A borrowed view (the arguments of a callback) -> new reference. A DLTensorPtr becomes a Tensor that expires. */
PyObject* fc_view_to_python(const TVMFFIAny* view);
/* Expires a Tensor that fc_view_to_python made, and drops the reference. -1 if a view of it is still in use. */
int fc_view_expire(PyObject* object);

/* Enters and leaves one level of a nested list. Python's recursion limit counts Python frames, not bytes of C stack. */
int fc_enter_nested(void);
static inline void fc_leave_nested(void) { --fc_thread.depth; }

/* ---- objects ---- */

/* An Object for a native object of an unknown type. Takes ownership of the reference, even on failure. */
PyObject* fc_object_wrap(TVMFFIObject* object);
/* A Function for a Function object. Takes ownership of the reference, even on failure. name may be NULL. */
PyObject* fc_function_wrap(TVMFFIObject* object, PyObject* name);
/* A Function object that calls a Python callable. New reference, or NULL with an exception. */
TVMFFIObject* fc_callback_new(PyObject* callable);
bool fc_is_callback(const TVMFFIObject* function);
/* The Module of a module object, always the same one. Takes ownership of the reference, even on failure. */
PyObject* fc_module_wrap(TVMFFIObject* module);
/* Parses JSON by Python's json module. Takes ownership of the text, a str. */
PyObject* fc_read_json(PyObject* text);

/* ---- tensors ---- */

/* A Tensor for a Tensor object. Takes ownership of the reference, even on failure. */
PyObject* fc_tensor_wrap(TVMFFIObject* object);
/* The DLTensor of a Tensor; NULL with an exception if it has expired. */
DLTensor* fc_tensor_view(PyObject* tensor);
/* A row-major copy on the CPU of a CPU tensor. New reference, or NULL with an exception. */
TVMFFIObject* fc_tensor_copy(const DLTensor* from);
/* Anything with __dlpack__ (or a capsule) -> Tensor object, new reference. */
TVMFFIObject* fc_tensor_import(PyObject* object);
/* Fetches a tensor of a session, for numpy() and __dlpack__: hook(tensor) -> numpy.ndarray. */
PyObject* fc_remote_to_numpy(PyObject* tensor);
/* memoryview(tensor): python/tensor_buffer.c. */
int fc_tensor_get_buffer(PyObject* self, Py_buffer* view, int flags);
void fc_tensor_release_buffer(PyObject* self, Py_buffer* view);
/* "float32[2, 3]" */
PyObject* fc_tensor_type_text(const DLTensor* dl);

/* ---- DLPack ---- */

/* The names of DLPack's capsules: since version 1, and before. */
#define FC_CAPSULE "dltensor_versioned"
#define FC_CAPSULE_LEGACY "dltensor"
PyObject* fc_tensor_dlpack(PyObject* self, PyObject* args, PyObject* kwargs);

/* ---- numpy: imported with the first array or dtype ---- */

/* A Tensor object -> ndarray that shares the memory. Takes ownership of the reference. */
PyObject* fc_numpy_wrap(TVMFFIObject* tensor);
/* An ndarray -> Tensor object that shares the memory and holds the array. */
TVMFFIObject* fc_numpy_import(PyObject* array);
bool fc_numpy_is_array(PyObject* object);
/* The second returns 0: read; 1: not a numpy dtype; -1: a dtype without counterpart, exception set. */
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
/* Whether a type has this module and name, such as torch.dtype. */
bool fc_type_is(PyTypeObject* type, const char* module, const char* name);

#endif /* FARCALL_PYTHON_CONVERT_H_ */
