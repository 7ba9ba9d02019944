/* Values of packets to Python and back; see python/rpc/values.h. */
#include "python/convert.h"
#include "python/rpc/values.h"

/* ---- wire -> Python ---- */

static PyObject* tensor_to_py(const fc_wire_tensor* t) {
  PyObject* shape = PyTuple_New(t->ndim);
  for (int32_t i = 0; shape && i < t->ndim; ++i) {
    PyObject* dim = PyLong_FromLongLong(t->shape[i]);
    if (!dim) Py_CLEAR(shape);
    else PyTuple_SET_ITEM(shape, i, dim);
  }
  if (!shape) return NULL;
  return Py_BuildValue("(iKKNNN)", kTVMFFIDLTensorPtr, (unsigned long long)t->data, (unsigned long long)t->byte_offset,
                       fc_device_new(t->device), fc_dtype_new(t->dtype), shape);
}

static PyObject* value_to_py(const TVMFFIAny* v) {
  const TVMFFIByteArray* string = v->v_ptr;
  if (fc_wire_is_text(v->type_index)) {
    return PyUnicode_DecodeUTF8(string->data, (Py_ssize_t)string->size, "replace");
  }
  if (fc_wire_is_bytes(v->type_index)) return PyBytes_FromStringAndSize(string->data, (Py_ssize_t)string->size);
  switch (v->type_index) {
    case kTVMFFINone: Py_RETURN_NONE;
    case kTVMFFIInt: return PyLong_FromLongLong(v->v_int64);
    case kTVMFFIBool: return PyBool_FromLong(v->v_int64 != 0);
    case kTVMFFIFloat: return PyFloat_FromDouble(v->v_float64);
    case kTVMFFIDataType: return fc_dtype_new(v->v_dtype);
    case kTVMFFIDevice: return fc_device_new(v->v_device);
    case kTVMFFIDLTensorPtr: return tensor_to_py(v->v_ptr);
    default: return Py_BuildValue("(iK)", (int)v->type_index, (unsigned long long)v->v_uint64);
  }
}

PyObject* fc_wire_args_to_py(const fc_wire_packet* packet) {
  PyObject* values = PyTuple_New(packet->num_args);
  for (int32_t i = 0; values && i < packet->num_args; ++i) {
    PyObject* value = value_to_py(&packet->args[i]);
    if (!value) Py_CLEAR(values);
    else PyTuple_SET_ITEM(values, i, value);
  }
  return values;
}

/* ---- Python -> wire ---- */

typedef struct {
  union {
    TVMFFIByteArray string;
    fc_wire_tensor tensor;
  };
  int64_t shape[FC_WIRE_MAX_NDIM];
} PySlot;

int fc_read_shape(PyObject* dims, int64_t shape[FC_WIRE_MAX_NDIM], int32_t* ndim) {
  if (!PyTuple_Check(dims) || PyTuple_GET_SIZE(dims) > FC_WIRE_MAX_NDIM) {
    PyErr_Format(PyExc_ValueError, "a shape is a tuple of at most %d ints, got %R", FC_WIRE_MAX_NDIM, dims);
    return -1;
  }
  *ndim = (int32_t)PyTuple_GET_SIZE(dims);
  for (int32_t i = 0; i < *ndim; ++i) {
    shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(dims, i));
    if (shape[i] == -1 && PyErr_Occurred()) return -1;
    if (shape[i] < 0) {
      PyErr_Format(PyExc_ValueError, "dimension %d is negative in shape %R", (int)i, dims);
      return -1;
    }
  }
  return 0;
}

static int tensor_from_py(PyObject* tuple, PySlot* slot) {
  fc_wire_tensor* t = &slot->tensor;
  int tag;
  unsigned long long data, byte_offset;
  PyObject *device, *dtype, *dims;
  if (!PyArg_ParseTuple(tuple, "iKKOOO", &tag, &data, &byte_offset, &device, &dtype, &dims)) return -1;
  *t = (fc_wire_tensor){.data = data, .byte_offset = byte_offset, .shape = slot->shape};
  if (fc_device_from_python(device, &t->device) < 0 || fc_dtype_from_python(dtype, &t->dtype) < 0) return -1;
  return fc_read_shape(dims, slot->shape, &t->ndim);
}

/* A tuple that begins with a type index. */
static int tagged_from_py(PyObject* tuple, PySlot* slot, TVMFFIAny* out) {
  int tag = PyTuple_GET_SIZE(tuple) > 0 ? (int)PyLong_AsLong(PyTuple_GET_ITEM(tuple, 0)) : -1;
  unsigned long long handle;
  PyObject* bytes;
  if (tag == -1 && PyErr_Occurred()) return -1;
  out->type_index = tag;
  switch (tag) {
    case kTVMFFIOpaquePtr:
    case kTVMFFIFunction:
    case kTVMFFIModule:
    case FC_WIRE_OBJECT_REF:
      if (!PyArg_ParseTuple(tuple, "iK", &tag, &handle)) return -1;
      out->v_uint64 = handle;
      return 0;
    case kTVMFFIDLTensorPtr: out->v_ptr = &slot->tensor; return tensor_from_py(tuple, slot);
    case kTVMFFIByteArrayPtr:
      if (!PyArg_ParseTuple(tuple, "iS", &tag, &bytes)) return -1;
      slot->string = (TVMFFIByteArray){PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
      out->v_ptr = &slot->string;
      return 0;
    default: PyErr_Format(PyExc_TypeError, "%R is not a tagged wire value", tuple); return -1;
  }
}

static int text_from_py(PyObject* text, PySlot* slot, TVMFFIAny* out) {
  Py_ssize_t size;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (!data) return -1;
  slot->string = (TVMFFIByteArray){data, (size_t)size};
  out->type_index = kTVMFFIRawStr;
  out->v_ptr = &slot->string;
  return 0;
}

static int value_from_py(PyObject* value, PySlot* slot, TVMFFIAny* out) {
  *out = fc_any_none();
  if (value == Py_None) return 0;
  if (PyBool_Check(value)) {
    *out = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = value == Py_True};
    return 0;
  }
  if (PyLong_Check(value)) {
    *out = fc_any_int(PyLong_AsLongLong(value));
    return out->v_int64 == -1 && PyErr_Occurred() ? -1 : 0;
  }
  if (PyFloat_Check(value)) {
    *out = (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = PyFloat_AS_DOUBLE(value)};
    return 0;
  }
  if (PyUnicode_Check(value)) return text_from_py(value, slot, out);
  if (PyBytes_Check(value)) {
    slot->string = (TVMFFIByteArray){PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value)};
    out->type_index = slot->string.size <= 7 ? kTVMFFISmallBytes : kTVMFFIBytes;
    out->v_ptr = &slot->string;
    return 0;
  }
  if (PyObject_TypeCheck(value, &FcDType_Type)) {
    out->type_index = kTVMFFIDataType;
    out->v_dtype = ((FcDType*)value)->value;
    return 0;
  }
  if (PyObject_TypeCheck(value, &FcDevice_Type)) {
    out->type_index = kTVMFFIDevice;
    out->v_device = ((FcDevice*)value)->value;
    return 0;
  }
  if (PyTuple_Check(value)) return tagged_from_py(value, slot, out);
  PyErr_Format(PyExc_TypeError, "a value of type %s cannot travel", Py_TYPE(value)->tp_name);
  return -1;
}

int fc_wire_args_from_py(PyObject* values, FcWireArgs* out) {
  Py_ssize_t n = PyTuple_GET_SIZE(values);
  out->n = (int32_t)n;
  out->any = PyMem_Malloc((size_t)(n ? n : 1) * (sizeof(TVMFFIAny) + sizeof(PySlot)));
  if (!out->any) {
    PyErr_NoMemory();
    return -1;
  }
  PySlot* slots = (PySlot*)(out->any + n);
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (value_from_py(PyTuple_GET_ITEM(values, i), &slots[i], &out->any[i]) < 0) {
      PyMem_Free(out->any);
      return -1;
    }
  }
  return 0;
}
