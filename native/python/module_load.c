/* Making Modules in Python: from files, bytes, Python functions, and functions linked into the process. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/function.h"
#include "python/init.h"
#include "python/module.h"
#include "runtime/dl/dl.h"
#include "runtime/frame.h"

/* ---- files ---- */

static PyObject* wrap_loaded(TVMFFIObject* module, PyObject* name, const char* message) {
  if (module) return fc_module_wrap_as(module, name);
  return message[0] ? PyErr_Format(PyExc_OSError, "cannot load library: %s", message) : fc_raise_slot();
}

static PyObject* load_library(PyObject* self, PyObject* args) {
  PyObject *path = NULL, *name = NULL;
  char message[1024];
  (void)self;
  if (!PyArg_ParseTuple(args, "O&|U:load_library", PyUnicode_FSDecoder, &path, &name)) return NULL;
  PyObject* encoded = PyUnicode_EncodeFSDefault(path);
  PyObject* out = NULL;
  if (encoded) {
    /* Without the GIL: the library's constructors may take long, or call Python from another thread. */
    PyThreadState* state = PyEval_SaveThread();
    TVMFFIObject* module = fc_module_load(PyBytes_AS_STRING(encoded), message, sizeof message);
    PyEval_RestoreThread(state);
    out = wrap_loaded(module, name ? name : path, message);
  }
  Py_XDECREF(encoded);
  Py_DECREF(path);
  return out;
}

/* None if the file is not a plain library. */
static PyObject* load_plain_named(PyObject* name) {
  PyObject* encoded;
  TVMFFIObject* module = NULL;
  char message[1024];
  if (!PyUnicode_FSConverter(name, &encoded)) return NULL;
  PyThreadState* state = PyEval_SaveThread();
  bool plain = fc_module_load_plain(PyBytes_AS_STRING(encoded), &module, message, sizeof message);
  PyEval_RestoreThread(state);
  Py_DECREF(encoded);
  return plain ? wrap_loaded(module, name, message) : Py_NewRef(Py_None);
}

static PyObject* load_plain(PyObject* self, PyObject* path) {
  PyObject* name = PyOS_FSPath(path);
  (void)self;
  if (name && PyBytes_Check(name)) {
    Py_SETREF(name, PyUnicode_DecodeFSDefaultAndSize(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)));
  }
  PyObject* out = name ? load_plain_named(name) : NULL;
  Py_XDECREF(name);
  return out;
}

static PyObject* load_from_bytes(PyObject* self, PyObject* args) {
  TVMFFIByteArray kind, data;
  Py_ssize_t kind_size, size;
  (void)self;
  if (!PyArg_ParseTuple(args, "s#y#:load_module_from_bytes", &kind.data, &kind_size, &data.data, &size)) return NULL;
  kind.size = (size_t)kind_size;
  data.size = (size_t)size;
  PyThreadState* state = PyEval_SaveThread();
  TVMFFIObject* module = fc_module_from_bytes(kind, data, NULL);
  PyEval_RestoreThread(state);
  return module ? fc_module_wrap(module) : fc_raise_slot();
}

/* For tests: the fields of a frame, as the runtime reads them: (version, data, features, producer, package). */
static PyObject* parse_frame(PyObject* self, PyObject* args) {
  FcFrame frame;
  TVMFFIByteArray kind;
  const char* data;
  Py_ssize_t kind_size, size;
  (void)self;
  if (!PyArg_ParseTuple(args, "s#y#:_parse_frame", &kind.data, &kind_size, &data, &size)) return NULL;
  kind.size = (size_t)kind_size;
  if (fc_frame_read(kind, data, (size_t)size, &frame) != 0) return fc_raise_slot();
  PyObject* features = PyTuple_New((Py_ssize_t)frame.feature_count);
  for (uint32_t i = 0; features && i < frame.feature_count; ++i) {
    PyObject* name = PyUnicode_FromStringAndSize(frame.features[i].data, (Py_ssize_t)frame.features[i].size);
    if (!name) Py_CLEAR(features);
    if (name) PyTuple_SET_ITEM(features, (Py_ssize_t)i, name);
  }
  TVMFFIByteArray package = fc_frame_package(&frame);
  return features ? Py_BuildValue("(Iy#Ns#s#)", frame.version, frame.data.data, (Py_ssize_t)frame.data.size, features,
                                  frame.producer.data, (Py_ssize_t)frame.producer.size, package.data,
                                  (Py_ssize_t)package.size)
                  : NULL;
}

/* For tests: makes the modules of the bytes that a library embeds. */
static PyObject* from_bin(PyObject* self, PyObject* args) {
  const char* data;
  Py_ssize_t size;
  (void)self;
  if (!PyArg_ParseTuple(args, "y#:_module_from_bin", &data, &size)) return NULL;
  TVMFFIObject* library = fc_module_new("library", FC_MODULE_RUNNABLE);
  if (!library) return fc_raise_slot();
  PyThreadState* state = PyEval_SaveThread();
  TVMFFIObject* root = fc_module_from_bin(data, (size_t)size, library);
  PyEval_RestoreThread(state);
  fc_decref(library);
  return root ? fc_module_wrap(root) : fc_raise_slot();
}

static PyObject* system_lib(PyObject* self, PyObject* args) {
  const char* prefix = "";
  (void)self;
  if (!PyArg_ParseTuple(args, "|s:system_lib", &prefix)) return NULL;
  TVMFFIObject* module = fc_module_system(prefix);
  if (!module) return fc_raise_slot();
  fc_incref(module);
  return fc_module_wrap(module);
}

/* ---- modules of Python functions ---- */

static TVMFFIObject* function_object(PyObject* callable) {
  if (Py_IS_TYPE(callable, &FcFunction_Type)) {
    fc_incref(((FcFunction*)callable)->object);
    return ((FcFunction*)callable)->object;
  }
  if (PyCallable_Check(callable)) return fc_callback_new(callable);
  PyErr_Format(PyExc_TypeError, "a module's function: expected a callable, got `%s`", Py_TYPE(callable)->tp_name);
  return NULL;
}

static int add_function(TVMFFIObject* map, PyObject* name, PyObject* callable) {
  Py_ssize_t size;
  TVMFFIAny key;
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
  if (!text && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the name of a module's function is a str");
  TVMFFIObject* function = text ? function_object(callable) : NULL;
  if (!function) return -1;
  int rc = fc_any_from_bytes(kTVMFFIStr, text, (size_t)size, &key);
  if (rc == 0) {
    rc = fc_map_set(map, key, fc_any_object(function));
  } else {
    fc_decref(function);
  }
  if (rc != 0) fc_raise_slot();
  return rc;
}

static int fill(FcModuleObj* module, PyObject* functions, PyObject* save, PyObject* source) {
  PyObject *name, *callable;
  Py_ssize_t at = 0;
  if (fc_map_new(kTVMFFIMap, (TVMFFIObjectHandle*)&module->functions) != 0) {
    fc_raise_slot();
    return -1;
  }
  while (PyDict_Next(functions, &at, &name, &callable)) {
    if (add_function(module->functions, name, callable) != 0) return -1;
  }
  if (save != Py_None && !(module->save = function_object(save))) return -1;
  if (source != Py_None && !(module->source = function_object(source))) return -1;
  if (module->save) module->properties |= FC_MODULE_TO_BYTES;
  return 0;
}

static PyObject* new_module(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"kind", "functions", "save", "source", NULL};
  const char* kind;
  PyObject *functions, *save = Py_None, *source = Py_None;
  (void)self;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO!|OO:new_module", names, &kind, &PyDict_Type, &functions, &save,
                                   &source)) {
    return NULL;
  }
  TVMFFIObject* module = fc_module_new(kind, FC_MODULE_RUNNABLE);
  if (!module) return fc_raise_slot();
  if (fill(fc_module_of(module), functions, save, source) == 0) return fc_module_wrap(module);
  fc_decref(module);
  return NULL;
}

/* ---- loaders: global functions under fixed names ---- */

/* load_from_file: `self` is the loader of bytes. */
static PyObject* load_file(PyObject* self, PyObject* args) {
  PyObject *path, *ending;
  if (!PyArg_ParseTuple(args, "UU:load_file", &path, &ending)) return NULL;
  PyObject* io = PyImport_ImportModule("io");
  PyObject* file = io ? PyObject_CallMethod(io, "open", "Os", path, "rb") : NULL;
  PyObject* data = file ? PyObject_CallMethod(file, "read", NULL) : NULL;
  PyObject* out = data ? PyObject_CallOneArg(self, data) : NULL;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* closed = file ? PyObject_CallMethod(file, "close", NULL) : NULL;
  if (file && !closed) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  Py_XDECREF(closed);
  Py_XDECREF(io);
  Py_XDECREF(file);
  Py_XDECREF(data);
  return out;
}

static PyMethodDef file_loader = {"load_file", load_file, METH_VARARGS, NULL};

static int set_loader(const char* format, const char* what, PyObject* callable, int override) {
  PyObject* name = PyUnicode_FromFormat(format, what);
  int rc = name ? fc_register_global(name, callable, override) : -1;
  Py_XDECREF(name);
  return rc;
}

static PyObject* register_loader(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"kind", "fn", "extension", "override", NULL};
  const char *kind, *extension = NULL;
  PyObject* loader;
  int override = 0;
  (void)self;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|zp:register_loader", names, &kind, &loader, &extension,
                                   &override)) {
    return NULL;
  }
  if (set_loader("ffi.Module.load_from_bytes.%s", kind, loader, override) != 0) return NULL;
  if (!extension) return Py_NewRef(loader);
  if (extension[0] == '.') ++extension;
  PyObject* of_file = PyCFunction_New(&file_loader, loader);
  int rc = of_file ? set_loader("ffi.Module.load_from_file.%s", extension, of_file, override) : -1;
  Py_XDECREF(of_file);
  return rc == 0 ? Py_NewRef(loader) : NULL;
}

/* ---- the backtrace of the last error ---- */

static PyObject* last_backtrace(PyObject* self, PyObject* unused) {
  char line[1024];
  int n = fc_backtrace_count();
  PyObject* lines = PyList_New(n);
  (void)self, (void)unused;
  for (int i = 0; lines && i < n; ++i) {
    fc_backtrace_describe(i, line, sizeof line);
    PyObject* text = PyUnicode_DecodeFSDefault(line);
    if (!text) Py_CLEAR(lines);
    if (text) PyList_SET_ITEM(lines, i, text);
  }
  return lines;
}

PyMethodDef fc_module_functions[] = {
    {"load_library", load_library, METH_VARARGS,
     "load_library(path, name=path, /)\n--\n\n"
     "Load a kernel library, which stays in memory until the process ends; messages call it `name`. A file with a\n"
     "suffix other than .so goes to the loader of that suffix, if one is registered."},
    {"load_plain", load_plain, METH_O,
     "load_plain(path, /)\n--\n\n"
     "Load a file if it is a valid library for this machine and not an artifact; else return None without loading."},
    {"load_module_from_bytes", load_from_bytes, METH_VARARGS,
     "load_module_from_bytes(kind, data, /)\n--\n\nMake a module of this kind from bytes, by the registered loader."},
    {"last_backtrace", last_backtrace, METH_NOARGS,
     "last_backtrace()\n--\n\n"
     "The native frames of the last error that a C++ library raised in this thread, the innermost first. This call\n"
     "looks up their names."},
    {"_parse_frame", parse_frame, METH_VARARGS, NULL},
    {"_module_from_bin", from_bin, METH_VARARGS, NULL},
    {"system_lib", system_lib, METH_VARARGS,
     "system_lib(prefix='', /)\n--\n\n"
     "The module of the functions that are linked into this process, or registered as such by libraries. Always the\n"
     "same module for a prefix."},
    {"new_module", FC_WITH_KEYWORDS(new_module),
     "new_module(kind, functions, save=None, source=None)\n--\n\n"
     "Make a module of callables by name. `save()` returns the bytes from which a loader makes it again,\n"
     "`source(format)` its source."},
    {"register_loader", FC_WITH_KEYWORDS(register_loader),
     "register_loader(kind, fn, extension=None, override=False)\n--\n\n"
     "Register `fn(data: bytes)` as the loader of a kind of module: of those that libraries embed and, with\n"
     "`extension`, of files with that suffix."},
    {NULL, NULL, 0, NULL},
};
