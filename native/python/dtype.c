/* dtype: a small value that prints and compares like its name. */
#include "python/convert.h"

bool fc_type_is(PyTypeObject* type, const char* module, const char* name) {
  const char* last = strrchr(type->tp_name, '.');
  if (strcmp(last ? last + 1 : type->tp_name, name) != 0) return false;
  PyObject* value = PyObject_GetAttrString((PyObject*)type, "__module__");
  bool same = value && PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, module) == 0;
  Py_XDECREF(value);
  PyErr_Clear();
  return same;
}

/* ---- dtype ---- */

PyObject* fc_dtype_new(DLDataType value) {
  FcDType* dtype = PyObject_New(FcDType, &FcDType_Type);
  if (dtype) dtype->value = value;
  return (PyObject*)dtype;
}

static FC_COLD int unknown_dtype(PyObject* text) {
  PyObject* module = PyImport_ImportModule("farcall._suggest");
  PyObject* meant = module ? PyObject_CallMethod(module, "dtype_meant", "O", text) : NULL;
  if (meant) {
    PyErr_Format(PyExc_ValueError,
                 "unknown dtype `%U`%S; known are int8 to int64, uint8 to uint64, float16 to float64, "
                 "bfloat16, bool, complex64, complex128, handle, and the float8, float6 and float4 types",
                 text, meant);
  }
  Py_XDECREF(module);
  Py_XDECREF(meant);
  return -1;
}

/* The ABI can express a float of any size, such as float33; nobody who writes one means it. */
static bool is_odd_float(DLDataType dtype) {
  bool is_float = dtype.code == kDLFloat || dtype.code == kDLBfloat || dtype.code == kDLComplex;
  return is_float && (dtype.bits < 16 || (dtype.bits & (dtype.bits - 1)) != 0) && dtype.bits != 80;
}

static int dtype_from_text(PyObject* text, size_t skip, DLDataType* out) {
  Py_ssize_t size;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (!data) return -1;
  if (fc_dtype_parse(data + skip, (size_t)size - skip, out) && !is_odd_float(*out)) return 0;
  return unknown_dtype(text);
}

/* str(torch.float32) is "torch.float32". */
static int dtype_from_torch(PyObject* object, DLDataType* out) {
  PyObject* text = PyObject_Str(object);
  int rc = text ? dtype_from_text(text, strlen("torch."), out) : -1;
  Py_XDECREF(text);
  return rc;
}

int fc_dtype_from_python(PyObject* object, DLDataType* out) {
  if (Py_IS_TYPE(object, &FcDType_Type)) {
    *out = ((FcDType*)object)->value;
    return 0;
  }
  if (PyUnicode_Check(object)) return dtype_from_text(object, 0, out);
  if (fc_type_is(Py_TYPE(object), "torch", "dtype")) return dtype_from_torch(object, out);
  int rc = fc_numpy_read_dtype(object, out);
  if (rc <= 0) return rc;
  PyErr_Format(PyExc_TypeError, "expected a dtype (of farcall, numpy or torch) or its name, got `%s`",
               Py_TYPE(object)->tp_name);
  return -1;
}

static PyObject* dtype_make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"", NULL};
  PyObject* object;
  DLDataType value;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:dtype", names, &object)) return NULL;
  return fc_dtype_from_python(object, &value) == 0 ? fc_dtype_new(value) : NULL;
}

static PyObject* dtype_str(PyObject* self) {
  char text[FC_NAME_MAX];
  fc_dtype_print(((FcDType*)self)->value, text);
  return PyUnicode_FromString(text);
}

static PyObject* dtype_repr(PyObject* self) {
  char text[FC_NAME_MAX];
  fc_dtype_print(((FcDType*)self)->value, text);
  return PyUnicode_FromFormat("farcall.dtype('%s')", text);
}

static Py_hash_t dtype_hash(PyObject* self) {
  PyObject* text = dtype_str(self);
  Py_hash_t hash = text ? PyObject_Hash(text) : -1;
  Py_XDECREF(text);
  return hash;
}

static PyObject* dtype_compare(PyObject* self, PyObject* other, int op) {
  DLDataType value;
  if (op != Py_EQ && op != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  if (fc_dtype_from_python(other, &value) != 0) {
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
  }
  return PyBool_FromLong(fc_dtype_equal(((FcDType*)self)->value, value) == (op == Py_EQ));
}

static PyObject* dtype_code(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromLong(((FcDType*)self)->value.code);
}
static PyObject* dtype_bits(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromLong(((FcDType*)self)->value.bits);
}
static PyObject* dtype_lanes(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromLong((int16_t)((FcDType*)self)->value.lanes);
}
static PyObject* dtype_itemsize(PyObject* self, void* closure) {
  DLDataType value = ((FcDType*)self)->value;
  (void)closure;
  if (!fc_is_scalable(value)) return PyLong_FromLong((value.bits * value.lanes + 7) / 8);
  return PyErr_Format(PyExc_ValueError, "%S has no itemsize: the machine that runs it chooses its number of lanes",
                      self);
}

/* numpy accepts objects with this attribute as dtypes. */
static PyObject* dtype_numpy(PyObject* self, void* closure) {
  (void)closure;
  return fc_numpy_dtype(((FcDType*)self)->value);
}

/* __reduce__, for copy and pickle: made again from its name. */
static PyObject* dtype_reduce(PyObject* self, PyObject* unused) {
  (void)unused;
  return Py_BuildValue("O(N)", Py_TYPE(self), dtype_str(self));
}

static PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dtype_getset[] = {
    {"code", dtype_code, NULL, "The DLPack code of the kind of number.", NULL},
    {"bits", dtype_bits, NULL, "Bits of one lane.", NULL},
    {"lanes", dtype_lanes, NULL,
     "Lanes of one element: 1 for a scalar type; -4 means a multiple of 4 that the machine chooses.", NULL},
    {"itemsize", dtype_itemsize, NULL, "Bytes of one element, rounded up.", NULL},
    {"dtype", dtype_numpy, NULL, "The numpy dtype. numpy reads this attribute of a farcall.dtype.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FcDType_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.dtype",
    .tp_doc = "dtype(x, /)\n--\n\nThe type of a tensor's elements, from its name or from numpy's or torch's dtype.",
    .tp_basicsize = sizeof(FcDType),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = dtype_make,
    .tp_repr = dtype_repr,
    .tp_str = dtype_str,
    .tp_hash = dtype_hash,
    .tp_richcompare = dtype_compare,
    .tp_methods = dtype_methods,
    .tp_getset = dtype_getset,
};
