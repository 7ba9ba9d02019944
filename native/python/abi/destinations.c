/* Results that a function writes into: tensors that are made for a call, and passed behind its arguments. */
#include "python/abi/abi.h"
#include "python/errors.h"

/* The dims of a result from the sizes of the call; false if a size is not known. */
static bool known_shape(const FcLeaf* leaf, const int64_t* symbols, int64_t* shape) {
  if (leaf->kind != FC_LEAF_TENSOR || leaf->flags & (FC_LEAF_ANY_RANK | FC_LEAF_ANY_DTYPE)) return false;
  if (leaf->ndim > FC_INLINE_DIMS) return false;
  for (int32_t i = 0; i < leaf->ndim; ++i) {
    if ((shape[i] = fc_dim_size(leaf, i, symbols)) < 0) return false;
  }
  return true;
}

/* 1: made; 0: the typed rules must say the dims; -1 with an exception. */
static int make_here(const FcLeaf* leaf, const int64_t* symbols, TVMFFIObject** out) {
  int64_t shape[FC_INLINE_DIMS];
  DLTensor prototype = {.device = {kDLCPU, 0}, .ndim = leaf->ndim, .dtype = leaf->dtype, .shape = shape};
  if (!known_shape(leaf, symbols, shape)) return 0;
  FcTensorObj* tensor = fc_tensor_alloc(&prototype);
  if (!tensor) {
    fc_raise_slot();
    return -1;
  }
  *out = &tensor->header;
  return 1;
}

/* FunctionAbi._allocate gives a Tensor for each result, by expressions and by the shape function. */
static FC_COLD PyObject* allocate_by_rules(FcProgram* program, const FcBinding* binding) {
  PyObject* packed = PyList_New(program->n_inputs);
  for (Py_ssize_t i = 0; packed && i < program->n_inputs; ++i) {
    PyList_SET_ITEM(packed, i, Py_NewRef(binding->leaves[i]));
  }
  PyObject* out = packed ? PyObject_CallMethod((PyObject*)program, "_allocate", "O", packed) : NULL;
  Py_XDECREF(packed);
  if (!out || (PyList_Check(out) && PyList_GET_SIZE(out) == program->n_outputs)) return out;
  Py_DECREF(out);
  return PyErr_Format(PyExc_SystemError, "_allocate: expected a list of %zd values", program->n_outputs);
}

/* Takes ownership of the tensor until the call ends. A result that the function allocates itself stays None. */
static int place(FcArgs* args, int32_t i, TVMFFIObject* tensor) {
  if (fc_args_keep(args, fc_release_object, tensor) != 0) return -1;
  if (fc_owned_mode(args)) fc_incref(tensor);
  bool view = !fc_owned_mode(args) && fc_wants_view(args, i);
  args->any[i] = fc_any_object(tensor);
  if (view) args->any[i] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = fc_tensor_dl(tensor)};
  return 0;
}

static FC_COLD int place_by_rules(FcProgram* program, FcArgs* args, const FcBinding* binding, TVMFFIObject** made) {
  PyObject* tensors = allocate_by_rules(program, binding);
  int rc = tensors ? 0 : -1;
  for (Py_ssize_t i = 0; rc == 0 && i < program->n_outputs; ++i) {
    PyObject* tensor = PyList_GET_ITEM(tensors, i);
    if (!Py_IS_TYPE(tensor, &FcTensor_Type)) continue;
    made[i] = ((FcTensor*)tensor)->object;
    fc_incref(made[i]);
    rc = place(args, (int32_t)(program->n_inputs + i), made[i]);
  }
  Py_XDECREF(tensors);
  return rc;
}

int fc_destinations_place(FcProgram* program, FcArgs* args, const FcBinding* binding, TVMFFIObject** made) {
  int rc = 1;
  for (Py_ssize_t i = 0; i < program->n_outputs; ++i) made[i] = NULL;
  for (Py_ssize_t i = 0; rc == 1 && i < program->n_outputs; ++i) {
    rc = make_here(&program->outputs[i], binding->symbols, &made[i]);
  }
  if (rc == 1) {
    for (Py_ssize_t i = 0; rc > 0 && i < program->n_outputs; ++i) {
      rc = place(args, (int32_t)(program->n_inputs + i), made[i]) == 0 ? 1 : -1;
    }
    return rc == 1 ? 0 : -1;
  }
  for (Py_ssize_t i = 0; i < program->n_outputs; ++i) {
    if (made[i]) fc_decref(made[i]);
    made[i] = NULL;
  }
  return rc < 0 ? -1 : place_by_rules(program, args, binding, made);
}

/* The result of a function that returned nothing: one tensor, or an Array of them. */
int fc_destinations_result(const FcProgram* program, TVMFFIObject* const* made, TVMFFIAny* result) {
  TVMFFIObjectHandle array;
  TVMFFIAny* items = PyMem_Malloc((size_t)program->n_outputs * sizeof *items);
  if (!items) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < program->n_outputs; ++i) {
    items[i] = made[i] ? fc_any_object(made[i]) : fc_any_none();
    if (made[i]) fc_incref(made[i]);
  }
  int rc = 0;
  if (program->n_outputs == 1) {
    *result = items[0];
  } else if ((rc = fc_array_new(items, program->n_outputs, &array)) == 0) {
    *result = fc_any_object(array);
  } else {
    fc_raise_slot();
  }
  PyMem_Free(items);
  return rc;
}
