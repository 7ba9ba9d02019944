/* Moving elements: views of any strides, and gathering along an axis. */
#include "runtime/graph/graph.h"

/* ---- move: numbers are the shape, then offset and strides of the source, then those of the target ---- */

/* Whether a view of that shape stays within `count` elements. */
static bool stays_within(const int64_t* dims, int rank, const int64_t* view, int64_t count) {
  int64_t low = view[0], high = view[0], reach;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] < 0) return false;
    if (dims[i] == 0) return true;
    if (__builtin_mul_overflow(dims[i] - 1, view[1 + i], &reach)) return false;
    if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
  }
  return low >= 0 && high < count;
}

static int rank_of(const FcGraphStep* step) { return (step->num_numbers - 2) / 3; }

bool fc_graph_move_fits(const FcGraphStep* step) {
  int rank = rank_of(step);
  if (step->num_numbers != 3 * rank + 2 || rank > FC_GRAPH_RANK || step->in[0]->dtype != step->out->dtype) return false;
  for (int i = 0; i < rank; ++i) {
    if (step->numbers[i] == 0) return true;
  }
  return stays_within(step->numbers, rank, step->numbers + rank, step->in[0]->count) &&
         stays_within(step->numbers, rank, step->numbers + 2 * (ptrdiff_t)rank + 1, step->out->count);
}

#define COPY(type)                                                                                     \
  for (ptrdiff_t i = 0; i < n; ++i) ((type*)to)[i * to_stride] = ((const type*)from)[i * from_stride]; \
  break

static void copy(char* to, ptrdiff_t to_stride, const char* from, ptrdiff_t from_stride, ptrdiff_t n, uint8_t size) {
  if (to_stride == 1 && from_stride == 1) {
    memmove(to, from, (size_t)n * size);
    return;
  }
  switch (size) {
    case 1: COPY(uint8_t);
    case 2: COPY(uint16_t);
    case 4: COPY(uint32_t);
    default: COPY(uint64_t);
  }
}

typedef struct {
  ptrdiff_t dims[FC_GRAPH_RANK], from[FC_GRAPH_RANK], to[FC_GRAPH_RANK];
  uint8_t size;
} Move;

static void move_axes(const Move* move, int axis, int rank, char* to, const char* from) {
  if (axis == rank - 1) {
    copy(to, move->to[axis], from, move->from[axis], move->dims[axis], move->size);
    return;
  }
  for (ptrdiff_t i = 0; i < move->dims[axis]; ++i) {
    move_axes(move, axis + 1, rank, to, from);
    to += move->to[axis] * move->size;
    from += move->from[axis] * move->size;
  }
}

int fc_graph_move(const FcGraphStep* step) {
  const int rank = rank_of(step);
  const int64_t *dims = step->numbers, *from = dims + rank, *to = from + rank + 1;
  Move move = {.dims = {1}, .from = {1}, .to = {1}, .size = fc_graph_size(step->out)};
  for (int i = 0; i < rank; ++i) {
    if (dims[i] == 0) return 0;
    move.dims[i] = (ptrdiff_t)dims[i];
    move.from[i] = (ptrdiff_t)from[1 + i];
    move.to[i] = (ptrdiff_t)to[1 + i];
  }
  move_axes(&move, 0, rank ? rank : 1, step->out->data + to[0] * move.size, step->in[0]->data + from[0] * move.size);
  return 0;
}

/* ---- sizes: writes the numbers ---- */

bool fc_graph_sizes_fit(const FcGraphStep* step) {
  return step->out->dtype == fc_graph_dtype("int64", 5) && step->out->count == step->num_numbers;
}

int fc_graph_write_sizes(const FcGraphStep* step) {
  memcpy(step->out->data, step->numbers, (size_t)step->num_numbers * sizeof *step->numbers);
  return 0;
}

/* ---- gather: the number is the axis ---- */

typedef struct {
  int64_t outer, extent, inner; /* elements before the axis, along it, and behind it */
} Cut;

static Cut cut(const FcGraphStep* step) {
  const FcGraphValue* x = step->in[0];
  Cut found = {1, x->dims[step->numbers[0]], 1};
  for (int i = 0; i < x->rank; ++i) {
    if (i < step->numbers[0]) found.outer *= x->dims[i];
    if (i > step->numbers[0]) found.inner *= x->dims[i];
  }
  return found;
}

bool fc_graph_gather_fits(const FcGraphStep* step) {
  const FcGraphValue *x = step->in[0], *indices = step->in[1];
  int64_t whole;
  if (step->num_numbers != 1 || step->numbers[0] < 0 || step->numbers[0] >= x->rank) return false;
  if (x->dtype != step->out->dtype || fc_graph_wide(indices) != FC_GRAPH_I64) return false;
  const Cut sizes = cut(step);
  if (__builtin_mul_overflow(sizes.outer, sizes.inner, &whole)) return false;
  return !__builtin_mul_overflow(whole, indices->count, &whole) && whole == step->out->count;
}

int fc_graph_gather(const FcGraphStep* step) {
  const Cut sizes = cut(step);
  const FcGraphValue *x = step->in[0], *indices = step->in[1];
  const size_t bytes = (size_t)sizes.inner * fc_graph_size(x);
  char* to = step->out->data;
  if (step->out->count == 0) return 0;
  for (ptrdiff_t outer = 0; outer < sizes.outer; ++outer) {
    for (ptrdiff_t i = 0; i < indices->count; ++i, to += bytes) {
      int64_t at;
      fc_graph_load(&at, FC_GRAPH_I64, indices->data + i * fc_graph_size(indices), indices->dtype, 1, 1);
      if (at < -sizes.extent || at >= sizes.extent) {
        fc_error_format("IndexError", "Gather: index %lld is out of bounds for an axis of size %lld", (long long)at,
                        (long long)sizes.extent);
        return -1;
      }
      if (at < 0) at += sizes.extent;
      memcpy(to, x->data + (size_t)(outer * sizes.extent + at) * bytes, bytes);
    }
  }
  return 0;
}
