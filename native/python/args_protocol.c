/*
 * Objects whose class has a method that converts them for a call: methods of TVM FFI, CUDA's Python packages and
 * DLPack. The method is looked up once for each class, and called for each argument.
 */
#include "python/args.h"
#include "python/convert.h"

#define SETTER(name) static int name(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out)
#define UNUSED (void)args, (void)setter, (void)i

/* Passes the method's result instead of the object. Takes ownership of `value`, and keeps it until the call ends. */
static int set_instead(FcArgs* args, int32_t i, PyObject* value, TVMFFIAny* out) {
  FcSetter made;
  if (!value) return -1;
  bool owned = fc_owned_mode(args);
  if (!owned && fc_args_keep(args, fc_release_python, value) != 0) return -1;
  int rc = fc_enter_nested();
  if (rc == 0) {
    const FcSetter* setter = fc_setter_of(value, &made);
    rc = setter ? setter->set(args, setter, i, value, out) : -1;
    fc_leave_nested();
  }
  if (owned) Py_DECREF(value);
  return rc;
}

static PyObject* ask(PyObject* object, const char* method) { return PyObject_CallMethod(object, method, NULL); }

SETTER(set_object) {
  (void)setter;
  return set_instead(args, i, ask(object, "__tvm_ffi_object__"), out);
}

SETTER(set_value) {
  (void)setter;
  return set_instead(args, i, ask(object, "__tvm_ffi_value__"), out);
}

static int put_pointer(PyObject* address, TVMFFIAny* out) {
  out->type_index = kTVMFFIOpaquePtr;
  out->v_ptr = address ? PyLong_AsVoidPtr(address) : NULL;
  Py_XDECREF(address);
  return PyErr_Occurred() ? -1 : 0;
}

SETTER(set_pointer) {
  UNUSED;
  return put_pointer(ask(object, "__tvm_ffi_opaque_ptr__"), out);
}

/* (version, handle) */
SETTER(set_stream) {
  UNUSED;
  PyObject* pair = ask(object, "__cuda_stream__");
  PyObject* handle = pair ? PySequence_GetItem(pair, 1) : NULL;
  Py_XDECREF(pair);
  return put_pointer(handle, out);
}

/* torch's streams; older versions have only this attribute. */
SETTER(set_stream_attribute) {
  UNUSED;
  return put_pointer(PyObject_GetAttrString(object, "cuda_stream"), out);
}

static int read_tuple(PyObject* tuple, const char* format, const char* method, int* a, int* b, int* c) {
  int rc = -1;
  if (tuple && !PyTuple_Check(tuple)) {
    PyErr_Format(PyExc_TypeError, "%s() must return a tuple of ints, got `%s`", method, Py_TYPE(tuple)->tp_name);
  } else if (tuple) {
    rc = PyArg_ParseTuple(tuple, format, a, b, c) ? 0 : -1;
  }
  Py_XDECREF(tuple);
  return rc;
}

SETTER(set_data_type) {
  UNUSED;
  int code, bits, lanes;
  PyObject* tuple = ask(object, "__dlpack_data_type__");
  if (read_tuple(tuple, "iii", "__dlpack_data_type__", &code, &bits, &lanes) != 0) return -1;
  out->type_index = kTVMFFIDataType;
  out->v_dtype = (DLDataType){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
  return 0;
}

SETTER(set_device) {
  UNUSED;
  int type, id;
  PyObject* tuple = ask(object, "__dlpack_device__");
  if (read_tuple(tuple, "ii", "__dlpack_device__", &type, &id, NULL) != 0) return -1;
  out->type_index = kTVMFFIDevice;
  out->v_device = (DLDevice){(DLDeviceType)type, id};
  return 0;
}

/* Accepts only Python's own numbers: another object with the same method could recurse for ever. */
static int set_number(FcArgs* args, int32_t i, PyObject* number, bool good, const char* method, TVMFFIAny* out) {
  if (number && !good) {
    PyErr_Format(PyExc_TypeError, "%s() returned a `%s`", method, Py_TYPE(number)->tp_name);
    Py_DECREF(number);
    return -1;
  }
  return set_instead(args, i, number, out);
}

SETTER(set_int) {
  (void)setter;
  PyObject* number = ask(object, "__tvm_ffi_int__");
  return set_number(args, i, number, number && PyLong_Check(number), "__tvm_ffi_int__", out);
}

SETTER(set_float) {
  (void)setter;
  PyObject* number = ask(object, "__tvm_ffi_float__");
  bool good = number && (PyFloat_Check(number) || PyLong_Check(number));
  if (good) Py_SETREF(number, PyNumber_Float(number));
  return set_number(args, i, number, good, "__tvm_ffi_float__", out);
}

typedef struct {
  const char* method;
  FcSetFunction set;
} Protocol;

static int choose(const Protocol* protocols, size_t n, PyTypeObject* type, FcSetter* out) {
  for (size_t k = 0; k < n; ++k) {
    if (!PyObject_HasAttrString((PyObject*)type, protocols[k].method)) continue;
    out->set = protocols[k].set;
    return 1;
  }
  return 0;
}

/* Tried before all other setters. */
int fc_choose_object_protocol(PyTypeObject* type, PyObject* object, FcSetter* out) {
  static const Protocol protocols[] = {{"__tvm_ffi_object__", set_object}};
  (void)object;
  return choose(protocols, 1, type, out);
}

/* Tried for classes that are neither tensors nor Python's values. The order is that of TVM FFI. */
int fc_choose_protocol(PyTypeObject* type, PyObject* object, FcSetter* out) {
  static const Protocol protocols[] = {
      {"__cuda_stream__", set_stream},         {"cuda_stream", set_stream_attribute},
      {"__tvm_ffi_opaque_ptr__", set_pointer}, {"__dlpack_data_type__", set_data_type},
      {"__dlpack_device__", set_device},       {"__tvm_ffi_int__", set_int},
      {"__tvm_ffi_float__", set_float},        {"__tvm_ffi_value__", set_value},
  };
  (void)object;
  return choose(protocols, sizeof protocols / sizeof *protocols, type, out);
}
