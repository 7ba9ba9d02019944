/* Errors of the C ABI <-> Python exceptions. A Python exception that passes through C stays the same object. */
#include "python/errors.h"
#include "python/gil.h"
#include "python/init.h"

/* kind (str) -> exception class */
static PyObject* kinds;

/* Excluded: exceptions that would end the program, and those that cannot be made from a text alone. */
static bool can_be_raised(PyObject* type) {
  static const char* const never[] = {"UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError",
                                      "ExceptionGroup"};
  if (!PyExceptionClass_Check(type) || !PyObject_IsSubclass(type, PyExc_Exception)) return false;
  for (size_t i = 0; i < sizeof never / sizeof *never; ++i) {
    if (strcmp(((PyTypeObject*)type)->tp_name, never[i]) == 0) return false;
  }
  return true;
}

int fc_errors_init(void) {
  PyObject *name, *type;
  Py_ssize_t position = 0;
  PyObject* builtins = PyEval_GetBuiltins();
  kinds = PyDict_New();
  while (kinds && PyDict_Next(builtins, &position, &name, &type)) {
    if (can_be_raised(type) && PyDict_SetItem(kinds, name, type) != 0) return -1;
  }
  return kinds && PyDict_SetItemString(kinds, "KeyboardInterrupt", PyExc_KeyboardInterrupt) == 0 ? 0 : -1;
}

/* ---- native -> Python ---- */

/* "Kind" and text -> exception of that class. Always returns NULL. */
FC_COLD static PyObject* raise_kind(const char* kind, size_t kind_size, const char* message, size_t size) {
  PyObject* name = PyUnicode_DecodeUTF8(kind, (Py_ssize_t)kind_size, "replace");
  PyObject* text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)size, "replace");
  PyObject* type = name ? PyDict_GetItemWithError(kinds, name) : NULL;
  PyObject* error = type && text ? PyObject_CallOneArg(type, text) : NULL;
  if (error && PyExceptionInstance_Check(error)) {
    PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  } else if (type == PyExc_RecursionError && PyErr_ExceptionMatches(type)) {
    /* This stack too is so deep that no exception can be made; the one that reports this has the wanted class. */
  } else if (name && text) {
    /* The message names an unknown kind, and a class whose constructor refused the text. */
    PyErr_Clear();
    PyErr_Format(PyExc_RuntimeError, kind_size ? "%U: %U" : "%U%U", name, text);
  }
  Py_XDECREF(error);
  Py_XDECREF(name);
  Py_XDECREF(text);
  return NULL;
}

static PyObject* original_exception(const TVMFFIErrorCell* cell) {
  TVMFFIObject* context = cell->extra_context;
  if (!context || context->type_index != kTVMFFIOpaquePyObject) return NULL;
  PyObject* object = TVMFFIOpaqueObjectGetCellPtr(context)->handle;
  return object && PyExceptionInstance_Check(object) ? object : NULL;
}

/*
 * The lines that native code added to the backtrace of a Python exception. Before them are the lines of the
 * exception's own traceback, see error_of.
 */
static TVMFFIByteArray native_lines(PyObject* original, TVMFFIByteArray backtrace) {
  PyObject* own = original && backtrace.size ? fc_traceback_lines(original) : NULL;
  Py_ssize_t size = 0;
  const char* text = own ? PyUnicode_AsUTF8AndSize(own, &size) : NULL;
  if (text && (size_t)size <= backtrace.size && memcmp(text, backtrace.data, (size_t)size) == 0) {
    backtrace.data += size;
    backtrace.size -= (size_t)size;
  }
  PyErr_Clear();
  Py_XDECREF(own);
  return backtrace;
}

/* ---- causes ---- */

enum { MAX_CAUSES = 16 };

static PyObject* exception_of(TVMFFIObject* error, int depth);

static void set_cause(PyObject* exception, TVMFFIObject* cause, int depth) {
  if (!cause || cause->type_index != kTVMFFIError || depth >= MAX_CAUSES) return;
  PyObject* value = exception_of(cause, depth + 1);
  if (value && value != exception) {
    PyException_SetCause(exception, value);
  } else {
    Py_XDECREF(value);
  }
}

static void raise_one(const TVMFFIErrorCell* cell, int depth) {
  if (FC_UNLIKELY(PyErr_Occurred() && fc_error_says_already_set(cell->kind))) return; /* by another runtime */
  PyObject* original = original_exception(cell);
  TVMFFIByteArray lines = native_lines(original, cell->backtrace);
  if (original) {
    PyErr_Restore(Py_NewRef((PyObject*)Py_TYPE(original)), Py_NewRef(original), PyException_GetTraceback(original));
  } else {
    raise_kind(cell->kind.data, cell->kind.size, cell->message.data, cell->message.size);
  }
  if (FC_UNLIKELY(lines.size)) fc_traceback_add(lines);
  if (original || FC_LIKELY(!cell->cause_chain)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value) set_cause(value, cell->cause_chain, depth);
  PyErr_Restore(type, value, traceback);
}

/* Makes an exception of the error, without raising it. */
static PyObject* exception_of(TVMFFIObject* error, int depth) {
  PyObject *type, *value, *traceback;
  raise_one(TVMFFIErrorGetCellPtr(error), depth);
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

PyObject* fc_raise_error(TVMFFIObject* error) {
  raise_one(TVMFFIErrorGetCellPtr(error), 0);
  fc_decref(error);
  return NULL;
}

PyObject* fc_raise_slot(void) {
  TVMFFIObject* error = fc_error_take();
  if (error) return fc_raise_error(error);
  PyErr_SetString(PyExc_SystemError, "a native function failed without setting an error");
  return NULL;
}

/* ---- Python -> native ---- */

/* The message of an exception. str(KeyError("x")) adds quotes, which another process does not want. Avoids str()
 * where its result is known: a RecursionError leaves no stack for the call. */
static PyObject* text_of(PyObject* exception) {
  PyObject* args = PyExceptionInstance_Check(exception) ? ((PyBaseExceptionObject*)exception)->args : NULL;
  bool single = args && PyTuple_GET_SIZE(args) == 1 && PyUnicode_CheckExact(PyTuple_GET_ITEM(args, 0));
  bool plain = Py_TYPE(exception)->tp_str == ((PyTypeObject*)PyExc_BaseException)->tp_str;
  if (single && (plain || PyErr_GivenExceptionMatches(exception, PyExc_KeyError))) {
    return Py_NewRef(PyTuple_GET_ITEM(args, 0));
  }
  return PyObject_Str(exception);
}

static TVMFFIByteArray utf8_of(PyObject* text, const char* without) {
  Py_ssize_t size = 0;
  const char* data = text ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
  PyErr_Clear();
  return data ? (TVMFFIByteArray){data, (size_t)size} : (TVMFFIByteArray){without, strlen(without)};
}

/* The class name without its module: "ValueError", not "builtins.ValueError". */
static TVMFFIByteArray kind_of(PyObject* exception) {
  const char* name = Py_TYPE(exception)->tp_name;
  const char* dot = strrchr(name, '.');
  name = dot ? dot + 1 : name;
  return (TVMFFIByteArray){name, strlen(name)};
}

/* The Error holds the exception; its texts are for native code, other runtimes and other processes. */
static TVMFFIObject* error_of(PyObject* value, int depth) {
  PyObject* text = text_of(value);
  PyObject* lines = fc_traceback_lines(value);
  TVMFFIByteArray message = utf8_of(text, "(no message)"), backtrace = utf8_of(lines, "");
  PyObject* cause = depth < MAX_CAUSES ? PyException_GetCause(value) : NULL;
  TVMFFIObject* native_cause = cause ? error_of(cause, depth + 1) : NULL;
  TVMFFIObjectHandle context = NULL;
  if (fc_opaque_new(Py_NewRef(value), kTVMFFIOpaquePyObject, fc_drop_anywhere, &context) != 0) Py_DECREF(value);
  TVMFFIObject* error = fc_error_new(kind_of(value), message, backtrace, native_cause, context);
  Py_XDECREF(cause);
  Py_XDECREF(lines);
  Py_XDECREF(text);
  return error;
}

TVMFFIObject* fc_error_object(PyObject* exception) {
  TVMFFIObject* error = error_of(exception, 0);
  if (!error) PyErr_NoMemory();
  return error;
}

void fc_error_from_python(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  TVMFFIObject* error = error_of(value, 0);
  if (error) {
    fc_error_raise(error);
  } else {
    fc_error_no_memory();
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

/* ---- the Python functions ---- */

static PyObject* register_class(PyObject* kind, PyObject* type) {
  if (!PyExceptionClass_Check(type)) {
    return PyErr_Format(PyExc_TypeError, "register_error: expected an exception class, got %R", type);
  }
  return PyDict_SetItem(kinds, kind, type) == 0 ? Py_NewRef(type) : NULL;
}

/* @register_error("kind"): the decorator, which takes the class. */
static PyMethodDef decorator = {"register_error", register_class, METH_O, NULL};

/* register_error(kind, cls), @register_error(kind), or @register_error, whose kind is the name of the class. */
static PyObject* register_error(PyObject* module, PyObject* args) {
  PyObject *kind, *type = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "O|O:register_error", &kind, &type)) return NULL;
  if (PyUnicode_Check(kind)) return type ? register_class(kind, type) : PyCFunction_New(&decorator, kind);
  PyObject* name = !type && PyExceptionClass_Check(kind) ? PyObject_GetAttrString(kind, "__name__") : NULL;
  PyObject* out = name ? register_class(name, kind) : NULL;
  if (!name && !PyErr_Occurred()) {
    PyErr_Format(PyExc_TypeError, "register_error: expected a kind (str) and an exception class, got %R", kind);
  }
  Py_XDECREF(name);
  return out;
}

PyObject* fc_raised_as_value(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

static PyObject* make_error(PyObject* module, PyObject* args) {
  const char *kind, *message;
  Py_ssize_t kind_size, size;
  (void)module;
  if (!PyArg_ParseTuple(args, "s#s#:make_error", &kind, &kind_size, &message, &size)) return NULL;
  raise_kind(kind, (size_t)kind_size, message, (size_t)size);
  return fc_raised_as_value();
}

PyMethodDef fc_error_functions[] = {
    {"register_error", register_error, METH_VARARGS,
     "register_error(kind, cls=None, /)\n--\n\nRaise `cls` for native errors of this kind; `cls` must accept one str.\n"
     "Also a decorator: @register_error(kind), or @register_error, whose kind is the name of the class."},
    {"make_error", make_error, METH_VARARGS,
     "make_error(kind, message, /)\n--\n\nMake the exception for a native error of this kind and message."},
    {NULL, NULL, 0, NULL},
};
