/* Module in Python: imports, descriptions, properties, and the table of methods. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/module.h"
#include "python/threads.h"

static TVMFFIObject* handle_of(PyObject* self) { return ((FcModule*)self)->object; }

/* ---- imports ---- */

static PyObject* get_imports(PyObject* self, void* closure) {
  TVMFFIObject* array = fc_module_imports(handle_of(self));
  (void)closure;
  if (!array) return fc_raise_slot();
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(array);
  PyObject* out = PyTuple_New(cell->size);
  for (int64_t i = 0; out && i < cell->size; ++i) {
    TVMFFIObject* module = ((TVMFFIAny*)cell->data)[i].v_obj;
    fc_incref(module);
    PyObject* wrapped = fc_module_wrap(module);
    if (!wrapped) Py_CLEAR(out);
    if (out) PyTuple_SET_ITEM(out, (Py_ssize_t)i, wrapped);
  }
  fc_decref(array);
  return out;
}

static PyObject* import_module(PyObject* self, PyObject* other) {
  if (!Py_IS_TYPE(other, &FcModule_Type)) {
    return PyErr_Format(PyExc_TypeError, "import_module: expected a Module, got `%s`", Py_TYPE(other)->tp_name);
  }
  if (fc_module_import(handle_of(self), handle_of(other)) != 0) return fc_raise_slot();
  Py_RETURN_NONE;
}

static PyObject* clear_imports(PyObject* self, PyObject* unused) {
  (void)unused;
  if (fc_module_clear_imports(handle_of(self)) != 0) return fc_raise_slot();
  Py_RETURN_NONE;
}

/* ---- metadata and documentation ---- */

static int parse_query(PyObject* args, PyObject* kwargs, const char** name, Py_ssize_t* size, int* imports) {
  static char* names[] = {"", "query_imports", NULL};
  *imports = 0;
  return PyArg_ParseTupleAndKeywords(args, kwargs, "s#|p", names, name, size, imports);
}

static PyObject* implements_function(PyObject* self, PyObject* args, PyObject* kwargs) {
  const char* name;
  Py_ssize_t size;
  int imports;
  TVMFFIObject* function = NULL;
  if (!parse_query(args, kwargs, &name, &size, &imports)) return NULL;
  if (fc_module_get(handle_of(self), name, (size_t)size, imports, &function) != 0) return fc_raise_slot();
  if (function) fc_decref(function);
  return PyBool_FromLong(function != NULL);
}

static PyObject* text_about(PyObject* self, const char* what, PyObject* args, PyObject* kwargs) {
  const char* name;
  Py_ssize_t size;
  int imports;
  TVMFFIAny text = fc_any_none();
  if (!parse_query(args, kwargs, &name, &size, &imports)) return NULL;
  if (fc_module_text(handle_of(self), what, name, (size_t)size, imports, &text) != 0) return fc_raise_slot();
  return fc_any_to_python(&text);
}

static PyObject* get_doc(PyObject* self, PyObject* args, PyObject* kwargs) {
  return text_about(self, "_doc_", args, kwargs);
}

static PyObject* get_metadata(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* text = text_about(self, "_metadata_", args, kwargs);
  if (!text || text == Py_None) return text;
  return fc_read_json(text);
}

/* ---- the module itself ---- */

static PyObject* get_kind(PyObject* self, void* closure) {
  const char* kind = NULL;
  (void)closure;
  return fc_module_kind(handle_of(self), &kind) == 0 ? PyUnicode_FromString(kind) : fc_raise_slot();
}

static PyObject* get_property_mask(PyObject* self, void* closure) {
  int properties = 0;
  (void)closure;
  return fc_module_properties(handle_of(self), &properties) == 0 ? PyLong_FromLong(properties) : fc_raise_slot();
}

static PyObject* save_to_bytes(PyObject* self, PyObject* unused) {
  TVMFFIAny result = fc_any_none();
  (void)unused;
  PyThreadState* state = PyEval_SaveThread();
  int rc = fc_module_save(handle_of(self), &result);
  PyEval_RestoreThread(state);
  return rc == 0 ? fc_any_to_python(&result) : fc_raise_slot();
}

static PyObject* save(PyObject* self, PyObject* path) {
  const char* kind = "";
  PyObject* encoded;
  if (fc_module_kind(handle_of(self), &kind) != 0) return fc_raise_slot();
  if (!PyUnicode_FSConverter(path, &encoded)) return NULL;
  const TVMFFIAny file = {.type_index = kTVMFFIRawStr, .v_c_str = PyBytes_AS_STRING(encoded)};
  const TVMFFIAny format = {.type_index = kTVMFFIRawStr, .v_c_str = kind};
  PyThreadState* state = PyEval_SaveThread();
  int rc = fc_module_write(handle_of(self), &file, &format);
  PyEval_RestoreThread(state);
  Py_DECREF(encoded);
  return rc == 0 ? Py_NewRef(Py_None) : fc_raise_slot();
}

static PyObject* inspect_source(PyObject* self, PyObject* args) {
  const char* text = "";
  Py_ssize_t size = 0;
  TVMFFIAny format, result = fc_any_none();
  if (!PyArg_ParseTuple(args, "|s#:inspect_source", &text, &size)) return NULL;
  if (fc_any_from_bytes(kTVMFFIStr, text, (size_t)size, &format) != 0) return fc_raise_slot();
  PyThreadState* state = PyEval_SaveThread();
  int rc = fc_module_source(handle_of(self), &format, &result);
  PyEval_RestoreThread(state);
  fc_any_clear(&format);
  return rc == 0 ? fc_any_to_python(&result) : fc_raise_slot();
}

FC_PYTHON_METHOD(as_torch_op, "farcall.ffi._torch_ops", "as_torch_op")
FC_PYTHON_METHOD(profile, "farcall.rpc.client._profile", "profile")
FC_PYTHON_METHOD(memory, "farcall.library._memory", "memory")
FC_PYTHON_METHOD(keys, "farcall.ffi._modules", "keys")
FC_PYTHON_METHOD(values, "farcall.ffi._modules", "values")
FC_PYTHON_METHOD(items, "farcall.ffi._modules", "items")
FC_PYTHON_METHOD(to_html, "farcall.ffi._modules", "module_html")
FC_PYTHON_METHOD(complete, "farcall.ffi._modules", "names_to_complete")

PyMethodDef fc_module_methods[] = {
    FC_SAME_AS_METHOD,
    {"get_function", FC_WITH_KEYWORDS(fc_module_get_function),
     "get_function($self, name, /, query_imports=False)\n--\n\n"
     "The function of that name; else AttributeError, with similar names. With `query_imports`, also searches the\n"
     "imported modules, depth first."},
    {"implements_function", FC_WITH_KEYWORDS(implements_function),
     "implements_function($self, name, /, query_imports=False)\n--\n\nWhether a function of that name exists."},
    {"function_names", fc_module_function_names, METH_NOARGS,
     "function_names($self, /)\n--\n\nThe names of all functions, sorted."},
    {"keys", FC_WITH_KEYWORDS(keys), "keys($self)\n--\n\nThe names of all functions, as the keys of a dict."},
    {"values", FC_WITH_KEYWORDS(values), "values($self)\n--\n\nAll functions, as the values of a dict."},
    {"items", FC_WITH_KEYWORDS(items), "items($self)\n--\n\nNames and functions, as the items of a dict."},
    {"__dir__", FC_WITH_KEYWORDS(complete), "__dir__($self)\n--\n\nAttributes and functions, for completion."},
    {"_ipython_key_completions_", fc_module_function_names, METH_NOARGS, NULL},
    {"_repr_html_", FC_WITH_KEYWORDS(to_html), "_repr_html_($self)\n--\n\nThe table that notebooks show."},
    {"get_function_metadata", FC_WITH_KEYWORDS(get_metadata),
     "get_function_metadata($self, name, /, query_imports=False)\n--\n\n"
     "The library's metadata of a function, parsed from JSON; None without metadata."},
    {"get_function_doc", FC_WITH_KEYWORDS(get_doc),
     "get_function_doc($self, name, /, query_imports=False)\n--\n\nThe function's documentation; None without one."},
    {"import_module", import_module, METH_O,
     "import_module($self, module, /)\n--\n\n"
     "Make another module's functions reachable from this one. RuntimeError if that module imports this one."},
    {"clear_imports", clear_imports, METH_NOARGS, "clear_imports($self, /)\n--\n\nForget all imported modules."},
    {"save_to_bytes", save_to_bytes, METH_NOARGS,
     "save_to_bytes($self, /)\n--\n\nThe bytes from which the loader of this kind makes the module again."},
    {"save", save, METH_O,
     "save($self, path, /)\n--\n\nWrite the bytes of save_to_bytes() to the file `path`, which load_module reads."},
    {"as_torch_op", FC_WITH_KEYWORDS(as_torch_op),
     "as_torch_op($self, namespace, *, functions=None, fake=None, mutates=None)\n--\n\nRegister the functions as "
     "operators torch.ops.<namespace>.<name>: farcall.ffi._torch_ops.as_torch_op."},
    {"profile", FC_WITH_KEYWORDS(profile),
     "profile($self, /, *args, on=None, **kwargs)\n--\n\n"
     "The time of each region of an artifact in a call with these arguments: farcall.profile."},
    {"memory", FC_WITH_KEYWORDS(memory),
     "memory($self, /, *args, **kwargs)\n--\n\n"
     "The memory of an artifact, in a call with these arguments: farcall.library.memory."},
    {"inspect_source", inspect_source, METH_VARARGS,
     "inspect_source($self, format='', /)\n--\n\nThe source that the module keeps, or an empty str."},
    {NULL, NULL, 0, NULL},
};

static PyObject* get_threads(PyObject* self, void* closure) {
  (void)closure;
  return fc_threads_to_python(((FcModule*)self)->threads);
}

static int set_threads(PyObject* self, PyObject* value, void* closure) {
  FcModule* module = (FcModule*)self;
  const int count = fc_threads_from_python(value ? value : Py_None);
  PyObject *name, *function;
  Py_ssize_t at = 0;
  (void)closure;
  if (count < 0) return -1;
  module->threads = count;
  while (PyDict_Next(module->functions, &at, &name, &function)) ((FcFunction*)function)->threads = count;
  return 0;
}

PyGetSetDef fc_module_getset[] = {
    {"kind", get_kind, NULL, "The kind of module: 'library', or the name of another kind.", NULL},
    {"imports", get_imports, NULL, "The imported modules, in order.", NULL},
    {"property_mask", get_property_mask, NULL, "1: can be saved to bytes; 2: has functions to run.", NULL},
    {"threads", get_threads, set_threads, "Sets Function.threads of the module's functions.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
