/*
 * 3x3 convolutions by Winograd's method, with the channels last: the inputs of a tile of 2x2 or 4x4 outputs are
 * transformed, multiplied by the transformed weights, which is a product of matrices for each of the inputs, and
 * transformed back. oneDNN multiplies the matrices. The points of the transforms are those of the backend `c`.
 */

enum { LANES = 16 }; /* channels at once */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* One row or column of the inputs of a tile of 2x2 outputs, then of 4x4, whose points are 0, A, -A, B, -B. */
static void transform_input_2(const lanes* x, int64_t step, lanes* to) {
  to[0] = x[2 * step] - x[0];
  to[step] = x[2 * step] + x[step];
  to[2 * step] = x[2 * step] - x[step];
  to[3 * step] = x[3 * step] - x[step];
}

static const float A = 0.625f, B = 1.5f, AA = 0.625f * 0.625f, BB = 1.5f * 1.5f;
static const float BOTH = 0.625f * 0.625f + 1.5f * 1.5f, TIMES = 0.625f * 0.625f * 1.5f * 1.5f;

static void transform_input_4(const lanes* x, int64_t step, lanes* to) {
  lanes even_a = x[4 * step] - BB * x[2 * step], odd_a = A * (x[3 * step] - BB * x[step]);
  lanes even_b = x[4 * step] - AA * x[2 * step], odd_b = B * (x[3 * step] - AA * x[step]);
  to[0] = x[4 * step] - BOTH * x[2 * step] + TIMES * x[0];
  to[step] = even_a + odd_a;
  to[2 * step] = even_a - odd_a;
  to[3 * step] = even_b + odd_b;
  to[4 * step] = even_b - odd_b;
  to[5 * step] = x[5 * step] - BOTH * x[3 * step] + TIMES * x[step];
}

static void transform_output_2(const lanes* x, int64_t step, lanes* to, int64_t to_step) {
  to[0] = x[0] + (x[step] + x[2 * step]);
  to[to_step] = x[3 * step] + (x[step] - x[2 * step]);
}

static void transform_output_4(const lanes* x, int64_t step, lanes* to, int64_t to_step) {
  lanes even_a = x[step] + x[2 * step], odd_a = x[step] - x[2 * step];
  lanes even_b = x[3 * step] + x[4 * step], odd_b = x[3 * step] - x[4 * step];
  to[0] = x[0] + (even_a + even_b);
  to[to_step] = A * odd_a + B * odd_b;
  to[2 * to_step] = AA * even_a + BB * even_b;
  to[3 * to_step] = x[5 * step] + (A * AA * odd_a + B * BB * odd_b);
}

/* Transforms the inputs of one tile, for LANES channels, `apart` elements apart. */
static void gather_lanes(const struct tiles* t, const float* image, int64_t y, int64_t x, float* to, int64_t apart) {
  lanes in[36], middle[36], out[36];
  int64_t size = t->outputs + 2;
  for (int64_t i = 0; i < size * size; ++i) {
    int64_t row = y + i / size, column = x + i % size;
    int is_inside = row >= 0 && row < t->height && column >= 0 && column < t->width;
    in[i] = (lanes){0};
    if (is_inside) memcpy(&in[i], image + (row * t->width + column) * t->channels, sizeof *in);
  }
  for (int64_t i = 0; i < size; ++i) {
    if (size == 4) transform_input_2(in + i, 4, middle + i);
    if (size == 6) transform_input_4(in + i, 6, middle + i);
  }
  for (int64_t i = 0; i < size * size; i += size) {
    if (size == 4) transform_input_2(middle + i, 1, out + i);
    if (size == 6) transform_input_4(middle + i, 1, out + i);
  }
  for (int64_t i = 0; i < size * size; ++i) memcpy(to + i * apart, &out[i], sizeof *out);
}

static void scatter_lanes(const struct tiles* t, const float* from, int64_t apart, int64_t filter, int64_t y, int64_t x,
                          float* image) {
  lanes in[36], middle[24], out[16], bias = {0};
  int64_t size = t->outputs + 2, outputs = t->outputs;
  if (t->bias) memcpy(&bias, t->bias + filter, sizeof bias);
  for (int64_t i = 0; i < size * size; ++i) memcpy(&in[i], from + i * apart, sizeof *in);
  for (int64_t i = 0; i < size; ++i) {
    if (size == 4) transform_output_2(in + i, 4, middle + i, 4);
    if (size == 6) transform_output_4(in + i, 6, middle + i, 6);
  }
  for (int64_t i = 0; i < outputs; ++i) {
    if (size == 4) transform_output_2(middle + i * size, 1, out + i * outputs, 1);
    if (size == 6) transform_output_4(middle + i * size, 1, out + i * outputs, 1);
  }
  for (int64_t i = 0; i < outputs * outputs; ++i) {
    int64_t row = y + i / outputs, column = x + i % outputs;
    if (row >= t->out_height || column >= t->out_width) continue;
    lanes made = out[i] + bias;
    for (int lane = 0; t->is_relu && lane < LANES; ++lane) made[lane] = made[lane] < 0 ? 0 : made[lane];
    memcpy(image + (row * t->out_width + column) * t->filters + filter, &made, sizeof made);
  }
}

/* Runs over the tiles: gathers their inputs, or scatters their outputs. */
static int run_tiles(const struct tiles* t, int scatters) {
  int64_t count = t->images * t->down * t->across;
  void* data = NULL;
  if (dnnl_memory_get_data_handle(scatters ? t->target : t->source, &data) != 0) return -1;
  for (int64_t i = 0; i < count; ++i) {
    int64_t image = i / (t->down * t->across), row = i / t->across % t->down, column = i % t->across;
    int64_t y = row * t->outputs, x = column * t->outputs;
    float* from = (float*)data + image * t->height * t->width * t->channels;
    float* to = (float*)data + image * t->out_height * t->out_width * t->filters;
    for (int64_t c = 0; !scatters && c < t->channels; c += LANES) {
      gather_lanes(t, from + c, y - t->above, x - t->left, t->inputs + i * t->channels + c, count * t->channels);
    }
    for (int64_t f = 0; scatters && f < t->filters; f += LANES) {
      scatter_lanes(t, t->products + i * t->filters + f, count * t->filters, f, y, x, to);
    }
  }
  return 0;
}
