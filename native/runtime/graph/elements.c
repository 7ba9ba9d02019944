/*
 * Elements of all dtypes, widened for computing: float32 and float64 as they are, integers and bool to int64. Those of
 * the last dtypes are only carried, from one call to another.
 */
#include "runtime/graph/graph.h"

/* The names are numpy's; the order is that of the enum. */
enum { F32, F64, I8, I16, I32, I64, U8, U16, U32, BOOL, F16, BF16, U64, C64, DTYPES };
static const char* const names[] = {"float32", "float64", "int8", "int16",   "int32",    "int64",  "uint8",
                                    "uint16",  "uint32",  "bool", "float16", "bfloat16", "uint64", "complex64"};
const FcGraphDtype fc_graph_dtypes[] = {
    {{kDLFloat, 32, 1}, 4, FC_GRAPH_F32},     {{kDLFloat, 64, 1}, 8, FC_GRAPH_F64},
    {{kDLInt, 8, 1}, 1, FC_GRAPH_I64},        {{kDLInt, 16, 1}, 2, FC_GRAPH_I64},
    {{kDLInt, 32, 1}, 4, FC_GRAPH_I64},       {{kDLInt, 64, 1}, 8, FC_GRAPH_I64},
    {{kDLUInt, 8, 1}, 1, FC_GRAPH_I64},       {{kDLUInt, 16, 1}, 2, FC_GRAPH_I64},
    {{kDLUInt, 32, 1}, 4, FC_GRAPH_I64},      {{kDLBool, 8, 1}, 1, FC_GRAPH_I64},
    {{kDLFloat, 16, 1}, 2, FC_GRAPH_CARRIED}, {{kDLBfloat, 16, 1}, 2, FC_GRAPH_CARRIED},
    {{kDLUInt, 64, 1}, 8, FC_GRAPH_CARRIED},  {{kDLComplex, 64, 1}, 8, FC_GRAPH_CARRIED}};

int fc_graph_dtype(const char* name, size_t size) {
  for (int i = 0; i < DTYPES; ++i) {
    if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0) return i;
  }
  return -1;
}

bool fc_graph_loads(uint8_t dtype, FcGraphWide wide) { return dtype == BOOL || fc_graph_dtypes[dtype].wide == wide; }

#define LOAD(wide, type)                                                                    \
  for (ptrdiff_t i = 0; i < n; ++i) ((wide*)to)[i] = (wide)((const type*)from)[i * stride]; \
  break

void fc_graph_load(void* to, FcGraphWide wide, const char* from, uint8_t dtype, ptrdiff_t stride, ptrdiff_t n) {
  if (dtype == BOOL && wide == FC_GRAPH_F32) dtype = DTYPES;
  if (dtype == BOOL && wide == FC_GRAPH_F64) dtype = DTYPES + 1;
  switch (dtype) {
    case F32: LOAD(float, float);
    case F64: LOAD(double, double);
    case I8: LOAD(int64_t, int8_t);
    case I16: LOAD(int64_t, int16_t);
    case I32: LOAD(int64_t, int32_t);
    case I64: LOAD(int64_t, int64_t);
    case U16: LOAD(int64_t, uint16_t);
    case U32: LOAD(int64_t, uint32_t);
    case DTYPES: LOAD(float, uint8_t);
    case DTYPES + 1: LOAD(double, uint8_t);
    default: LOAD(int64_t, uint8_t);
  }
}

/* A float that int64 cannot hold becomes the nearest that it can; NaN becomes 0. */
static int64_t whole(double x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0) return INT64_MAX;
  return x < -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

#define STORE(wide, type)                                                          \
  for (ptrdiff_t i = 0; i < n; ++i) ((type*)to)[i] = (type)((const wide*)from)[i]; \
  break
#define STORE_TRUTH(wide)                                                            \
  for (ptrdiff_t i = 0; i < n; ++i) ((uint8_t*)to)[i] = ((const wide*)from)[i] != 0; \
  break

static void store_whole(char* to, uint8_t dtype, const void* from, ptrdiff_t n) {
  switch (dtype) {
    case F32: STORE(int64_t, float);
    case F64: STORE(int64_t, double);
    case BOOL: STORE_TRUTH(int64_t);
    case I8:
    case U8: STORE(int64_t, uint8_t);
    case I16:
    case U16: STORE(int64_t, uint16_t);
    case I64: STORE(int64_t, int64_t);
    default: STORE(int64_t, uint32_t);
  }
}

static void store_float(char* to, uint8_t dtype, const float* from, ptrdiff_t n) {
  switch (dtype) {
    case F32: STORE(float, float);
    case F64: STORE(float, double);
    default: STORE_TRUTH(float);
  }
}

static void store_double(char* to, uint8_t dtype, const double* from, ptrdiff_t n) {
  switch (dtype) {
    case F32: STORE(double, float);
    case F64: STORE(double, double);
    default: STORE_TRUTH(double);
  }
}

void fc_graph_store(char* to, uint8_t dtype, const void* from, FcGraphWide wide, ptrdiff_t n) {
  int64_t integers[FC_GRAPH_CHUNK];
  if (wide != FC_GRAPH_I64 && fc_graph_dtypes[dtype].wide == FC_GRAPH_I64 && dtype != BOOL) {
    for (ptrdiff_t i = 0; i < n; ++i) {
      integers[i] = whole(wide == FC_GRAPH_F32 ? ((const float*)from)[i] : ((const double*)from)[i]);
    }
    from = integers;
    wide = FC_GRAPH_I64;
  }
  if (wide == FC_GRAPH_I64) {
    store_whole(to, dtype, from, n);
  } else if (wide == FC_GRAPH_F32) {
    store_float(to, dtype, from, n);
  } else {
    store_double(to, dtype, from, n);
  }
}
