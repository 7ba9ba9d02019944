/* Matrix products, convolutions and pooling. */
#include <math.h>

#include "runtime/graph/graph.h"

/* ---- matmul: the numbers say whether the last two dims of each operand are swapped ---- */

enum { IN_F32 = 0, IN_F64 = 1, IN_I32 = 4, IN_I64 = 5 }; /* indexes of fc_graph_dtypes */

typedef struct {
  ptrdiff_t m, n, k;
  ptrdiff_t a[2], b[2]; /* strides of rows and columns */
} Product;

static Product product_of(const FcGraphStep* step) {
  const FcGraphValue *a = step->in[0], *b = step->in[1];
  const int64_t *x = a->dims + a->rank - 2, *y = b->dims + b->rank - 2;
  const bool swap_a = step->numbers[0], swap_b = step->numbers[1];
  const ptrdiff_t width_a = (ptrdiff_t)x[1], width_b = (ptrdiff_t)y[1];
  return (Product){(ptrdiff_t)x[swap_a],
                   (ptrdiff_t)y[!swap_b],
                   (ptrdiff_t)x[!swap_a],
                   {swap_a ? 1 : width_a, swap_a ? width_a : 1},
                   {swap_b ? 1 : width_b, swap_b ? width_b : 1}};
}

/* The batch dims of an operand must be those of the result, or 1. */
static bool batch_fits(const FcGraphValue* value, const FcGraphValue* out) {
  if (value->rank < 2 || value->rank > out->rank) return false;
  for (int i = 0; i < value->rank - 2; ++i) {
    int64_t dim = out->dims[out->rank - value->rank + i];
    if (value->dims[i] != dim && value->dims[i] != 1) return false;
  }
  return true;
}

bool fc_graph_matmul_fits(const FcGraphStep* step) {
  const FcGraphValue *a = step->in[0], *b = step->in[1], *out = step->out;
  if (out->rank < 2 || step->num_numbers != 2 || a->dtype != b->dtype || a->dtype != out->dtype) return false;
  if (a->dtype > IN_F64 && a->dtype != IN_I32 && a->dtype != IN_I64) return false;
  if ((step->numbers[0] | step->numbers[1]) & ~1) return false;
  if (!batch_fits(a, out) || !batch_fits(b, out)) return false;
  const Product p = product_of(step);
  const int64_t inner = b->dims[b->rank - 2 + step->numbers[1]];
  return p.k == inner && p.m == out->dims[out->rank - 2] && p.n == out->dims[out->rank - 1];
}

/* Row i of the result: four rows of b at a time, so that the result is read and written once for them. */
static void multiply_row(const Product* p, float* out, const float* row, const float* b) {
  const ptrdiff_t ak = p->a[1], bk = p->b[0];
  ptrdiff_t k = 0;
  for (ptrdiff_t j = 0; j < p->n; ++j) out[j] = 0;
  for (; k + 4 <= p->k; k += 4, b += 4 * bk) {
    const float w = row[k * ak], x = row[(k + 1) * ak], y = row[(k + 2) * ak], z = row[(k + 3) * ak];
    const float *c = b + bk, *d = c + bk, *e = d + bk;
    for (ptrdiff_t j = 0; j < p->n; ++j) out[j] += w * b[j] + x * c[j] + y * d[j] + z * e[j];
  }
  for (; k < p->k; ++k, b += bk) {
    for (ptrdiff_t j = 0; j < p->n; ++j) out[j] += row[k * ak] * b[j];
  }
}

/* One element of the result, of any dtype. */
static void multiply_one(const Product* p, const FcGraphValue* out, char* to, const char* row, const char* column) {
  const FcGraphWide wide = fc_graph_wide(out);
  const uint8_t size = fc_graph_size(out);
  FcGraphChunk a, b, total = {.i64 = {0}};
  for (ptrdiff_t k = 0; k < p->k; k += FC_GRAPH_CHUNK) {
    const ptrdiff_t n = p->k - k < FC_GRAPH_CHUNK ? p->k - k : FC_GRAPH_CHUNK;
    fc_graph_load(&a, wide, row + k * p->a[1] * size, out->dtype, p->a[1], n);
    fc_graph_load(&b, wide, column + k * p->b[0] * size, out->dtype, p->b[0], n);
    for (ptrdiff_t i = 0; i < n; ++i) {
      if (wide == FC_GRAPH_F32) total.f32[0] += a.f32[i] * b.f32[i];
      if (wide == FC_GRAPH_F64) total.f64[0] += a.f64[i] * b.f64[i];
      if (wide == FC_GRAPH_I64)
        total.i64[0] = (int64_t)((uint64_t)total.i64[0] + (uint64_t)a.i64[i] * (uint64_t)b.i64[i]);
    }
  }
  fc_graph_store(to, out->dtype, &total, wide, 1);
}

static void multiply(const Product* p, const FcGraphValue* out, char* to, const char* a, const char* b) {
  const uint8_t size = fc_graph_size(out);
  const bool by_rows = out->dtype == IN_F32 && p->b[1] == 1;
  for (ptrdiff_t i = 0; i < p->m; ++i, a += p->a[0] * size, to += p->n * size) {
    if (by_rows) multiply_row(p, (float*)to, (const float*)a, (const float*)b);
    for (ptrdiff_t j = 0; j < p->n && !by_rows; ++j) multiply_one(p, out, to + j * size, a, b + j * p->b[1] * size);
  }
}

/* The matrix of an operand for matrix `i` of the result. */
static const char* matrix(const FcGraphValue* value, const FcGraphValue* out, ptrdiff_t i) {
  const int lead = out->rank - value->rank;
  ptrdiff_t at = 0, step = (ptrdiff_t)(value->dims[value->rank - 1] * value->dims[value->rank - 2]);
  for (int d = value->rank - 3; d >= 0; --d) {
    const ptrdiff_t dim = (ptrdiff_t)out->dims[lead + d];
    if (value->dims[d] != 1) at += i % dim * step;
    step *= (ptrdiff_t)value->dims[d];
    i /= dim;
  }
  return value->data + at * fc_graph_size(value);
}

int fc_graph_matmul(const FcGraphStep* step) {
  const Product p = product_of(step);
  if (step->out->count == 0) return 0;
  const ptrdiff_t area = p.m * p.n, batch = (ptrdiff_t)step->out->count / area;
  for (ptrdiff_t i = 0; i < batch; ++i) {
    multiply(&p, step->out, step->out->data + i * area * fc_graph_size(step->out), matrix(step->in[0], step->out, i),
             matrix(step->in[1], step->out, i));
  }
  return 0;
}

/* ---- windows in two dims: the numbers begin with stride, dilation, padding before, each of rows and columns ---- */

enum { STRIDE = 0, DILATION = 2, PADDING = 4, GROUPS = 6, KERNEL = 6, WITH_PADDING = 8, PADDING_AFTER = 9, MOST = 11 };
#define MOST_STEP ((int64_t)1 << 28)

/* The same, in the machine's words. */
typedef struct {
  ptrdiff_t n[MOST], in[2], out[2]; /* numbers, rows and columns */
} Window;

static bool window_fits(const FcGraphStep* step, int numbers) {
  const FcGraphValue *x = step->in[0], *y = step->out;
  if (step->num_numbers != numbers || x->rank != 4 || y->rank != 4 || x->dims[0] != y->dims[0]) return false;
  for (int i = 0; i < numbers; ++i) {
    if (step->numbers[i] < (i < PADDING) || step->numbers[i] > MOST_STEP) return false;
  }
  for (int i = 2; i < 4; ++i) {
    int64_t reach;
    if (x->dims[i] > MOST_STEP || y->dims[i] > MOST_STEP) return false;
    if (__builtin_mul_overflow(y->dims[i], step->numbers[STRIDE + i - 2], &reach) || reach > MOST_STEP) return false;
  }
  return x->dtype == IN_F32 && y->dtype == IN_F32;
}

/* Whether the last tap of `taps` is near enough for all offsets to fit in 32 bits. */
static bool taps_fit(const FcGraphStep* step, int64_t rows, int64_t columns) {
  const int64_t taps[2] = {rows, columns};
  for (int i = 0; i < 2; ++i) {
    int64_t reach;
    if (__builtin_mul_overflow(taps[i], step->numbers[DILATION + i], &reach) || reach > MOST_STEP) return false;
  }
  return true;
}

static Window window_of(const FcGraphStep* step) {
  Window w = {{0}, {0}, {0}};
  for (int i = 0; i < step->num_numbers; ++i) w.n[i] = (ptrdiff_t)step->numbers[i];
  for (int i = 0; i < 2; ++i) {
    w.in[i] = (ptrdiff_t)step->in[0]->dims[2 + i];
    w.out[i] = (ptrdiff_t)step->out->dims[2 + i];
  }
  return w;
}

/* Which of `count` positions, `stride` apart and the first at `offset`, are inside `size` elements. */
typedef struct {
  ptrdiff_t first, end;
} Span;

static Span span_of(ptrdiff_t offset, ptrdiff_t stride, ptrdiff_t size, ptrdiff_t count) {
  Span span = {offset >= 0 ? 0 : (-offset + stride - 1) / stride,
               offset >= size ? 0 : (size - 1 - offset) / stride + 1};
  if (span.end > count) span.end = count;
  if (span.first > span.end) span.first = span.end;
  return span;
}

bool fc_graph_conv_fits(const FcGraphStep* step) {
  const FcGraphValue *x = step->in[0], *w = step->in[1], *y = step->out;
  if (!window_fits(step, 7) || w->rank != 4 || w->dtype != IN_F32) return false;
  if (step->num_inputs > 2 && (step->in[2]->dtype != IN_F32 || step->in[2]->count != w->dims[0])) return false;
  const int64_t groups = step->numbers[GROUPS];
  if (groups < 1 || y->dims[1] % groups || x->dims[1] % groups) return false;
  return w->dims[0] == y->dims[1] && w->dims[1] == x->dims[1] / groups && taps_fit(step, w->dims[2], w->dims[3]);
}

/* Adds one element of the filter, at row `r` and column `s`, times one channel of x, to one channel of y. */
static void add_tap(const Window* w, float* y, const float* x, float weight, ptrdiff_t r, ptrdiff_t s) {
  const ptrdiff_t top = r * w->n[DILATION] - w->n[PADDING], left = s * w->n[DILATION + 1] - w->n[PADDING + 1];
  const ptrdiff_t stride = w->n[STRIDE + 1];
  const Span rows = span_of(top, w->n[STRIDE], w->in[0], w->out[0]);
  const Span columns = span_of(left, stride, w->in[1], w->out[1]);
  for (ptrdiff_t i = rows.first; i < rows.end && columns.first < columns.end; ++i) {
    const float* from = x + (i * w->n[STRIDE] + top) * w->in[1] + left;
    float* to = y + i * w->out[1];
    if (stride == 1) {
      for (ptrdiff_t j = columns.first; j < columns.end; ++j) to[j] += weight * from[j];
    } else {
      for (ptrdiff_t j = columns.first; j < columns.end; ++j) to[j] += weight * from[j * stride];
    }
  }
}

/* Channel `o` of one image. */
static void convolve(const FcGraphStep* step, const Window* w, float* y, const float* x, ptrdiff_t o) {
  const int64_t* dims = step->in[1]->dims;
  const ptrdiff_t channels = (ptrdiff_t)dims[1], rows = (ptrdiff_t)dims[2], columns = (ptrdiff_t)dims[3];
  const ptrdiff_t group = o / ((ptrdiff_t)dims[0] / w->n[GROUPS]);
  const float* weights = (const float*)step->in[1]->data + o * channels * rows * columns;
  const float bias = step->num_inputs > 2 ? ((const float*)step->in[2]->data)[o] : 0;
  for (ptrdiff_t i = 0; i < w->out[0] * w->out[1]; ++i) y[i] = bias;
  for (ptrdiff_t c = 0; c < channels; ++c) {
    const float* channel = x + (group * channels + c) * w->in[0] * w->in[1];
    for (ptrdiff_t r = 0; r < rows; ++r) {
      for (ptrdiff_t s = 0; s < columns; ++s) add_tap(w, y, channel, *weights++, r, s);
    }
  }
}

int fc_graph_conv(const FcGraphStep* step) {
  const Window w = window_of(step);
  const ptrdiff_t images = (ptrdiff_t)step->out->dims[0], channels = (ptrdiff_t)step->out->dims[1];
  const ptrdiff_t image = (ptrdiff_t)step->in[0]->dims[1] * w.in[0] * w.in[1];
  const float* x = (const float*)step->in[0]->data;
  float* y = (float*)step->out->data;
  if (step->out->count == 0) return 0;
  for (ptrdiff_t i = 0; i < images; ++i, x += image) {
    for (ptrdiff_t o = 0; o < channels; ++o, y += w.out[0] * w.out[1]) convolve(step, &w, y, x, o);
  }
  return 0;
}

/* ---- pooling ---- */

bool fc_graph_pool_fits(const FcGraphStep* step) {
  return window_fits(step, MOST) && step->in[0]->dims[1] == step->out->dims[1] && step->numbers[KERNEL] > 0 &&
         step->numbers[KERNEL + 1] > 0 && taps_fit(step, step->numbers[KERNEL], step->numbers[KERNEL + 1]);
}

static float pool_window(const Window* w, bool largest, const float* x, ptrdiff_t i, ptrdiff_t j) {
  const ptrdiff_t* n = w->n;
  const ptrdiff_t top = i * n[STRIDE] - n[PADDING], left = j * n[STRIDE + 1] - n[PADDING + 1];
  const Span rows = span_of(top, n[DILATION], w->in[0], n[KERNEL]);
  const Span columns = span_of(left, n[DILATION + 1], w->in[1], n[KERNEL + 1]);
  float most = -INFINITY, sum = 0;
  for (ptrdiff_t r = rows.first; r < rows.end; ++r) {
    for (ptrdiff_t s = columns.first; s < columns.end; ++s) {
      const float value = x[(top + r * n[DILATION]) * w->in[1] + left + s * n[DILATION + 1]];
      most = value > most || value != value ? value : most;
      sum += value;
    }
  }
  if (largest) return most;
  ptrdiff_t count = (rows.end - rows.first) * (columns.end - columns.first);
  if (n[WITH_PADDING]) {
    count = span_of(top, n[DILATION], w->in[0] + n[PADDING_AFTER], n[KERNEL]).end *
            span_of(left, n[DILATION + 1], w->in[1] + n[PADDING_AFTER + 1], n[KERNEL + 1]).end;
  }
  return sum / (float)(count ? count : 1);
}

int fc_graph_pool(const FcGraphStep* step) {
  const Window w = window_of(step);
  const bool largest = fc_graph_ops[step->op].code == 0;
  const float* x = (const float*)step->in[0]->data;
  float* y = (float*)step->out->data;
  if (step->out->count == 0) return 0;
  for (const float* end = y + step->out->count; y < end; x += w.in[0] * w.in[1]) {
    for (ptrdiff_t i = 0; i < w.out[0]; ++i) {
      for (ptrdiff_t j = 0; j < w.out[1]; ++j) *y++ = pool_window(&w, largest, x, i, j);
    }
  }
  return 0;
}
