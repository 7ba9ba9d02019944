/* Any -> Python: results, in the framework of the arguments, and the arguments of callbacks. */
#include "python/args.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/session_hooks.h"

/* ---- tensors ---- */

static PyObject* exchange_wrap(const DLPackExchangeAPI* api, TVMFFIObject* tensor) {
  DLManagedTensorVersioned* managed = fc_tensor_unwrap(tensor);
  if (!managed) {
    managed = fc_tensor_to_managed(tensor);
    fc_decref(tensor);
    if (!managed) return fc_raise_slot();
  }
  void* object = NULL;
  if (api->managed_tensor_to_py_object_no_sync(managed, &object) == 0 && object) return object;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the framework refused the result tensor");
  return NULL;
}

/* Some importers use DLPack before 1.0, which has no read-only flag: they get a copy of a read-only tensor. */
static TVMFFIObject* writable(TVMFFIObject* tensor) {
  const DLTensor* dl = fc_tensor_dl(tensor);
  if (!(fc_tensor_flags(tensor) & DLPACK_FLAG_BITMASK_READ_ONLY) || dl->device.device_type != kDLCPU) return tensor;
  TVMFFIObject* copy = fc_tensor_copy(dl);
  fc_decref(tensor);
  return copy;
}

static PyObject* import_wrapped(PyObject* importer, TVMFFIObject* tensor) {
  tensor = writable(tensor);
  if (!tensor) return NULL;
  PyObject* ours = fc_tensor_wrap(tensor);
  PyObject* theirs = ours ? PyObject_CallOneArg(importer, ours) : NULL;
  Py_XDECREF(ours);
  return theirs;
}

/* The argument that a lent tensor represents, borrowed; NULL if an outer call with another framework lent it. */
static PyObject* argument_of(const FcArgs* args, const TVMFFIObject* tensor) {
  PyObject* object = fc_lender(tensor);
  if (object && PyMemoryView_Check(object)) object = PyMemoryView_GET_BASE(object);
  if (!object) return NULL;
  FcSetter made;
  const FcSetter* setter = fc_setter_of(object, &made);
  if (!setter) PyErr_Clear();
  bool same = setter && setter->exchange == args->exchange && setter->importer == args->importer &&
              (args->seen != FC_SEEN_NUMPY || fc_numpy_is_array(object));
  return same ? object : NULL;
}

/*
 * The framework of results: if all tensors among the arguments, even inside lists, tuples and dicts, belong to one
 * framework, the results do too; with none, or several, they are farcall Tensors. If the function returns an argument,
 * the result is the object that was passed.
 */
static PyObject* framework_tensor(const FcArgs* args, TVMFFIObject* tensor) {
  DLDevice device = fc_tensor_dl(tensor)->device;
  bool one = args->seen == FC_SEEN_NUMPY || args->seen == FC_SEEN_EXCHANGE || args->seen == FC_SEEN_IMPORTER;
  PyObject* argument = one ? argument_of(args, tensor) : NULL;
  if (argument) {
    Py_INCREF(argument);
    fc_decref(tensor);
    return argument;
  }
  if (args->seen == FC_SEEN_NUMPY && device.device_type == kDLCPU) return fc_numpy_wrap(tensor);
  if (args->seen == FC_SEEN_EXCHANGE && !fc_device_is_remote(device) &&
      args->exchange->managed_tensor_to_py_object_no_sync) {
    return exchange_wrap(args->exchange, tensor);
  }
  if (args->seen == FC_SEEN_IMPORTER && !fc_device_is_remote(device)) return import_wrapped(args->importer, tensor);
  return fc_tensor_wrap(tensor);
}

/* ---- containers ---- */

static PyObject* any_to_python(const FcArgs* args, TVMFFIAny* any);

static PyObject* sequence_to_python(const FcArgs* args, TVMFFIObject* sequence) {
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(sequence);
  bool list = sequence->type_index == kTVMFFIList;
  PyObject* out = list ? PyList_New(cell->size) : PyTuple_New(cell->size);
  for (int64_t i = 0; out && i < cell->size; ++i) {
    TVMFFIAny item;
    fc_any_to_owned((TVMFFIAny*)cell->data + i, &item);
    PyObject* value = any_to_python(args, &item);
    if (!value) {
      Py_CLEAR(out);
    } else if (list) {
      PyList_SET_ITEM(out, i, value);
    } else {
      PyTuple_SET_ITEM(out, i, value);
    }
  }
  return out;
}

static PyObject* map_to_python(const FcArgs* args, TVMFFIObject* map) {
  PyObject* out = PyDict_New();
  FcMapCursor cursor = {.at = 0};
  while (out && fc_map_next(map, &cursor)) {
    TVMFFIAny native_key, native_value;
    fc_any_to_owned(cursor.key, &native_key);
    fc_any_to_owned(cursor.value, &native_value);
    PyObject* key = any_to_python(args, &native_key);
    PyObject* value = any_to_python(args, &native_value);
    if (!key || !value || PyDict_SetItem(out, key, value) != 0) Py_CLEAR(out);
    Py_XDECREF(key);
    Py_XDECREF(value);
  }
  return out;
}

static PyObject* container_to_python(const FcArgs* args, TVMFFIObject* container) {
  if (fc_enter_nested() != 0) return NULL;
  bool map = container->type_index == kTVMFFIMap || container->type_index == kTVMFFIDict;
  PyObject* out = map ? map_to_python(args, container) : sequence_to_python(args, container);
  fc_leave_nested();
  return out;
}

static PyObject* shape_to_python(TVMFFIObject* shape) {
  const TVMFFIShapeCell* cell = TVMFFIShapeGetCellPtr(shape);
  return fc_shape_new_python(cell->data, (Py_ssize_t)cell->size);
}

/* ---- the other objects ---- */

static PyObject* error_to_python(TVMFFIObject* error) {
  fc_incref(error);
  fc_raise_error(error);
  return fc_raised_as_value();
}

static PyObject* opaque_pointer(void* pointer) {
  PyObject* ctypes = PyImport_ImportModule("ctypes");
  PyObject* out = ctypes ? PyObject_CallMethod(ctypes, "c_void_p", "K", (unsigned long long)(uintptr_t)pointer) : NULL;
  Py_XDECREF(ctypes);
  return out;
}

/* 64-bit words in this machine's byte order, the lowest first, in two's complement. */
static PyObject* big_int(TVMFFIObject* object) {
  const TVMFFIAny any = fc_any_object(object);
  TVMFFIByteArray words = TVMFFIBigIntGetContentByteArray(&any);
  return _PyLong_FromByteArray((const unsigned char*)words.data, words.size, PY_LITTLE_ENDIAN, 1);
}

/* Takes ownership of the reference. */
static PyObject* object_to_python(const FcArgs* args, TVMFFIObject* object) {
  PyObject* out = NULL;
  TVMFFIByteArray bytes;
  switch (object->type_index) {
    case kTVMFFITensor: return framework_tensor(args, object);
    case kTVMFFIFunction: return fc_function_wrap(object, NULL);
    case kTVMFFIModule: return fc_module_wrap(object);
    case kTVMFFIStr:
      bytes = *TVMFFIBytesGetByteArrayPtr(object);
      out = PyUnicode_DecodeUTF8(bytes.data, (Py_ssize_t)bytes.size, NULL);
      break;
    case kTVMFFIBytes:
      bytes = *TVMFFIBytesGetByteArrayPtr(object);
      out = PyBytes_FromStringAndSize(bytes.data, (Py_ssize_t)bytes.size);
      break;
    case kTVMFFIArray:
    case kTVMFFIList:
    case kTVMFFIMap:
    case kTVMFFIDict: out = container_to_python(args, object); break;
    case kTVMFFIShape: out = shape_to_python(object); break;
    case kTVMFFIError: out = error_to_python(object); break;
    case kTVMFFIOpaquePyObject: out = Py_NewRef((PyObject*)TVMFFIOpaqueObjectGetCellPtr(object)->handle); break;
    case kTVMFFIBigInt: out = big_int(object); break;
    default: return fc_session_hooks.wrap_object(object);
  }
  fc_decref(object);
  return out;
}

static FC_COLD PyObject* not_a_value(const TVMFFIAny* any) {
  return PyErr_Format(PyExc_ValueError,
                      "a native function returned a `%s`, which is borrowed memory; it must return an owned value",
                      fc_type_name(any->type_index));
}

/* Takes ownership of the value. */
static PyObject* any_to_python(const FcArgs* args, TVMFFIAny* any) {
  switch (any->type_index) {
    case kTVMFFINone: Py_RETURN_NONE;
    case kTVMFFIInt: return PyLong_FromLongLong(any->v_int64);
    case kTVMFFIBool: return PyBool_FromLong(any->v_int64 != 0);
    case kTVMFFIFloat: return PyFloat_FromDouble(any->v_float64);
    case kTVMFFIOpaquePtr: return opaque_pointer(any->v_ptr);
    case kTVMFFIDataType: return fc_dtype_new(any->v_dtype);
    case kTVMFFIDevice: return fc_device_new(any->v_device);
    case kTVMFFISmallStr:
    case kTVMFFISmallBytes:
      if (any->small_str_len > 7) return not_a_value(any);
      return any->type_index == kTVMFFISmallStr
                 ? PyUnicode_DecodeUTF8(any->v_bytes, (Py_ssize_t)any->small_str_len, NULL)
                 : PyBytes_FromStringAndSize(any->v_bytes, (Py_ssize_t)any->small_str_len);
    default:
      if (!fc_any_is_object(any)) return not_a_value(any);
      if (!any->v_obj) Py_RETURN_NONE;
      return object_to_python(args, any->v_obj);
  }
}

PyObject* fc_any_to_python(TVMFFIAny* any) {
  static const FcArgs none; /* no tensor arguments: results are farcall Tensors */
  return any_to_python(&none, any);
}

PyObject* fc_args_result(const FcArgs* args, int rc, TVMFFIAny* result, PyObject* name) {
  if (FC_LIKELY(rc == 0)) return any_to_python(args, result);
  if (!PyErr_Occurred()) {
    TVMFFIObject* error = fc_error_take();
    if (error) return fc_raise_error(error);
    return PyErr_Format(PyExc_RuntimeError, "`%U` returned %d without setting an error", name, rc);
  }
  /* A Python error is set already (return code -2 of older kernels, an interrupt): it stays. */
  fc_error_drop();
  return NULL;
}

/* ---- borrowed views: the arguments of a callback ---- */

static PyObject* borrowed_tensor(DLTensor* dl) {
  FcTensorObj* tensor = fc_tensor_new(dl, NULL, NULL);
  if (!tensor) return fc_raise_slot();
  PyObject* object = fc_tensor_wrap(&tensor->header);
  if (object) ((FcTensor*)object)->borrowed = 1;
  return object;
}

PyObject* fc_view_to_python(const TVMFFIAny* view) {
  TVMFFIByteArray bytes;
  if (view->type_index == kTVMFFIDLTensorPtr) return borrowed_tensor(view->v_ptr);
  if (view->type_index == kTVMFFIRawStr)
    return PyUnicode_DecodeUTF8(view->v_c_str, (Py_ssize_t)strlen(view->v_c_str), NULL);
  if (view->type_index == kTVMFFIByteArrayPtr) {
    bytes = *(const TVMFFIByteArray*)view->v_ptr;
    return PyBytes_FromStringAndSize(bytes.data, (Py_ssize_t)bytes.size);
  }
  TVMFFIAny owned;
  if (fc_any_to_owned(view, &owned) != 0) return fc_raise_slot();
  return fc_any_to_python(&owned);
}

int fc_view_expire(PyObject* object) {
  FcTensor* tensor = Py_IS_TYPE(object, &FcTensor_Type) ? (FcTensor*)object : NULL;
  bool leaked = false;
  if (tensor && tensor->borrowed) {
    leaked = tensor->exported && !fc_is_unique(tensor->object);
    if (Py_REFCNT(object) > 1) {
      fc_decref(tensor->object);
      tensor->object = NULL;
    }
  }
  Py_DECREF(object);
  if (!leaked) return 0;
  if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_BufferError,
                    "a callback kept a view of a tensor that was lent for the call; keep a copy instead");
  }
  return -1;
}
