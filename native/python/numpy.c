/* numpy arrays, read and made through numpy's C structs. numpy is imported only when its first object appears. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include "python/args.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/gil.h"

#include <numpy/arrayobject.h>

/* ---- dtypes ---- */

#define LONG_BITS ((uint8_t)(8 * sizeof(long)))
static const DLDataType from_number[NPY_HALF + 1] = {
    [NPY_BOOL] = {kDLBool, 8, 1},     [NPY_BYTE] = {kDLInt, 8, 1},         [NPY_UBYTE] = {kDLUInt, 8, 1},
    [NPY_SHORT] = {kDLInt, 16, 1},    [NPY_USHORT] = {kDLUInt, 16, 1},     [NPY_INT] = {kDLInt, 32, 1},
    [NPY_UINT] = {kDLUInt, 32, 1},    [NPY_LONG] = {kDLInt, LONG_BITS, 1}, [NPY_ULONG] = {kDLUInt, LONG_BITS, 1},
    [NPY_LONGLONG] = {kDLInt, 64, 1}, [NPY_ULONGLONG] = {kDLUInt, 64, 1},  [NPY_FLOAT] = {kDLFloat, 32, 1},
    [NPY_DOUBLE] = {kDLFloat, 64, 1}, [NPY_CFLOAT] = {kDLComplex, 64, 1},  [NPY_CDOUBLE] = {kDLComplex, 128, 1},
    [NPY_HALF] = {kDLFloat, 16, 1},
};

static int number_of(DLDataType dtype) {
  for (int i = 0; i <= NPY_HALF; ++i) {
    if (from_number[i].bits && fc_dtype_equal(from_number[i], dtype)) return i;
  }
  return -1;
}

/* The cure for an array whose dtype native code does not have. */
static FC_COLD const char* cure_for(PyArray_Descr* descr) {
  switch (descr->type_num) {
    case NPY_OBJECT: return "; convert it to a dtype of numbers by .astype(...)";
    case NPY_DATETIME:
    case NPY_TIMEDELTA: return "; pass its ticks by .view(\"int64\")";
    case NPY_UNICODE:
    case NPY_STRING:
    case NPY_VSTRING: return "; pass str or bytes, or a list of them";
    case NPY_LONGDOUBLE: return "; convert it by .astype(\"float64\")";
    case NPY_CLONGDOUBLE: return "; convert it by .astype(\"complex128\")";
    case NPY_VOID:
      return PyDataType_HASFIELDS(descr) ? "; pass its fields one by one, as x[\"name\"]"
                                         : "; pass its bytes by .view(\"uint8\")";
    default: return PyArray_ISNBO(descr->byteorder) ? "" : "; convert it to native byte order by .astype(...)";
  }
}

static FC_COLD int no_counterpart(PyArray_Descr* descr) {
  PyErr_Format(PyExc_TypeError, "numpy dtype %R has no counterpart in native code%s", (PyObject*)descr,
               cure_for(descr));
  return -1;
}

/* Types of other packages (ml_dtypes) are recognised by the name of their scalar class. */
static FC_COLD int read_extension(PyArray_Descr* descr, DLDataType* out) {
  const char* name = descr->typeobj->tp_name;
  const char* dot = strrchr(name, '.');
  if (dot) name = dot + 1;
  bool known = descr->type_num >= NPY_USERDEF && fc_dtype_parse(name, strlen(name), out);
  return known && (npy_intp)out->bits * out->lanes == 8 * PyDataType_ELSIZE(descr) ? 0 : no_counterpart(descr);
}

static bool read_packed(PyArray_Descr* descr, DLDataType* out) {
  const char* name = descr->typeobj->tp_name;
  const char* dot = strrchr(name, '.');
  if (dot) name = dot + 1;
  return descr->type_num >= NPY_USERDEF && PyDataType_ELSIZE(descr) == 1 && fc_dtype_parse(name, strlen(name), out) &&
         out->bits < 8 && out->lanes == 1;
}

static inline int read_descr(PyArray_Descr* descr, DLDataType* out) {
  int number = descr->type_num;
  if (FC_LIKELY(number >= 0 && number <= NPY_HALF && from_number[number].bits && PyArray_ISNBO(descr->byteorder))) {
    *out = from_number[number];
    return 0;
  }
  return read_extension(descr, out);
}

/* ---- importing numpy ---- */

static bool imported;

static FC_COLD int import_numpy(void) {
  PyObject* extras = imported ? NULL : PyImport_ImportModule("farcall._extras");
  PyObject* numpy = extras ? PyObject_CallMethod(extras, "import_numpy", "s", "tensor.numpy()") : NULL;
  if (!imported && numpy) imported = PyArray_ImportNumPyAPI() >= 0;
  Py_XDECREF(numpy);
  Py_XDECREF(extras);
  return imported ? 0 : -1;
}

/* No object is numpy's unless numpy is in sys.modules. */
static bool is_loaded(void) {
  if (imported) return true;
  PyObject* modules = PyImport_GetModuleDict();
  return PyDict_GetItemString(modules, "numpy") && import_numpy() == 0;
}

bool fc_numpy_is_array(PyObject* object) { return is_loaded() && PyArray_Check(object); }

int fc_numpy_read_dtype(PyObject* object, DLDataType* out) {
  if (!is_loaded()) return PyErr_Occurred() ? -1 : 1;
  if (PyArray_DescrCheck(object)) {
    return read_packed((PyArray_Descr*)object, out) ? 0 : read_descr((PyArray_Descr*)object, out);
  }
  if (!PyType_Check(object) || !PyType_IsSubtype((PyTypeObject*)object, &PyGenericArrType_Type)) return 1;
  PyArray_Descr* descr = NULL;
  if (PyArray_DescrConverter(object, &descr) != NPY_SUCCEED) return -1;
  int rc = read_packed(descr, out) ? 0 : read_descr(descr, out);
  Py_DECREF(descr);
  return rc;
}

/* ---- import of arrays ---- */

static FC_COLD int odd_stride(int axis, npy_intp stride, int itemsize) {
  PyErr_Format(PyExc_ValueError,
               "the array's stride of %zd bytes along axis %d is not a multiple of its %d-byte elements; pass "
               "numpy.ascontiguousarray(...)",
               (Py_ssize_t)stride, axis, itemsize);
  return -1;
}

/* numpy's strides count bytes, DLPack's elements. All supported dtypes have a power of two as size. */
static inline int read_strides(PyArrayObject* array, int bytes, int64_t* strides) {
  int shift = __builtin_ctz((unsigned)bytes);
  const npy_intp* from = PyArray_STRIDES(array);
  const npy_intp* shape = PyArray_DIMS(array);
  for (int i = 0; i < PyArray_NDIM(array); ++i) {
    if (FC_UNLIKELY(from[i] & (bytes - 1)) && shape[i] > 1) return odd_stride(i, from[i], bytes);
    strides[i] = from[i] >> shift;
  }
  return 0;
}

static inline int read_array(PyArrayObject* array, DLTensor* dl, int64_t* strides) {
  if (FC_UNLIKELY(read_descr(PyArray_DESCR(array), &dl->dtype) != 0)) return -1;
  dl->data = PyArray_DATA(array);
  dl->device = (DLDevice){kDLCPU, 0};
  dl->ndim = PyArray_NDIM(array);
  dl->shape = (int64_t*)PyArray_DIMS(array);
  dl->strides = strides;
  dl->byte_offset = 0;
  return read_strides(array, dl->dtype.bits >> 3, strides);
}

/* ---- elements of less than a byte: numpy stores one per byte, native code packs them, low bits first ---- */

static void pack(const uint8_t* from, int64_t n, int bits, uint8_t* to) {
  for (int64_t i = 0, at = 0; i < n; ++i, at += bits) {
    unsigned value = (unsigned)(from[i] & ((1 << bits) - 1)) << (at & 7);
    to[at >> 3] |= (uint8_t)value;
    if (value >> 8) to[(at >> 3) + 1] |= (uint8_t)(value >> 8);
  }
}

static void unpack(const uint8_t* from, int64_t n, DLDataType dtype, uint8_t* to) {
  int bits = dtype.bits;
  for (int64_t i = 0, at = 0; i < n; ++i, at += bits) {
    unsigned value = from[at >> 3] >> (at & 7);
    if ((at & 7) + bits > 8) value |= (unsigned)from[(at >> 3) + 1] << (8 - (at & 7));
    value &= (1U << bits) - 1;
    bool negative = dtype.code == kDLInt && value >> (bits - 1);
    to[i] = (uint8_t)(negative ? value | (0xFFU << bits) : value);
  }
}

/* A packed copy, which is read-only: writes to it would not reach the array. */
static TVMFFIObject* pack_array(PyArrayObject* array, DLDataType dtype) {
  PyArrayObject* plain = PyArray_GETCONTIGUOUS(array);
  if (!plain) return NULL;
  DLTensor prototype = {
      .device = {kDLCPU, 0}, .ndim = PyArray_NDIM(plain), .dtype = dtype, .shape = (int64_t*)PyArray_DIMS(plain)};
  FcTensorObj* tensor = fc_tensor_alloc(&prototype);
  if (tensor) {
    memset(tensor->dl.data, 0, (size_t)fc_nbytes(&prototype));
    pack(PyArray_DATA(plain), PyArray_SIZE(plain), dtype.bits, tensor->dl.data);
    tensor->flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  }
  Py_DECREF(plain);
  return tensor ? &tensor->header : (TVMFFIObject*)fc_raise_slot();
}

TVMFFIObject* fc_numpy_import(PyObject* object) {
  PyArrayObject* array = (PyArrayObject*)object;
  DLTensor dl;
  int64_t strides[NPY_MAXDIMS];
  if (FC_UNLIKELY(read_packed(PyArray_DESCR(array), &dl.dtype))) return pack_array(array, dl.dtype);
  if (read_array(array, &dl, strides) != 0) return NULL;
  FcTensorObj* tensor = fc_tensor_new(&dl, fc_drop_context, object);
  if (!tensor) return (TVMFFIObject*)fc_raise_slot();
  Py_INCREF(object);
  if (!PyArray_ISWRITEABLE(array)) tensor->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  return &tensor->header;
}

static void release_strides(void* strides) { PyMem_Free(strides); }

static int64_t* strides_for(FcArgs* args, int32_t i, int ndim) {
  if (FC_LIKELY(ndim <= FC_INLINE_DIMS)) return fc_dims_of(args, i);
  int64_t* strides = PyMem_Malloc((size_t)ndim * sizeof *strides);
  if (!strides) return (int64_t*)PyErr_NoMemory();
  return fc_args_keep(args, release_strides, strides) == 0 ? strides : NULL;
}

/* Borrows the dims, which numpy does not change while another reference exists; strides are in bytes, so converted. */
static int lend_array(FcArgs* args, PyObject* object, TVMFFIAny* out) {
  PyArrayObject* array = (PyArrayObject*)object;
  if (FC_UNLIKELY(PyArray_NDIM(array) > FC_INLINE_DIMS)) {
    TVMFFIObject* imported_array = fc_numpy_import(object);
    return imported_array ? fc_give_object(args, imported_array, out) : -1;
  }
  FcTensorObj* tensor = fc_pool_take();
  if (FC_UNLIKELY(!tensor)) return -1;
  int64_t* shape = fc_pool_dims(tensor);
  if (FC_UNLIKELY(read_array(array, &tensor->dl, shape + FC_INLINE_DIMS) != 0)) {
    fc_pool_put(tensor);
    return -1;
  }
  for (int d = 0; d < PyArray_NDIM(array); ++d) shape[d] = PyArray_DIMS(array)[d];
  tensor->dl.shape = shape;
  tensor->flags = PyArray_ISWRITEABLE(array) ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY;
  return fc_lend(args, tensor, object, out);
}

/* Also for a parameter that is a view: a Tensor object must own the packed copy. */
static FC_COLD int set_packed(FcArgs* args, int32_t i, PyArrayObject* array, DLDataType dtype, TVMFFIAny* out) {
  if (fc_has_bit(args->writes, i)) {
    PyErr_Format(PyExc_ValueError,
                 "%R is passed as a packed copy, and the kernel may write to it; declare the parameter a "
                 "ConstTensorView",
                 (PyObject*)PyArray_DESCR(array));
    return -1;
  }
  TVMFFIObject* tensor = pack_array(array, dtype);
  return tensor ? fc_give_object(args, tensor, out) : -1;
}

static int set_array(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  PyArrayObject* array = (PyArrayObject*)object;
  (void)setter;
  args->seen |= FC_SEEN_NUMPY;
  DLDataType packed;
  if (FC_UNLIKELY(PyArray_DESCR(array)->type_num >= NPY_USERDEF && read_packed(PyArray_DESCR(array), &packed))) {
    return set_packed(args, i, array, packed, out);
  }
  if (FC_UNLIKELY(fc_check_writes(args, i, !PyArray_ISWRITEABLE(array)) != 0)) return -1;
  if (FC_UNLIKELY(fc_owned_mode(args))) {
    TVMFFIObject* tensor = fc_numpy_import(object);
    return tensor ? fc_give_object(args, tensor, out) : -1;
  }
  if (!fc_wants_view(args, i)) return lend_array(args, object, out);
  int64_t* strides = strides_for(args, i, PyArray_NDIM(array));
  if (FC_UNLIKELY(!strides)) return -1;
  out->type_index = kTVMFFIDLTensorPtr;
  out->v_ptr = &args->slots[i].dl;
  return read_array(array, &args->slots[i].dl, strides);
}

int fc_choose_numpy(PyTypeObject* type, PyObject* object, FcSetter* out) {
  (void)object;
  if (!is_loaded()) return PyErr_Occurred() ? -1 : 0;
  out->set = PyType_IsSubtype(type, &PyArray_Type) ? set_array : NULL;
  return out->set != NULL;
}

/* ---- export of arrays ---- */

static FC_COLD PyArray_Descr* extension_descr(DLDataType dtype) {
  char name[FC_NAME_MAX];
  fc_dtype_print(dtype, name);
  PyObject* package = PyImport_ImportModule("ml_dtypes");
  PyObject* scalar = package ? PyObject_GetAttrString(package, name) : NULL;
  PyArray_Descr* descr = NULL;
  if (!scalar || PyArray_DescrConverter(scalar, &descr) != NPY_SUCCEED ||
      (PyDataType_ELSIZE(descr) * 8 != (npy_intp)dtype.bits * dtype.lanes && !read_packed(descr, &dtype))) {
    PyErr_Clear();
    Py_CLEAR(descr);
    PyErr_Format(PyExc_TypeError, "numpy has no dtype for %s%s", name,
                 package ? "" : "; `pip install ml_dtypes` adds bfloat16 and the 8-bit floats");
  }
  Py_XDECREF(scalar);
  Py_XDECREF(package);
  return descr;
}

static PyArray_Descr* descr_of(DLDataType dtype) {
  int number = number_of(dtype);
  return FC_LIKELY(number >= 0) ? PyArray_DescrFromType(number) : extension_descr(dtype);
}

PyObject* fc_numpy_dtype(DLDataType dtype) {
  return imported || import_numpy() == 0 ? (PyObject*)descr_of(dtype) : NULL;
}

static PyObject* make_array(TVMFFIObject* tensor) {
  const DLTensor* dl = fc_tensor_dl(tensor);
  npy_intp strides[NPY_MAXDIMS];
  if (dl->ndim > NPY_MAXDIMS) {
    return PyErr_Format(PyExc_ValueError, "numpy arrays have at most %d dims, the tensor has %d", NPY_MAXDIMS,
                        dl->ndim);
  }
  PyArray_Descr* descr = descr_of(dl->dtype);
  if (!descr) return NULL;
  bool plain = fc_is_contiguous(dl);
  npy_intp itemsize = PyDataType_ELSIZE(descr);
  for (int i = 0; !plain && i < dl->ndim; ++i) strides[i] = dl->strides[i] * itemsize;
  char* data = (char*)dl->data + dl->byte_offset;
  int flags = fc_tensor_flags(tensor) & DLPACK_FLAG_BITMASK_READ_ONLY ? 0 : NPY_ARRAY_WRITEABLE;
  if (((uintptr_t)data & (uintptr_t)(itemsize - 1)) == 0) flags |= NPY_ARRAY_ALIGNED;
  return PyArray_NewFromDescr(&PyArray_Type, descr, dl->ndim, (npy_intp*)dl->shape, plain ? NULL : strides, data, flags,
                              NULL);
}

static FC_COLD PyObject* unpack_array(const DLTensor* dl) {
  if (!fc_is_contiguous(dl)) {
    return PyErr_Format(PyExc_BufferError, "a tensor of %d-bit elements must be contiguous for numpy to see it",
                        (int)dl->dtype.bits);
  }
  PyArray_Descr* descr = descr_of(dl->dtype);
  PyObject* array = descr ? PyArray_SimpleNewFromDescr(dl->ndim, (npy_intp*)dl->shape, descr) : NULL;
  if (array) {
    unpack((const uint8_t*)dl->data + dl->byte_offset, fc_numel(dl), dl->dtype, PyArray_DATA((PyArrayObject*)array));
  }
  return array;
}

PyObject* fc_numpy_wrap(TVMFFIObject* tensor) {
  if (!imported && import_numpy() != 0) {
    fc_decref(tensor);
    return NULL;
  }
  if (FC_UNLIKELY(fc_tensor_dl(tensor)->dtype.bits < 8 && fc_tensor_dl(tensor)->dtype.lanes == 1)) {
    PyObject* copy = unpack_array(fc_tensor_dl(tensor));
    fc_decref(tensor);
    return copy;
  }
  PyObject* array = make_array(tensor);
  if (!array) {
    fc_decref(tensor);
    return NULL;
  }
  PyObject* base = fc_tensor_wrap(tensor);
  if (!base || PyArray_SetBaseObject((PyArrayObject*)array, base) != 0) {
    Py_DECREF(array);
    return NULL;
  }
  return array;
}
