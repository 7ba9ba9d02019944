/*
 * The description of a Function's parameters, from its library's metadata or its Signature. farcall.ffi._describe
 * reads either; the metadata of a server's function is fetched when a caller needs it. It returns a tuple (FC_PARAM_*):
 *
 *     names (or None), defaults, types, views, writes, text, and fields that only Python reads
 *
 * defaults: a value, Ellipsis (no default) or NotImplemented (only the kernel knows the default).
 */
#include "python/abi/abi.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/function.h"

/*
 * Imports the modules of a first call early: if another thread of the parent is importing a module during a fork, the
 * child would wait for that thread forever when it imports the same module.
 */
int fc_params_prepare(void) {
  PyObject* module = PyImport_ImportModule("farcall.ffi._describe");
  Py_XDECREF(module);
  return module ? 0 : -1;
}

static TVMFFISafeCallType beside(PyObject* module, FcFindSymbol find, const char* format, PyObject* name) {
  PyObject* full = PyUnicode_FromFormat(format, name);
  const char* text = full ? PyUnicode_AsUTF8(full) : NULL;
  TVMFFISafeCallType symbol = text ? find(module, text) : NULL;
  PyErr_Clear();
  Py_XDECREF(full);
  return symbol;
}

int fc_function_describe(PyObject* self, PyObject* module, FcFindSymbol find) {
  FcFunction* function = (FcFunction*)self;
  function->kernel = 1;
  function->metadata = beside(module, find, "_metadata_%U", function->name);
  function->doc = beside(module, find, "_doc_%U", function->name);
  fc_function_reset(function);
  return function->metadata ? fc_params_prepare() : 0;
}

/* The text from a symbol that describes the function: a str, None without such a symbol, NULL with an exception. */
static PyObject* text_of(TVMFFISafeCallType symbol) {
  TVMFFIAny result = fc_any_none();
  if (!symbol) Py_RETURN_NONE;
  if (symbol(NULL, NULL, 0, &result) != 0) return fc_raise_slot();
  return fc_any_to_python(&result);
}

PyObject* fc_function_describe_by(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *function, *source;
  if (!PyArg_ParseTuple(args, "O!O:describe_by", &FcFunction_Type, &function, &source)) return NULL;
  Py_XSETREF(((FcFunction*)function)->source, Py_NewRef(source));
  Py_RETURN_NONE;
}

/* Fetches the metadata of a server's function, the first time. */
static FC_COLD int fetch_metadata(FcFunction* function) {
  if (!function->source || PyUnicode_Check(function->source)) return 0;
  PyObject* source = Py_NewRef(function->source);
  PyObject* text = PyObject_CallNoArgs(source);
  Py_DECREF(source);
  if (!text) return -1;
  if (!PyUnicode_Check(text)) Py_CLEAR(text);
  Py_XSETREF(function->source, text);
  Py_CLEAR(function->description);
  return 0;
}

PyObject* fc_params_ask(FcFunction* function, const char* question) {
  if (strcmp(question, "signature") == 0 && fetch_metadata(function) != 0) return NULL;
  if (fc_params_resolve(function) != 0) return NULL;
  bool document = strcmp(question, "document") == 0;
  PyObject* doc = document ? text_of(function->doc) : NULL;
  PyObject* module = !document || doc ? PyImport_ImportModule("farcall.ffi._describe") : NULL;
  const char* format = document ? "OO" : "(O)"; /* a tuple alone would become the arguments */
  PyObject* out = module ? PyObject_CallMethod(module, question, format, function->description, doc) : NULL;
  Py_XDECREF(doc);
  Py_XDECREF(module);
  return out;
}

static PyObject* read_description(const FcFunction* function, PyObject* signature) {
  bool fetched = function->source && PyUnicode_Check(function->source);
  PyObject* metadata = fetched ? Py_NewRef(function->source) : text_of(function->metadata);
  PyObject* module = metadata ? PyImport_ImportModule("farcall.ffi._describe") : NULL;
  PyObject* out = module ? PyObject_CallMethod(module, "describe", "OOO", function->name, metadata, signature) : NULL;
  Py_XDECREF(metadata);
  Py_XDECREF(module);
  if (out && out != Py_None && !(PyTuple_Check(out) && PyTuple_GET_SIZE(out) >= FC_PARAM_FIELDS)) {
    PyErr_SetString(PyExc_SystemError, "farcall.ffi._describe: not a description");
    Py_CLEAR(out);
  }
  return out;
}

/* What a server tells of its function changes nothing in how arguments travel; what a Signature says does. */
static void take_description(FcFunction* function, PyObject* description) {
  function->description = description;
  if (description == Py_None || (function->source && function->signature == Py_None)) return;
  if (!function->views_set) {
    function->views = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(description, FC_PARAM_VIEWS));
  }
  function->writes = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(description, FC_PARAM_WRITES));
  if (function->program) function->writes |= ((FcProgram*)function->program)->writes;
}

/* Reading runs Python code: meanwhile another thread may have finished first, or set another signature. */
FC_COLD int fc_params_resolve(FcFunction* function) {
  while (!function->description) {
    PyObject* signature = Py_NewRef(function->signature);
    PyObject* description = read_description(function, signature);
    bool current = description && !function->description && function->signature == signature;
    if (current) take_description(function, Py_NewRef(description));
    Py_DECREF(signature);
    if (!description) return -1;
    Py_DECREF(description);
  }
  return PyErr_Occurred() ? -1 : 0;
}

PyObject* fc_params_field(const FcFunction* function, Py_ssize_t field) {
  PyObject* description = function->description;
  return description && description != Py_None ? PyTuple_GET_ITEM(description, field) : NULL;
}

Py_ssize_t fc_params_count(const FcFunction* function) {
  PyObject* types = fc_params_field(function, FC_PARAM_TYPES);
  return types ? PyTuple_GET_SIZE(types) : -1;
}

PyObject* fc_params_place(const FcFunction* function, int32_t i) {
  if (function->program || i >= fc_params_count(function)) return NULL; /* with a Signature, i counts leaves */
  PyObject* names = fc_params_field(function, FC_PARAM_NAMES);
  PyObject* type = PyTuple_GET_ITEM(fc_params_field(function, FC_PARAM_TYPES), i);
  if (names == Py_None) {
    return PyUnicode_FromFormat("argument %d of `%U`: expected %U", (int)i + 1, function->name, type);
  }
  PyObject* name = PyTuple_GET_ITEM(names, i);
  return PyUnicode_FromFormat("argument %d `%U` of `%U`: expected %U", (int)i + 1, name, function->name, type);
}

/* ---- binding ---- */

static FC_COLD PyObject* no_keywords(const FcFunction* function) {
  return PyErr_Format(PyExc_TypeError, "`%U` takes positional arguments only: its library does not name its parameters",
                      function->name);
}

static FC_COLD Py_ssize_t refuse_keyword(const FcFunction* function, PyObject* keyword, const char* why) {
  PyErr_Format(PyExc_TypeError, "`%U` got a keyword argument `%U` that %s", fc_params_field(function, FC_PARAM_TEXT),
               keyword, why);
  return -1;
}

static FC_COLD Py_ssize_t missing(const FcFunction* function, Py_ssize_t i) {
  PyErr_Format(PyExc_TypeError, "argument %zd `%U` of `%U` is missing: expected %U", i + 1,
               PyTuple_GET_ITEM(fc_params_field(function, FC_PARAM_NAMES), i), fc_params_field(function, FC_PARAM_TEXT),
               PyTuple_GET_ITEM(fc_params_field(function, FC_PARAM_TYPES), i));
  return -1;
}

static FC_COLD PyObject* too_many(const FcFunction* function, Py_ssize_t count, Py_ssize_t n) {
  return PyErr_Format(PyExc_TypeError, "`%U` takes %zd arguments, got %zd by position",
                      fc_params_field(function, FC_PARAM_TEXT), count, n);
}

/* Keywords of calls and names of parameters are interned, so most are found without comparing text. */
static Py_ssize_t index_of(PyObject* names, PyObject* keyword) {
  Py_ssize_t count = PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyTuple_GET_ITEM(names, i) == keyword) return i;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), keyword) == 0) return i;
  }
  return -1;
}

static int bind_keywords(const FcFunction* function, PyObject* const* values, PyObject* kwnames, PyObject** bound) {
  PyObject* names = fc_params_field(function, FC_PARAM_NAMES);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, k);
    Py_ssize_t i = index_of(names, keyword);
    if (FC_UNLIKELY(i < 0)) return (int)refuse_keyword(function, keyword, "it does not have");
    if (FC_UNLIKELY(bound[i] != NULL)) return (int)refuse_keyword(function, keyword, "was given by position too");
    bound[i] = values[k];
  }
  return 0;
}

/* Defaults that only the kernel knows can be left out at the end. */
static Py_ssize_t fill_defaults(const FcFunction* function, Py_ssize_t count, PyObject** bound) {
  PyObject* defaults = fc_params_field(function, FC_PARAM_DEFAULTS);
  Py_ssize_t end = count, known = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* value = PyTuple_GET_ITEM(defaults, i);
    if (bound[i]) {
      known = i + 1;
    } else if (value == Py_Ellipsis) {
      return missing(function, i);
    } else if (value == Py_NotImplemented) {
      end = i < end ? i : end;
    } else {
      bound[i] = value;
    }
  }
  return known > end ? missing(function, end) : end;
}

static Py_ssize_t bind(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames,
                       PyObject** bound) {
  Py_ssize_t count = fc_params_count(function);
  for (Py_ssize_t i = 0; i < count; ++i) bound[i] = i < n ? objects[i] : NULL;
  if (kwnames && bind_keywords(function, objects + n, kwnames, bound) != 0) return -1;
  return fill_defaults(function, count, bound);
}

/* A call without keywords leaves missing arguments to the kernel, which has the best message. */
static bool can_fill(const FcFunction* function, Py_ssize_t n, Py_ssize_t count) {
  PyObject* defaults = fc_params_field(function, FC_PARAM_DEFAULTS);
  for (Py_ssize_t i = n; i < count; ++i) {
    if (PyTuple_GET_ITEM(defaults, i) == Py_Ellipsis) return false;
  }
  return n < count;
}

FC_COLD PyObject* fc_params_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames) {
  enum { INLINE = 16 };
  PyObject* inline_bound[INLINE];
  bool named = kwnames && PyTuple_GET_SIZE(kwnames);
  if (named && function->source && (fetch_metadata(function) != 0 || fc_params_resolve(function) != 0)) return NULL;
  PyObject* names = fc_params_field(function, FC_PARAM_NAMES);
  Py_ssize_t count = names && names != Py_None ? fc_params_count(function) : -1;
  if (count < 0 && named) return no_keywords(function);
  if (!named && (count < 0 || !can_fill(function, n, count))) return fc_function_call(function, objects, n);
  if (n > count) return too_many(function, count, n);
  PyObject** bound = count <= INLINE ? inline_bound : PyMem_Malloc((size_t)count * sizeof *bound);
  if (!bound) return PyErr_NoMemory();
  PyObject* description = Py_NewRef(function->description); /* the defaults are in it */
  Py_ssize_t given = bind(function, objects, n, kwnames, bound);
  PyObject* out = given < 0 ? NULL : fc_function_call(function, bound, given);
  Py_DECREF(description);
  if (bound != inline_bound) PyMem_Free(bound);
  return out;
}
