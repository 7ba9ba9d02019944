/*
 * Runs a region by oneDNN. The region is a table of operators over numbered values. For each set of sizes it makes
 * a plan: primitives with their memories, in the layouts that oneDNN prefers between them. A plan serves one call
 * at a time; calls that run at once have a plan each. Weights are reordered once for all plans of a layout.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* What is used of oneDNN 3's C interface. Handles are opaque; a status of 0 is success. */
typedef void* dnnl;
struct dnnl_arg {
  int what;
  dnnl memory;
};
enum { DNNL_CPU = 1, DNNL_F32 = 3, DNNL_ANY = 1, DNNL_INFERENCE = 96, DNNL_SOFTMAX = 0x30000 };
enum { DNNL_DIRECT = 1, DNNL_DIRECT_TRANSPOSED = 10, DNNL_FIRST_BINARY = 0x1fff0 };
enum { DNNL_SOURCE = 1, DNNL_SECOND = 2, DNNL_TARGET = 17, DNNL_WEIGHTS = 33, DNNL_BIAS = 41, DNNL_SCRATCH = 80 };
enum { DNNL_MEAN = 49, DNNL_VARIANCE = 50, DNNL_SCALE = 51, DNNL_SHIFT = 52, DNNL_AFTER = 32768 };
enum { DNNL_GIVEN_STATISTICS = 1, DNNL_USE_SCALE = 2, DNNL_USE_SHIFT = 4 };
enum { DNNL_QUERY_SOURCE = 129, DNNL_QUERY_WEIGHTS = 131, DNNL_QUERY_TARGET = 133, DNNL_QUERY_SCRATCH = 136 };
int dnnl_engine_create(dnnl* engine, int kind, size_t index);
int dnnl_engine_destroy(dnnl engine);
int dnnl_stream_create(dnnl* stream, dnnl engine, unsigned flags);
int dnnl_stream_destroy(dnnl stream);
int dnnl_stream_wait(dnnl stream);
int dnnl_memory_desc_create_with_strides(dnnl* desc, int ndims, const int64_t* dims, int type, const int64_t* strides);
int dnnl_memory_desc_create_with_tag(dnnl* desc, int ndims, const int64_t* dims, int type, int tag);
int dnnl_memory_desc_clone(dnnl* desc, const void* from);
int dnnl_memory_desc_destroy(dnnl desc);
int dnnl_memory_desc_equal(const void* a, const void* b);
size_t dnnl_memory_desc_get_size(const void* desc);
int dnnl_memory_create(dnnl* memory, const void* desc, dnnl engine, void* data);
int dnnl_memory_destroy(dnnl memory);
int dnnl_memory_set_data_handle(dnnl memory, void* data);
int dnnl_memory_get_data_handle(const void* memory, void** data);
int dnnl_primitive_attr_create(dnnl* attr);
int dnnl_primitive_attr_destroy(dnnl attr);
int dnnl_primitive_attr_set_scratchpad_mode(dnnl attr, int mode);
int dnnl_primitive_attr_set_post_ops(dnnl attr, const void* ops);
int dnnl_post_ops_create(dnnl* ops);
int dnnl_post_ops_destroy(dnnl ops);
int dnnl_post_ops_append_sum(dnnl ops, float scale, int32_t zero_point, int type);
int dnnl_post_ops_append_eltwise(dnnl ops, int kind, float alpha, float beta);
int dnnl_post_ops_append_binary(dnnl ops, int kind, const void* desc);
int dnnl_convolution_forward_primitive_desc_create(dnnl* made, dnnl engine, int use, int kind, const void* source,
                                                   const void* weights, const void* bias, const void* target,
                                                   const int64_t* strides, const int64_t* dilates,
                                                   const int64_t* before, const int64_t* after, const void* attr);
int dnnl_deconvolution_forward_primitive_desc_create(dnnl* made, dnnl engine, int use, int kind, const void* source,
                                                     const void* weights, const void* bias, const void* target,
                                                     const int64_t* strides, const int64_t* dilates,
                                                     const int64_t* before, const int64_t* after, const void* attr);
int dnnl_matmul_primitive_desc_create(dnnl* made, dnnl engine, const void* source, const void* weights,
                                      const void* bias, const void* target, const void* attr);
int dnnl_pooling_forward_primitive_desc_create(dnnl* made, dnnl engine, int use, int kind, const void* source,
                                               const void* target, const int64_t* strides, const int64_t* taps,
                                               const int64_t* dilation, const int64_t* before, const int64_t* after,
                                               const void* attr);
int dnnl_softmax_forward_primitive_desc_create(dnnl* made, dnnl engine, int use, int kind, const void* source,
                                               const void* target, int axis, const void* attr);
int dnnl_layer_normalization_forward_primitive_desc_create(dnnl* made, dnnl engine, int use, const void* source,
                                                           const void* target, const void* statistics, float epsilon,
                                                           unsigned flags, const void* attr);
int dnnl_batch_normalization_forward_primitive_desc_create(dnnl* made, dnnl engine, int use, const void* source,
                                                           const void* target, float epsilon, unsigned flags,
                                                           const void* attr);
int dnnl_eltwise_forward_primitive_desc_create(dnnl* made, dnnl engine, int use, int kind, const void* source,
                                               const void* target, float alpha, float beta, const void* attr);
int dnnl_binary_primitive_desc_create(dnnl* made, dnnl engine, int kind, const void* source, const void* second,
                                      const void* target, const void* attr);
int dnnl_reorder_primitive_desc_create(dnnl* made, const void* source, dnnl from, const void* target, dnnl to,
                                       const void* attr);
const void* dnnl_primitive_desc_query_md(const void* desc, int what, int index);
int dnnl_primitive_desc_destroy(dnnl desc);
int dnnl_primitive_create(dnnl* made, const void* desc);
int dnnl_primitive_destroy(dnnl primitive);
int dnnl_primitive_execute(const void* primitive, dnnl stream, int count, const struct dnnl_arg* args);
int omp_get_max_threads(void);
void omp_set_num_threads(int count);

enum { RANK = 6, MOST_ARGS = 16, MOST_OPERANDS = 8 };
enum kind {
  CONVOLUTION,
  DECONVOLUTION,
  PRODUCT,
  POOLING,
  SOFTMAX,
  LAYER_NORMALIZATION,
  BATCH_NORMALIZATION,
  ELEMENTWISE,
  BINARY,
  WINOGRAD
};

/* A value: its sizes are at `dims` of the call's sizes. */
struct value {
  int rank, dims;
  const float* constant; /* NULL: computed, or an argument */
  int argument;          /* -1: none */
  int is_output;
  int last_use; /* the last operator that reads it */
};

/* How an operator wants an operand: in the layout that the primitive prefers, in that which the value has, in that of
   the operator's source, with the strides that follow the dims, or with the channels of an image last. */
enum layout { PREFERRED, KEPT, LIKE_SOURCE, STRIDED, CHANNELS_LAST };

struct operand {
  int what; /* of the primitive's arguments */
  int value;
  enum layout layout;
  int viewed; /* whether the dims are not those of the value, which is row-major then */
  int rank, dims;
};

/* What is computed on each element of the result: an activation, or an operation with an operand. */
struct after {
  int algorithm; /* 0: the value is added, from a tensor in the layout of the result */
  float alpha, beta;
  int operand; /* among the operator's; -1: none */
};

struct operator{
  enum kind kind;
  int operands, num_operands; /* in the region's table; the target is the last */
  int afters, num_afters;
  int algorithm, axis; /* of pooling, elementwise and binary ones; of softmax. Of Winograd: outputs, whether Relu */
  int window; /* where strides, taps, dilations, pads before and after are, each as long as the spatial rank */
  int spatial;
  float alpha, beta; /* alpha is also the epsilon of a normalization */
};

struct region {
  const struct value* values;
  const struct operand* operands;
  const struct after* afters;
  const struct operator* operators;
  int num_values, num_operands, num_operators, num_sizes, threads;
};

struct tiles { /* a convolution by Winograd's method */
  int outputs;   /* of a tile, down and across */
  int is_relu;   /* whether results below 0 become 0 */
  int64_t images, height, width, channels, filters, out_height, out_width;
  int64_t down, across; /* tiles of an image */
  int64_t above, left;  /* padding */
  const float* bias;
  dnnl source, target;
  float *inputs, *products; /* transformed, and what the weights make of them */
};

struct row { /* a product of one row */
  int64_t inner, columns;
  const float *weights, *bias; /* the weights are in panels */
  dnnl source, target;
};

struct step { /* one primitive and its memories, a part of a convolution by tiles, or a product of one row */
  dnnl primitive;
  struct dnnl_arg args[MOST_ARGS];
  int count;
  const struct tiles* tiles;
  int scatters;
  const struct row* row;
};

struct bound { /* a memory whose data is an argument of the call */
  dnnl memory;
  int argument;
};

struct place { /* where a value is, in a plan */
  dnnl desc; /* owned */
  dnnl memory;
  void* buffer; /* which the plan owns; NULL: an argument's or a constant's */
};

struct plan {
  struct plan* next;
  int64_t* sizes;
  dnnl stream;
  struct step* steps;
  int num_steps;
  struct bound* bounds;
  int num_bounds;
  struct place* places;
  struct tiles* tiles; /* of each operator, if it has some */
  struct row* rows;
  dnnl* memories; /* to destroy */
  int num_memories;
  void** buffers; /* to free, and those that are not in use while the plan is made */
  size_t* buffer_sizes;
  char* buffer_free;
  int num_buffers;
};

struct weight { /* a constant in one layout */
  struct weight* next;
  const float* from;
  dnnl desc;
  void* data;
};

struct state {
  pthread_mutex_t lock;
  dnnl engine;
  struct plan* idle;
  struct weight* weights;
};
