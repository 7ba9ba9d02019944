/* Module: a shared library's exported functions. A library is never unloaded: objects may hold its deleters. */
#include "core.h"

#include <dlfcn.h>
#include <structmember.h>

#include "rt_link.h"

typedef struct {
  PyObject_HEAD
  void* library;
  PyObject* path;      /* str */
  PyObject* functions; /* dict: name -> Function */
  PyObject* attributes; /* the same, of those that were reached by mod.name */
  bool bound_elsewhere; /* it calls another runtime's TVMFFI* functions */
} FcModule;

static const size_t PREFIX = sizeof FARCALL_SYMBOL_PREFIX - 1;

static void module_dealloc(PyObject* self) {
  Py_XDECREF(((FcModule*)self)->path);
  Py_XDECREF(((FcModule*)self)->functions);
  Py_XDECREF(((FcModule*)self)->attributes);
  PyObject_Free(self);
}

/* ---- names, for messages and listings ---- */

static PyObject* function_names(PyObject* self, PyObject* unused) {
  FcImage image;
  PyObject* names = PyList_New(0);
  (void)unused;
  if (!names || !fc_link_image(((FcModule*)self)->library, &image)) return names;
  uint32_t count = fc_link_symbol_count(&image);
  for (uint32_t i = 1; i < count; ++i) {
    const ElfW(Sym)* symbol = &image.symbols[i];
    const char* name = image.strings + symbol->st_name;
    bool exported = symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
    if (!exported || strncmp(name, FARCALL_SYMBOL_PREFIX, PREFIX) != 0) continue;
    PyObject* text = PyUnicode_FromString(name + PREFIX);
    if (!text || PyList_Append(names, text) != 0) Py_CLEAR(names);
    Py_XDECREF(text);
    if (!names) return NULL;
  }
  if (PyList_Sort(names) != 0) Py_CLEAR(names);
  return names;
}

/* ---- loading ---- */

static PyObject* module_new(void* library, PyObject* path, bool bound_here) {
  FcModule* module = PyObject_New(FcModule, &FcModule_Type);
  if (!module) return NULL;
  module->library = library;
  module->path = Py_NewRef(path);
  module->functions = PyDict_New();
  module->attributes = PyDict_New();
  module->bound_elsewhere = !bound_here;
  if (module->functions && module->attributes) return (PyObject*)module;
  Py_DECREF(module);
  return NULL;
}

static PyObject* load_library(PyObject* self, PyObject* args) {
  PyObject *path = NULL, *name = NULL;
  char message[1024];
  (void)self;
  if (!PyArg_ParseTuple(args, "O&|U:load_library", PyUnicode_FSDecoder, &path, &name)) return NULL;
  PyObject* encoded = PyUnicode_EncodeFSDefault(path);
  void* library = NULL;
  bool bound_here = false;
  if (encoded) {
    /* Constructors in the library may take long, or call Python from another thread. */
    PyThreadState* state = PyEval_SaveThread();
    library = fc_link_open(PyBytes_AS_STRING(encoded), &bound_here, message, sizeof message);
    PyEval_RestoreThread(state);
    Py_DECREF(encoded);
    if (!library) PyErr_Format(PyExc_OSError, "cannot load library: %s", message);
  }
  const FarcallRuntime** runtime = library ? dlsym(library, FARCALL_RUNTIME_SYMBOL) : NULL;
  if (runtime) *runtime = &fc_runtime;
  PyObject* module = library ? module_new(library, name ? name : path, bound_here) : NULL;
  Py_DECREF(path);
  return module;
}

/* ---- lookup ---- */

static TVMFFISafeCallType find_symbol(PyObject* self, const char* name) {
  char inline_symbol[128];
  size_t size = strlen(name);
  char* symbol = PREFIX + size < sizeof inline_symbol ? inline_symbol : PyMem_Malloc(PREFIX + size + 1);
  TVMFFISafeCallType call = NULL;
  if (!symbol) return NULL;
  memcpy(symbol, FARCALL_SYMBOL_PREFIX, PREFIX);
  memcpy(symbol + PREFIX, name, size + 1);
  void* found = dlsym(((FcModule*)self)->library, symbol);
  memcpy(&call, &found, sizeof call);
  if (symbol != inline_symbol) PyMem_Free(symbol);
  return call;
}

static FC_COLD PyObject* near_names(PyObject* self, PyObject* name) {
  PyObject* names = function_names(self, NULL);
  PyObject* difflib = names ? PyImport_ImportModule("difflib") : NULL;
  PyObject* near = difflib ? PyObject_CallMethod(difflib, "get_close_matches", "OO", name, names) : NULL;
  PyObject* shown = near && PyList_GET_SIZE(near) ? near : names;
  PyObject* separator = shown ? PyUnicode_FromString("`, `") : NULL;
  PyObject* head = shown ? PyList_GetSlice(shown, 0, 8) : NULL;
  PyObject* text = separator && head ? PyUnicode_Join(separator, head) : NULL;
  Py_XDECREF(names);
  Py_XDECREF(difflib);
  Py_XDECREF(near);
  Py_XDECREF(separator);
  Py_XDECREF(head);
  return text;
}

static FC_COLD PyObject* no_function(PyObject* self, PyObject* name) {
  PyObject* near = near_names(self, name);
  if (near && PyUnicode_GET_LENGTH(near)) {
    PyErr_Format(PyExc_AttributeError, "%U has no function `%U`; it has `%U`", ((FcModule*)self)->path, name, near);
  } else if (near) {
    PyErr_Format(PyExc_AttributeError, "%U has no function `%U`; it exports none (a function is a symbol %s<name>)",
                 ((FcModule*)self)->path, name, FARCALL_SYMBOL_PREFIX);
  }
  Py_XDECREF(near);
  return NULL;
}

static PyObject* make_function(PyObject* self, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  TVMFFIObjectHandle object;
  if (!text) return NULL;
  TVMFFISafeCallType call = find_symbol(self, text);
  if (!call) return no_function(self, name);
  if (fc_function_new(NULL, call, NULL, &object) != 0) return fc_raise_slot();
  PyObject* function = fc_function_wrap(object, name);
  if (function) {
    /* An exported symbol expects no self. */
    FcFunction* made = (FcFunction*)function;
    made->self = NULL;
    if (((FcModule*)self)->bound_elsewhere) fc_foreign_wrap(&made->call, &made->self);
  }
  if (function && PyDict_SetItem(((FcModule*)self)->functions, name, function) != 0) Py_CLEAR(function);
  return function;
}

static PyObject* get_function(PyObject* self, PyObject* name) {
  if (!PyUnicode_Check(name)) {
    return PyErr_Format(PyExc_TypeError, "a function's name is a str, got `%s`", Py_TYPE(name)->tp_name);
  }
  PyObject* known = PyDict_GetItemWithError(((FcModule*)self)->functions, name);
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  return make_function(self, name);
}

static PyObject* implements_function(PyObject* self, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  return text ? PyBool_FromLong(find_symbol(self, text) != NULL) : NULL;
}

static PyObject* find_attribute(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  const char* text = PyUnicode_AsUTF8(name);
  if (!text || strncmp(text, "__", 2) == 0) return NULL;
  PyErr_Clear();
  PyObject* function = get_function(self, name);
  if (function && PyDict_SetItem(((FcModule*)self)->attributes, name, function) != 0) Py_CLEAR(function);
  return function;
}

/* mod.add is mod["add"], unless the name is a method's. Raising and dropping AttributeError costs 400 ns: once. */
static PyObject* module_getattro(PyObject* self, PyObject* name) {
  PyObject* known = PyDict_GetItemWithError(((FcModule*)self)->attributes, name);
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  return find_attribute(self, name);
}

static PyObject* module_repr(PyObject* self) {
  return PyUnicode_FromFormat("<farcall.Module %R>", ((FcModule*)self)->path);
}

static PyObject* get_kind(PyObject* self, void* closure) {
  (void)self, (void)closure;
  return PyUnicode_FromString("library");
}

static PyMethodDef methods[] = {
    {"get_function", get_function, METH_O,
     "get_function($self, name, /)\n--\n\nThe function of that name; AttributeError, with names near, when there is none."},
    {"implements_function", implements_function, METH_O,
     "implements_function($self, name, /)\n--\n\nWhether the library exports a function of that name."},
    {"function_names", function_names, METH_NOARGS, "function_names($self, /)\n--\n\nThe names of all functions, sorted."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"kind", get_kind, NULL, "What the module is made of: 'library'.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"path", T_OBJECT_EX, offsetof(FcModule, path), READONLY, "The file that was loaded."},
    {NULL, 0, 0, 0, NULL},
};

static PyMappingMethods mapping = {.mp_subscript = get_function};

PyTypeObject FcModule_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Module",
    .tp_doc = "A loaded library: mod['name'] or mod.name is a Function. Made by load_library().",
    .tp_basicsize = sizeof(FcModule),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = module_dealloc,
    .tp_getattro = module_getattro,
    .tp_repr = module_repr,
    .tp_methods = methods,
    .tp_getset = getset,
    .tp_members = members,
    .tp_as_mapping = &mapping,
};

PyMethodDef fc_module_functions[] = {
    {"load_library", load_library, METH_VARARGS,
     "load_library(path, name=path, /)\n--\n\nLoad a kernel library; `name` is what messages call it. It stays in memory "
     "until the process ends."},
    {NULL, NULL, 0, NULL},
};
