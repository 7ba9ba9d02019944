/* Operators that work element by element, with broadcasting: chunk by chunk, in the widened dtypes. */
#include "runtime/graph/map.h"

#include <math.h>

#include "runtime/graph/graph.h"

/* ---- a chunk ---- */

#define EACH(expression)              \
  for (ptrdiff_t i = 0; i < n; ++i) { \
    x = a[i];                         \
    out[i] = (expression);            \
  }                                   \
  break
#define EACH_OF_TWO(expression)       \
  for (ptrdiff_t i = 0; i < n; ++i) { \
    x = a[i];                         \
    y = b[i];                         \
    out[i] = (expression);            \
  }                                   \
  break
/* `one` and `two` are functions of one and of two elements, for operators that are not worth a loop of their own. */
#define COMMON(type)                                                    \
  case FC_MAP_CAST: EACH(x);                                            \
  case FC_MAP_WHERE:                                                    \
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = a[i] != 0 ? b[i] : c[i]; \
    break;                                                              \
  case FC_MAP_EQ: EACH_OF_TWO(x == y);                                  \
  case FC_MAP_LT: EACH_OF_TWO(x < y);                                   \
  case FC_MAP_LE: EACH_OF_TWO(x <= y);                                  \
  case FC_MAP_NOT: EACH(x == 0);                                        \
  case FC_MAP_ISNAN: EACH(x != x);                                      \
  case FC_MAP_MIN: EACH_OF_TWO(x < y || x != x ? x : y);                \
  case FC_MAP_MAX: EACH_OF_TWO(x > y || x != x ? x : y);                \
  case FC_MAP_SIGN: EACH(x != x ? x : (type)((x > 0) - (x < 0)))
#define FLOATS                         \
  case FC_MAP_ADD: EACH_OF_TWO(x + y); \
  case FC_MAP_SUB: EACH_OF_TWO(x - y); \
  case FC_MAP_MUL: EACH_OF_TWO(x* y);  \
  case FC_MAP_DIV: EACH_OF_TWO(x / y); \
  case FC_MAP_NEG: EACH(-x);           \
  case FC_MAP_ABS: EACH(x < 0 ? -x : x + 0)

/* The remainder with the sign of the divisor. */
static double modulo_f64(double x, double y) {
  const double rest = fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static float modulo_f32(float x, float y) { return (float)modulo_f64(x, y); }
static float sqrt_f32(float x) { return (float)sqrt(x); }
static float floor_f32(float x) { return (float)floor(x); }
static float ceil_f32(float x) { return (float)ceil(x); }
static float sigmoid_f32(float x) { return 1 / (1 + expf(-x)); }
static double sigmoid_f64(double x) { return 1 / (1 + exp(-x)); }
static float acosh_f32(float x) { return log1pf(x - 1 + (float)sqrt((double)(x - 1) * (x + 1))); }
static float atanh_f32(float x) { return 0.5f * log1pf(2 * x / (1 - x)); }

static float asinh_f32(float x) {
  const float t = x < 0 ? -x : x;
  const float y = t > 1e18f ? logf(t) + 0.69314718f : log1pf(t + t * t / (1 + (float)sqrt(1 + (double)t * t)));
  return x < 0 ? -y : y;
}

/* In the order of the codes, from FC_MAP_SQRT on. */
static float (*const of_f32[])(float) = {sqrt_f32, expf,        logf,   floor_f32, ceil_f32,  rintf,     erff,
                                         tanhf,    sigmoid_f32, log1pf, sinf,      cosf,      tanf,      asinf,
                                         acosf,    atanf,       sinhf,  coshf,     asinh_f32, acosh_f32, atanh_f32};
static double (*const of_f64[])(double) = {sqrt, exp, log, floor, ceil, rint, erf, tanh, sigmoid_f64};

static void map_f32(uint8_t code, float* out, const float* a, const float* b, const float* c, ptrdiff_t n) {
  float x, y;
  switch (code) {
    COMMON(float);
    FLOATS;
    case FC_MAP_FMOD: EACH_OF_TWO(fmodf(x, y));
    case FC_MAP_MOD: EACH_OF_TWO(modulo_f32(x, y));
    case FC_MAP_POW: EACH_OF_TWO(powf(x, y));
    default: EACH(of_f32[code - FC_MAP_SQRT](x));
  }
}

static void map_f64(uint8_t code, double* out, const double* a, const double* b, const double* c, ptrdiff_t n) {
  double x, y;
  switch (code) {
    COMMON(double);
    FLOATS;
    case FC_MAP_FMOD: EACH_OF_TWO(fmod(x, y));
    case FC_MAP_MOD: EACH_OF_TWO(modulo_f64(x, y));
    case FC_MAP_POW: EACH_OF_TWO(pow(x, y));
    default: EACH(of_f64[code - FC_MAP_SQRT](x));
  }
}

/* Integers wrap around; a division by 0 is 0. */
static int64_t divide(int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y; }
static int64_t remainder_of(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
static int64_t modulo(int64_t x, int64_t y) {
  int64_t rest = remainder_of(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static int64_t power(uint64_t base, int64_t exponent) {
  uint64_t result = 1;
  if (exponent < 0) return base == 1 || (base == UINT64_MAX && !(exponent & 1)) ? 1 : base == UINT64_MAX ? -1 : 0;
  for (; exponent; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return (int64_t)result;
}

static int64_t of_two_i64(uint8_t code, int64_t x, int64_t y) {
  switch (code) {
    case FC_MAP_EQ: return x == y;
    case FC_MAP_LT: return x < y;
    case FC_MAP_LE: return x <= y;
    case FC_MAP_ADD: return (int64_t)((uint64_t)x + (uint64_t)y);
    case FC_MAP_SUB: return (int64_t)((uint64_t)x - (uint64_t)y);
    case FC_MAP_MUL: return (int64_t)((uint64_t)x * (uint64_t)y);
    case FC_MAP_DIV: return divide(x, y);
    case FC_MAP_MIN: return x < y ? x : y;
    case FC_MAP_MAX: return x > y ? x : y;
    case FC_MAP_MOD: return modulo(x, y);
    case FC_MAP_FMOD: return remainder_of(x, y);
    case FC_MAP_POW: return power((uint64_t)x, y);
    case FC_MAP_AND: return x & y;
    case FC_MAP_OR: return x | y;
    default: return x ^ y;
  }
}

static int64_t of_one_i64(uint8_t code, int64_t x) {
  switch (code) {
    case FC_MAP_NOT: return x == 0;
    case FC_MAP_ISNAN: return 0;
    case FC_MAP_SIGN: return (x > 0) - (x < 0);
    case FC_MAP_ABS:
      if (x >= 0) return x; /* fall through */
    case FC_MAP_NEG: return (int64_t)(0 - (uint64_t)x);
    default: return x;
  }
}

static void map_i64(uint8_t code, int64_t* out, const int64_t* a, const int64_t* b, const int64_t* c, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; ++i) {
    if (c) {
      out[i] = a[i] != 0 ? b[i] : c[i];
    } else {
      out[i] = b ? of_two_i64(code, a[i], b[i]) : of_one_i64(code, a[i]);
    }
  }
}

static void map_chunk(uint8_t code, FcGraphWide wide, void* out, const void* const in[FC_GRAPH_OPERANDS], ptrdiff_t n) {
  if (wide == FC_GRAPH_F32) {
    map_f32(code, out, in[0], in[1], in[2], n);
  } else if (wide == FC_GRAPH_F64) {
    map_f64(code, out, in[0], in[1], in[2], n);
  } else {
    map_i64(code, out, in[0], in[1], in[2], n);
  }
}

/* ---- operands ---- */

static bool broadcasts(const FcGraphValue* from, const FcGraphValue* to) {
  if (from->rank > to->rank) return false;
  const int64_t* dims = to->dims + (to->rank - from->rank);
  for (int i = 0; i < from->rank; ++i) {
    if (from->dims[i] != dims[i] && from->dims[i] != 1) return false;
  }
  return true;
}

static FcGraphWide wide_of(const FcGraphStep* step) {
  return fc_graph_wide(step->in[fc_graph_ops[step->op].code == FC_MAP_WHERE ? 1 : 0]);
}

static bool code_has(uint8_t code, FcGraphWide wide) {
  if (code < FC_MAP_AND) return true;
  if (code < FC_MAP_SQRT) return wide == FC_GRAPH_I64;
  return code < FC_MAP_LOG1P ? wide != FC_GRAPH_I64 : wide == FC_GRAPH_F32;
}

static bool dtypes_fit(const FcGraphStep* step, uint8_t code) {
  const FcGraphValue* last = step->in[step->num_inputs - 1];
  const int bool_dtype = fc_graph_dtype("bool", 4);
  if (code == FC_MAP_CAST) return true;
  for (int i = code == FC_MAP_WHERE; i < step->num_inputs; ++i) {
    if (step->in[i]->dtype != last->dtype) return false;
  }
  if (code == FC_MAP_WHERE && step->in[0]->dtype != bool_dtype) return false;
  bool tells = code >= FC_MAP_EQ && code <= FC_MAP_ISNAN;
  return step->out->dtype == (tells ? bool_dtype : last->dtype);
}

bool fc_graph_map_fits(const FcGraphStep* step) {
  uint8_t code = fc_graph_ops[step->op].code;
  for (int i = 0; i < step->num_inputs; ++i) {
    if (!broadcasts(step->in[i], step->out)) return false;
  }
  return dtypes_fit(step, code) && code_has(code, wide_of(step));
}

/* ---- the loop nest ---- */

typedef struct {
  ptrdiff_t dims[FC_GRAPH_RANK], strides[FC_GRAPH_OPERANDS][FC_GRAPH_RANK]; /* in elements */
  int rank, inputs;
} Nest;

static void add_strides(Nest* nest, int which, const FcGraphValue* value) {
  ptrdiff_t step = 1;
  for (int i = nest->rank - 1, k = value->rank - 1; i >= 0; --i, --k) {
    nest->strides[which][i] = k < 0 || value->dims[k] == 1 ? 0 : step;
    if (k >= 0) step *= (ptrdiff_t)value->dims[k];
  }
}

static bool merges(const Nest* nest, int outer, int inner) {
  for (int i = 0; i < nest->inputs; ++i) {
    if (nest->strides[i][outer] != nest->strides[i][inner] * nest->dims[inner]) return false;
  }
  return true;
}

/* Joins neighbouring dims that all operands pass in one run. */
static void merge(Nest* nest) {
  int last = 0;
  for (int i = 1; i < nest->rank; ++i) {
    bool joined = merges(nest, last, i);
    if (!joined) ++last;
    nest->dims[last] = joined ? nest->dims[last] * nest->dims[i] : nest->dims[i];
    for (int k = 0; k < nest->inputs; ++k) nest->strides[k][last] = nest->strides[k][i];
  }
  nest->rank = last + 1;
}

static void make_nest(Nest* nest, const FcGraphStep* step) {
  nest->inputs = step->num_inputs;
  nest->rank = step->out->rank;
  for (int i = 0; i < nest->rank; ++i) nest->dims[i] = (ptrdiff_t)step->out->dims[i];
  for (int i = 0; i < nest->inputs; ++i) add_strides(nest, i, step->in[i]);
  if (nest->rank == 0) {
    nest->rank = 1;
    nest->dims[0] = 1;
    for (int i = 0; i < nest->inputs; ++i) nest->strides[i][0] = 0;
  }
  merge(nest);
}

/* One dim, if each operand has as many elements as the result, or one. */
static bool make_flat(Nest* nest, const FcGraphStep* step) {
  nest->inputs = step->num_inputs;
  nest->rank = 1;
  nest->dims[0] = (ptrdiff_t)step->out->count;
  for (int i = 0; i < nest->inputs; ++i) {
    if (step->in[i]->count != step->out->count && step->in[i]->count != 1) return false;
    nest->strides[i][0] = step->in[i]->count != 1;
  }
  return true;
}

/* An operand of a chunk: in place if it needs no widening and lies close. */
static const void* operand(FcGraphChunk* room, FcGraphWide wide, const FcGraphValue* value, const char* at,
                           ptrdiff_t stride, ptrdiff_t n) {
  bool as_is = fc_graph_dtypes[value->dtype].wide == wide && fc_graph_size(value) == (wide == FC_GRAPH_F32 ? 4 : 8);
  if (as_is && (stride == 1 || n == 1)) return at;
  fc_graph_load(room, wide, at, value->dtype, stride, n);
  return room;
}

/* One run along the innermost dim. */
static void map_run(const FcGraphStep* step, const Nest* nest, const ptrdiff_t at[FC_GRAPH_OPERANDS], char* out) {
  FcGraphChunk rooms[FC_GRAPH_OPERANDS], result;
  const uint8_t code = fc_graph_ops[step->op].code;
  const FcGraphWide wide = wide_of(step);
  const uint8_t size = fc_graph_size(step->out);
  const bool in_place = fc_graph_wide(step->out) == wide && size == (wide == FC_GRAPH_F32 ? 4 : 8);
  const int last = nest->rank - 1;
  for (ptrdiff_t begin = 0; begin < nest->dims[last]; begin += FC_GRAPH_CHUNK) {
    ptrdiff_t left = nest->dims[last] - begin, n = left < FC_GRAPH_CHUNK ? left : FC_GRAPH_CHUNK;
    const void* in[FC_GRAPH_OPERANDS] = {NULL};
    for (int i = 0; i < nest->inputs; ++i) {
      const ptrdiff_t stride = nest->strides[i][last];
      const char* from = step->in[i]->data + (at[i] + begin * stride) * fc_graph_size(step->in[i]);
      in[i] = operand(&rooms[i], wide, step->in[i], from, stride, n);
    }
    char* to = out + begin * size;
    map_chunk(code, wide, in_place ? (void*)to : &result, in, n);
    if (!in_place) fc_graph_store(to, step->out->dtype, &result, wide, n);
  }
}

/* Goes to the next run; false after the last. */
static bool advance(const Nest* nest, ptrdiff_t index[FC_GRAPH_RANK], ptrdiff_t at[FC_GRAPH_OPERANDS]) {
  for (int i = nest->rank - 2; i >= 0; --i) {
    for (int k = 0; k < nest->inputs; ++k) at[k] += nest->strides[k][i];
    if (++index[i] < nest->dims[i]) return true;
    for (int k = 0; k < nest->inputs; ++k) at[k] -= nest->strides[k][i] * nest->dims[i];
    index[i] = 0;
  }
  return false;
}

int fc_graph_map(const FcGraphStep* step) {
  Nest nest;
  ptrdiff_t index[FC_GRAPH_RANK] = {0}, at[FC_GRAPH_OPERANDS] = {0};
  char* out = step->out->data;
  if (step->out->count == 0) return 0;
  if (!make_flat(&nest, step)) make_nest(&nest, step);
  const ptrdiff_t run = nest.dims[nest.rank - 1] * fc_graph_size(step->out);
  do {
    map_run(step, &nest, at, out);
    out += run;
  } while (advance(&nest, index, at));
  return 0;
}
