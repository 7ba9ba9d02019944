/*
 * Calls by a Signature: pack_inputs, unpack_results, and a Function that has one.
 *
 * farcall.abi.FunctionAbi is a subclass of SignatureProgram, and supplies the typed rules as two methods, which raise
 * on failure:
 *
 *     _resolve(args, kwargs, name) -> list           one converted value for each input
 *     _restore(values, name, sizes) -> object        the result from raw values
 */
#include "python/abi/abi.h"
#include "python/convert.h"
#include "python/function.h"

/* ---- the typed rules ---- */

static PyObject* dict_of(PyObject* const* values, PyObject* kwnames) {
  PyObject* out = PyDict_New();
  for (Py_ssize_t i = 0; out && kwnames && i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyDict_SetItem(out, PyTuple_GET_ITEM(kwnames, i), values[i]) != 0) Py_CLEAR(out);
  }
  return out;
}

static FC_COLD PyObject* resolve(FcProgram* program, PyObject* name, PyObject* const* objects, Py_ssize_t n,
                                 PyObject* kwnames) {
  PyObject* args = fc_tuple_of(objects, n);
  PyObject* kwargs = args ? dict_of(objects + n, kwnames) : NULL;
  PyObject* out = kwargs ? PyObject_CallMethod((PyObject*)program, "_resolve", "OOO", args, kwargs, name) : NULL;
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  if (!out || (PyList_Check(out) && PyList_GET_SIZE(out) == program->n_inputs)) return out;
  Py_DECREF(out);
  PyErr_Format(PyExc_SystemError, "_resolve: expected a list of %zd values", program->n_inputs);
  return NULL;
}

/* `binding` has the sizes of the names, from the arguments; may be NULL. */
static FC_COLD PyObject* restore(FcProgram* program, PyObject* name, PyObject* values, const FcBinding* binding) {
  PyObject* sizes = PyTuple_New(binding ? program->n_symbols : 0);
  for (Py_ssize_t i = 0; sizes && i < PyTuple_GET_SIZE(sizes); ++i) {
    PyObject* size = PyLong_FromLongLong(binding->symbols[i]);
    if (size) PyTuple_SET_ITEM(sizes, i, size);
    if (!size) Py_CLEAR(sizes);
  }
  if (!sizes) return NULL;
  PyObject* out = PyObject_CallMethod((PyObject*)program, "_restore", "OOO", values, name, sizes);
  Py_DECREF(sizes);
  return out;
}

/* ---- arguments ---- */

/* Converts the leaves if all are plainly right. 1, 0 or -1: see fc_binding_begin. On 1 the caller must end `args`. */
static inline int convert(FcArgs* args, const FcProgram* program, const FcBinding* binding,
                          const FcFunction* function) {
  int rc = function ? fc_args_begin_for(args, binding->leaves, binding->n, function)
                    : fc_args_begin_owned(args, binding->leaves, binding->n, Py_None);
  if (FC_UNLIKELY(rc != 0)) { /* the rules fail on it again, and report its path */
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) return -1;
    PyErr_Clear();
    return 0;
  }
  for (Py_ssize_t i = 0; i < program->n_inputs; ++i) {
    if (FC_UNLIKELY(!fc_leaf_accepts(&program->inputs[i], &args->any[i], binding->symbols))) {
      fc_args_end(args);
      return 0;
    }
  }
  /* Arrays of some importers must not be written, but are not marked read-only. */
  if (FC_LIKELY(!program->writes || !(args->seen & FC_SEEN_IMPORTER))) return 1;
  fc_args_end(args);
  return 0;
}

/* Converts the leaves by the typed rules. */
static FC_COLD int take_resolved(FcArgs* args, FcProgram* program, FcBinding* binding, const FcFunction* function,
                                 PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  PyObject* values = resolve(program, function ? function->name : Py_None, objects, n, kwnames);
  if (!values) return -1;
  for (Py_ssize_t i = 0; i < program->n_inputs; ++i) {
    Py_XSETREF(binding->leaves[i], Py_NewRef(PyList_GET_ITEM(values, i)));
  }
  for (Py_ssize_t i = 0; i < program->n_symbols; ++i) binding->symbols[i] = -1;
  Py_DECREF(values);
  int rc = function ? fc_args_begin_for(args, binding->leaves, binding->n, function)
                    : fc_args_begin_owned(args, binding->leaves, binding->n, Py_None);
  bool by_rules = false;
  for (Py_ssize_t i = 0; rc == 0 && i < program->n_inputs; ++i) { /* for the sizes of the results */
    fc_leaf_learn(&program->inputs[i], &args->any[i], binding->symbols);
    by_rules |= program->inputs[i].kind == FC_LEAF_RULES;
  }
  /* Strings are numpy's: if no framework's tensor is among the arguments, numpy gets the results. */
  if (rc == 0 && by_rules && !args->seen) args->seen = FC_SEEN_NUMPY;
  return rc;
}

/* Binds, checks and converts the arguments. On failure it ends `args`; the caller must end the binding in any case. */
static inline int begin(FcArgs* args, FcProgram* program, FcBinding* binding, const FcFunction* function,
                        PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  Py_ssize_t room = function && program->destinations ? program->n_outputs : 0;
  int rc = fc_binding_begin(binding, program, room, objects, n, kwnames);
  if (FC_LIKELY(rc == 1)) rc = convert(args, program, binding, function);
  if (FC_LIKELY(rc == 1)) return 0;
  return rc < 0 ? -1 : take_resolved(args, program, binding, function, objects, n, kwnames);
}

/* The Python form of a converted leaf; the caller's object itself where no conversion was needed. */
static PyObject* packed_value(TVMFFIAny* any, PyObject* object) {
  if (any->type_index == kTVMFFIFunction && !Py_IS_TYPE(object, &FcFunction_Type)) {
    return PyObject_CallOneArg((PyObject*)&FcFunction_Type, object); /* it keeps the callable's name */
  }
  bool converted = any->type_index == kTVMFFIInt || any->type_index == kTVMFFIFloat || any->type_index == kTVMFFIBool ||
                   any->type_index == kTVMFFITensor || any->type_index == kTVMFFIArray;
  if (!converted || Py_IS_TYPE(object, &FcTensor_Type)) return Py_NewRef(object);
  TVMFFIAny owned = *any;
  *any = fc_any_none();
  return fc_any_to_python(&owned);
}

static PyObject* pack_inputs(PyObject* self, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  FcProgram* program = (FcProgram*)self;
  FcBinding binding;
  FcArgs args;
  PyObject* out = NULL;
  if (begin(&args, program, &binding, NULL, objects, n, kwnames) == 0) {
    out = PyList_New(binding.n);
    for (Py_ssize_t i = 0; out && i < binding.n; ++i) {
      PyObject* value = packed_value(&args.any[i], binding.leaves[i]);
      if (value) PyList_SET_ITEM(out, i, value);
      if (!value) Py_CLEAR(out);
    }
    fc_args_end(&args);
  }
  fc_binding_end(&binding);
  return out;
}

/* ---- results ---- */

/* A borrowed native value of a raw result; an owned one must be released by fc_any_clear. */
static bool raw_value(PyObject* object, TVMFFIAny* any, bool* owned) {
  *owned = false;
  if (Py_IS_TYPE(object, &FcTensor_Type)) {
    TVMFFIObject* tensor = ((FcTensor*)object)->object;
    if (tensor) *any = fc_any_object(tensor);
    return tensor != NULL;
  }
  *owned = true;
  if (fc_any_from_python(object, any) == 0) return true;
  PyErr_Clear();
  return false;
}

/* 1 with the value of a result; 0 if the typed rules must restore it; -1 with an exception. */
static int unpack_one(const FcProgram* program, const FcLeaf* leaf, PyObject* object, int64_t* symbols,
                      PyObject** out) {
  TVMFFIAny any;
  bool owned;
  if (!raw_value(object, &any, &owned)) return 0;
  int32_t before = any.type_index;
  bool fits = fc_leaf_accepts(leaf, &any, symbols) && any.type_index == before;
  bool wrap =
      fits && !owned && program->arrays == FC_ARRAYS_NUMPY && fc_tensor_dl(any.v_obj)->device.device_type == kDLCPU;
  if (owned) fc_any_clear(&any);
  if (!fits) return 0;
  if (wrap) fc_incref(any.v_obj);
  *out = wrap ? fc_numpy_wrap(any.v_obj) : Py_NewRef(object);
  return *out ? 1 : -1;
}

static int unpack_all(const FcProgram* program, PyObject* values, FcBinding* binding) {
  for (Py_ssize_t i = 0; i < binding->n; ++i) {
    PyObject* object = PySequence_Fast_GET_ITEM(values, i);
    int rc = unpack_one(program, &program->outputs[i], object, binding->symbols, &binding->leaves[i]);
    if (rc != 1) return rc;
  }
  return 1;
}

/* The argument `values`, by position or by name; NULL with an exception. */
static PyObject* values_of(PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  bool known = named == 0 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "values") == 0;
  if (n + named == 1 && known) return objects[0];
  PyErr_SetString(PyExc_TypeError, "unpack_results() takes one argument, `values`: a list of raw results");
  return NULL;
}

static PyObject* unpack_results(PyObject* self, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  FcProgram* program = (FcProgram*)self;
  PyObject* values = values_of(objects, n, kwnames);
  if (!values) return NULL;
  bool plain = PyList_CheckExact(values) || PyTuple_CheckExact(values);
  if (!plain || Py_SIZE(values) != program->n_outputs || program->arrays == FC_ARRAYS_RULES) {
    return restore(program, Py_None, values, NULL);
  }
  FcBinding binding;
  int rc = fc_binding_reserve(&binding, program, program->n_outputs) == 0 ? unpack_all(program, values, &binding) : -1;
  PyObject* out = rc == 1 ? fc_program_build(program, binding.leaves) : NULL;
  fc_binding_end(&binding);
  return rc == 0 ? restore(program, Py_None, values, NULL) : out;
}

/* ---- a Function ---- */

/* The raw results that a native function returned: none, one value, or a sequence. Borrowed. */
static TVMFFIAny* raw_results(const FcProgram* program, TVMFFIAny* result) {
  if (program->n_outputs == 1) return result;
  if (program->n_outputs == 0) return result->type_index == kTVMFFINone ? result : NULL;
  if (result->type_index != kTVMFFIArray && result->type_index != kTVMFFIList) return NULL;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(result->v_obj);
  return cell->size == program->n_outputs ? (TVMFFIAny*)cell->data : NULL;
}

static bool accepts_results(const FcProgram* program, TVMFFIAny* result, int64_t* symbols) {
  const TVMFFIAny* raw = raw_results(program, result);
  for (Py_ssize_t i = 0; raw && i < program->n_outputs; ++i) {
    TVMFFIAny value = raw[i];
    if (!fc_leaf_accepts(&program->outputs[i], &value, symbols) || value.type_index != raw[i].type_index) return false;
  }
  return raw != NULL;
}

/* Takes ownership of `value`, the result in Python: one value, or a tuple or list of several. */
static PyObject* structured(const FcProgram* program, PyObject* value) {
  PyObject* out;
  if (program->n_outputs == 1) {
    out = fc_program_build(program, &value);
  } else if (program->n_outputs == 0) {
    out = fc_program_build(program, NULL);
  } else {
    PyObject* items = PySequence_Fast(value, "");
    out = items ? fc_program_build(program, PySequence_Fast_ITEMS(items)) : NULL;
    Py_XDECREF(items);
  }
  Py_DECREF(value);
  return out;
}

/* The same by the typed rules: None means no results. */
static FC_COLD PyObject* restored(FcProgram* program, PyObject* name, PyObject* value, const FcBinding* binding) {
  PyObject* values = program->n_outputs == 1                       ? PyTuple_Pack(1, value)
                     : program->n_outputs == 0 && value == Py_None ? PyTuple_New(0)
                                                                   : Py_NewRef(value);
  PyObject* out = values ? restore(program, name, values, binding) : NULL;
  Py_XDECREF(values);
  Py_DECREF(value);
  return out;
}

/* A function that writes its results into destinations and returns nothing, or returns all of them itself. */
static int invoke_into(FcFunction* function, FcProgram* program, FcArgs* args, FcBinding* binding, TVMFFIAny* result,
                       TVMFFIObject** made) {
  if (fc_destinations_place(program, args, binding, made) != 0) return -1;
  int rc = fc_function_invoke(function, args, result);
  if (rc != 0 || result->type_index != kTVMFFINone) return rc;
  return fc_destinations_result(program, made, result);
}

static int invoke(FcFunction* function, FcProgram* program, FcArgs* args, FcBinding* binding, TVMFFIAny* result) {
  enum { INLINE = 16 };
  TVMFFIObject* inline_made[INLINE];
  if (FC_LIKELY(!program->destinations || !program->n_outputs)) return fc_function_invoke(function, args, result);
  if (program->n_outputs <= INLINE) return invoke_into(function, program, args, binding, result, inline_made);
  TVMFFIObject** made = PyMem_Malloc((size_t)program->n_outputs * sizeof *made);
  int rc = made ? invoke_into(function, program, args, binding, result, made) : -1;
  if (!made) PyErr_NoMemory();
  PyMem_Free(made);
  return rc;
}

static PyObject* finish(FcFunction* function, FcProgram* program, FcArgs* args, FcBinding* binding) {
  TVMFFIAny result = fc_any_none();
  int rc = invoke(function, program, args, binding, &result);
  bool fits = rc == 0 && accepts_results(program, &result, binding->symbols);
  PyObject* value = fc_args_result(args, rc, &result, function->name);
  if (!value) return NULL;
  return fits ? structured(program, value) : restored(program, function->name, value, binding);
}

PyObject* fc_program_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  FcProgram* program = (FcProgram*)Py_NewRef(function->program); /* the callee may take the signature away */
  FcBinding binding;
  FcArgs args;
  PyObject* out = NULL;
  if (begin(&args, program, &binding, function, objects, n, kwnames) == 0) {
    out = finish(function, program, &args, &binding);
    fc_args_end(&args);
  }
  fc_binding_end(&binding);
  Py_DECREF(program);
  return out;
}

/* ---- the type ---- */

static int program_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(((FcProgram*)self)->spec);
  return 0;
}

static int program_clear(PyObject* self) {
  FcProgram* program = (FcProgram*)self;
  program->n_inputs = program->n_outputs = program->n_parameters = program->n_symbols = 0;
  program->cleared = 1;
  Py_CLEAR(program->spec);
  return 0;
}

static void program_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  program_clear(self);
  fc_program_free((FcProgram*)self);
  Py_TYPE(self)->tp_free(self);
}

static PyObject* build_result(PyObject* self, PyObject* values) {
  FcProgram* program = (FcProgram*)self;
  if (PyList_CheckExact(values) && PyList_GET_SIZE(values) == program->n_outputs) {
    return fc_program_build(program, PySequence_Fast_ITEMS(values));
  }
  return PyErr_Format(PyExc_TypeError, "_build: expected a list of %zd values", program->n_outputs);
}

static PyMethodDef methods[] = {
    {"_build", build_result, METH_O, "_build($self, values, /)\n--\n\nThe structured result from restored values."},
    {"pack_inputs", (PyCFunction)(void (*)(void))pack_inputs, METH_FASTCALL | METH_KEYWORDS,
     "pack_inputs($self, /, *args, **kwargs)\n--\n\n"
     "Check the arguments of a call, and return its raw arguments: a list with one value for each input.\n\n"
     "Arrays become Tensors that share their memory and keep them alive. Values that the rules of farcall.abi copy or\n"
     "cast are counted in `copies`.\n\n"
     "Raises:\n    ArgumentError: lists every wrong argument, with its path. Nothing is packed."},
    {"unpack_results", (PyCFunction)(void (*)(void))unpack_results, METH_FASTCALL | METH_KEYWORDS,
     "unpack_results($self, /, values)\n--\n\n"
     "The structured result from a list of raw values, one for each output.\n\n"
     "Raises:\n    ResultError: lists every value that does not match the Signature."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject FcProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.SignatureProgram",
    .tp_doc = "A compiled Signature: the base class of farcall.abi.FunctionAbi.",
    .tp_basicsize = sizeof(FcProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = fc_program_init,
    .tp_dealloc = program_dealloc,
    .tp_traverse = program_traverse,
    .tp_clear = program_clear,
    .tp_methods = methods,
};
