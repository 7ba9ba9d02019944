/* Errors of the C ABI <-> Python exceptions. A Python exception that passes through C comes back as itself. */
#include "core.h"

#include <frameobject.h>
#include <stdio.h>

/* kind (str) -> exception class */
static PyObject* kinds;

/* A text from a kernel must not end the program, and an exception that needs more than a text cannot be made. */
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

PyObject* fc_raise_kind(const char* kind, size_t kind_size, const char* message, size_t size) {
  PyObject* name = PyUnicode_DecodeUTF8(kind, (Py_ssize_t)kind_size, "replace");
  PyObject* text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)size, "replace");
  PyObject* type = name ? PyDict_GetItemWithError(kinds, name) : NULL;
  PyObject* error = type && text ? PyObject_CallOneArg(type, text) : NULL;
  if (error && PyExceptionInstance_Check(error)) {
    PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  } else if (name && text) {
    /* An unknown kind keeps its name; so does a class whose constructor refused a text. */
    PyErr_Clear();
    PyErr_Format(PyExc_RuntimeError, "%U: %U", name, text);
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

/* ---- native frames, where the library recorded any: lines `  File "f", line n, in fn`, the innermost first ---- */

enum { MAX_FRAMES = 64 };

/* The same places throw again and again: the code objects of their lines are kept, in a table that forgets. */
typedef struct {
  char* line;
  size_t size;
  PyCodeObject* code;
} Place;
enum { PLACES = 256 };
static Place places[PLACES];

static FC_COLD PyCodeObject* read_line(const char* line, size_t size) {
  char text[768], file[512], function[256];
  int number;
  if (size >= sizeof text) return NULL;
  memcpy(text, line, size);
  text[size] = 0;
  bool good = sscanf(text, " File \"%511[^\"]\", line %d, in %255[^\n]", file, &number, function) == 3;
  return good ? PyCode_NewEmpty(file, function, number) : NULL;
}

static FC_COLD PyCodeObject* learn_line(Place* place, const char* line, size_t size) {
  PyCodeObject* code = read_line(line, size);
  char* copy = code ? PyMem_Malloc(size) : NULL;
  if (!copy) return code; /* for once */
  memcpy(copy, line, size);
  PyMem_Free(place->line);
  Py_XSETREF(place->code, code);
  place->line = copy;
  place->size = size;
  return (PyCodeObject*)Py_NewRef(code);
}

/* New reference; NULL for a line that is not understood. */
static PyCodeObject* code_of(const char* line, size_t size) {
  Place* place = &places[fc_hash_bytes(line, size) % PLACES];
  if (place->size == size && place->line && memcmp(place->line, line, size) == 0) {
    return (PyCodeObject*)Py_NewRef(place->code);
  }
  return learn_line(place, line, size);
}

static void add_line(const char* line, size_t size) {
  static PyObject* globals;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!globals) globals = Py_BuildValue("{sO}", "__builtins__", PyEval_GetBuiltins());
  PyCodeObject* code = globals ? code_of(line, size) : NULL;
  PyFrameObject* frame = code ? PyFrame_New(PyThreadState_Get(), code, globals, NULL) : NULL;
  PyErr_Clear(); /* a shorter traceback is better than another error */
  PyErr_Restore(type, value, traceback);
  if (frame) PyTraceBack_Here(frame);
  Py_XDECREF(code);
  Py_XDECREF(frame);
}

/* An exception is set; the frames go around what its traceback has already. */
static void add_frames(TVMFFIByteArray backtrace) {
  const char* at = backtrace.data;
  const char* end = at + backtrace.size;
  for (int i = 0; at < end && i < MAX_FRAMES; ++i) {
    const char* newline = memchr(at, '\n', (size_t)(end - at));
    const char* stop = newline ? newline : end;
    add_line(at, (size_t)(stop - at));
    at = stop + 1;
  }
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
  PyObject* original = original_exception(cell);
  if (original) {
    PyErr_Restore(Py_NewRef((PyObject*)Py_TYPE(original)), Py_NewRef(original), PyException_GetTraceback(original));
  } else {
    fc_raise_kind(cell->kind.data, cell->kind.size, cell->message.data, cell->message.size);
  }
  if (FC_UNLIKELY(cell->backtrace.size)) add_frames(cell->backtrace);
  if (original || FC_LIKELY(!cell->cause_chain)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value) set_cause(value, cell->cause_chain, depth);
  PyErr_Restore(type, value, traceback);
}

/* The error as an exception that is not raised. */
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

static void release_exception(void* handle) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject*)handle);
  PyGILState_Release(state);
}

/* str(KeyError("x")) has quotes around; the text alone is what another process needs. */
static PyObject* text_of(PyObject* exception) {
  PyObject* args = PyExceptionInstance_Check(exception) ? ((PyBaseExceptionObject*)exception)->args : NULL;
  bool single = args && PyTuple_GET_SIZE(args) == 1 && PyUnicode_Check(PyTuple_GET_ITEM(args, 0));
  if (single && PyErr_GivenExceptionMatches(exception, PyExc_KeyError)) {
    return Py_NewRef(PyTuple_GET_ITEM(args, 0));
  }
  return PyObject_Str(exception);
}

static TVMFFIByteArray utf8_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = text ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
  PyErr_Clear();
  return data ? (TVMFFIByteArray){data, (size_t)size} : (TVMFFIByteArray){"(no message)", 12};
}

/* The class's own name: "ValueError", not "builtins.ValueError". */
static TVMFFIByteArray kind_of(PyObject* exception) {
  const char* name = Py_TYPE(exception)->tp_name;
  const char* dot = strrchr(name, '.');
  name = dot ? dot + 1 : name;
  return (TVMFFIByteArray){name, strlen(name)};
}

/* The exception travels along; kind, message and causes are for native code that looks, and for other processes. */
static TVMFFIObject* error_of(PyObject* value, int depth) {
  PyObject* text = text_of(value);
  TVMFFIByteArray message = utf8_of(text);
  PyObject* cause = depth < MAX_CAUSES ? PyException_GetCause(value) : NULL;
  TVMFFIObject* native_cause = cause ? error_of(cause, depth + 1) : NULL;
  TVMFFIObjectHandle context = NULL;
  if (fc_opaque_new(Py_NewRef(value), kTVMFFIOpaquePyObject, release_exception, &context) != 0) Py_DECREF(value);
  TVMFFIObject* error = fc_error_new(kind_of(value), message, (TVMFFIByteArray){"", 0}, native_cause, context);
  Py_XDECREF(cause);
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

/* ---- what Python sees ---- */

static PyObject* register_error(PyObject* module, PyObject* args) {
  PyObject *kind, *type;
  (void)module;
  if (!PyArg_ParseTuple(args, "UO:register_error", &kind, &type)) return NULL;
  if (!PyExceptionClass_Check(type)) {
    return PyErr_Format(PyExc_TypeError, "register_error: expected an exception class, got %R", type);
  }
  if (PyDict_SetItem(kinds, kind, type) != 0) return NULL;
  return Py_NewRef(type);
}

static PyObject* make_error(PyObject* module, PyObject* args) {
  const char *kind, *message;
  Py_ssize_t kind_size, size;
  (void)module;
  if (!PyArg_ParseTuple(args, "s#s#:make_error", &kind, &kind_size, &message, &size)) return NULL;
  fc_raise_kind(kind, (size_t)kind_size, message, (size_t)size);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

PyMethodDef fc_error_functions[] = {
    {"register_error", register_error, METH_VARARGS,
     "register_error(kind, cls)\n--\n\nRaise `cls` for native errors of this kind; `cls` must accept one str."},
    {"make_error", make_error, METH_VARARGS,
     "make_error(kind, message)\n--\n\nThe exception that a native error of this kind and message becomes."},
    {NULL, NULL, 0, NULL},
};
