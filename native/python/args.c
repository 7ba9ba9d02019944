/* Python arguments -> Any[]: the table of setters (one per Python type), and the state of a call. */
#include <stdlib.h>

#include "python/args.h"
#include "python/convert.h"
#include "python/function.h"
#include "python/session_hooks.h"

/* ---- the table: open addressing; it owns its types; guarded by the GIL ---- */

enum { FIRST_SIZE = 256, MAX_TYPES = 8192 };

static FcSetter* table;
static size_t table_mask;
static size_t table_used;

static inline size_t place_of(const PyTypeObject* type) {
  uintptr_t bits = (uintptr_t)type >> 4; /* types are aligned to 16 */
  return bits ^ (bits >> 9);
}

static inline const FcSetter* find(const PyTypeObject* type) {
  for (size_t i = place_of(type);; ++i) {
    const FcSetter* entry = &table[i & table_mask];
    if (FC_LIKELY(entry->type == type)) return entry;
    if (!entry->type) return NULL;
  }
}

static int resize(size_t size) {
  FcSetter* bigger = calloc(size, sizeof *bigger);
  if (!bigger) {
    PyErr_NoMemory();
    return -1;
  }
  FcSetter* old = table;
  size_t old_size = old ? table_mask + 1 : 0;
  for (size_t i = 0; i < old_size; ++i) {
    if (!old[i].type) continue;
    size_t at = place_of(old[i].type);
    while (bigger[at & (size - 1)].type) ++at;
    bigger[at & (size - 1)] = old[i];
  }
  table = bigger;
  table_mask = size - 1;
  free(old);
  return 0;
}

static const FcChooser* choosers;
static size_t n_choosers;

int fc_args_init(const FcChooser* list, size_t n) {
  choosers = list;
  n_choosers = n;
  return resize(FIRST_SIZE);
}

static int remember(const FcSetter* setter) {
  if (table_used * 2 > table_mask && resize((table_mask + 1) * 2) != 0) return -1;
  size_t at = place_of(setter->type);
  while (table[at & table_mask].type) ++at;
  Py_INCREF(setter->type);
  table[at & table_mask] = *setter;
  ++table_used;
  return 0;
}

static FC_COLD int choose(PyObject* object, FcSetter* made) {
  PyTypeObject* type = Py_TYPE(object);
  *made = (FcSetter){.type = type};
  for (size_t i = 0; i < n_choosers; ++i) {
    int rc = choosers[i](type, object, made);
    if (rc != 0) return rc < 0 ? -1 : 0;
  }
  PyErr_Format(PyExc_TypeError,
               "a value of type `%s` cannot be passed; pass None, bool, int, float, str, bytes, a dtype, a device, "
               "a callable, a tensor, or a list, tuple or dict of these",
               type->tp_name);
  return -1;
}

/* The table is limited, for programs that create classes without end: later types are chosen at each use. */
static FC_COLD const FcSetter* learn(PyObject* object, FcSetter* made) {
  if (choose(object, made) != 0) return NULL;
  if (table_used >= MAX_TYPES) return made;
  if (find(made->type)) return made; /* choosing ran Python code, which entered the type too */
  if (remember(made) != 0) return NULL;
  return find(made->type);
}

const FcSetter* fc_setter_of(PyObject* object, FcSetter* made) {
  const FcSetter* setter = find(Py_TYPE(object));
  return FC_LIKELY(setter != NULL) ? setter : learn(object, made);
}

/* ---- what to release after the call ---- */

void fc_release_object(void* object) { fc_decref(object); }
void fc_release_python(void* object) { Py_DECREF((PyObject*)object); }

int fc_args_keep(FcArgs* args, void (*release)(void*), void* what) {
  if (args->n_keeps == args->max_keeps) {
    release(what);
    PyErr_SetString(PyExc_RuntimeError, "one argument needs too many temporaries");
    return -1;
  }
  args->keeps[args->n_keeps++] = (FcKeep){release, what};
  return 0;
}

int fc_refuse_read_only(void) {
  PyErr_SetString(PyExc_ValueError,
                  "the array is read-only, and the kernel may write to it; pass a writable copy, such as "
                  "numpy.array(x), or declare the parameter a ConstTensorView");
  return -1;
}

int fc_give_object(FcArgs* args, TVMFFIObject* object, TVMFFIAny* out) {
  *out = fc_any_object(object);
  return fc_owned_mode(args) ? 0 : fc_args_keep(args, fc_release_object, object);
}

/* ---- one call ---- */

/* Adds the argument's number as a note to an exception of a framework or of user code. */
static void add_note(int32_t i, PyObject* name, PyObject* error) {
  PyObject* note = PyUnicode_FromFormat("while converting argument %d of `%U`", (int)i + 1, name);
  PyObject* none = note ? PyObject_CallMethod(error, "add_note", "O", note) : NULL;
  Py_XDECREF(note);
  Py_XDECREF(none);
  PyErr_Clear();
}

static PyObject* place_of_argument(int32_t i, PyObject* name, const FcFunction* function) {
  PyObject* described = function ? fc_params_place(function, i) : NULL;
  return described || PyErr_Occurred() ? described : PyUnicode_FromFormat("argument %d of `%U`", (int)i + 1, name);
}

/* Puts the argument before the message of a setter's exception: "argument 2 of `f`: ...". Always returns -1. */
static FC_COLD int name_argument(int32_t i, PyObject* name, const FcFunction* function) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  bool known =
      type == PyExc_TypeError || type == PyExc_ValueError || type == PyExc_OverflowError || type == PyExc_BufferError;
  PyObject* text = known && !traceback ? PyObject_Str(value) : NULL;
  PyObject* place = text ? place_of_argument(i, name, function) : NULL;
  if (!place) {
    Py_XDECREF(text);
    PyErr_Clear();
    add_note(i, name, value);
    PyErr_Restore(type, value, traceback);
    return -1;
  }
  PyErr_Format(type, "%U: %U", place, text);
  Py_DECREF(place);
  Py_DECREF(text);
  Py_DECREF(type);
  Py_DECREF(value);
  return -1;
}

static FC_COLD int alloc_many(FcArgs* args, Py_ssize_t n, bool owned) {
  size_t each = sizeof(TVMFFIAny) + sizeof(FcSlot) + FC_KEEPS_EACH * sizeof(FcKeep) + FC_INLINE_DIMS * sizeof(int64_t);
  if (n > 100000 || !(args->heap = malloc((size_t)n * each))) {
    args->heap = NULL;
    PyErr_Format(n > 100000 ? PyExc_TypeError : PyExc_MemoryError, "%zd arguments are too many", n);
    return -1;
  }
  args->any = args->heap;
  FcSlot* slots = (FcSlot*)(args->any + n);
  args->keeps = (FcKeep*)(slots + n);
  args->dims = (int64_t*)(args->keeps + FC_KEEPS_EACH * n);
  args->slots = owned ? NULL : slots;
  args->max_keeps = (int32_t)(FC_KEEPS_EACH * n);
  return 0;
}

static inline int args_init(FcArgs* args, Py_ssize_t n, bool owned) {
  args->n = 0;
  args->n_keeps = 0;
  args->seen = 0;
  args->views = ~UINT64_C(0);
  args->writes = 0;
  args->exchange = NULL;
  args->importer = NULL;
  args->heap = NULL;
  if (FC_UNLIKELY(n > FC_INLINE_ARGS)) return alloc_many(args, n, owned);
  args->any = args->inline_any;
  args->slots = owned ? NULL : args->inline_slots;
  args->dims = args->inline_dims;
  args->keeps = args->inline_keeps;
  args->max_keeps = FC_INLINE_ARGS * FC_KEEPS_EACH;
  return 0;
}

#if PY_VERSION_HEX >= 0x030C0000
#define LONG_IS_SMALL(o) PyUnstable_Long_IsCompact((PyLongObject*)(o))
#define LONG_SMALL_VALUE(o) PyUnstable_Long_CompactValue((PyLongObject*)(o))
#else
#define LONG_IS_SMALL(o) (Py_SIZE(o) >= -1 && Py_SIZE(o) <= 1)
#define LONG_SMALL_VALUE(o) (Py_SIZE(o) * (Py_ssize_t)((PyLongObject*)(o))->ob_digit[0])
#endif

static inline int convert(FcArgs* args, int32_t i, PyObject* object) {
  TVMFFIAny* out = &args->any[i];
  if (PyLong_CheckExact(object) && LONG_IS_SMALL(object)) {
    *out = fc_any_int(LONG_SMALL_VALUE(object));
    return 0;
  }
  *out = fc_any_none();
  FcSetter made;
  const FcSetter* setter = fc_setter_of(object, &made);
  return FC_LIKELY(setter != NULL) ? setter->set(args, setter, i, object, out) : -1;
}

/* The number of arguments that were converted. */
static inline Py_ssize_t convert_all(FcArgs* args, PyObject* const* objects, Py_ssize_t n) {
  for (int32_t i = 0; i < (int32_t)n; ++i) {
    if (FC_UNLIKELY(convert(args, i, objects[i]) != 0)) {
      fc_args_end(args);
      return i;
    }
    args->n = i + 1;
  }
  return n;
}

static inline int begin(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name, bool owned) {
  if (FC_UNLIKELY(args_init(args, n, owned) != 0)) return -1;
  Py_ssize_t done = convert_all(args, objects, n);
  return FC_LIKELY(done == n) ? 0 : name_argument((int32_t)done, name, NULL);
}

int fc_args_begin(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name) {
  return begin(args, objects, n, name, false);
}

int fc_args_begin_owned(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name) {
  return begin(args, objects, n, name, true);
}

/* A kernel would take the handle of a session's tensor for an address. One that also gets a function may pass the tensor
 * on to it. Returns the argument's number, or n when all are fine. */
static FC_COLD Py_ssize_t find_remote(const FcArgs* args, Py_ssize_t n) {
  Py_ssize_t first = n;
  for (Py_ssize_t i = n; i-- > 0;) {
    const DLTensor* dl = fc_any_tensor(&args->any[i]);
    if (args->any[i].type_index == kTVMFFIFunction) return n;
    if (dl && fc_device_is_remote(dl->device)) first = i;
  }
  return first;
}

static FC_COLD int refuse_remote(FcArgs* args, Py_ssize_t n, const FcFunction* function) {
  Py_ssize_t i = find_remote(args, n);
  if (i == n) return 0;
  PyObject* place = fc_session_hooks.place_text(fc_any_tensor(&args->any[i])->device);
  fc_args_end(args);
  if (!place) return -1;
  PyErr_Format(PyExc_ValueError,
               "the tensor is on %U, and the function is of this process; pass a copy: x.numpy(), or call the function "
               "on that server",
               place);
  Py_DECREF(place);
  return name_argument((int32_t)i, function->name, function);
}

int fc_args_begin_for(FcArgs* args, PyObject* const* objects, Py_ssize_t n, const FcFunction* function) {
  if (FC_UNLIKELY(args_init(args, n, function->owned_args) != 0)) return -1;
  args->views = function->views;
  args->writes = function->writes;
  Py_ssize_t done = convert_all(args, objects, n);
  if (FC_UNLIKELY(done != n)) return name_argument((int32_t)done, function->name, function);
  return FC_UNLIKELY(args->seen & FC_SEEN_REMOTE) && function->kernel ? refuse_remote(args, n, function) : 0;
}

static void end_slow(FcArgs* args) {
  while (args->n_keeps > 0) {
    FcKeep keep = args->keeps[--args->n_keeps];
    keep.release(keep.what);
  }
  if (fc_owned_mode(args)) {
    for (int32_t i = 0; i < args->n; ++i) fc_any_clear(&args->any[i]);
  }
  free(args->heap);
}

void fc_args_end(FcArgs* args) {
  if (FC_UNLIKELY(args->n_keeps || args->heap || fc_owned_mode(args))) end_slow(args);
}

int fc_set_element(FcArgs* outer, PyObject* object, TVMFFIAny* out) {
  FcArgs inner;
  if (args_init(&inner, 0, true) != 0) return -1;
  FcSetter made;
  const FcSetter* setter = fc_setter_of(object, &made);
  *out = fc_any_none();
  if (!setter || setter->set(&inner, setter, 0, object, out) != 0) return -1;
  if (outer) {
    outer->seen |= inner.seen;
    if (inner.importer) fc_note_importer(outer, inner.importer);
    if (inner.exchange) {
      if (outer->exchange && outer->exchange != inner.exchange) outer->seen |= FC_SEEN_OTHER;
      outer->exchange = inner.exchange;
    }
  }
  return 0;
}

int fc_any_from_python(PyObject* object, TVMFFIAny* out) { return fc_set_element(NULL, object, out); }
