/* Function: a callable behind the universal signature. The call path of the whole library is here. */
#include "core.h"

#include <structmember.h>

/* ---- the call ---- */

static FC_COLD PyObject* no_keywords(FcFunction* function) {
  return PyErr_Format(PyExc_TypeError, "`%U` takes positional arguments only", function->name);
}

static PyObject* function_call(PyObject* callable, PyObject* const* objects, size_t nargsf, PyObject* kwnames) {
  FcFunction* function = (FcFunction*)callable;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  FcArgs args;
  if (FC_UNLIKELY(kwnames && PyTuple_GET_SIZE(kwnames))) return no_keywords(function);
  int converted = FC_UNLIKELY(function->owned_args) ? fc_args_begin_owned(&args, objects, n, function->name)
                                                    : fc_args_begin(&args, objects, n, function->name);
  if (FC_UNLIKELY(converted != 0)) return NULL;

  /* The allocator is bound lazily: a kernel that allocates finds the framework here, others pay nothing. */
  FcThread* thread = &fc_thread;
  const DLPackExchangeAPI* outer = thread->exchange;
  thread->exchange = args.exchange;
  TVMFFIAny result = fc_any_none();
  int rc;
  if (function->release_gil) {
    PyThreadState* state = PyEval_SaveThread();
    rc = function->call(function->self, args.any, (int32_t)n, &result);
    PyEval_RestoreThread(state);
  } else {
    rc = function->call(function->self, args.any, (int32_t)n, &result);
  }
  thread->exchange = outer;

  PyObject* value = fc_args_result(&args, rc, &result, function->name);
  fc_args_end(&args);
  return value;
}

/* ---- making ---- */

PyObject* fc_function_wrap(TVMFFIObject* object, PyObject* name) {
  FcFunction* function = PyObject_GC_New(FcFunction, &FcFunction_Type);
  if (!function) {
    fc_decref(object);
    return NULL;
  }
  function->vectorcall = function_call;
  function->object = object;
  fc_function_target(object, &function->call, &function->self);
  function->name = name ? Py_NewRef(name) : PyUnicode_FromString("<function>");
  function->signature = Py_NewRef(Py_None);
  function->owned_args = fc_is_callback(object);
  /* A callback takes the GIL at once, so letting it go first only costs. */
  function->release_gil = !function->owned_args;
  PyObject_GC_Track(function);
  if (function->name) return (PyObject*)function;
  Py_DECREF(function);
  return NULL;
}

static PyObject* name_of(PyObject* callable) {
  PyObject* name = PyObject_GetAttrString(callable, "__qualname__");
  if (name && PyUnicode_Check(name)) return name;
  Py_XDECREF(name);
  PyErr_Clear();
  return PyUnicode_FromString(Py_TYPE(callable)->tp_name);
}

static PyObject* function_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"", NULL};
  PyObject* callable;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Function", names, &callable)) return NULL;
  if (Py_IS_TYPE(callable, &FcFunction_Type)) return Py_NewRef(callable);
  if (!PyCallable_Check(callable)) {
    return PyErr_Format(PyExc_TypeError, "Function: expected a callable, got `%s`", Py_TYPE(callable)->tp_name);
  }
  TVMFFIObject* object = fc_callback_new(callable);
  PyObject* name = object ? name_of(callable) : NULL;
  PyObject* function = NULL;
  if (name) {
    function = fc_function_wrap(object, name);
  } else if (object) {
    fc_decref(object);
  }
  Py_XDECREF(name);
  return function;
}

/* ---- garbage: a method wrapped in a Function that its own object holds ---- */

static PyObject* callable_of(FcFunction* function) {
  return function->object && function->owned_args && fc_is_unique(function->object) ? function->self : NULL;
}

static int function_traverse(PyObject* self, visitproc visit, void* arg) {
  FcFunction* function = (FcFunction*)self;
  Py_VISIT(function->signature);
  Py_VISIT(callable_of(function));
  return 0;
}

static int cleared_call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  fc_error_set("RuntimeError", "the function was called after its owner was collected");
  return -1;
}

static int function_clear(PyObject* self) {
  FcFunction* function = (FcFunction*)self;
  Py_CLEAR(function->signature);
  TVMFFIObject* object = function->object;
  function->object = NULL;
  function->call = cleared_call;
  if (object) fc_decref(object);
  return 0;
}

static void function_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  function_clear(self);
  Py_XDECREF(((FcFunction*)self)->name);
  PyObject_GC_Del(self);
}

/* ---- what Python sees ---- */

static PyObject* function_repr(PyObject* self) {
  FcFunction* function = (FcFunction*)self;
  if (!function->signature || function->signature == Py_None) {
    return PyUnicode_FromFormat("<farcall.Function %U>", function->name);
  }
  return PyUnicode_FromFormat("<farcall.Function %U%S>", function->name, function->signature);
}

static PyMemberDef members[] = {
    {"name", T_OBJECT_EX, offsetof(FcFunction, name), READONLY, "The name that errors say."},
    {"__name__", T_OBJECT_EX, offsetof(FcFunction, name), READONLY, NULL},
    {"__qualname__", T_OBJECT_EX, offsetof(FcFunction, name), READONLY, NULL},
    {"release_gil", T_BOOL, offsetof(FcFunction, release_gil), 0,
     "Whether other Python threads run during the call. True by default; a kernel of less than a microsecond is\n"
     "about 30 ns cheaper without."},
    {"signature", T_OBJECT, offsetof(FcFunction, signature), 0, "What the function takes and gives, or None."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject FcFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Function",
    .tp_basicsize = sizeof(FcFunction),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_doc = "Function(callable, /)\n--\n\nA native function, or a Python callable as one. Call it with positional arguments.",
    .tp_new = function_new,
    .tp_dealloc = function_dealloc,
    .tp_traverse = function_traverse,
    .tp_clear = function_clear,
    .tp_repr = function_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(FcFunction, vectorcall),
    .tp_members = members,
};
