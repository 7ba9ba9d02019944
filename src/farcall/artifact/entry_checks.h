/*
 * Checks of arguments and sizes for the generated entry of an artifact. The generator puts this text in front of
 * the entry; it does not depend on the model. The hot path is inline; functions that format messages are cold.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
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

FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;

/* Marks an artifact, so that the loader notices when its manifest was stripped: farcall/library/_manifest.py. */
__attribute__((used)) static const char fc_mark[] = "farcall: the entry of an artifact";

#define FC_COLD __attribute__((noinline, cold, unused))
#define FC_USED_MAYBE __attribute__((unused))
#define FC_ALIGNMENT 64 /* bytes, of every buffer: a cache line, and the widest vector register in use */

/* One parameter of the entry. A negative dim stands for the symbol with index ~dim. */
struct fc_parameter {
  const char* name;
  const char* type; /* as the Signature prints it: float32[batch, 8] */
  DLDataType dtype;
  int32_t ndim;
  const int64_t* dims;
};

/* ---------------------------------------------------------------------------------------------- errors ---- */

/* A message under construction. Text that does not fit is dropped. */
struct fc_text {
  char data[1024];
  size_t size;
};

__attribute__((format(printf, 2, 3))) FC_COLD static void fc_put(struct fc_text* text, const char* format, ...) {
  if (text->size >= sizeof text->data) return;
  va_list values;
  va_start(values, format);
  int n = vsnprintf(text->data + text->size, sizeof text->data - text->size, format, values);
  va_end(values);
  if (n > 0) text->size += (size_t)n;
}

FC_COLD static int fc_raise(const char* kind, const struct fc_text* text) {
  if (__farcall_runtime) {
    __farcall_runtime->error_set_raised_from_cstr(kind, text->data);
  } else if (TVMFFIErrorSetRaisedFromCStr) {
    TVMFFIErrorSetRaisedFromCStr(kind, text->data);
  }
  return -1;
}

FC_COLD static int fc_no_memory(const char* what, size_t bytes) {
  struct fc_text text = {.size = 0};
  fc_put(&text, "`main`: no memory for %s of %zu bytes; pass smaller arguments", what, bytes);
  return fc_raise("MemoryError", &text);
}

FC_COLD static void fc_put_dtype(struct fc_text* text, DLDataType dtype) {
  static const char* const names[] = {
      [kDLInt] = "int",       [kDLUInt] = "uint",       [kDLFloat] = "float", [kDLOpaqueHandle] = "handle",
      [kDLBfloat] = "bfloat", [kDLComplex] = "complex", [kDLBool] = "bool",
  };
  if (dtype.code >= sizeof names / sizeof *names) {
    fc_put(text, "dtype(code %d, %d bits)", dtype.code, dtype.bits);
  } else if (dtype.code == kDLBool && dtype.bits == 8) {
    fc_put(text, "bool");
  } else {
    fc_put(text, "%s%d", names[dtype.code], dtype.bits);
  }
  if (dtype.lanes != 1) fc_put(text, "x%d", dtype.lanes);
}

FC_COLD static void fc_put_tensor(struct fc_text* text, const DLTensor* tensor) {
  fc_put_dtype(text, tensor->dtype);
  fc_put(text, "[");
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (i == 16) {
      fc_put(text, ", ... (rank %" PRId32 ")", tensor->ndim);
      break;
    }
    fc_put(text, "%s%" PRId64, i ? ", " : "", tensor->shape[i]);
  }
  fc_put(text, "]");
}

FC_COLD static void fc_put_kind(struct fc_text* text, const TVMFFIAny* value) {
  static const char* const below[] = {"None", "int", "bool", "float", "a pointer", "a dtype", "a device", "a tensor",
                                      "str", "bytes", "an object", "str", "bytes"};
  static const char* const above[] = {"an object", "str", "bytes", "an error", "a function", "a shape", "a tensor",
                                      "an array", "a map", "a module", "a Python object", "a list", "a dict"};
  int32_t i = value->type_index;
  if (i >= 0 && (size_t)i < sizeof below / sizeof *below) {
    fc_put(text, "%s", below[i]);
  } else if (i >= 64 && (size_t)(i - 64) < sizeof above / sizeof *above) {
    fc_put(text, "%s", above[i - 64]);
  } else {
    fc_put(text, "a value of type index %" PRId32, i);
  }
}

/* ------------------------------------------------------------------------------------------- arguments ---- */

static inline const DLTensor* fc_tensor(const TVMFFIAny* value) {
  if (value->type_index == kTVMFFIDLTensorPtr) return (const DLTensor*)value->v_ptr;
  if (value->type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(value->v_obj);
  return NULL;
}

static inline bool fc_same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* Whether the argument matches the parameter. Binds symbols that are still unbound (-1). */
static inline bool fc_bind(const struct fc_parameter* want, const DLTensor* got, int64_t* symbols) {
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

static bool fc_store_int(struct fc_scalar* out, DLDataType dtype, int64_t x) {
  switch (dtype.bits) {
    case 8:
      return dtype.code == kDLInt ? (out->value.i8 = (int8_t)x) == x : (out->value.u8 = (uint8_t)x) == x;
    case 16:
      return dtype.code == kDLInt ? (out->value.i16 = (int16_t)x) == x : (out->value.u16 = (uint16_t)x) == x;
    case 32:
      return dtype.code == kDLInt ? (out->value.i32 = (int32_t)x) == x : (out->value.u32 = (uint32_t)x) == x;
    case 64:
      out->value.i64 = x;
      return dtype.code == kDLInt || x >= 0;
    default:
      return false;
  }
}

static bool fc_store_float(struct fc_scalar* out, DLDataType dtype, double x) {
  if (dtype.bits == 32) out->value.f32 = (float)x;
  if (dtype.bits == 64) out->value.f64 = x;
  return dtype.bits == 32 || dtype.bits == 64;
}

/* Accepts a number for a tensor of rank 0, if the dtype can hold it: an int for any int or float dtype,
 * a float for a float dtype, a bool for bool. */
static FC_COLD bool fc_scalar(const TVMFFIAny* got, const struct fc_parameter* want, struct fc_scalar* out) {
  bool right = false;
  if (want->ndim != 0 || want->dtype.lanes != 1) return false;
  if (got->type_index == kTVMFFIBool && want->dtype.code == kDLBool) {
    out->value.u8 = got->v_int64 != 0;
    right = want->dtype.bits == 8;
  } else if (got->type_index == kTVMFFIFloat && want->dtype.code == kDLFloat) {
    right = fc_store_float(out, want->dtype, got->v_float64);
  } else if (got->type_index == kTVMFFIInt && want->dtype.code == kDLFloat) {
    right = fc_store_float(out, want->dtype, (double)got->v_int64);
  } else if (got->type_index == kTVMFFIInt && (want->dtype.code == kDLInt || want->dtype.code == kDLUInt)) {
    right = fc_store_int(out, want->dtype, got->v_int64);
  }
  out->tensor = (DLTensor){.data = &out->value, .device = {kDLCPU, 0}, .dtype = want->dtype};
  return right;
}

/* Explains why a tensor of the right dtype and rank was refused: its device, a dim, or its missing memory. */
FC_COLD static void fc_put_cure(struct fc_text* text, const struct fc_parameter* all, int32_t index,
                                const DLTensor* got, const int64_t* symbols, const char* const* names) {
  const struct fc_parameter* want = &all[index];
  if (got->device.device_type != kDLCPU) {
    fc_put(text, " on a device of type %d; copy it to the CPU", (int)got->device.device_type);
    return;
  }
  for (int32_t i = 0; i < want->ndim; ++i) {
    int64_t dim = want->dims[i] < 0 ? symbols[~want->dims[i]] : want->dims[i];
    if (got->shape[i] < 0) {
      fc_put(text, "; a size cannot be negative");
      return;
    }
    if (dim == got->shape[i]) continue;
    fc_put(text, "; dimension %" PRId32 " must be %" PRId64, i, dim);
    if (want->dims[i] >= 0) return;
    for (int32_t j = 0; j <= index; ++j) {
      for (int32_t k = 0; k < all[j].ndim; ++k) {
        if (all[j].dims[k] != want->dims[i]) continue;
        fc_put(text, ", the `%s` of argument %" PRId32 " `%s`", names[~want->dims[i]], j + 1, all[j].name);
        return;
      }
    }
    return;
  }
  fc_put(text, " without memory; pass a tensor that holds data");
}

/* Raises the error of argument `index`. The arguments before it are valid. */
FC_COLD static int fc_refuse(const struct fc_parameter* all, int32_t index, const TVMFFIAny* args,
                             int64_t* symbols, int32_t num_symbols, const char* const* names) {
  const struct fc_parameter* want = &all[index];
  const DLTensor* got = fc_tensor(&args[index]);
  struct fc_text text = {.size = 0};
  fc_put(&text, "argument %" PRId32 " `%s` of `main`: expected %s", index + 1, want->name, want->type);
  for (int32_t k = 0; k < num_symbols; ++k) symbols[k] = -1;
  for (int32_t j = 0; j < index; ++j) (void)fc_bind(&all[j], fc_tensor(&args[j]), symbols);
  const char* separator = " with ";
  for (int32_t k = 0; k < num_symbols; ++k) {
    bool used = false;
    for (int32_t i = 0; i < want->ndim; ++i) used |= want->dims[i] == ~(int64_t)k;
    if (!used || symbols[k] < 0) continue;
    fc_put(&text, "%s%s=%" PRId64, separator, names[k], symbols[k]);
    separator = ", ";
  }
  fc_put(&text, ", got ");
  if (!got) {
    fc_put_kind(&text, &args[index]);
    fc_put(&text, "; pass an array or a tensor");
    return fc_raise("TypeError", &text);
  }
  fc_put_tensor(&text, got);
  if (!fc_same_dtype(got->dtype, want->dtype)) {
    fc_put(&text, "; convert it to ");
    fc_put_dtype(&text, want->dtype);
    return fc_raise("TypeError", &text);
  }
  if (got->ndim != want->ndim) {
    fc_put(&text, "; reshape it to rank %" PRId32, want->ndim);
    return fc_raise("ValueError", &text);
  }
  (void)fc_bind(want, got, symbols);
  fc_put_cure(&text, all, index, got, symbols, names);
  return fc_raise("ValueError", &text);
}

FC_COLD static int fc_refuse_count(const struct fc_parameter* all, int32_t wanted, int32_t got) {
  struct fc_text text = {.size = 0};
  fc_put(&text, "`main`: expected %" PRId32 " argument%s (", wanted, wanted == 1 ? "" : "s");
  for (int32_t i = 0; i < wanted; ++i) fc_put(&text, "%s%s: %s", i ? ", " : "", all[i].name, all[i].type);
  fc_put(&text, "), got %" PRId32, got);
  return fc_raise("TypeError", &text);
}

/* Raises the error that the sizes of the arguments do not fit together, or need too much memory. */
FC_COLD static int fc_refuse_sizes(const char* problem, const int64_t* symbols, int32_t num_symbols,
                                   const char* const* names) {
  struct fc_text text = {.size = 0};
  fc_put(&text, "`main`: %s with ", problem);
  for (int32_t k = 0; k < num_symbols; ++k) fc_put(&text, "%s%s=%" PRId64, k ? ", " : "", names[k], symbols[k]);
  fc_put(&text, "; pass arguments of other sizes");
  return fc_raise("ValueError", &text);
}

/* --------------------------------------------------------------------- arithmetic that detects overflow --- */

static inline int64_t fc_add(bool* bad, int64_t a, int64_t b) {
  int64_t sum = 0;
  *bad |= __builtin_add_overflow(a, b, &sum);
  return sum;
}
static inline int64_t fc_mul(bool* bad, int64_t a, int64_t b) {
  int64_t product = 0;
  *bad |= __builtin_mul_overflow(a, b, &product);
  return product;
}
static FC_USED_MAYBE inline int64_t fc_floordiv(bool* bad, int64_t a, int64_t b) {
  if (b == 0 || (a == INT64_MIN && b == -1)) {
    *bad = true;
    return 0;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static FC_USED_MAYBE inline int64_t fc_mod(bool* bad, int64_t a, int64_t b) {
  return fc_add(bad, a, -fc_mul(bad, b, fc_floordiv(bad, a, b)));
}
static FC_USED_MAYBE inline int64_t fc_min(int64_t a, int64_t b) { return a < b ? a : b; }
static FC_USED_MAYBE inline int64_t fc_max(int64_t a, int64_t b) { return a > b ? a : b; }
static FC_USED_MAYBE inline int64_t fc_align(bool* bad, int64_t bytes) {
  return fc_add(bad, bytes, FC_ALIGNMENT - 1) & ~(int64_t)(FC_ALIGNMENT - 1);
}
/* Writes the row-major strides of a shape, and returns its size in bytes. */
static FC_USED_MAYBE inline int64_t fc_strides(bool* bad, int32_t ndim, const int64_t* shape, int64_t* strides,
                                               int64_t item) {
  int64_t count = 1;
  bool empty = false, wide = false;
  for (int32_t i = ndim - 1; i >= 0; --i) {
    strides[i] = count;
    empty |= shape[i] == 0;
    count = fc_mul(&wide, count, shape[i]);
  }
  count = fc_mul(&wide, count, item);
  *bad |= wide && !empty;
  return empty ? 0 : count;
}
