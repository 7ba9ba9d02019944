/* Module in Python: functions by name. Libraries are never unloaded: objects may hold their deleters. */
#include "python/args.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/function.h"
#include "python/module.h"

#include <structmember.h>

#include "runtime/dl/link.h"

static FcModuleObj* own(PyObject* self) { return fc_module_of(((FcModule*)self)->object); }

static void module_dealloc(PyObject* self) {
  FcModule* module = (FcModule*)self;
  if (module->weakrefs) PyObject_ClearWeakRefs(self);
  if (own(self) && own(self)->python == self) own(self)->python = NULL;
  fc_decref(module->object);
  Py_XDECREF(module->path);
  Py_XDECREF(module->functions);
  Py_XDECREF(module->attributes);
  PyObject_Free(self);
}

PyObject* fc_module_wrap_as(TVMFFIObject* handle, PyObject* path) {
  FcModuleObj* native = fc_module_of(handle);
  if (native && native->python) {
    fc_decref(handle);
    return Py_NewRef((PyObject*)native->python);
  }
  FcModule* module = PyObject_New(FcModule, &FcModule_Type);
  if (!module) {
    fc_decref(handle);
    return NULL;
  }
  module->object = handle;
  module->weakrefs = NULL;
  module->threads = 0;
  module->path = path ? Py_NewRef(path) : PyUnicode_FromString(native ? native->kind : "module");
  module->functions = PyDict_New();
  module->attributes = PyDict_New();
  if (!module->path || !module->functions || !module->attributes) {
    Py_DECREF(module);
    return NULL;
  }
  if (native) native->python = module;
  return (PyObject*)module;
}

PyObject* fc_module_wrap(TVMFFIObject* handle) { return fc_module_wrap_as(handle, NULL); }

int fc_set_module(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  (void)setter, (void)i;
  TVMFFIObject* handle = ((FcModule*)object)->object;
  if (fc_owned_mode(args)) fc_incref(handle);
  *out = fc_any_object(handle);
  return 0;
}

/* ---- names, for messages and listings ---- */

static int add_name(PyObject* names, const char* text, size_t size) {
  PyObject* name = PyUnicode_DecodeUTF8(text, (Py_ssize_t)size, "replace");
  int rc = name ? PyList_Append(names, name) : -1;
  Py_XDECREF(name);
  return rc;
}

/* Excluded: `__tvm_ffi__metadata_f` and the like, which describe a function. */
static int add_exported(PyObject* names, void* library) {
  const size_t prefix = sizeof FARCALL_SYMBOL_PREFIX - 1;
  FcImage image;
  if (!fc_link_image(library, &image)) return 0;
  uint32_t count = fc_link_symbol_count(&image);
  for (uint32_t i = 1; i < count; ++i) {
    const ElfW(Sym)* symbol = &image.symbols[i];
    const char* name = image.strings + symbol->st_name;
    bool exported = symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
    if (!exported || strncmp(name, FARCALL_SYMBOL_PREFIX, prefix) != 0) continue;
    bool about = strncmp(name + prefix, "_metadata_", 10) == 0 || strncmp(name + prefix, "_doc_", 5) == 0;
    if (!about && add_name(names, name + prefix, strlen(name + prefix)) != 0) return -1;
  }
  return 0;
}

static int add_listed(PyObject* names, const TVMFFIObject* functions) {
  TVMFFIByteArray text;
  FcMapCursor cursor = {.begun = false};
  while (fc_map_next(functions, &cursor)) {
    if (fc_any_text(cursor.key, &text) && add_name(names, text.data, text.size) != 0) return -1;
  }
  return 0;
}

PyObject* fc_module_function_names(PyObject* self, PyObject* unused) {
  const FcModuleObj* native = own(self);
  PyObject* names = PyList_New(0);
  (void)unused;
  if (!names || !native) return names;
  int rc = native->library ? add_exported(names, native->library) : 0;
  if (rc == 0 && native->functions) rc = add_listed(names, native->functions);
  if (rc != 0 || PyList_Sort(names) != 0) Py_CLEAR(names);
  return names;
}

static FC_COLD PyObject* no_function(PyObject* self, PyObject* name) {
  PyObject* args = PyTuple_Pack(1, name);
  PyObject* error = args ? fc_in_python("farcall.ffi._modules", "missing", self, args, NULL) : NULL;
  if (error) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(args);
  return NULL;
}

/* ---- lookup ---- */

static TVMFFISafeCallType find_symbol(PyObject* self, const char* name) {
  const FcModuleObj* native = own(self);
  return native ? fc_module_symbol(native, name, strlen(name)) : NULL;
}

/* A Function of an exported symbol, which takes no self and which the library may describe. */
static PyObject* wrap_symbol(PyObject* self, PyObject* name, TVMFFISafeCallType call) {
  TVMFFIObjectHandle object;
  if (fc_function_new(NULL, call, NULL, &object) != 0) return fc_raise_slot();
  PyObject* function = fc_function_wrap(object, name);
  if (!function) return NULL;
  FcFunction* made = (FcFunction*)function;
  made->self = NULL;
  made->threads = ((FcModule*)self)->threads;
  if (!own(self)->bound_here && fc_foreign) fc_foreign->wrap(&made->call, &made->self);
  if (fc_function_describe(function, self, find_symbol) != 0) Py_CLEAR(function);
  return function;
}

/* Caches the module's own functions, but not those of its imports, which may change. */
static PyObject* make_function(PyObject* self, PyObject* name, bool imports) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  TVMFFIObject* found = NULL;
  if (!text) return NULL;
  TVMFFISafeCallType call = strlen(text) == (size_t)size ? find_symbol(self, text) : NULL;
  if (!call && fc_module_get(((FcModule*)self)->object, text, (size_t)size, imports, &found) != 0)
    return fc_raise_slot();
  if (!call && !found) return no_function(self, name);
  PyObject* function = call ? wrap_symbol(self, name, call) : fc_function_wrap(found, name);
  bool keep = function && !imports;
  if (keep && PyDict_SetItem(((FcModule*)self)->functions, name, function) != 0) Py_CLEAR(function);
  return function;
}

static PyObject* find_function(PyObject* self, PyObject* name, bool imports) {
  if (!PyUnicode_Check(name)) {
    return PyErr_Format(PyExc_TypeError, "a function's name is a str, got `%s`", Py_TYPE(name)->tp_name);
  }
  PyObject* known = PyDict_GetItemWithError(((FcModule*)self)->functions, name);
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  return make_function(self, name, imports);
}

static PyObject* subscript(PyObject* self, PyObject* name) { return find_function(self, name, false); }

PyObject* fc_module_get_function(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"", "query_imports", NULL};
  PyObject* name;
  int imports = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:get_function", names, &name, &imports)) return NULL;
  return find_function(self, name, imports);
}

static PyObject* find_attribute(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  const char* text = PyUnicode_AsUTF8(name);
  if (!text || strncmp(text, "__", 2) == 0) return NULL;
  PyErr_Clear();
  PyObject* function = subscript(self, name);
  if (function && PyDict_SetItem(((FcModule*)self)->attributes, name, function) != 0) Py_CLEAR(function);
  return function;
}

/* mod.add is mod["add"], unless the name is a method's. The attribute is cached, because the AttributeError before the
 * lookup costs 400 ns. */
static PyObject* module_getattro(PyObject* self, PyObject* name) {
  PyObject* known = PyDict_GetItemWithError(((FcModule*)self)->attributes, name);
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  return find_attribute(self, name);
}

static PyObject* module_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* name = PyUnicode_FromString("main");
  PyObject* main_function = name ? subscript(self, name) : NULL;
  PyObject* out = main_function ? PyObject_Call(main_function, args, kwargs) : NULL;
  Py_XDECREF(main_function);
  Py_XDECREF(name);
  return out;
}

static PyObject* module_repr(PyObject* self) {
  return PyUnicode_FromFormat("<farcall.Module %R>", ((FcModule*)self)->path);
}

static PyMemberDef members[] = {
    {"path", T_OBJECT_EX, offsetof(FcModule, path), READONLY, "The path of the loaded file, or the module's kind."},
    {NULL, 0, 0, 0, NULL},
};

/* ---- a mapping of names to Functions ---- */

static Py_ssize_t length(PyObject* self) {
  PyObject* names = fc_module_function_names(self, NULL);
  Py_ssize_t size = names ? PyList_GET_SIZE(names) : -1;
  Py_XDECREF(names);
  return size;
}

static PyObject* iterate(PyObject* self) {
  PyObject* names = fc_module_function_names(self, NULL);
  PyObject* iterator = names ? PyObject_GetIter(names) : NULL;
  Py_XDECREF(names);
  return iterator;
}

static int contains(PyObject* self, PyObject* name) {
  Py_ssize_t size;
  TVMFFIObject* function = NULL;
  if (!PyUnicode_Check(name)) return 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  if (!text) return -1;
  if (fc_module_get(((FcModule*)self)->object, text, (size_t)size, false, &function) != 0) {
    fc_raise_slot();
    return -1;
  }
  if (function) fc_decref(function);
  return function != NULL;
}

/* Always true: a module of another runtime has functions but cannot list them. */
static int is_true(PyObject* self) {
  (void)self;
  return 1;
}

static PyMappingMethods mapping = {.mp_length = length, .mp_subscript = subscript};
static PySequenceMethods membership = {.sq_contains = contains};
static PyNumberMethods truth = {.nb_bool = is_true};

PyTypeObject FcModule_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Module",
    .tp_doc = "A set of named Functions: mod['name'] or mod.name. Made by load_library() and others.",
    .tp_basicsize = sizeof(FcModule),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = module_dealloc,
    .tp_getattro = module_getattro,
    .tp_repr = module_repr,
    .tp_richcompare = fc_identity_compare,
    .tp_hash = fc_identity_hash,
    .tp_call = module_call,
    .tp_methods = fc_module_methods,
    .tp_getset = fc_module_getset,
    .tp_members = members,
    .tp_as_mapping = &mapping,
    .tp_as_sequence = &membership,
    .tp_as_number = &truth,
    .tp_iter = iterate,
    .tp_weaklistoffset = offsetof(FcModule, weakrefs),
};
