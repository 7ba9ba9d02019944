/* Setters of containers: lists, tuples, dicts, Shapes. Their elements become owned values. */
#include <stdlib.h>

#include "python/args.h"
#include "python/convert.h"
#include "python/errors.h"

int fc_enter_nested(void) {
  enum { MAX_DEPTH = 200 };
  if (++fc_thread.depth <= MAX_DEPTH) return 0;
  --fc_thread.depth;
  PyErr_Format(PyExc_RecursionError, "a list that is nested deeper than %d levels cannot be passed", MAX_DEPTH);
  return -1;
}

/* ---- list and tuple -> Array ---- */

static int make_array(FcArgs* args, PyObject* items, TVMFFIAny* values, TVMFFIObjectHandle* out) {
  Py_ssize_t n = PyTuple_GET_SIZE(items), done = 0;
  while (done < n && fc_set_element(args, PyTuple_GET_ITEM(items, done), &values[done]) == 0) ++done;
  if (done == n) {
    if (fc_array_new(values, n, out) == 0) return 0;
    fc_raise_slot();
    return -1;
  }
  while (done > 0) fc_any_clear(&values[--done]);
  return -1;
}

int fc_set_sequence(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  (void)setter, (void)i;
  if (fc_enter_nested() != 0) return -1;
  PyObject* items = PySequence_Tuple(object);
  size_t n = items ? (size_t)PyTuple_GET_SIZE(items) : 0;
  TVMFFIAny* values = items ? malloc((n ? n : 1) * sizeof *values) : NULL;
  TVMFFIObjectHandle array = NULL;
  int rc = -1;
  if (items && !values) PyErr_NoMemory();
  if (values) rc = make_array(args, items, values, &array);
  free(values);
  Py_XDECREF(items);
  fc_leave_nested();
  return rc == 0 ? fc_give_object(args, array, out) : -1;
}

/* ---- dict -> Map ---- */

static int set_pair(FcArgs* args, TVMFFIObject* map, PyObject* key, PyObject* value) {
  TVMFFIAny native_key, native_value;
  if (fc_set_element(args, key, &native_key) != 0) return -1;
  if (fc_set_element(args, value, &native_value) != 0) {
    fc_any_clear(&native_key);
    return -1;
  }
  if (fc_map_set(map, native_key, native_value) == 0) return 0;
  fc_raise_slot();
  return -1;
}

/* Copies the pairs into a list: converting one may run Python code that changes the dict. */
static int fill_map(FcArgs* args, TVMFFIObject* map, PyObject* dict) {
  PyObject* items = PyMapping_Items(dict);
  int rc = items ? 0 : -1;
  for (Py_ssize_t k = 0; rc == 0 && k < PyList_GET_SIZE(items); ++k) {
    PyObject* pair = PyList_GET_ITEM(items, k);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
      PyErr_SetString(PyExc_TypeError, "items() of a dict must yield pairs");
      rc = -1;
    } else {
      rc = set_pair(args, map, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    }
  }
  Py_XDECREF(items);
  return rc;
}

int fc_set_dict(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  TVMFFIObjectHandle map;
  (void)setter, (void)i;
  if (fc_enter_nested() != 0) return -1;
  int rc = fc_map_new(kTVMFFIMap, &map);
  if (rc != 0) {
    fc_raise_slot();
  } else if ((rc = fill_map(args, map, object)) != 0) {
    fc_decref(map);
  }
  fc_leave_nested();
  return rc == 0 ? fc_give_object(args, map, out) : -1;
}

/* ---- Shape ---- */

int fc_set_shape(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  size_t n = (size_t)PyTuple_GET_SIZE(object);
  int64_t* dims = malloc((n ? n : 1) * sizeof *dims);
  TVMFFIObjectHandle shape = NULL;
  (void)setter, (void)i;
  if (!dims) {
    PyErr_NoMemory();
    return -1;
  }
  /* The ints of a Shape fit into 64 bits, so this cannot fail. */
  for (size_t d = 0; d < n; ++d) dims[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(object, (Py_ssize_t)d));
  int rc = fc_shape_new(dims, n, &shape);
  free(dims);
  if (rc == 0) return fc_give_object(args, shape, out);
  fc_raise_slot();
  return -1;
}
