/* Function: a callable behind the C ABI, and the call path of the whole library. */
#include "python/abi/abi.h"
#include "python/convert.h"
#include "python/function.h"

#include <structmember.h>

#include "python/session_hooks.h"
#include "python/threads.h"
#include "runtime/trace.h"

/* ---- the call ---- */

/* Binds the allocator lazily: only a kernel that allocates looks up the framework. */
static inline int run_here(FcFunction* function, FcArgs* args, TVMFFIAny* result) {
  FcThread* thread = &fc_thread;
  const DLPackExchangeAPI* outer = thread->exchange;
  void* outer_state = thread->python_state;
  thread->exchange = args->exchange;
  int rc;
  if (function->release_gil) {
    PyThreadState* state = PyEval_SaveThread();
    thread->python_state = state;
    rc = function->call(function->self, args->any, args->n, result);
    PyEval_RestoreThread(state);
  } else {
    thread->python_state = fc_current_state();
    rc = function->call(function->self, args->any, args->n, result);
  }
  thread->exchange = outer;
  thread->python_state = outer_state;
  return rc;
}

FC_COLD static int run_on_threads(FcFunction* function, FcArgs* args, TVMFFIAny* result) {
  FcThread* thread = &fc_thread;
  const int outer = thread->threads;
  thread->threads = thread->threads_asked ? thread->threads_asked : function->threads;
  thread->threads_asked = 0;
  int rc = run_here(function, args, result);
  thread->threads = outer;
  return rc;
}

static inline int run(FcFunction* function, FcArgs* args, TVMFFIAny* result) {
  if (FC_UNLIKELY(function->threads | fc_thread.threads_asked)) return run_on_threads(function, args, result);
  return run_here(function, args, result);
}

FC_COLD static int run_traced(FcFunction* function, FcArgs* args, TVMFFIAny* result) {
  int64_t begin = fc_trace_begin();
  int rc = run(function, args, result);
  const char* name = PyUnicode_AsUTF8(function->name);
  if (!name) PyErr_Clear();
  FcTraceWork work = {
      .category = "call", .name = name ? name : "", .track = -1, .args = args->any, .num_args = (int32_t)args->n};
  fc_trace_end(&work, begin);
  return rc;
}

static inline int invoke(FcFunction* function, FcArgs* args, TVMFFIAny* result) {
  return fc_tracing() ? run_traced(function, args, result) : run(function, args, result);
}

int fc_function_invoke(FcFunction* function, FcArgs* args, TVMFFIAny* result) { return invoke(function, args, result); }

static inline PyObject* call(FcFunction* function, PyObject* const* objects, Py_ssize_t n) {
  FcArgs args;
  if (FC_UNLIKELY(fc_args_begin_for(&args, objects, n, function) != 0)) return NULL;
  TVMFFIAny result = fc_any_none();
  int rc = invoke(function, &args, &result);
  PyObject* value = fc_args_result(&args, rc, &result, function->name);
  fc_args_end(&args);
  return value;
}

PyObject* fc_function_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n) {
  return call(function, objects, n);
}

static inline bool has_keywords(PyObject* kwnames) { return FC_UNLIKELY(kwnames && PyTuple_GET_SIZE(kwnames)); }

/* Sets the path of the next calls. */
static void set_path(FcFunction* function, vectorcallfunc path) {
  if (FC_UNLIKELY(function->around != NULL)) {
    function->inner = path;
  } else {
    function->vectorcall = path;
  }
}

/* Four paths, chosen when a function is made or first called: without a description, with one, with a Signature, and
 * not chosen yet. */
static PyObject* call_plain(PyObject* self, PyObject* const* objects, size_t nargsf, PyObject* kwnames) {
  FcFunction* function = (FcFunction*)self;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (!has_keywords(kwnames)) return call(function, objects, n);
  const Py_ssize_t place = fc_threads_keyword(function, kwnames);
  if (place >= 0) return fc_threads_call(function, objects, n, kwnames, place);
  return fc_params_call(function, objects, n, kwnames);
}

static PyObject* call_described(PyObject* self, PyObject* const* objects, size_t nargsf, PyObject* kwnames) {
  FcFunction* function = (FcFunction*)self;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (FC_LIKELY(!has_keywords(kwnames) && n == function->arity)) return call(function, objects, n);
  const Py_ssize_t place = has_keywords(kwnames) ? fc_threads_keyword(function, kwnames) : -1;
  if (place >= 0) return fc_threads_call(function, objects, n, kwnames, place);
  return fc_params_call(function, objects, n, kwnames);
}

static PyObject* call_signed(PyObject* self, PyObject* const* objects, size_t nargsf, PyObject* kwnames) {
  FcFunction* function = (FcFunction*)self;
  const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t place = has_keywords(kwnames) ? fc_threads_keyword(function, kwnames) : -1;
  if (FC_UNLIKELY(place >= 0)) return fc_threads_call(function, objects, n, kwnames, place);
  return fc_program_call(function, objects, n, kwnames);
}

static PyObject* call_first(PyObject* self, PyObject* const* objects, size_t nargsf, PyObject* kwnames) {
  FcFunction* function = (FcFunction*)self;
  if (fc_params_resolve(function) != 0) return NULL;
  function->arity = fc_params_count(function);
  vectorcallfunc path = function->program ? call_signed : function->arity >= 0 ? call_described : call_plain;
  set_path(function, path);
  return path(self, objects, nargsf, kwnames);
}

void fc_function_reset(FcFunction* function) {
  bool describes = function->metadata || function->signature != Py_None;
  set_path(function, describes ? call_first : call_plain);
}

/* ---- observed calls ---- */

int fc_observed_begin(FcFunction* function, bool waits, FcObserved* out) {
  PyObject *parent, *end;
  out->answer = PyObject_CallFunction(function->around, "OO", function, waits ? Py_True : Py_False);
  if (!out->answer) return -1;
  bool good = PyArg_ParseTuple(out->answer, "OO:observe", &parent, &end);
  const char* text = good && parent != Py_None ? PyUnicode_AsUTF8(parent) : NULL;
  if (!good || (parent != Py_None && !text)) {
    Py_CLEAR(out->answer);
    return -1;
  }
  out->outer = fc_thread.span;
  fc_thread.span = text;
  return 0;
}

PyObject* fc_observed_sent(FcObserved* observed) {
  fc_thread.span = observed->outer;
  PyObject* end = Py_NewRef(PyTuple_GET_ITEM(observed->answer, 1));
  Py_CLEAR(observed->answer);
  return end;
}

PyObject* fc_observed_end(PyObject* end, PyObject* value) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  PyObject* done = PyObject_CallFunction(end, "Oi", error ? error : Py_None, 0);
  Py_DECREF(end);
  Py_XDECREF(done);
  if (type && done) {
    PyErr_Restore(type, error, traceback);
  } else {
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
  }
  if (!done) Py_CLEAR(value);
  return value;
}

static PyObject* call_observed(PyObject* self, PyObject* const* objects, size_t nargsf, PyObject* kwnames) {
  FcFunction* function = (FcFunction*)self;
  FcObserved observed;
  if (fc_observed_begin(function, true, &observed) < 0) return NULL;
  PyObject* value = function->inner(self, objects, nargsf, kwnames);
  return fc_observed_end(fc_observed_sent(&observed), value);
}

PyObject* fc_function_observe(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *object, *around;
  if (!PyArg_ParseTuple(args, "O!O:observe", &FcFunction_Type, &object, &around)) return NULL;
  FcFunction* function = (FcFunction*)object;
  if (!function->around) function->inner = function->vectorcall;
  Py_XSETREF(function->around, Py_NewRef(around));
  function->vectorcall = call_observed;
  Py_RETURN_NONE;
}

/* ---- making ---- */

PyObject* fc_function_wrap(TVMFFIObject* object, PyObject* name) {
  FcFunction* function = PyObject_GC_New(FcFunction, &FcFunction_Type);
  if (!function) {
    fc_decref(object);
    return NULL;
  }
  function->vectorcall = call_plain;
  function->object = object;
  fc_function_target(object, &function->call, &function->self);
  bool named = name && PyUnicode_GET_LENGTH(name) != 0;
  const char* label = named ? "" : fc_session_hooks.function_label(object);
  function->name = named ? Py_NewRef(name) : PyUnicode_DecodeUTF8(label, (Py_ssize_t)strlen(label), "replace");
  function->signature = Py_NewRef(Py_None);
  function->program = NULL;
  function->metadata = function->doc = NULL;
  function->source = NULL;
  function->around = NULL;
  function->inner = NULL;
  function->description = NULL;
  function->views = function->writes = 0;
  function->arity = -1;
  function->threads = 0;
  function->views_set = function->kernel = 0;
  function->owned_args = fc_is_callback(object);
  /* A callback takes the GIL at once: releasing it first would only cost time. */
  function->release_gil = (char)!function->owned_args;
  PyObject_GC_Track(function);
  if (function->name) return (PyObject*)function;
  Py_DECREF(function);
  return NULL;
}

PyObject* fc_callable_name(PyObject* callable) {
  PyObject* name = PyObject_GetAttrString(callable, "__qualname__");
  if (name && PyUnicode_Check(name) && PyUnicode_GET_LENGTH(name) != 0) return name;
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
  PyObject* name = object ? fc_callable_name(callable) : NULL;
  PyObject* function = NULL;
  if (name) {
    function = fc_function_wrap(object, name);
  } else if (object) {
    fc_decref(object);
  }
  Py_XDECREF(name);
  return function;
}

/* ---- garbage collection: of a bound method in a Function that the method's object holds ---- */

static PyObject* callable_of(FcFunction* function) {
  return function->object && function->owned_args && fc_is_unique(function->object) ? function->self : NULL;
}

static int function_traverse(PyObject* self, visitproc visit, void* arg) {
  FcFunction* function = (FcFunction*)self;
  Py_VISIT(function->signature);
  Py_VISIT(function->program);
  Py_VISIT(function->source);
  Py_VISIT(function->description);
  Py_VISIT(function->around);
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
  Py_CLEAR(function->source);
  Py_CLEAR(function->program);
  Py_CLEAR(function->description);
  if (function->around) function->vectorcall = function->inner; /* no call reads `around` from here on */
  Py_CLEAR(function->around);
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

/* ---- the type ---- */

static PyObject* function_repr(PyObject* self) {
  FcFunction* function = (FcFunction*)self;
  if (fc_params_resolve(function) != 0) PyErr_Clear();
  PyObject* text = fc_params_field(function, FC_PARAM_TEXT);
  PyObject* what = text ? text : function->name;
  const char* peer = function->object ? fc_session_hooks.function_peer(function->object) : NULL;
  return PyUnicode_FromFormat("<farcall.Function %U%s%s>", what, peer ? " on " : "", peer ? peer : "");
}

static PyObject* get_signature(PyObject* self, void* closure) {
  (void)closure;
  return Py_NewRef(((FcFunction*)self)->signature);
}

/* Takes ownership of the program, which may be NULL. */
static void attach(FcFunction* function, PyObject* signature, PyObject* program) {
  Py_XSETREF(function->signature, Py_NewRef(signature));
  Py_XSETREF(function->program, program);
  Py_CLEAR(function->description);
  if (!function->views_set) function->views = 0;
  function->writes = 0;
  fc_function_reset(function);
}

static FC_COLD int not_a_signature(const FcFunction* function, PyObject* value) {
  PyErr_Format(PyExc_TypeError,
               "signature of `%U`: expected a farcall.abi.Signature or None, got `%s`; Signature.of(...) makes one",
               function->name, Py_TYPE(value)->tp_name);
  return -1;
}

static int set_signature(PyObject* self, PyObject* value, void* closure) {
  FcFunction* function = (FcFunction*)self;
  (void)closure;
  if (!value || value == Py_None) return attach(function, Py_None, NULL), 0;
  PyObject* make = PyObject_GetAttrString(value, "make_abi");
  PyObject* program = make ? PyObject_CallNoArgs(make) : NULL;
  if (!make) PyErr_Clear();
  Py_XDECREF(make);
  if (!make || (program && !PyObject_TypeCheck(program, &FcProgram_Type))) {
    Py_XDECREF(program);
    return not_a_signature(function, value);
  }
  if (!program) return -1;
  attach(function, value, program);
  return fc_params_prepare();
}

static PyObject* get_abi(PyObject* self, void* closure) {
  FcFunction* function = (FcFunction*)self;
  (void)closure;
  return Py_NewRef(function->program ? function->program : Py_None);
}

static int set_abi(PyObject* self, PyObject* value, void* closure) {
  FcFunction* function = (FcFunction*)self;
  if (!value || value == Py_None) return set_signature(self, NULL, closure);
  if (!PyObject_TypeCheck(value, &FcProgram_Type)) {
    PyErr_Format(PyExc_TypeError, "abi: expected a farcall.abi.FunctionAbi or None, got `%s`", Py_TYPE(value)->tp_name);
    return -1;
  }
  PyObject* signature = PyObject_GetAttrString(value, "signature");
  if (!signature) return -1;
  attach(function, signature, Py_NewRef(value));
  Py_DECREF(signature);
  return fc_params_prepare();
}

static PyObject* get_views(PyObject* self, void* closure) {
  FcFunction* function = (FcFunction*)self;
  (void)closure;
  if (fc_params_resolve(function) != 0) return NULL;
  return PyBool_FromLong(function->views != 0);
}

static int set_views(PyObject* self, PyObject* value, void* closure) {
  (void)closure;
  if (!value || !PyBool_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "views: expected a bool");
    return -1;
  }
  ((FcFunction*)self)->views = value == Py_True ? ~UINT64_C(0) : 0;
  ((FcFunction*)self)->views_set = 1;
  return 0;
}

static PyObject* get_threads(PyObject* self, void* closure) {
  (void)closure;
  return fc_threads_to_python(((FcFunction*)self)->threads);
}

static int set_threads(PyObject* self, PyObject* value, void* closure) {
  (void)closure;
  const int count = fc_threads_from_python(value ? value : Py_None);
  if (count < 0) return -1;
  ((FcFunction*)self)->threads = count;
  return 0;
}

/* inspect.signature reads __signature__ of instances; an attribute of the class would be the class's signature too. */
static PyObject* function_getattro(PyObject* self, PyObject* name) {
  static PyObject* signature_name;
  if (!signature_name) signature_name = PyUnicode_InternFromString("__signature__");
  return name == signature_name ? fc_params_ask((FcFunction*)self, "signature") : PyObject_GenericGetAttr(self, name);
}

static PyObject* get_doc(PyObject* self, void* closure) {
  (void)closure;
  return fc_params_ask((FcFunction*)self, "document");
}

static PyGetSetDef getset[] = {
    {"__doc__", get_doc, NULL, NULL, NULL},
    {"signature", get_signature, set_signature, "The Signature of arguments and results, or None.", NULL},
    {"abi", get_abi, set_abi, "The FunctionAbi that packs calls by the signature, or None.", NULL},
    {"views", get_views, set_views,
     "Whether the function borrows its tensors: they are passed as DLTensor*, not as Tensor objects. Set\n"
     "automatically if the library has metadata or the function a signature.",
     NULL},
    {"threads", get_threads, set_threads,
     "On how many threads calls compute, or None: as use_threads() or FARCALL_THREADS say, by default all CPUs.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"name", T_OBJECT_EX, offsetof(FcFunction, name), READONLY, "The name in error messages."},
    {"__name__", T_OBJECT_EX, offsetof(FcFunction, name), READONLY, NULL},
    {"__qualname__", T_OBJECT_EX, offsetof(FcFunction, name), READONLY, NULL},
    {"release_gil", T_BOOL, offsetof(FcFunction, release_gil), 0,
     "Whether other Python threads run during the call (default: True). False saves about 30 ns a call, for kernels\n"
     "that take less than a microsecond."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject FcFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Function",
    .tp_basicsize = sizeof(FcFunction),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_doc = "Function(callable, /)\n--\n\nA native function; from a callable, one that calls it.",
    .tp_new = function_new,
    .tp_dealloc = function_dealloc,
    .tp_traverse = function_traverse,
    .tp_clear = function_clear,
    .tp_repr = function_repr,
    .tp_richcompare = fc_identity_compare,
    .tp_hash = fc_identity_hash,
    .tp_getattro = function_getattro,
    .tp_getset = getset,
    .tp_methods = fc_function_methods,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(FcFunction, vectorcall),
    .tp_members = members,
};
