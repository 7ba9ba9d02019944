/* PREFIX, TYPE and KIND are replaced: the library's prefix, float or double, s or d. */
int PREFIXopenblas_get_num_threads(void);
void PREFIXopenblas_set_num_threads(int count);

/* The setting is one for the process; another artifact may have changed it. */
static inline void blas_threads(int count) {
  if (PREFIXopenblas_get_num_threads() != count) PREFIXopenblas_set_num_threads(count);
}

enum { BLAS_ROW_MAJOR = 101, BLAS_AS_IT_IS = 111, BLAS_TRANSPOSED = 112 };

struct blas_axis {
  int64_t size, out, taps, stride, dilation, begin;
};
/* For each dtype. */
void PREFIXcblas_KINDgemm(int order, int flip_a, int flip_b, int m, int n, int k, TYPE alpha, const TYPE* a, int lda,
                          const TYPE* b, int ldb, TYPE beta, TYPE* c, int ldc);

static inline int blas_KINDld(int64_t columns) { return columns > 0 ? (int)columns : 1; }

/* c = alpha * a @ b, added to what c holds if adds is 1. */
static inline int blas_KINDgemm(int flip_a, int flip_b, int64_t m, int64_t n, int64_t k, TYPE alpha, const TYPE* a,
                                int64_t lda, const TYPE* b, int64_t ldb, int adds, TYPE* c, int64_t ldc) {
  if (m == 0 || n == 0) return 0;
  if (k == 0) {
    for (int64_t i = 0; !adds && i < m; ++i) memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    return 0;
  }
  if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX || lda > INT32_MAX || ldb > INT32_MAX || ldc > INT32_MAX)
    return -1;
  PREFIXcblas_KINDgemm(BLAS_ROW_MAJOR, flip_a ? BLAS_TRANSPOSED : BLAS_AS_IT_IS,
                       flip_b ? BLAS_TRANSPOSED : BLAS_AS_IT_IS, (int)m, (int)n, (int)k, alpha, a, blas_KINDld(lda), b,
                       blas_KINDld(ldb), (TYPE)adds, c, blas_KINDld(ldc));
  return 0;
}

static inline void blas_KINDbias(const TYPE* bias, int64_t filters, int64_t pixels, TYPE* to) {
  for (int64_t f = 0; f < filters; ++f) {
    for (int64_t i = 0; i < pixels; ++i) to[f * pixels + i] = bias[f];
  }
}

/* The part of one row of windows that one tap reads: n windows from `first`, the rest is padding. */
static inline void blas_KINDrow(const TYPE* line, const struct blas_axis* axis, int64_t shift, int64_t first, int64_t n,
                                TYPE* to) {
  if (axis->stride == 1) {
    int64_t from = first + shift, before = from < 0 ? -from : 0, last = axis->size - from;
    if (before > n) before = n;
    if (last > n) last = n;
    if (last < before) last = before;
    memset(to, 0, (size_t)before * sizeof *to);
    if (last > before) memcpy(to + before, line + from + before, (size_t)(last - before) * sizeof *to);
    memset(to + last, 0, (size_t)(n - last) * sizeof *to);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = (first + i) * axis->stride + shift;
    to[i] = at >= 0 && at < axis->size ? line[at] : 0;
  }
}

/* The matrix that a convolution multiplies its weights by: a row for each channel and tap, a column for each of
   the windows from `first` to `first + count`. */
static inline void blas_KINDcolumns(const TYPE* image, int64_t channels, const struct blas_axis* axes, int64_t first,
                                    int64_t count, TYPE* to) {
  const struct blas_axis *z = &axes[0], *y = &axes[1], *x = &axes[2];
  int64_t taps = z->taps * y->taps * x->taps;
  for (int64_t row = 0; row < channels * taps; ++row) {
    const TYPE* plane = image + row / taps * z->size * y->size * x->size;
    int64_t tap = row % taps, dz = tap / (y->taps * x->taps), dy = tap / x->taps % y->taps, dx = tap % x->taps;
    for (int64_t at = first, n; at < first + count; at += n, to += n) {
      int64_t line = at / x->out, begin = at % x->out;
      n = x->out - begin < first + count - at ? x->out - begin : first + count - at;
      int64_t pz = line / y->out * z->stride + dz * z->dilation - z->begin;
      int64_t py = line % y->out * y->stride + dy * y->dilation - y->begin;
      if (pz < 0 || pz >= z->size || py < 0 || py >= y->size) {
        memset(to, 0, (size_t)n * sizeof *to);
      } else {
        blas_KINDrow(plane + (pz * y->size + py) * x->size, x, dx * x->dilation - x->begin, begin, n, to);
      }
    }
  }
}
