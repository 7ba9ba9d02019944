/*
 * The arguments of one native call. A native caller's four steps, as Function itself does them (python/function.c):
 *
 *     FcArgs args;
 *     if (fc_args_begin(&args, objects, n, name) != 0) return NULL;       // Python -> args.any[0..n)
 *     TVMFFIAny result = fc_any_none();
 *     int rc = ...;                                                       // may release the GIL
 *     PyObject* value = fc_args_result(&args, rc, &result, name);         // result or error -> Python
 *     fc_args_end(&args);
 */
#ifndef FARCALL_PYTHON_ARGS_H_
#define FARCALL_PYTHON_ARGS_H_

#include "python/types.h"

/* Which frameworks the tensor arguments of a call belong to: decides the framework of its results. */
enum { FC_SEEN_NUMPY = 1, FC_SEEN_EXCHANGE = 2, FC_SEEN_OTHER = 4, FC_SEEN_IMPORTER = 8 };
/* One of them is a tensor of a session. */
enum { FC_SEEN_REMOTE = 16 };

/* An argument needs at most three releases: of its converted object, its buffer, and a tensor of that buffer. */
enum { FC_INLINE_ARGS = 8, FC_INLINE_DIMS = 8, FC_KEEPS_EACH = 3 };

/* Storage that one argument may need beside its Any. */
typedef struct {
  union {
    DLTensor dl;
    TVMFFIByteArray bytes;
  };
} FcSlot;

/* Something to release after the call. */
typedef struct {
  void (*release)(void*);
  void* what;
} FcKeep;

/*
 * The arguments of one call. The structure is large and lives on the C stack; only the used parts are written.
 * It needs the heap only for more than 8 arguments, or for a numpy array of more than 8 dims.
 */
typedef struct FcArgs {
  TVMFFIAny* any;
  FcSlot* slots; /* NULL: owned mode, for values that outlive the call */
  int64_t* dims; /* FC_INLINE_DIMS for each argument, for strides */
  FcKeep* keeps;
  int32_t n;
  int32_t n_keeps, max_keeps;
  uint32_t seen; /* FC_SEEN_* */
  uint64_t views, writes; /* of the function: see FcFunction */
  const DLPackExchangeAPI* exchange;
  PyObject* importer; /* with FC_SEEN_IMPORTER: the from_dlpack of the framework, borrowed from its setter */
  void* heap; /* one block for all of the above when there are many arguments */
  TVMFFIAny inline_any[FC_INLINE_ARGS];
  FcSlot inline_slots[FC_INLINE_ARGS];
  FcKeep inline_keeps[FC_INLINE_ARGS * FC_KEEPS_EACH];
  int64_t inline_dims[FC_INLINE_ARGS * FC_INLINE_DIMS];
} FcArgs;

/*
 * Converts objects to borrowed views in args->any. The objects must stay alive until fc_args_end. Tensors become
 * tag 7 (own Tensors tag 70), text becomes tag 8 (or 65 when it contains a NUL), bytes tag 9.
 * On failure it releases everything; the exception names the argument (counted from 1) and the function.
 */
int fc_args_begin(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name);
/*
 * The same for a Function, which knows its parameters: a tensor becomes tag 7 where the parameter is a view, and
 * elsewhere tag 70, lent for the call: see python/lend.c.
 */
int fc_args_begin_for(FcArgs* args, PyObject* const* objects, Py_ssize_t n, const FcFunction* function);
/* The same, but each tensor, text and bytes value becomes a separate object, which the callee may keep. */
int fc_args_begin_owned(FcArgs* args, PyObject* const* objects, Py_ssize_t n, PyObject* name);
void fc_args_end(FcArgs* args);
/* rc and result of a call -> new reference, or NULL with the kernel's error as the Python exception. */
PyObject* fc_args_result(const FcArgs* args, int rc, TVMFFIAny* result, PyObject* name);
/* Queues something for release in fc_args_end. If the queue is full, releases it at once and fails. */
int fc_args_keep(FcArgs* args, void (*release)(void*), void* what);
void fc_release_object(void* object); /* an FcKeep release: fc_decref */
void fc_release_python(void* object); /* an FcKeep release: Py_DECREF */

/* ---- the setter of a type: chosen once per Python type ---- */

typedef struct FcSetter FcSetter;
typedef int (*FcSetFunction)(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
struct FcSetter {
  PyTypeObject* type; /* NULL: an empty slot of the table */
  FcSetFunction set;
  const DLPackExchangeAPI* exchange;
  PyObject* importer; /* the framework's from_dlpack, owned by the table; NULL: results become farcall Tensors */
  bool immutable;     /* the framework relies on its tensors never being written to (jax) */
};

/* Finds the setter of a type: 1 and the setter in `out`, 0 when another chooser must, -1 with an exception. */
typedef int (*FcChooser)(PyTypeObject* type, PyObject* object, FcSetter* out);
/* Tries the choosers (n of them, static) in this order; the first that returns 1 wins. See python/init.c. */
int fc_args_init(const FcChooser* choosers, size_t n);
int fc_choose_value(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_object_protocol(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_numpy(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_tensor(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_protocol(PyTypeObject* type, PyObject* object, FcSetter* out);
int fc_choose_other(PyTypeObject* type, PyObject* object, FcSetter* out);

/* A tensor by its __dlpack__. */
int fc_set_dlpack(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
/* A setter for arrays with the buffer protocol beside __dlpack__; NULL if the type has none. See python/buffer.c. */
FcSetFunction fc_buffer_setter(PyTypeObject* type);
/* Makes argument i a view of what has the buffer protocol, and no __dlpack__ (bytes, array.array): 1. 0: it cannot be a
 * tensor; -1 with an exception. */
int fc_set_plain_buffer(FcArgs* args, int32_t i, PyObject* object);
int fc_set_object(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_shape(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_dict(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_sequence(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);

int fc_set_opaque(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);
int fc_set_module(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out);

/* An element of a container, as an owned value; notes its frameworks in args (may be NULL). */
int fc_set_element(FcArgs* args, PyObject* object, TVMFFIAny* out);

/* The setter of an object's type, chosen at its first use; `made` is storage for one that the table has no room for. */
const FcSetter* fc_setter_of(PyObject* object, FcSetter* made);
/* Takes ownership of an object and makes it the value; in a call's views it is released after the call. */
int fc_give_object(FcArgs* args, TVMFFIObject* object, TVMFFIAny* out);
static inline bool fc_owned_mode(const FcArgs* args) { return args->slots == NULL; }
static inline int64_t* fc_dims_of(FcArgs* args, int32_t i) { return args->dims + (size_t)i * FC_INLINE_DIMS; }
static inline bool fc_has_bit(uint64_t bits, int32_t i) { return bits >> (i < 63 ? i : 63) & 1; }
/* Whether parameter i takes a borrowed DLTensor; not in owned mode. */
static inline bool fc_wants_view(const FcArgs* args, int32_t i) { return fc_has_bit(args->views, i); }
/* 0, or -1 with an exception if parameter i may write to its tensor and the argument is read-only. */
FC_COLD int fc_refuse_read_only(void);
static inline int fc_check_writes(const FcArgs* args, int32_t i, bool read_only) {
  return FC_UNLIKELY(read_only) && fc_has_bit(args->writes, i) ? fc_refuse_read_only() : 0;
}
/* Notes the importer of a framework for the results; two different frameworks count as FC_SEEN_OTHER. */
static inline void fc_note_importer(FcArgs* args, PyObject* importer) {
  args->seen |= importer ? FC_SEEN_IMPORTER : FC_SEEN_OTHER;
  if (FC_UNLIKELY(args->importer && args->importer != importer)) args->seen |= FC_SEEN_OTHER;
  args->importer = importer;
}

/* ---- lent tensors: Tensor objects from a pool that represent a framework's tensor during a call ---- */

enum { FC_POOL = 64 };
extern FcTensorObj* fc_pool[FC_POOL]; /* guarded by the GIL */
extern int fc_pool_count;
FcTensorObj* fc_pool_new(void);
void fc_pool_put(FcTensorObj* tensor);
/* A Tensor object with room for FC_INLINE_DIMS dims; NULL with an exception. Its dl is not initialised. */
static inline FcTensorObj* fc_pool_take(void) {
  return FC_LIKELY(fc_pool_count > 0) ? fc_pool[--fc_pool_count] : fc_pool_new();
}
static inline int64_t* fc_pool_dims(FcTensorObj* tensor) { return (int64_t*)(tensor + 1); }
/* The object that a lent tensor represents, borrowed; NULL if the tensor is not lent. */
static inline PyObject* fc_lender(const TVMFFIObject* tensor) {
  const FcTensorObj* own = (const FcTensorObj*)tensor;
  return fc_tensor_is_ours(tensor) && !own->release ? (PyObject*)own->context : NULL;
}
/* Lets the tensor represent `object` (borrowed) until fc_args_end, which adds a reference if the callee kept it. */
int fc_lend(FcArgs* args, FcTensorObj* tensor, PyObject* object, TVMFFIAny* out);

#endif /* FARCALL_PYTHON_ARGS_H_ */
