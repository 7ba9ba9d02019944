/* The global functions, for Python. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/function.h"
#include "python/init.h"

static int name_utf8(PyObject* name, const char** text, Py_ssize_t* size) {
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "a global function's name is a str, got `%s`", Py_TYPE(name)->tp_name);
    return -1;
  }
  *text = PyUnicode_AsUTF8AndSize(name, size);
  return *text ? 0 : -1;
}

int fc_register_global(PyObject* name, PyObject* callable, bool override) {
  const char* text;
  Py_ssize_t size;
  if (name_utf8(name, &text, &size) != 0) return -1;
  if (!PyCallable_Check(callable)) {
    PyErr_Format(PyExc_TypeError, "global function `%U`: expected a callable, got `%s`", name,
                 Py_TYPE(callable)->tp_name);
    return -1;
  }
  TVMFFIObject* function;
  if (Py_IS_TYPE(callable, &FcFunction_Type)) {
    function = ((FcFunction*)callable)->object;
    fc_incref(function);
  } else {
    function = fc_callback_new(callable);
  }
  int rc = function ? fc_global_set(text, (size_t)size, function, override) : -1;
  if (rc != 0 && function) fc_raise_slot();
  if (function) fc_decref(function);
  return rc;
}

/* The decorator that register_global returns: self is (name, override). */
static PyObject* decorate(PyObject* self, PyObject* callable) {
  PyObject* name = PyTuple_GET_ITEM(self, 0);
  bool override = PyTuple_GET_ITEM(self, 1) == Py_True;
  return fc_register_global(name, callable, override) == 0 ? Py_NewRef(callable) : NULL;
}

static PyMethodDef decorator = {"register_global_func", decorate, METH_O, NULL};

static PyObject* register_global(PyObject* module, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"name", "fn", "override", NULL};
  PyObject *name, *callable = Py_None;
  int override = 0;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|Op:register_global_func", names, &name, &callable, &override)) {
    return NULL;
  }
  if (callable != Py_None) return fc_register_global(name, callable, override) == 0 ? Py_NewRef(callable) : NULL;
  PyObject* state = PyTuple_Pack(2, name, override ? Py_True : Py_False);
  PyObject* out = state ? PyCFunction_New(&decorator, state) : NULL;
  Py_XDECREF(state);
  return out;
}

static bool collect(void* list, const char* name, size_t size) {
  PyObject* text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)size, "replace");
  bool good = text && PyList_Append(list, text) == 0;
  Py_XDECREF(text);
  return good;
}

static PyObject* list_names(PyObject* module, PyObject* unused) {
  PyObject* names = PyList_New(0);
  (void)module, (void)unused;
  if (!names) return NULL;
  fc_global_each(collect, names);
  if (PyErr_Occurred() || PyList_Sort(names) != 0) Py_CLEAR(names);
  return names;
}

static FC_COLD PyObject* no_global(PyObject* name) {
  PyObject* names = list_names(NULL, NULL);
  PyObject* difflib = names ? PyImport_ImportModule("difflib") : NULL;
  PyObject* near = difflib ? PyObject_CallMethod(difflib, "get_close_matches", "OO", name, names) : NULL;
  if (near && PyObject_Size(near) == 0) {
    PyErr_Format(PyExc_ValueError, "no global function `%U`. Register it by register_global_func", name);
  } else if (near) {
    PyErr_Format(PyExc_ValueError, "no global function `%U`; near: %R. Register it by register_global_func", name,
                 near);
  }
  Py_XDECREF(names);
  Py_XDECREF(difflib);
  Py_XDECREF(near);
  return NULL;
}

static PyObject* get_global(PyObject* module, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"name", "allow_missing", NULL};
  PyObject* name;
  int allow_missing = 0;
  const char* text;
  Py_ssize_t size;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|p:get_global_func", names, &name, &allow_missing)) return NULL;
  if (name_utf8(name, &text, &size) != 0) return NULL;
  TVMFFIObject* function = fc_global_get(text, (size_t)size);
  if (function) return fc_function_wrap(function, name);
  if (allow_missing) Py_RETURN_NONE;
  return no_global(name);
}

PyObject* fc_read_json(PyObject* text) {
  PyObject* reader = PyImport_ImportModule("json");
  PyObject* out = reader ? PyObject_CallMethod(reader, "loads", "O", text) : NULL;
  Py_XDECREF(reader);
  Py_DECREF(text);
  return out;
}

/* Native code may register a function with JSON that describes its parameters. */
static PyObject* get_metadata(PyObject* module, PyObject* name) {
  const char* text;
  Py_ssize_t size;
  TVMFFIAny result = fc_any_none();
  (void)module;
  if (name_utf8(name, &text, &size) != 0) return NULL;
  if (fc_global_metadata(text, (size_t)size, &result) != 0) return fc_raise_slot();
  PyObject* json = fc_any_to_python(&result);
  if (!json || PyUnicode_GET_LENGTH(json) == 0) {
    Py_XDECREF(json);
    return json ? Py_NewRef(Py_None) : NULL;
  }
  return fc_read_json(json);
}

static PyObject* remove_global(PyObject* module, PyObject* name) {
  const char* text;
  Py_ssize_t size;
  (void)module;
  if (name_utf8(name, &text, &size) != 0) return NULL;
  if (!fc_global_remove(text, (size_t)size)) return no_global(name);
  Py_RETURN_NONE;
}

PyMethodDef fc_registry_functions[] = {
    {"register_global_func", FC_WITH_KEYWORDS(register_global),
     "register_global_func(name, fn=None, override=False)\n--\n\n"
     "Register a function for native code, and for sessions that this process serves. A decorator without `fn`."},
    {"get_global_func", FC_WITH_KEYWORDS(get_global),
     "get_global_func(name, allow_missing=False)\n--\n\nThe Function registered under a name."},
    {"get_global_func_metadata", get_metadata, METH_O,
     "get_global_func_metadata(name, /)\n--\n\n"
     "The metadata with which native code registered a function; None without metadata."},
    {"remove_global_func", remove_global, METH_O, "remove_global_func(name, /)\n--\n\nRemove a registered function."},
    {"list_global_func_names", list_names, METH_NOARGS,
     "list_global_func_names()\n--\n\nThe names of all registered functions, sorted."},
    {NULL, NULL, 0, NULL},
};
