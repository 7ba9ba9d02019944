/* Finds the leaves of a Signature in the Python arguments, and builds the Python result from its leaves. */
#include "python/abi/abi.h"

/* ---- one argument for each parameter ---- */

/* Both the keywords of a call and the names of parameters are interned, so most are found by their address. */
static Py_ssize_t index_of(const FcProgram* program, PyObject* keyword) {
  for (Py_ssize_t i = 0; i < program->n_parameters; ++i) {
    if (program->parameters[i].name == keyword) return i;
  }
  for (Py_ssize_t i = 0; i < program->n_parameters; ++i) {
    if (PyUnicode_Compare(program->parameters[i].name, keyword) == 0) return i;
  }
  return -1;
}

static bool bind_keywords(const FcProgram* program, PyObject* const* values, PyObject* kwnames, PyObject** bound) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k) {
    Py_ssize_t i = index_of(program, PyTuple_GET_ITEM(kwnames, k));
    if (i < 0 || bound[i] || !program->parameters[i].by_name) return false;
    bound[i] = values[k];
  }
  return true;
}

PyObject* fc_tuple_of(PyObject* const* objects, Py_ssize_t n) {
  PyObject* out = PyTuple_New(n);
  for (Py_ssize_t i = 0; out && i < n; ++i) PyTuple_SET_ITEM(out, i, Py_NewRef(objects[i]));
  return out;
}

/* Returns 1: every parameter has a value, borrowed; 0: the rules in Python must decide; -1 with an exception. */
static int bind(const FcProgram* program, FcBinding* binding, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames,
                PyObject** bound) {
  Py_ssize_t by_position = n < program->n_positional ? n : program->n_positional; /* positional parameters come first */
  if (n > by_position && program->rest < 0) return 0;
  for (Py_ssize_t i = 0; i < program->n_parameters; ++i) bound[i] = i < by_position ? objects[i] : NULL;
  if (program->rest >= 0) {
    bound[program->rest] = binding->rest = fc_tuple_of(objects + by_position, n - by_position);
    if (!binding->rest) return -1;
  }
  if (kwnames && !bind_keywords(program, objects + n, kwnames, bound)) return 0;
  for (Py_ssize_t i = by_position; i < program->n_parameters; ++i) {
    if (!bound[i]) bound[i] = program->parameters[i].default_value;
    if (!bound[i]) return 0;
  }
  return 1;
}

/* ---- the leaves of one argument ---- */

static bool walk(const FcProgram* program, const FcNode* node, PyObject* object, PyObject** leaves);

/* Takes ownership of `object`: finding the next one may run Python code that drops all other references to it. */
static bool walk_owned(const FcProgram* program, const FcNode* node, PyObject* object, PyObject** leaves) {
  if (!object) return false;
  bool fits = walk(program, node, object, leaves);
  Py_DECREF(object);
  return fits;
}

static PyObject* item_of(PyObject* object, Py_ssize_t i) {
  if (PyTuple_Check(object)) return Py_NewRef(PyTuple_GET_ITEM(object, i));
  return i < PyList_GET_SIZE(object) ? Py_NewRef(PyList_GET_ITEM(object, i)) : NULL;
}

static bool walk_sequence(const FcProgram* program, const FcNode* node, PyObject* object, PyObject** leaves) {
  if (!PyTuple_Check(object) && !PyList_Check(object)) return false;
  if (Py_SIZE(object) != node->count) return false;
  const FcNode* children = program->nodes + node->first;
  for (int32_t i = 0; i < node->count; ++i) {
    if (!walk_owned(program, &children[i], item_of(object, i), leaves)) return false;
  }
  return true;
}

static bool walk_dict(const FcProgram* program, const FcNode* node, PyObject* object, PyObject** leaves) {
  if (!PyDict_CheckExact(object) || PyDict_GET_SIZE(object) != node->count) return false;
  const FcNode* children = program->nodes + node->first;
  for (int32_t i = 0; i < node->count; ++i) {
    PyObject* value = PyDict_GetItemWithError(object, PyTuple_GET_ITEM(node->keys, i));
    if (!walk_owned(program, &children[i], Py_XNewRef(value), leaves)) return false;
  }
  return true;
}

static bool walk_attributes(const FcProgram* program, const FcNode* node, PyObject* object, PyObject** leaves) {
  if ((PyObject*)Py_TYPE(object) != node->class) return false;
  const FcNode* children = program->nodes + node->first;
  for (int32_t i = 0; i < node->count; ++i) {
    PyObject* value = PyObject_GetAttr(object, PyTuple_GET_ITEM(node->keys, i));
    if (!walk_owned(program, &children[i], value, leaves)) return false;
  }
  return true;
}

static bool walk(const FcProgram* program, const FcNode* node, PyObject* object, PyObject** leaves) {
  switch (node->kind) {
    case FC_NODE_SLOT: leaves[node->slot] = Py_NewRef(object); return true;
    case FC_NODE_NOTHING: return object == Py_None;
    case FC_NODE_DICT: return walk_dict(program, node, object, leaves);
    case FC_NODE_DATACLASS: return walk_attributes(program, node, object, leaves);
    case FC_NODE_NAMEDTUPLE:
      if ((PyObject*)Py_TYPE(object) != node->class) return false;
      return walk_sequence(program, node, object, leaves);
    default: return walk_sequence(program, node, object, leaves);
  }
}

/* ---- a binding ---- */

static int allocate(FcBinding* binding, Py_ssize_t n, Py_ssize_t n_symbols) {
  binding->n = 0;
  binding->heap = NULL;
  binding->rest = NULL;
  binding->leaves = binding->inline_leaves;
  binding->symbols = binding->inline_symbols;
  if (FC_LIKELY(n <= FC_INLINE_LEAVES && n_symbols <= FC_INLINE_LEAVES)) return 0;
  binding->heap = PyMem_Malloc((size_t)n * sizeof(PyObject*) + (size_t)n_symbols * sizeof(int64_t));
  if (!binding->heap) {
    PyErr_NoMemory();
    return -1;
  }
  binding->symbols = binding->heap;
  binding->leaves = (PyObject**)(binding->symbols + n_symbols);
  return 0;
}

int fc_binding_reserve(FcBinding* binding, const FcProgram* program, Py_ssize_t n) {
  if (allocate(binding, n, program->n_symbols) != 0) return -1;
  binding->n = n;
  for (Py_ssize_t i = 0; i < n; ++i) binding->leaves[i] = NULL;
  for (Py_ssize_t i = 0; i < program->n_symbols; ++i) binding->symbols[i] = -1;
  return 0;
}

static int begin(FcBinding* binding, const FcProgram* program, PyObject* const* objects, Py_ssize_t n,
                 PyObject* kwnames) {
  enum { INLINE = 16 };
  PyObject* inline_bound[INLINE];
  Py_ssize_t count = program->n_parameters;
  PyObject** bound = count <= INLINE ? inline_bound : PyMem_Malloc((size_t)count * sizeof *bound);
  if (!bound) {
    PyErr_NoMemory();
    return -1;
  }
  int rc = bind(program, binding, objects, n, kwnames, bound);
  for (Py_ssize_t i = 0; rc == 1 && i < count; ++i) rc = walk(program, &program->nodes[i], bound[i], binding->leaves);
  if (bound != inline_bound) PyMem_Free(bound);
  return rc;
}

int fc_binding_begin(FcBinding* binding, const FcProgram* program, Py_ssize_t room, PyObject* const* objects,
                     Py_ssize_t n, PyObject* kwnames) {
  if (fc_binding_reserve(binding, program, program->n_inputs + room) != 0) return -1;
  for (Py_ssize_t i = program->n_inputs; i < binding->n; ++i) binding->leaves[i] = Py_NewRef(Py_None);
  if (program->cleared) return 0;
  int rc = begin(binding, program, objects, n, kwnames);
  if (rc == 0 && PyErr_Occurred()) { /* raised by a property or a comparison: the rules will raise it again */
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
  }
  return rc;
}

void fc_binding_end(FcBinding* binding) {
  for (Py_ssize_t i = 0; i < binding->n; ++i) Py_XDECREF(binding->leaves[i]);
  Py_XDECREF(binding->rest);
  PyMem_Free(binding->heap);
}

/* ---- results ---- */

static PyObject* build(const FcProgram* program, const FcNode* node, PyObject* const* values);

static PyObject* build_sequence(const FcProgram* program, const FcNode* node, PyObject* const* values) {
  bool list = node->kind == FC_NODE_LIST;
  PyObject* out = list ? PyList_New(node->count) : PyTuple_New(node->count);
  for (int32_t i = 0; out && i < node->count; ++i) {
    PyObject* item = build(program, &program->nodes[node->first + i], values);
    if (!item) {
      Py_CLEAR(out);
    } else if (list) {
      PyList_SET_ITEM(out, i, item);
    } else {
      PyTuple_SET_ITEM(out, i, item);
    }
  }
  return out;
}

static PyObject* build_dict(const FcProgram* program, const FcNode* node, PyObject* const* values) {
  PyObject* out = PyDict_New();
  for (int32_t i = 0; out && i < node->count; ++i) {
    PyObject* item = build(program, &program->nodes[node->first + i], values);
    if (!item || PyDict_SetItem(out, PyTuple_GET_ITEM(node->keys, i), item) != 0) Py_CLEAR(out);
    Py_XDECREF(item);
  }
  return out;
}

static PyObject* build_object(const FcProgram* program, const FcNode* node, PyObject* const* values) {
  PyObject* items = build_sequence(program, node, values); /* a tuple */
  PyObject* out = items ? PyObject_Vectorcall(node->class, ((PyTupleObject*)items)->ob_item, 0, node->keys) : NULL;
  Py_XDECREF(items);
  return out;
}

static PyObject* build(const FcProgram* program, const FcNode* node, PyObject* const* values) {
  switch (node->kind) {
    case FC_NODE_SLOT: return Py_NewRef(values[node->slot]);
    case FC_NODE_NOTHING: Py_RETURN_NONE;
    case FC_NODE_DICT: return build_dict(program, node, values);
    case FC_NODE_NAMEDTUPLE:
    case FC_NODE_DATACLASS: return build_object(program, node, values);
    default: return build_sequence(program, node, values);
  }
}

PyObject* fc_program_build(const FcProgram* program, PyObject* const* values) {
  return build(program, &program->nodes[program->n_parameters], values);
}
