/* Reads the program of a Signature, as farcall.abi.calls._program writes it; see python/abi/abi.h. */
#include "python/abi/abi.h"
#include "python/convert.h"

/* ---- leaves: (kind, flags, ref, dtype, device, alignment, dims, items) ---- */

static int64_t* read_dims(PyObject* dims, FcLeaf* leaf, int64_t* out) {
  leaf->ndim = (int32_t)PyTuple_GET_SIZE(dims);
  leaf->dims = out;
  for (int32_t i = 0; i < leaf->ndim; ++i) *out++ = PyLong_AsLongLong(PyTuple_GET_ITEM(dims, i));
  return out;
}

/* The unused parts of the memory for leaves and for dims. */
typedef struct {
  const FcProgram* program;
  FcLeaf* leaves;
  int64_t* dims;
} Room;

static int read_leaf(Room* room, PyObject* spec, FcLeaf* leaf);

static int read_all(Room* room, PyObject* specs, FcLeaf* leaves) {
  int rc = 0;
  for (Py_ssize_t i = 0; rc == 0 && i < PyTuple_GET_SIZE(specs); ++i) {
    rc = read_leaf(room, PyTuple_GET_ITEM(specs, i), &leaves[i]);
  }
  return rc;
}

static int read_leaf(Room* room, PyObject* spec, FcLeaf* leaf) {
  PyObject *dtype, *device, *shape, *items;
  unsigned long long alignment;
  if (!PyArg_ParseTuple(spec, "bbhOOKO!O!", &leaf->kind, &leaf->flags, &leaf->ref, &dtype, &device, &alignment,
                        &PyTuple_Type, &shape, &PyTuple_Type, &items)) {
    return -1;
  }
  leaf->alignment = alignment - 1;
  leaf->code = room->program->code;
  if (dtype != Py_None && fc_dtype_from_python(dtype, &leaf->dtype) != 0) return -1;
  if (device != Py_None && fc_device_from_python(device, &leaf->device) != 0) return -1;
  room->dims = read_dims(shape, leaf, room->dims);
  leaf->n_items = (int32_t)PyTuple_GET_SIZE(items);
  FcLeaf* below = room->leaves;
  leaf->items = below;
  room->leaves += leaf->n_items;
  return PyErr_Occurred() ? -1 : read_all(room, items, below);
}

static int read_leaves(FcProgram* program, PyObject* inputs, PyObject* outputs) {
  Room room = {program, program->outputs + program->n_outputs, program->dims};
  if (read_all(&room, inputs, program->inputs) != 0 || read_all(&room, outputs, program->outputs) != 0) return -1;
  for (Py_ssize_t i = 0; i < program->n_inputs; ++i) {
    if (program->inputs[i].flags & FC_LEAF_WRITTEN) program->writes |= UINT64_C(1) << (i < 63 ? i : 63);
  }
  return 0;
}

/* ---- nodes: (kind, slot, keys, class, children), breadth first, so that siblings are adjacent ---- */

static int read_node(PyObject* spec, FcNode* node, PyObject** children) {
  if (!PyArg_ParseTuple(spec, "biO!OO!", &node->kind, &node->slot, &PyTuple_Type, &node->keys, &node->class,
                        &PyTuple_Type, children)) {
    return -1;
  }
  node->count = (int32_t)PyTuple_GET_SIZE(*children);
  return 0;
}

static int read_nodes(FcProgram* program, PyObject* roots, Py_ssize_t total) {
  PyObject** specs = PyMem_Malloc((size_t)total * sizeof *specs);
  Py_ssize_t known = PyTuple_GET_SIZE(roots);
  if (!specs) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < known; ++i) specs[i] = PyTuple_GET_ITEM(roots, i);
  int rc = 0;
  for (Py_ssize_t i = 0; i < known && rc == 0; ++i) {
    PyObject* children = NULL;
    rc = read_node(specs[i], &program->nodes[i], &children);
    program->nodes[i].first = (int32_t)known;
    for (int32_t k = 0; rc == 0 && k < program->nodes[i].count; ++k) {
      specs[known++] = PyTuple_GET_ITEM(children, k);
    }
  }
  PyMem_Free(specs);
  return rc;
}

/* ---- parameters: (name, by position, by name, takes the rest, (default,) or ()) ---- */

static int read_parameters(FcProgram* program, PyObject* specs) {
  program->rest = -1;
  for (Py_ssize_t i = 0; i < program->n_parameters; ++i) {
    FcParameter* parameter = &program->parameters[i];
    PyObject* defaults;
    int by_position, by_name, rest;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(specs, i), "UpppO!", &parameter->name, &by_position, &by_name, &rest,
                          &PyTuple_Type, &defaults)) {
      return -1;
    }
    parameter->by_position = by_position;
    parameter->by_name = by_name;
    parameter->default_value = PyTuple_GET_SIZE(defaults) ? PyTuple_GET_ITEM(defaults, 0) : NULL;
    program->n_positional += by_position;
    if (rest) program->rest = i;
  }
  return 0;
}

/* ---- the program ---- */

static int read_code(FcProgram* program, PyObject* code) {
  Py_ssize_t n = PyTuple_GET_SIZE(code);
  program->code = PyMem_Calloc((size_t)n + 1, sizeof *program->code);
  if (!program->code) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; ++i) program->code[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(code, i));
  return PyErr_Occurred() ? -1 : 0;
}

static int allocate(FcProgram* program, Py_ssize_t n_leaves, Py_ssize_t n_nodes, Py_ssize_t n_dims) {
  /* Inputs, then outputs, then the items of lists. */
  program->inputs = PyMem_Calloc((size_t)n_leaves + 1, sizeof *program->inputs);
  program->parameters = PyMem_Calloc((size_t)program->n_parameters + 1, sizeof *program->parameters);
  program->nodes = PyMem_Calloc((size_t)n_nodes, sizeof *program->nodes);
  program->dims = PyMem_Calloc((size_t)n_dims + 1, sizeof *program->dims);
  program->outputs = program->inputs + program->n_inputs;
  if (program->inputs && program->parameters && program->nodes && program->dims) return 0;
  PyErr_NoMemory();
  return -1;
}

void fc_program_free(FcProgram* program) {
  PyMem_Free(program->inputs);
  PyMem_Free(program->parameters);
  PyMem_Free(program->nodes);
  PyMem_Free(program->dims);
  PyMem_Free(program->code);
  program->inputs = program->outputs = NULL;
  program->parameters = NULL;
  program->nodes = NULL;
  program->dims = program->code = NULL;
}

int fc_program_init(PyObject* self, PyObject* args, PyObject* kwargs) {
  FcProgram* program = (FcProgram*)self;
  PyObject *inputs, *outputs, *parameters, *roots, *code;
  Py_ssize_t n_leaves, n_nodes, n_dims;
  int destinations;
  if (program->spec) {
    PyErr_SetString(PyExc_TypeError, "this program is already compiled");
    return -1;
  }
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    PyErr_SetString(PyExc_TypeError, "a program takes positional arguments only");
    return -1;
  }
  if (!PyArg_ParseTuple(args, "O!O!O!O!nnnnipO!", &PyTuple_Type, &inputs, &PyTuple_Type, &outputs, &PyTuple_Type,
                        &parameters, &PyTuple_Type, &roots, &n_leaves, &n_nodes, &n_dims, &program->n_symbols,
                        &program->arrays, &destinations, &PyTuple_Type, &code)) {
    return -1;
  }
  program->spec = Py_NewRef(args);
  program->destinations = (char)destinations;
  program->n_inputs = PyTuple_GET_SIZE(inputs);
  program->n_outputs = PyTuple_GET_SIZE(outputs);
  program->n_parameters = PyTuple_GET_SIZE(parameters);
  if (read_code(program, code) != 0 || allocate(program, n_leaves, n_nodes, n_dims) != 0 ||
      read_leaves(program, inputs, outputs) != 0)
    return -1;
  return read_parameters(program, parameters) != 0 || read_nodes(program, roots, n_nodes) != 0 ? -1 : 0;
}
