/* Reductions: sum, mean, max, min, prod over some axes. Sums of floats are exact to float32's precision. */
#include <math.h>

#include "runtime/graph/graph.h"

enum { SUM, MEAN, MAX, MIN, PROD };

/* An accumulator of either kind. */
typedef struct {
  double real;
  int64_t integer;
} Total;

/* Whether `axis` is among the step's numbers: the axes that are reduced. */
static bool is_reduced(const FcGraphStep* step, int axis) {
  for (int i = 0; i < step->num_numbers; ++i) {
    if (step->numbers[i] == axis) return true;
  }
  return false;
}

bool fc_graph_reduce_fits(const FcGraphStep* step) {
  const FcGraphValue* x = step->in[0];
  int64_t kept = 1;
  for (int i = 0; i < x->rank; ++i) kept *= is_reduced(step, i) ? 1 : x->dims[i];
  return x->dtype == step->out->dtype && kept == step->out->count;
}

static int64_t lowest(DLDataType dtype) { return dtype.code == kDLInt ? INT64_MIN >> (64 - dtype.bits) : 0; }

static int64_t highest(DLDataType dtype) {
  if (dtype.code == kDLBool) return 1;
  return INT64_MAX >> (dtype.code == kDLInt ? 64 - dtype.bits : 63 - dtype.bits);
}

/* The result for no elements, as ONNX defines it: the lowest value of the dtype for a maximum. */
static void begin(uint8_t code, const FcGraphValue* x, Total* total) {
  const DLDataType dtype = fc_graph_dtypes[x->dtype].dlpack;
  *total = (Total){0, 0};
  if (code == PROD) *total = (Total){1, 1};
  if (code == MAX) *total = (Total){-(double)INFINITY, lowest(dtype)};
  if (code == MIN) *total = (Total){(double)INFINITY, highest(dtype)};
}

static double fold_real(uint8_t code, double total, double x) {
  switch (code) {
    case MAX: return x > total || x != x ? x : total;
    case MIN: return x < total || x != x ? x : total;
    case PROD: return total * x;
    default: return total + x;
  }
}

static int64_t fold_integer(uint8_t code, int64_t total, int64_t x) {
  switch (code) {
    case MAX: return x > total ? x : total;
    case MIN: return x < total ? x : total;
    case PROD: return (int64_t)((uint64_t)total * (uint64_t)x);
    default: return (int64_t)((uint64_t)total + (uint64_t)x);
  }
}

static void fold(uint8_t code, FcGraphWide wide, Total* total, const FcGraphChunk* chunk, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; ++i) {
    if (wide == FC_GRAPH_I64) {
      total->integer = fold_integer(code, total->integer, chunk->i64[i]);
    } else {
      total->real = fold_real(code, total->real, wide == FC_GRAPH_F32 ? (double)chunk->f32[i] : chunk->f64[i]);
    }
  }
}

/* Axes, split into those that are kept and those that are reduced. */
typedef struct {
  ptrdiff_t dims[FC_GRAPH_RANK], strides[FC_GRAPH_RANK];
  int rank;
} Axes;

static void split(const FcGraphStep* step, Axes* kept, Axes* reduced) {
  const FcGraphValue* x = step->in[0];
  ptrdiff_t stride = 1, strides[FC_GRAPH_RANK];
  for (int i = x->rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= (ptrdiff_t)x->dims[i];
  }
  kept->rank = reduced->rank = 0;
  for (int i = 0; i < x->rank; ++i) {
    Axes* axes = is_reduced(step, i) ? reduced : kept;
    axes->dims[axes->rank] = (ptrdiff_t)x->dims[i];
    axes->strides[axes->rank++] = strides[i];
  }
}

static bool advance(const Axes* axes, int rank, ptrdiff_t index[FC_GRAPH_RANK], ptrdiff_t* at) {
  for (int i = rank - 1; i >= 0; --i) {
    *at += axes->strides[i];
    if (++index[i] < axes->dims[i]) return true;
    *at -= axes->strides[i] * axes->dims[i];
    index[i] = 0;
  }
  return false;
}

/* The total of the elements from `at` on, over the reduced axes. */
static void total_of(const FcGraphStep* step, const Axes* reduced, ptrdiff_t at, Total* total) {
  const FcGraphValue* x = step->in[0];
  const uint8_t code = fc_graph_ops[step->op].code;
  const FcGraphWide wide = fc_graph_wide(x);
  const int last = reduced->rank - 1;
  const ptrdiff_t length = last < 0 ? 1 : reduced->dims[last], stride = last < 0 ? 1 : reduced->strides[last];
  ptrdiff_t index[FC_GRAPH_RANK] = {0};
  FcGraphChunk chunk;
  begin(code, x, total);
  do {
    for (ptrdiff_t i = 0; i < length; i += FC_GRAPH_CHUNK) {
      ptrdiff_t n = length - i < FC_GRAPH_CHUNK ? length - i : FC_GRAPH_CHUNK;
      fc_graph_load(&chunk, wide, x->data + (at + i * stride) * fc_graph_size(x), x->dtype, stride, n);
      fold(code, wide, total, &chunk, n);
    }
  } while (advance(reduced, last, index, &at));
}

static void write_total(const FcGraphStep* step, const Total* total, ptrdiff_t terms, ptrdiff_t at) {
  const FcGraphWide wide = fc_graph_wide(step->out);
  const bool mean = fc_graph_ops[step->op].code == MEAN;
  FcGraphChunk chunk;
  if (wide == FC_GRAPH_I64) chunk.i64[0] = mean && terms ? total->integer / terms : total->integer;
  if (wide == FC_GRAPH_F64) chunk.f64[0] = mean ? total->real / (double)terms : total->real;
  if (wide == FC_GRAPH_F32) chunk.f32[0] = (float)(mean ? total->real / (double)terms : total->real);
  fc_graph_store(step->out->data + at * fc_graph_size(step->out), step->out->dtype, &chunk, wide, 1);
}

int fc_graph_reduce(const FcGraphStep* step) {
  Axes kept, reduced;
  Total total;
  ptrdiff_t index[FC_GRAPH_RANK] = {0}, at = 0, terms = 1;
  split(step, &kept, &reduced);
  for (int i = 0; i < reduced.rank; ++i) terms *= reduced.dims[i];
  for (ptrdiff_t i = 0; i < step->out->count; ++i) {
    begin(fc_graph_ops[step->op].code, step->in[0], &total);
    if (terms) total_of(step, &reduced, at, &total);
    write_total(step, &total, terms, i);
    advance(&kept, kept.rank, index, &at);
  }
  return 0;
}
