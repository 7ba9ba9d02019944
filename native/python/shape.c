/* Shape: the dims of a tensor, a tuple of ints that fit into int64. */
#include "python/convert.h"

static bool fits(PyObject* dim) {
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(dim, &overflow);
  if (overflow) PyErr_Format(PyExc_OverflowError, "Shape: the dim %R needs more than 64 bits", dim);
  return !overflow && !PyErr_Occurred();
}

PyObject* fc_shape_new_python(const int64_t* dims, Py_ssize_t n) {
  PyObject* shape = PyTuple_Type.tp_alloc(&FcShape_Type, n);
  for (Py_ssize_t i = 0; shape && i < n; ++i) {
    PyObject* dim = PyLong_FromLongLong(dims[i]);
    if (!dim) Py_CLEAR(shape);
    if (shape) PyTuple_SET_ITEM(shape, i, dim);
  }
  return shape;
}

static PyObject* shape_make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"", NULL};
  PyObject* given = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Shape", names, &given)) return NULL;
  PyObject* items = given ? PySequence_Tuple(given) : PyTuple_New(0);
  Py_ssize_t n = items ? PyTuple_GET_SIZE(items) : 0;
  PyObject* shape = items ? PyTuple_Type.tp_alloc(type, n) : NULL;
  for (Py_ssize_t i = 0; shape && i < n; ++i) {
    PyObject* dim = PyNumber_Index(PyTuple_GET_ITEM(items, i));
    if (dim) PyTuple_SET_ITEM(shape, i, dim);
    if (!dim || !fits(dim)) Py_CLEAR(shape);
  }
  Py_XDECREF(items);
  return shape;
}

static PyObject* shape_numel(PyObject* self, PyObject* unused) {
  PyObject* product = PyLong_FromLong(1);
  (void)unused;
  for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); ++i) {
    Py_SETREF(product, PyNumber_Multiply(product, PyTuple_GET_ITEM(self, i)));
  }
  return product;
}

static PyObject* shape_repr(PyObject* self) {
  PyObject* dims = PySequence_List(self);
  PyObject* text = dims ? PyUnicode_FromFormat("farcall.Shape(%R)", dims) : NULL;
  Py_XDECREF(dims);
  return text;
}

static PyMethodDef methods[] = {
    {"numel", shape_numel, METH_NOARGS, "numel($self, /)\n--\n\nThe number of elements of a tensor of this shape."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject FcShape_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Shape",
    .tp_doc = "Shape(dims=(), /)\n--\n\nThe dims of a tensor: a tuple of ints, passed to native code as a Shape.",
    .tp_base = &PyTuple_Type,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = shape_make,
    .tp_repr = shape_repr,
    .tp_methods = methods,
};
