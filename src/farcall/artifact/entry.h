/*
 * Checks of arguments and sizes, and memory, for the generated entries of an artifact. The generator puts this text in
 * front of the entries; it does not depend on the model, and neither do the functions in the .c files of this folder.
 * These are four objects, which the cache keeps for all models: entry_call.c is what every call goes through;
 * entry_late.c and entry_control.c are for models that have such outputs, or If, Loop and Scan; the others format
 * messages, allocate, or are rarely called. An installation brings the objects that every model has (_fixed.py).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <farcall/c_api.h>

/* farcall fills __farcall_runtime when it loads the library. Another runtime leaves it NULL and defines these
 * symbols. They are weak, because under farcall they may be undefined. */
#pragma weak TVMFFIErrorSetRaisedFromCStr
#pragma weak TVMFFIEnvTensorAlloc
#pragma weak TVMFFIEnvGetDLPackManagedTensorAllocator
#pragma weak TVMFFIObjectDecRef

extern FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;

#define FC_COLD __attribute__((noinline, cold))
#define FC_INLINE static inline __attribute__((unused))
#define FC_ALIGNMENT 64 /* bytes, of every buffer: a cache line, and the widest vector register in use */

/* What a value is: a tensor of numbers, or an object. Strings are an Array of two: the shape, as an Array of ints, and
 * the strings, as an Array, row-major. A sequence is an Array, an optional None or its value. */
enum { FC_TENSOR, FC_STRINGS, FC_SEQUENCE, FC_OPTIONAL };

/* One parameter of an entry. A negative dim stands for the symbol with index ~dim. An object has no dtype, and ~ndim is
 * the rank of strings, so that no tensor fits. */
struct fc_parameter {
  const char* name;
  const char* type; /* as the Signature prints it: float32[batch, 8] */
  DLDataType dtype;
  int32_t ndim;
  const int64_t* dims;
  int32_t kind;
};

/* An entry, for messages: what it takes, and the names of the symbols in the dims. */
struct fc_function {
  const char* name;
  const struct fc_parameter* parameters;
  int32_t count;
  const char* const* symbols;
  int32_t num_symbols;
  int32_t num_late; /* of the symbols, the last ones: known when a region has run */
};

/* A number that was passed for a tensor of rank 0. */
struct fc_scalar {
  DLTensor tensor;
  union {
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    float f32;
    double f64;
  } value;
};

typedef int fc_kernel(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/* What a region keeps between calls: what its own code made (RegionCode.state), or the function of a module
 * (RegionModule), which `lookup` finds among the library's imports. */
struct fc_state {
  const char* place; /* "region `npu_0` of backend `npu`" */
  fc_kernel* init; /* of its own code; NULL for a module */
  fc_kernel* destroy;
  const char* kind; /* of a module */
  const char* function;
  const DLTensor* constants; /* that the function `__init_<function>` of the module takes */
  int32_t num_constants;
  int (*lookup)(const char* name, TVMFFIObjectHandle* out);
  void* self; /* written before `ready` */
  _Atomic bool ready;
};
/* All states of the library, the last one followed by NULL. The generated text defines them. */
extern struct fc_state* const farcall_states[];

/* The code of a region. */
struct fc_code {
  const char* name;
  const char* place; /* "region `npu_0` of backend `npu`" */
  fc_kernel* function;
  struct fc_state* state;   /* NULL where there is none */
  const void* const* table; /* without a state: the constants that the function gets as `self`; or NULL */
  DLDevice device;          /* of its inputs, and of the outputs that it does not allocate */
  bool bounded;             /* whether its last argument is the number of bytes that it may allocate */
};

/* Of all regions. The generated text defines it. */
extern const struct fc_code farcall_codes[];

struct fc_region {
  const struct fc_code* code;
  const struct fc_function* about; /* the parameters are tensors, then sizes */
  int32_t num_inputs;       /* how many of them are tensors */
  int32_t first_size;       /* the symbol that the first of the others is */
  int32_t num_derived;      /* symbols behind those of the parameters, that `derive` computes */
  const struct fc_parameter* outputs; /* that the entry allocates */
  int32_t num_outputs;
  const struct fc_parameter* late; /* outputs that the function allocates */
  int32_t num_late;
  const int32_t*
      order; /* for each result: an index of `outputs`, or ~ an index of `late`; NULL: there are no late ones */
  const int32_t* wanted; /* the symbols whose sizes the region's own function takes */
  int32_t num_wanted;
  int64_t workspace;                                   /* bytes; not 0 where `derive` computes them */
  int (*derive)(int64_t* symbols, int64_t* workspace); /* computes and checks sizes; NULL where there are none */
};

/* A tensor of the model: where its elements are, and where its shape is, which its strides follow. Device type 0: the
 * module that makes it keeps it, for other regions of the module, and gives an object that stands for it. The device's
 * number is 0 then, or one more than the index of the frame's `data` if others take the tensor, too; or FC_OBJECT: the
 * value is no tensor of numbers, and always in the frame's `late`. */
enum { FC_OBJECT = -1 };
struct fc_place {
  int32_t data;         /* index of the frame's `data`; of its `late`, if the module keeps it, or of an object */
  int32_t dims;         /* index of the frame's `dims`; unused where there is a table */
  const int64_t* table; /* a shape without symbols */
  DLDataType dtype;
  int32_t ndim;
  DLDevice device;
};

static const int64_t fc_no_dims[1] __attribute__((unused)) = {0}; /* of a tensor of rank 0 */

/* A call of a region by `main`. Without code: `main` copies the first tensor to the second, or makes a tensor on a device,
 * which it keeps in `late`. */
struct fc_step {
  const struct fc_code* code;
  const struct fc_place* tensors; /* inputs, then the outputs that `main` allocates */
  int32_t num_tensors;
  int32_t has_workspace;
  const int32_t* symbols; /* whose sizes the function takes */
  int32_t num_symbols;
  const struct fc_parameter* late; /* outputs that the function allocates */
  int32_t num_late;
  int32_t first_late; /* index of the frame's `late` */
  int32_t late_data; /* index of the frame's `data` */
  int32_t num_kept; /* outputs that its module keeps, see fc_place */
};

/* What a call of `main` works with. */
struct fc_frame {
  int64_t* symbols;
  int64_t* dims;
  void** data;
  struct fc_late* late;
  void* workspace;
  int64_t* left; /* bytes that the call may still allocate for tensors whose sizes are known only in the call */
};

/* How many bytes a call may allocate for such tensors, and for the memory that depends on their sizes. The generated
 * text defines it. */
extern const int64_t farcall_late_bytes;

/* A tensor that a region allocated, because its sizes are known only when the region has run; or what stands for one
 * that a module keeps; or an object. */
struct fc_late {
  TVMFFIAny tensor;
  void* data; /* its elements */
};

struct fc_block;

/* ------------------------------------------------------------------------------------- in entry_call.c ---- */

/* Checks the arguments, and binds the symbols. `given` gets the tensors, and NULL for objects; `numbers` holds those
 * that were passed as numbers. */
int farcall_take(const struct fc_function* about, const TVMFFIAny* args, int32_t num_args, int64_t* symbols,
                 const DLTensor** given, struct fc_scalar* numbers);
/* Returns in `*data` the elements of an argument, row-major and aligned to `item`, the size of an element, a power
 * of two. The caller must free `*owned`. False: raised. */
bool farcall_input(const struct fc_function* about, const DLTensor* tensor, int64_t item, void** data, void** owned);
/* Allocates a result of the shape and dtype of `like`; `*data` points to its elements. False: raised. */
bool farcall_output(const struct fc_function* about, DLTensor* like, size_t bytes, TVMFFIAny* out, void** data);
/* A block of at least that size, which the caller gives back; NULL: raised. */
struct fc_block* farcall_take_block(const struct fc_function* about, size_t size);
void farcall_give_block(struct fc_block* block);
/* Calls the regions of these steps. `most` is the largest number of arguments of one. */
int farcall_run(const struct fc_step* steps, int32_t count, int32_t most, const struct fc_frame* f);

/* ---------------------------------------------------------------------------------------- in the others ---- */

/* A message under construction. Text that does not fit is dropped. */
struct fc_text {
  char data[1024];
  size_t size;
};
__attribute__((format(printf, 2, 3))) FC_COLD void farcall_put(struct fc_text* text, const char* format, ...);
FC_COLD void farcall_put_tensor(struct fc_text* text, const DLTensor* tensor);
FC_COLD void farcall_put_kind(struct fc_text* text, const TVMFFIAny* value);
FC_COLD void farcall_put_symbols(struct fc_text* text, const struct fc_function* about, const int64_t* symbols);
/* Raises the message. Returns -1. */
FC_COLD int farcall_raise_text(const char* kind, const struct fc_text* text);
/* Accepts a number for a tensor of rank 0, if the dtype can hold it: an int for any int or float dtype, a float for a
 * float dtype, a bool for bool. */
FC_COLD bool farcall_scalar(const TVMFFIAny* got, const struct fc_parameter* want, struct fc_scalar* out);
/* Whether a value is an object as the parameter wants it, as far as an entry depends on that: who takes it checks the
 * rest. Binds the symbols in the shape of strings that are still unbound (-1). */
FC_COLD bool farcall_object(const TVMFFIAny* got, const struct fc_parameter* want, int64_t* symbols);
/* Gives an object of the call as a result, too: a new reference, or a copy of a tensor that the caller lent. */
FC_COLD int farcall_share(const struct fc_function* about, const TVMFFIAny* value, TVMFFIAny* result);
/* Raise an error: of argument `index`, where those before it are valid; of the number of arguments; of sizes that do not
 * fit together, or need too much memory. */
FC_COLD int farcall_refuse(const struct fc_function* about, int32_t index, const TVMFFIAny* args, int64_t* symbols);
FC_COLD int farcall_refuse_count(const struct fc_function* about, int32_t got);
FC_COLD int farcall_refuse_sizes(const struct fc_function* about, const char* problem, const int64_t* symbols);
/* Names the region, "region `npu_0` of backend `npu`", in the error that it raised. Returns -1. */
FC_COLD int farcall_region_failed(const char* place);
/* A row-major copy of a tensor, in new memory; NULL: raised. */
FC_COLD void* farcall_pack(const struct fc_function* about, const DLTensor* tensor, const char* data, int64_t item);
/* Frees `old`, and returns a block of that size; NULL: raised. */
FC_COLD struct fc_block* farcall_new_block(const struct fc_function* about, struct fc_block* old, size_t size);
/* Makes a Tensor whose memory this library allocates: for a runtime without an allocator. */
FC_COLD int farcall_new_tensor(const struct fc_function* about, const DLTensor* like, size_t bytes,
                               TVMFFIObjectHandle* out);
/* Makes one Array of `items`, and takes ownership of them, even on failure (returns -1, raised). */
int farcall_results(const struct fc_function* about, TVMFFIAny* items, int64_t count, TVMFFIAny* result);
/* Takes what a region's function returned: the outputs that it allocated, which bind symbols, and whose bytes it takes
 * from `*left`. Owns `result`. */
FC_COLD int farcall_take_late(const char* place, TVMFFIAny* result, const struct fc_parameter* want, int32_t count,
                              int64_t* symbols, int64_t* left, struct fc_late* out);
/* Takes bytes from `*left`, for results and working memory that depend on what the nodes `after` allocated. */
FC_COLD int farcall_spend(const struct fc_function* about, const char* after, int64_t bytes, int64_t* left,
                          const int64_t* symbols);
/* Takes what a region's function returned: what stands for the outputs that its module keeps. Owns `result`. */
FC_COLD int farcall_take_kept(const struct fc_step* step, TVMFFIAny* result, const struct fc_frame* f);
/* A step without code. */
FC_COLD int farcall_device_step(const struct fc_step* step, DLTensor* tensors, const struct fc_frame* f);
/* A Tensor that is a view of `like`'s elements, which live as long as the library. */
FC_COLD int farcall_view(const DLTensor* like, TVMFFIObjectHandle* out);
/* Makes a region's state, unless it is there. */
FC_COLD int farcall_make_state(struct fc_state* state);
/* The entry of a region. */
FC_COLD int farcall_call_region(const struct fc_region* region, const TVMFFIAny* args, int32_t num_args,
                                TVMFFIAny* result);

/* --------------------------------------------------------------------------------------------- states ---- */

/* The loader has made the states (see entry_state.c), if it is farcall's; otherwise the first call does. */
FC_INLINE bool fc_ready(struct fc_state* state) {
  return __builtin_expect(atomic_load_explicit(&state->ready, memory_order_acquire), 1) ||
         farcall_make_state(state) == 0;
}

/* ------------------------------------------------------------------------------------------- arguments ---- */

FC_INLINE const DLTensor* fc_tensor(const TVMFFIAny* value) {
  if (value->type_index == kTVMFFIDLTensorPtr) return (const DLTensor*)value->v_ptr;
  if (value->type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(value->v_obj);
  return NULL;
}

/* The size that an argument of its own gives: rank 0, int64. */
FC_INLINE int64_t fc_size(const DLTensor* tensor) {
  int64_t size = 0;
  memcpy(&size, (const char*)tensor->data + tensor->byte_offset, sizeof size);
  return size;
}

/* The items of an Array; NULL: the value is no Array. */
FC_INLINE const TVMFFISeqCell* fc_items(const TVMFFIAny* value) {
  return value->type_index == kTVMFFIArray ? TVMFFISeqGetCellPtr(value->v_obj) : NULL;
}

/* The number of the parameter's dims. */
FC_INLINE int32_t fc_rank(const struct fc_parameter* want) { return want->ndim < 0 ? ~want->ndim : want->ndim; }

FC_INLINE bool fc_same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* Whether the argument matches the parameter. Binds symbols that are still unbound (-1). */
FC_INLINE bool fc_bind(const struct fc_parameter* want, const DLTensor* got, int64_t* symbols) {
  if (!got || !fc_same_dtype(got->dtype, want->dtype) || got->ndim != want->ndim) return false;
  if (got->device.device_type != kDLCPU) return false;
  bool empty = false;
  for (int32_t i = 0; i < want->ndim; ++i) {
    int64_t dim = want->dims[i], size = got->shape[i];
    if (dim < 0) {
      if (symbols[~dim] < 0) symbols[~dim] = size;
      dim = symbols[~dim];
    }
    if (size != dim || size < 0) return false;
    empty |= size == 0;
  }
  return empty || got->data != NULL;
}

/* --------------------------------------------------------------------- arithmetic that detects overflow --- */

FC_INLINE int64_t fc_add(bool* bad, int64_t a, int64_t b) {
  int64_t sum = 0;
  *bad |= __builtin_add_overflow(a, b, &sum);
  return sum;
}
FC_INLINE int64_t fc_mul(bool* bad, int64_t a, int64_t b) {
  int64_t product = 0;
  *bad |= __builtin_mul_overflow(a, b, &product);
  return product;
}
FC_INLINE int64_t fc_floordiv(bool* bad, int64_t a, int64_t b) {
  if (b == 0 || (a == INT64_MIN && b == -1)) {
    *bad = true;
    return 0;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
FC_INLINE int64_t fc_mod(bool* bad, int64_t a, int64_t b) {
  return fc_add(bad, a, -fc_mul(bad, b, fc_floordiv(bad, a, b)));
}
FC_INLINE int64_t fc_min(int64_t a, int64_t b) { return a < b ? a : b; }
FC_INLINE int64_t fc_max(int64_t a, int64_t b) { return a > b ? a : b; }
FC_INLINE int64_t fc_align(bool* bad, int64_t bytes) {
  return fc_add(bad, bytes, FC_ALIGNMENT - 1) & ~(int64_t)(FC_ALIGNMENT - 1);
}
/* The bytes between neighbouring elements; 1 where several share a byte. */
FC_INLINE int64_t fc_item(DLDataType dtype) { return dtype.bits < 8 ? 1 : dtype.bits / 8; }
/* The bytes of row-major elements. */
FC_INLINE int64_t fc_size_of(bool* bad, int64_t count, DLDataType dtype) {
  if (dtype.bits >= 8) return fc_mul(bad, count, dtype.bits / 8);
  const int64_t each = 8 / dtype.bits;
  return count / each + (count % each != 0);
}
/* Writes the row-major strides of a shape, and returns the number of elements. */
FC_INLINE int64_t fc_strides(bool* bad, int32_t ndim, const int64_t* shape, int64_t* strides) {
  int64_t count = 1;
  bool empty = false, wide = false;
  for (int32_t i = ndim - 1; i >= 0; --i) {
    strides[i] = count;
    empty |= shape[i] == 0;
    count = fc_mul(&wide, count, shape[i]);
  }
  *bad |= wide && !empty;
  return empty ? 0 : count;
}

/* ---------------------------------------------------------------------------------------------- memory ---- */

FC_INLINE bool fc_row_major(const DLTensor* tensor) {
  if (!tensor->strides) return true;
  uint64_t expected = 1;
  bool plain = true, empty = false;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    plain &= tensor->shape[i] == 1 || tensor->strides[i] == (int64_t)expected;
    empty |= tensor->shape[i] == 0;
    expected *= (uint64_t)tensor->shape[i];
  }
  return plain || empty;
}

/* A block of working memory, reused by later calls. As many blocks are kept as calls ran at once, up to a limit. */
struct fc_block {
  size_t size;
};
#define FC_BLOCKS 16
extern _Atomic(struct fc_block*) farcall_blocks[FC_BLOCKS];

FC_INLINE char* fc_block_data(struct fc_block* block) { return (char*)block + FC_ALIGNMENT; }

/* --------------------------------------------------------------------------------------------- results ---- */

FC_INLINE void fc_release(TVMFFIAny* value) {
  if (value->type_index < kTVMFFIStaticObjectBegin) return;
  if (__farcall_runtime) {
    (void)__farcall_runtime->object_dec_ref(value->v_obj);
  } else if (TVMFFIObjectDecRef) {
    (void)TVMFFIObjectDecRef(value->v_obj);
  }
  value->type_index = kTVMFFINone;
  value->v_int64 = 0;
}

/* A new reference. The layout of the count is the ABI's: the strong references are its low half. */
FC_INLINE TVMFFIAny fc_share(const TVMFFIAny* value) {
  if (value->type_index >= kTVMFFIStaticObjectBegin) {
    (void)__atomic_fetch_add(&value->v_obj->combined_ref_count, 1, __ATOMIC_RELAXED);
  }
  return *value;
}

/* --------------------------------------------------------------------------------------------- steps ---- */

/* The pointer that a region's function gets as `self`. */
FC_INLINE void* fc_self(const struct fc_code* code) { return code->state ? code->state->self : (void*)code->table; }

/* Calls the function of a region, which may be a module's. */
FC_INLINE int fc_call_code(const struct fc_code* code, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  if (code->state && !fc_ready(code->state)) return -1;
  const int status = code->function(fc_self(code), args, count, result);
  return __builtin_expect(status != 0, 0) ? farcall_region_failed(code->place) : 0;
}

FC_INLINE bool fc_is_kept(const struct fc_place* at) { return __builtin_expect(at->device.device_type == 0, 0); }
/* Whether the value is there, so that a region takes it; otherwise the region makes it. */
FC_INLINE bool fc_has_kept(const struct fc_place* at, const struct fc_frame* f) {
  return at->device.device_id == FC_OBJECT || f->late[at->data].tensor.type_index != kTVMFFINone;
}
