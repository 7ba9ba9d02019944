/* Setters for every argument that is not a tensor: numbers, text, bytes, dtypes, devices, functions. */
#include <stdlib.h>

#include "python/args.h"
#include "python/convert.h"
#include "python/errors.h"

#define SETTER(name)                                                                                    \
  static int name(__attribute__((unused)) FcArgs* args, __attribute__((unused)) const FcSetter* setter, \
                  __attribute__((unused)) int32_t i, PyObject* object, TVMFFIAny* out)

SETTER(set_none) {
  (void)object, (void)out;
  return 0;
}

SETTER(set_bool) {
  out->type_index = kTVMFFIBool;
  out->v_int64 = object == Py_True;
  return 0;
}

static int put_int(PyObject* object, TVMFFIAny* out) {
  int overflow;
  out->type_index = kTVMFFIInt;
  out->v_int64 = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (FC_UNLIKELY(overflow)) {
    PyErr_Format(PyExc_OverflowError, "the int needs more than 64 bits; it must be between -2**63 and 2**63 - 1");
    return -1;
  }
  return 0;
}

SETTER(set_int) { return put_int(object, out); }

/* Also numpy's integers, and anything else with __index__. */
SETTER(set_index) {
  PyObject* number = PyNumber_Index(object);
  if (!number) return -1;
  int rc = put_int(number, out);
  Py_DECREF(number);
  return rc;
}

SETTER(set_float) {
  out->type_index = kTVMFFIFloat;
  out->v_float64 = PyFloat_AS_DOUBLE(object);
  return 0;
}

SETTER(set_float_like) {
  out->type_index = kTVMFFIFloat;
  out->v_float64 = PyFloat_AsDouble(object);
  return out->v_float64 == -1.0 && PyErr_Occurred() ? -1 : 0;
}

SETTER(set_numpy_bool) {
  int truth = PyObject_IsTrue(object);
  out->type_index = kTVMFFIBool;
  out->v_int64 = truth > 0;
  return truth < 0 ? -1 : 0;
}

/* ---- text and bytes ---- */

static int give_bytes(FcArgs* args, int32_t type_index, const char* data, Py_ssize_t size, TVMFFIAny* out) {
  if (fc_any_from_bytes(type_index, data, (size_t)size, out) != 0) {
    fc_raise_slot();
    return -1;
  }
  if (!fc_any_is_object(out) || fc_owned_mode(args)) return 0;
  return fc_args_keep(args, fc_release_object, out->v_obj);
}

SETTER(set_str) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (!text) return -1;
  /* The str owns its UTF-8 form. A C string would end at a NUL in the text, so such texts become objects. */
  if (FC_UNLIKELY(fc_owned_mode(args)) || memchr(text, 0, (size_t)size)) {
    return give_bytes(args, kTVMFFIStr, text, size, out);
  }
  out->type_index = kTVMFFIRawStr;
  out->v_c_str = text;
  return 0;
}

SETTER(set_bytes) {
  char* data = PyBytes_AS_STRING(object);
  Py_ssize_t size = PyBytes_GET_SIZE(object);
  if (fc_owned_mode(args)) return give_bytes(args, kTVMFFIBytes, data, size, out);
  args->slots[i].bytes = (TVMFFIByteArray){data, (size_t)size};
  out->type_index = kTVMFFIByteArrayPtr;
  out->v_ptr = &args->slots[i].bytes;
  return 0;
}

static void release_buffer(void* what) {
  PyBuffer_Release(what);
  free(what);
}

/* bytearray and memoryview: the call exports the buffer, which prevents a resize while the GIL is released. */
SETTER(set_buffer) {
  Py_buffer* buffer = malloc(sizeof *buffer);
  if (!buffer) {
    PyErr_NoMemory();
    return -1;
  }
  if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) != 0) {
    free(buffer);
    return -1;
  }
  if (fc_owned_mode(args)) {
    int rc = give_bytes(args, kTVMFFIBytes, buffer->buf, buffer->len, out);
    release_buffer(buffer);
    return rc;
  }
  args->slots[i].bytes = (TVMFFIByteArray){buffer->buf, (size_t)buffer->len};
  out->type_index = kTVMFFIByteArrayPtr;
  out->v_ptr = &args->slots[i].bytes;
  return fc_args_keep(args, release_buffer, buffer);
}

/* ---- our own types ---- */

SETTER(set_dtype) {
  out->type_index = kTVMFFIDataType;
  return fc_dtype_from_python(object, &out->v_dtype);
}

SETTER(set_device) {
  out->type_index = kTVMFFIDevice;
  return fc_device_from_python(object, &out->v_device);
}

SETTER(set_function) {
  TVMFFIObject* function = ((FcFunction*)object)->object;
  if (FC_UNLIKELY(!function)) {
    PyErr_SetString(PyExc_ValueError, "the Function was already freed by the garbage collector");
    return -1;
  }
  *out = fc_any_object(function);
  if (fc_owned_mode(args)) fc_incref(out->v_obj);
  return 0;
}

/* The caller's argument keeps the Tensor object alive during the call. */
SETTER(set_tensor) {
  TVMFFIObject* tensor = ((FcTensor*)object)->object;
  if (FC_UNLIKELY(!tensor)) return fc_tensor_view(object) ? 0 : -1;
  if (fc_check_writes(args, i, fc_tensor_flags(tensor) & DLPACK_FLAG_BITMASK_READ_ONLY) != 0) return -1;
  out->type_index = kTVMFFITensor;
  out->v_obj = tensor;
  args->seen |= fc_device_is_remote(fc_tensor_dl(tensor)->device) ? FC_SEEN_OTHER | FC_SEEN_REMOTE : FC_SEEN_OTHER;
  if (fc_owned_mode(args)) fc_incref(tensor);
  return 0;
}

SETTER(set_callable) {
  TVMFFIObject* function = fc_callback_new(object);
  return function ? fc_give_object(args, function, out) : -1;
}

SETTER(set_exception) {
  TVMFFIObject* error = fc_error_object(object);
  return error ? fc_give_object(args, error, out) : -1;
}

SETTER(set_void_p) {
  PyObject* value = PyObject_GetAttrString(object, "value");
  if (!value) return -1;
  out->type_index = kTVMFFIOpaquePtr;
  out->v_ptr = value == Py_None ? NULL : PyLong_AsVoidPtr(value);
  Py_DECREF(value);
  return PyErr_Occurred() ? -1 : 0;
}

/* ---- choosing ---- */

static FcSetFunction value_setter(PyTypeObject* type) {
  if (type == Py_TYPE(Py_None)) return set_none;
  if (type == &PyBool_Type) return set_bool;
  if (type == &FcTensor_Type) return set_tensor;
  if (type == &FcFunction_Type) return set_function;
  if (type == &FcDType_Type) return set_dtype;
  if (type == &FcDevice_Type) return set_device;
  if (type == &FcShape_Type) return fc_set_shape;
  if (type == &FcModule_Type) return fc_set_module;
  if (type == &FcOpaque_Type) return fc_set_opaque;
  if (type == &FcObject_Type) return fc_set_object;
  if (type == &PyByteArray_Type || type == &PyMemoryView_Type) return set_buffer;
  if (PyType_IsSubtype(type, &PyLong_Type)) return set_int;
  if (PyType_IsSubtype(type, &PyFloat_Type)) return set_float;
  if (PyType_IsSubtype(type, &PyUnicode_Type)) return set_str;
  if (PyType_IsSubtype(type, &PyBytes_Type)) return set_bytes;
  return NULL;
}

int fc_choose_value(PyTypeObject* type, PyObject* object, FcSetter* out) {
  (void)object;
  out->set = value_setter(type);
  return out->set != NULL;
}

static bool is_numpy_complex(PyTypeObject* type) {
  return fc_type_is(type, "numpy", "complex64") || fc_type_is(type, "numpy", "complex128") ||
         fc_type_is(type, "numpy", "clongdouble");
}

/* The ABI has no type for complex numbers: they are passed as tensors without dims. */
static int give_complex(FcArgs* args, uint8_t bits, Py_complex value, TVMFFIAny* out) {
  DLTensor prototype = {.device = {kDLCPU, 0}, .dtype = {kDLComplex, bits, 1}};
  FcTensorObj* tensor = fc_tensor_alloc(&prototype);
  if (!tensor) {
    fc_raise_slot();
    return -1;
  }
  double* doubles = tensor->dl.data;
  float* floats = tensor->dl.data;
  if (bits == 128) {
    doubles[0] = value.real;
    doubles[1] = value.imag;
  } else {
    floats[0] = (float)value.real;
    floats[1] = (float)value.imag;
  }
  return fc_give_object(args, &tensor->header, out);
}

SETTER(set_complex) {
  Py_complex value = PyComplex_AsCComplex(object);
  if (value.real == -1.0 && PyErr_Occurred()) return -1;
  return give_complex(args, fc_type_is(Py_TYPE(object), "numpy", "complex64") ? 64 : 128, value, out);
}

/* Chooses by what an object can do; classes are left to set_class. */
static FcSetFunction other_setter(PyTypeObject* type, PyObject* object) {
  DLDataType dtype;
  if (PyType_IsSubtype(type, &PyTuple_Type) || PyType_IsSubtype(type, &PyList_Type)) return fc_set_sequence;
  if (PyType_IsSubtype(type, &PyDict_Type)) return fc_set_dict;
  if (fc_type_is(type, "torch", "dtype")) return set_dtype;
  if (fc_type_is(type, "torch", "device")) return set_device;
  if (fc_type_is(type, "ctypes", "c_void_p")) return set_void_p;
  if (fc_type_is(type, "numpy", "bool") || fc_type_is(type, "numpy", "bool_")) return set_numpy_bool;
  if (PyExceptionInstance_Check(object)) return set_exception;
  if (PyType_Check(object)) return NULL;
  int rc = fc_numpy_read_dtype(object, &dtype);
  PyErr_Clear();
  if (rc <= 0) return set_dtype;
  if (is_numpy_complex(type) || PyComplex_Check(object)) return set_complex;
  if (PyIndex_Check(object)) return set_index;
  if (type->tp_as_number && type->tp_as_number->nb_float) return set_float_like;
  return PyCallable_Check(object) ? set_callable : NULL;
}

/* jax.numpy.float32 is a class that numpy does not know; its attribute `dtype` is numpy's. */
static int read_class_dtype(PyObject* object, DLDataType* out) {
  PyObject* attribute = PyObject_GetAttrString(object, "dtype");
  PyErr_Clear();
  int rc = attribute && !PyType_Check(attribute) ? fc_numpy_read_dtype(attribute, out) : 1;
  Py_XDECREF(attribute);
  return rc;
}

/* A class such as numpy.float32 names a dtype; any other class is passed as a callable. */
SETTER(set_class) {
  DLDataType dtype;
  int rc = fc_numpy_read_dtype(object, &dtype);
  if (rc > 0) rc = read_class_dtype(object, &dtype);
  if (rc < 0) return -1;
  if (rc > 0) return set_callable(args, setter, i, object, out);
  out->type_index = kTVMFFIDataType;
  out->v_dtype = dtype;
  return 0;
}

int fc_choose_other(PyTypeObject* type, PyObject* object, FcSetter* out) {
  out->set = PyType_Check(object) ? set_class : other_setter(type, object);
  return out->set != NULL;
}
