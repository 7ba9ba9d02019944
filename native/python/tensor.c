/* Tensor: the Python type of an owning tensor object. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/init.h"
#include "runtime/device_memory.h"

#include <structmember.h>

#include "python/session_hooks.h"

PyObject* fc_tensor_wrap(TVMFFIObject* object) {
  FcTensor* tensor = PyObject_New(FcTensor, &FcTensor_Type);
  if (!tensor) {
    fc_decref(object);
    return NULL;
  }
  tensor->object = object;
  tensor->weakrefs = NULL;
  tensor->borrowed = tensor->exported = 0;
  return (PyObject*)tensor;
}

static void tensor_dealloc(PyObject* self) {
  FcTensor* tensor = (FcTensor*)self;
  if (tensor->weakrefs) PyObject_ClearWeakRefs(self);
  if (tensor->object) fc_decref(tensor->object);
  PyObject_Free(self);
}

DLTensor* fc_tensor_view(PyObject* self) {
  TVMFFIObject* object = ((FcTensor*)self)->object;
  if (FC_LIKELY(object != NULL)) return fc_tensor_dl(object);
  PyErr_SetString(PyExc_RuntimeError,
                  "this Tensor was lent to a callback that has returned; copy what must live longer");
  return NULL;
}

TVMFFIObject* fc_tensor_copy(const DLTensor* from) {
  FcTensorObj* copy;
  Py_BEGIN_ALLOW_THREADS copy = fc_tensor_compact(from);
  Py_END_ALLOW_THREADS return copy ? &copy->header : (TVMFFIObject*)fc_raise_slot();
}

/* ---- tensors of a session ---- */

static PyObject* remote_hook;

/* A copy in this process: a Tensor, or a numpy array. */
static PyObject* fetch_remote(PyObject* tensor) {
  if (remote_hook) return PyObject_CallOneArg(remote_hook, tensor);
  char device[FC_NAME_MAX];
  fc_device_print(fc_tensor_view(tensor)->device, device);
  return PyErr_Format(PyExc_RuntimeError, "the tensor is on %s, and no session can fetch it", device);
}

PyObject* fc_remote_to_numpy(PyObject* tensor) {
  PyObject* fetched = fetch_remote(tensor);
  if (!fetched || !Py_IS_TYPE(fetched, &FcTensor_Type)) return fetched;
  PyObject* array = PyObject_CallMethod(fetched, "numpy", NULL);
  Py_DECREF(fetched);
  return array;
}

static PyObject* set_remote_tensor_hook(PyObject* module, PyObject* hook) {
  (void)module;
  if (hook != Py_None && !PyCallable_Check(hook)) {
    return PyErr_Format(PyExc_TypeError, "set_remote_tensor_hook: expected a callable or None, got %R", hook);
  }
  Py_XSETREF(remote_hook, hook == Py_None ? NULL : Py_NewRef(hook));
  Py_RETURN_NONE;
}

/* ---- attributes ---- */

static PyObject* tuple_of(const int64_t* values, int32_t n) {
  PyObject* out = PyTuple_New(n);
  for (int32_t i = 0; out && i < n; ++i) {
    PyObject* value = PyLong_FromLongLong(values[i]);
    if (!value) Py_CLEAR(out);
    if (out) PyTuple_SET_ITEM(out, i, value);
  }
  return out;
}

static PyObject* get_shape(PyObject* self, void* closure) {
  DLTensor* dl = fc_tensor_view(self);
  (void)closure;
  return dl ? fc_shape_new_python(dl->shape, dl->ndim) : NULL;
}

static PyObject* get_strides(PyObject* self, void* closure) {
  DLTensor* dl = fc_tensor_view(self);
  (void)closure;
  return dl ? tuple_of(dl->strides, dl->ndim) : NULL;
}

static PyObject* get_dtype(PyObject* self, void* closure) {
  DLTensor* dl = fc_tensor_view(self);
  (void)closure;
  return dl ? fc_dtype_new(dl->dtype) : NULL;
}

static PyObject* get_device(PyObject* self, void* closure) {
  DLTensor* dl = fc_tensor_view(self);
  (void)closure;
  return dl ? fc_device_new(dl->device) : NULL;
}

static PyObject* get_ndim(PyObject* self, void* closure) {
  DLTensor* dl = fc_tensor_view(self);
  (void)closure;
  return dl ? PyLong_FromLong(dl->ndim) : NULL;
}

static PyObject* numel(PyObject* self, PyObject* unused) {
  DLTensor* dl = fc_tensor_view(self);
  (void)unused;
  return dl ? PyLong_FromLongLong(fc_numel(dl)) : NULL;
}

static PyObject* size(PyObject* self, PyObject* axis) {
  DLTensor* dl = fc_tensor_view(self);
  Py_ssize_t wanted = dl ? PyNumber_AsSsize_t(axis, PyExc_IndexError) : -1;
  if (!dl || (wanted == -1 && PyErr_Occurred())) return NULL;
  Py_ssize_t d = wanted < 0 ? wanted + dl->ndim : wanted;
  if (d >= 0 && d < dl->ndim) return PyLong_FromLongLong(dl->shape[d]);
  return PyErr_Format(PyExc_IndexError, "dimension %zd is out of range: there are %d", wanted, (int)dl->ndim);
}

static PyObject* data_ptr(PyObject* self, PyObject* unused) {
  DLTensor* dl = fc_tensor_view(self);
  (void)unused;
  return dl ? PyLong_FromUnsignedLongLong((uint64_t)(uintptr_t)dl->data + dl->byte_offset) : NULL;
}

static PyObject* is_contiguous(PyObject* self, PyObject* unused) {
  DLTensor* dl = fc_tensor_view(self);
  (void)unused;
  return dl ? PyBool_FromLong(fc_is_contiguous(dl)) : NULL;
}

/* ---- conversion ---- */

static PyObject* to_numpy(PyObject* self, PyObject* unused) {
  DLTensor* dl = fc_tensor_view(self);
  FcTensor* tensor = (FcTensor*)self;
  (void)unused;
  if (!dl) return NULL;
  if (fc_device_is_remote(dl->device)) return fc_remote_to_numpy(self);
  if (dl->device.device_type != kDLCPU) {
    char device[FC_NAME_MAX];
    fc_device_print(dl->device, device);
    return PyErr_Format(PyExc_BufferError, "numpy cannot see memory on %s; copy the tensor with .to(\"cpu\") first",
                        device);
  }
  tensor->exported = 1;
  fc_incref(tensor->object);
  return fc_numpy_wrap(tensor->object);
}

static FC_COLD PyObject* no_way(DLDevice from, DLDevice to) {
  char here[FC_NAME_MAX], there[FC_NAME_MAX];
  fc_device_print(from, here);
  fc_device_print(to, there);
  return PyErr_Format(PyExc_BufferError,
                      "farcall cannot copy from %s to %s: it copies between the CPU, devices of "
                      "ffi.register_device_memory(...), and another machine's; let the tensor's framework move it, or "
                      "send it by session.tensor(...)",
                      here, there);
}

/* A copy between device memory and other memory; a tensor on the CPU may be strided. */
static FC_COLD TVMFFIObject* copy_to_device(const DLTensor* from, DLDevice to) {
  FcTensorObj *compact = NULL, *copied;
  Py_BEGIN_ALLOW_THREADS if (from->device.device_type == kDLCPU && !fc_is_contiguous(from)) compact =
      fc_tensor_compact(from);
  copied = fc_device_tensor_copy(compact ? &compact->dl : from, to);
  if (compact) fc_decref(&compact->header);
  Py_END_ALLOW_THREADS return copied ? &copied->header : (TVMFFIObject*)fc_raise_slot();
}

static PyObject* to_device(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"device", "copy", NULL};
  PyObject* device;
  int copy = 0;
  DLDevice to;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:to", names, &device, &copy)) return NULL;
  DLTensor* dl = fc_tensor_view(self);
  if (!dl || fc_device_from_python(device, &to) != 0) return NULL;
  bool same = dl->device.device_type == to.device_type && dl->device.device_id == to.device_id;
  if (same && !copy) return Py_NewRef(self);
  if (to.device_type == kDLCPU && fc_device_is_remote(dl->device)) {
    PyObject* fetched = fetch_remote(self);
    if (!fetched || Py_IS_TYPE(fetched, &FcTensor_Type)) return fetched;
    TVMFFIObject* imported = fc_tensor_import(fetched);
    Py_DECREF(fetched);
    return imported ? fc_tensor_wrap(imported) : NULL;
  }
  if (!fc_device_is_here(dl->device) || !fc_device_is_here(to)) return no_way(dl->device, to);
  TVMFFIObject* copied = same && to.device_type == kDLCPU ? fc_tensor_copy(dl) : copy_to_device(dl, to);
  return copied ? fc_tensor_wrap(copied) : NULL;
}

static PyObject* as_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"dtype", "copy", NULL};
  PyObject *dtype = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names, &dtype, &copy)) return NULL;
  PyObject* array = to_numpy(self, NULL);
  if (!array || (dtype == Py_None && copy != Py_True)) return array;
  PyObject* out =
      dtype == Py_None ? PyObject_CallMethod(array, "copy", NULL) : PyObject_CallMethod(array, "astype", "O", dtype);
  Py_DECREF(array);
  return out;
}

PyObject* fc_tensor_type_text(const DLTensor* dl) {
  char dtype[FC_NAME_MAX];
  fc_dtype_print(dl->dtype, dtype);
  PyObject* shape = tuple_of(dl->shape, dl->ndim);
  PyObject* dims = shape ? PySequence_List(shape) : NULL;
  PyObject* out = dims ? PyUnicode_FromFormat("%s%R", dtype, dims) : NULL;
  Py_XDECREF(shape);
  Py_XDECREF(dims);
  return out;
}

static PyObject* tensor_repr(PyObject* self) {
  FcTensor* tensor = (FcTensor*)self;
  if (!tensor->object) return PyUnicode_FromString("<farcall.Tensor, expired>");
  const DLTensor* dl = fc_tensor_dl(tensor->object);
  PyObject* type = fc_tensor_type_text(dl);
  PyObject* place = type ? fc_session_hooks.place_text(dl->device) : NULL;
  PyObject* out = place ? PyUnicode_FromFormat("<farcall.Tensor %U on %U>", type, place) : NULL;
  Py_XDECREF(type);
  Py_XDECREF(place);
  return out;
}

static PyObject* dlpack_device(PyObject* self, PyObject* unused) {
  DLTensor* dl = fc_tensor_view(self);
  (void)unused;
  if (!dl) return NULL;
  /* __dlpack__ of a remote tensor returns a copy in this process. */
  if (fc_device_is_remote(dl->device)) return Py_BuildValue("(ii)", kDLCPU, 0);
  return Py_BuildValue("(ii)", (int)dl->device.device_type, (int)dl->device.device_id);
}

static PyMethodDef methods[] = {
    {"numel", numel, METH_NOARGS, "numel($self, /)\n--\n\nThe number of elements."},
    {"size", size, METH_O, "size($self, axis, /)\n--\n\nThe dim of an axis; a negative axis counts from the end."},
    {"data_ptr", data_ptr, METH_NOARGS,
     "data_ptr($self, /)\n--\n\nThe address of the first element; for a remote tensor, the server's handle."},
    {"is_contiguous", is_contiguous, METH_NOARGS, "is_contiguous($self, /)\n--\n\nWhether the layout is row-major."},
    {"numpy", to_numpy, METH_NOARGS,
     "numpy($self, /)\n--\n\nThe tensor as a numpy array: the same memory on the CPU, a copy from another machine."},
    {"to", FC_WITH_KEYWORDS(to_device),
     "to($self, device, *, copy=False)\n--\n\n"
     "The tensor on a device: itself if it is already there and `copy` is False, else a copy."},
    {"__array__", FC_WITH_KEYWORDS(as_array), "__array__($self, dtype=None, copy=None)\n--\n\nFor numpy.asarray."},
    {"__dlpack__", FC_WITH_KEYWORDS(fc_tensor_dlpack),
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule that shares the memory (Python array API standard)."},
    FC_SAME_AS_METHOD,
    {"__dlpack_device__", dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nDLPack's device type and device id."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"shape", get_shape, NULL, "The dims, as a tuple.", NULL},
    {"strides", get_strides, NULL, "The distance between neighbours along each axis, in elements.", NULL},
    {"dtype", get_dtype, NULL, "The type of the elements.", NULL},
    {"device", get_device, NULL, "The device that holds the memory.", NULL},
    {"ndim", get_ndim, NULL, "The number of dims.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyBufferProcs buffer = {.bf_getbuffer = fc_tensor_get_buffer, .bf_releasebuffer = fc_tensor_release_buffer};

PyTypeObject FcTensor_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Tensor",
    .tp_doc = "An n-dimensional array that owns its memory. Made by empty(), from_dlpack() or a function's result.",
    .tp_basicsize = sizeof(FcTensor),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = tensor_dealloc,
    .tp_repr = tensor_repr,
    .tp_richcompare = fc_identity_compare,
    .tp_hash = fc_identity_hash,
    .tp_as_buffer = &buffer,
    .tp_methods = methods,
    .tp_getset = getset,
    .tp_weaklistoffset = offsetof(FcTensor, weakrefs),
};

/* ---- making ---- */

enum { MAX_DIMS = 64 }; /* numpy's limit, the highest of all frameworks */

static int read_shape(PyObject* shape, int64_t* dims) {
  PyObject* items = PyLong_Check(shape) ? PyTuple_Pack(1, shape) : PySequence_Tuple(shape);
  if (!items) return -1;
  Py_ssize_t n = PyTuple_GET_SIZE(items);
  if (n > MAX_DIMS) PyErr_Format(PyExc_ValueError, "empty: a shape has at most %d dims, got %zd", MAX_DIMS, n);
  for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); ++i) {
    PyObject* dim = PyNumber_Index(PyTuple_GET_ITEM(items, i));
    dims[i] = dim ? PyLong_AsLongLong(dim) : -1;
    Py_XDECREF(dim);
  }
  Py_DECREF(items);
  return PyErr_Occurred() ? -1 : (int)n;
}

static PyObject* empty(PyObject* module, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"shape", "dtype", "device", NULL};
  PyObject *shape, *dtype = NULL, *device = NULL;
  int64_t dims[MAX_DIMS];
  DLTensor prototype = {.device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}, .shape = dims};
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:empty", names, &shape, &dtype, &device)) return NULL;
  if (dtype && fc_dtype_from_python(dtype, &prototype.dtype) != 0) return NULL;
  if (device && fc_device_from_python(device, &prototype.device) != 0) return NULL;
  prototype.ndim = read_shape(shape, dims);
  if (prototype.ndim < 0) return NULL;
  /* On the CPU always farcall's memory, even in a callback of a call whose results belong to another framework. */
  TVMFFIObjectHandle tensor = NULL;
  if (prototype.device.device_type == kDLCPU) {
    tensor = fc_tensor_alloc(&prototype);
  } else if (fc_env_alloc(&prototype, &tensor) != 0) {
    tensor = NULL;
  }
  return tensor ? fc_tensor_wrap(tensor) : fc_raise_slot();
}

static PyObject* device_tensor(PyObject* module, PyObject* args) {
  PyObject *device, *shape, *dtype;
  unsigned long long address;
  int64_t dims[MAX_DIMS];
  DLTensor prototype = {.shape = dims};
  (void)module;
  if (!PyArg_ParseTuple(args, "OKOO:device_tensor", &device, &address, &shape, &dtype)) return NULL;
  if (fc_device_from_python(device, &prototype.device) != 0) return NULL;
  if (fc_dtype_from_python(dtype, &prototype.dtype) != 0) return NULL;
  prototype.ndim = read_shape(shape, dims);
  if (prototype.ndim < 0) return NULL;
  FcTensorObj* tensor = fc_device_tensor_at(&prototype, (void*)(uintptr_t)address);
  return tensor ? fc_tensor_wrap(&tensor->header) : fc_raise_slot();
}

static int check_layout(const DLTensor* dl, long long alignment, int contiguous) {
  uintptr_t address = (uintptr_t)dl->data + dl->byte_offset;
  if (alignment > 1 && address % (uintptr_t)alignment) {
    PyErr_Format(PyExc_BufferError, "from_dlpack: the memory is not aligned to %lld bytes; copy the tensor", alignment);
    return -1;
  }
  if (!contiguous || fc_is_contiguous(dl)) return 0;
  PyErr_SetString(PyExc_BufferError, "from_dlpack: the tensor is not row-major; pass a contiguous copy");
  return -1;
}

static FC_COLD PyObject* from_dlpack_checked(PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  static char* names[] = {"", "require_alignment", "require_contiguous", NULL};
  PyObject* positions = PyTuple_New(n);
  PyObject* keywords = PyDict_New();
  PyObject *object, *out = NULL;
  long long alignment = 0;
  int contiguous = 0;
  for (Py_ssize_t i = 0; positions && i < n; ++i) PyTuple_SET_ITEM(positions, i, Py_NewRef(objects[i]));
  for (Py_ssize_t i = 0; keywords && kwnames && i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), objects[n + i]) != 0) Py_CLEAR(keywords);
  }
  if (positions && keywords &&
      PyArg_ParseTupleAndKeywords(positions, keywords, "O|$Lp:from_dlpack", names, &object, &alignment, &contiguous)) {
    TVMFFIObject* tensor = fc_tensor_import(object);
    out = tensor ? fc_tensor_wrap(tensor) : NULL;
    if (out && check_layout(fc_tensor_view(out), alignment, contiguous) != 0) Py_CLEAR(out);
  }
  Py_XDECREF(positions);
  Py_XDECREF(keywords);
  return out;
}

static PyObject* from_dlpack(PyObject* module, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  (void)module;
  if (FC_UNLIKELY(n != 1 || kwnames)) return from_dlpack_checked(objects, n, kwnames);
  if (Py_IS_TYPE(objects[0], &FcTensor_Type)) return Py_NewRef(objects[0]);
  TVMFFIObject* tensor = fc_tensor_import(objects[0]);
  return tensor ? fc_tensor_wrap(tensor) : NULL;
}

static PyObject* convert(PyObject* module, PyObject* object) {
  TVMFFIAny value;
  (void)module;
  return fc_any_from_python(object, &value) == 0 ? fc_any_to_python(&value) : NULL;
}

PyMethodDef fc_tensor_functions[] = {
    {"empty", FC_WITH_KEYWORDS(empty),
     "empty(shape, dtype='float32', device='cpu')\n--\n\nMake a row-major Tensor with uninitialised elements."},
    {"device_tensor", device_tensor, METH_VARARGS,
     "device_tensor(device, address, shape, dtype, /)\n--\n\n"
     "A row-major Tensor at an address that the device's driver has allocated; takes over the allocation."},
    {"convert", convert, METH_O,
     "convert(x, /)\n--\n\n"
     "Convert a value as an argument would be: an array to a Tensor, a callable to a Function, and so on."},
    {"from_dlpack", (PyCFunction)(void (*)(void))from_dlpack, METH_FASTCALL | METH_KEYWORDS,
     "from_dlpack(x, /, *, require_alignment=0, require_contiguous=False)\n--\n\n"
     "A Tensor that shares the memory of `x`: an array of any framework, or a capsule."},
    {"set_remote_tensor_hook", set_remote_tensor_hook, METH_O,
     "set_remote_tensor_hook(hook, /)\n--\n\nhook(tensor) -> numpy.ndarray fetches a tensor from another machine."},
    {NULL, NULL, 0, NULL},
};
