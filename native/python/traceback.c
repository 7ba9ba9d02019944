/*
 * Converts the backtrace lines of an Error to frames of a Python traceback, and back. A line is
 * `  File "f", line n, in fn`; the innermost comes first.
 */
#include "python/errors.h"

#include <frameobject.h>
#include <stdlib.h>

enum { MAX_FRAMES = 64 };

/* ---- lines -> frames ---- */

/* A cache of code objects, because the same lines throw again and again; a new entry may evict an old one. */
typedef struct {
  char* line;
  size_t size;
  PyCodeObject* code;
} Place;
enum { PLACES = 256 };
static Place places[PLACES];

/* Copies the text up to a mark; returns the rest after the mark, or NULL. */
static const char* take_until(const char* at, const char* end, const char* mark, char* out, size_t room) {
  size_t size = strlen(mark);
  const char* stop = at < end ? memmem(at, (size_t)(end - at), mark, size) : NULL;
  if (!stop || (size_t)(stop - at) >= room) return NULL;
  memcpy(out, at, (size_t)(stop - at));
  out[stop - at] = 0;
  return stop + size;
}

static FC_COLD PyCodeObject* read_line(const char* line, size_t size) {
  char file[512], number[16], function[256];
  const char* end = line + size;
  const char* at = take_until(line, end, "File \"", function, sizeof function);
  if (at) at = take_until(at, end, "\", line ", file, sizeof file);
  if (at) at = take_until(at, end, ", in ", number, sizeof number);
  if (!at || at == end) return NULL;
  size_t rest = (size_t)(end - at) < sizeof function - 1 ? (size_t)(end - at) : sizeof function - 1;
  memcpy(function, at, rest);
  function[rest] = 0;
  long value = strtol(number, NULL, 10); /* a text without a number is line 0 */
  return PyCode_NewEmpty(file, function, value > 0 && value < INT32_MAX ? (int)value : 0);
}

static FC_COLD PyCodeObject* learn_line(Place* place, const char* line, size_t size) {
  PyCodeObject* code = read_line(line, size);
  char* copy = code ? PyMem_Malloc(size) : NULL;
  if (!copy) return code; /* not cached */
  memcpy(copy, line, size);
  PyMem_Free(place->line);
  Py_XSETREF(place->code, code);
  place->line = copy;
  place->size = size;
  return (PyCodeObject*)Py_NewRef(code);
}

/* New reference; NULL for a line of another form. */
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

void fc_traceback_add(TVMFFIByteArray lines) {
  const char* at = lines.data;
  const char* end = at + lines.size;
  for (int i = 0; at < end && i < MAX_FRAMES; ++i) {
    const char* newline = memchr(at, '\n', (size_t)(end - at));
    const char* stop = newline ? newline : end;
    add_line(at, (size_t)(stop - at));
    at = stop + 1;
  }
}

/* ---- frames -> lines ---- */

static PyObject* line_of(PyTracebackObject* traceback) {
  PyCodeObject* code = PyFrame_GetCode(traceback->tb_frame);
  PyObject* number = PyObject_GetAttrString((PyObject*)traceback, "tb_lineno"); /* computed when read */
  PyObject* line = NULL;
  if (number) {
    line = PyUnicode_FromFormat("  File \"%U\", line %S, in %U\n", code->co_filename, number, code->co_name);
  }
  Py_XDECREF(number);
  Py_DECREF(code);
  return line;
}

/* The innermost frames, in the order of calls. */
static PyObject* collect(PyTracebackObject* first) {
  PyObject* lines = PyList_New(0);
  int frames = 0;
  for (PyTracebackObject* at = first; at; at = at->tb_next) {
    if (++frames > MAX_FRAMES) first = first->tb_next;
  }
  for (PyTracebackObject* at = first; lines && at; at = at->tb_next) {
    PyObject* line = line_of(at);
    if (!line || PyList_Append(lines, line) != 0) Py_CLEAR(lines);
    Py_XDECREF(line);
  }
  return lines;
}

PyObject* fc_traceback_lines(PyObject* exception) {
  PyObject* traceback = PyException_GetTraceback(exception);
  PyObject* lines = traceback ? collect((PyTracebackObject*)traceback) : NULL;
  PyObject* empty = lines && PyList_Reverse(lines) == 0 ? PyUnicode_FromString("") : NULL;
  PyObject* text = empty ? PyUnicode_Join(empty, lines) : NULL;
  PyErr_Clear(); /* as above */
  Py_XDECREF(traceback);
  Py_XDECREF(lines);
  Py_XDECREF(empty);
  return text;
}
