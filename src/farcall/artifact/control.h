/*
 * Control flow: steps that call the drivers of the graphs inside of an If, Loop or Scan. The generated text has one
 * `struct fc_control` for each such node; the functions are in entry_control.c.
 */

#define FC_ABSENT INT32_MAX

/* The driver of a graph inside of a node. It takes the graph's own inputs, the tensors that the graph reads from the one
 * around it, and sizes. Its `self` points to the number of bytes that it may allocate. */
struct fc_body {
  fc_kernel* function;
  const int32_t* captured; /* operands, see fc_control */
  int32_t num_captured;
  const int32_t* sizes; /* arguments of the step */
  int32_t num_sizes;
  int32_t num_outputs;
};

/* An operand is an argument of the step, or ~ the index of a constant, or absent. */
struct fc_control {
  const char* place; /* "Loop `loop_1`" */
  const struct fc_body* bodies; /* of an If: taken if the condition holds, and otherwise */
  const DLTensor* constants;
  const int32_t* operands;
  int32_t num_operands;
  const struct fc_parameter* outputs; /* of the node */
  const int32_t* places; /* of each output: an argument of the step, or ~ the index of a result, or absent */
  int32_t num_outputs;
  int32_t num_late;   /* outputs that are results */
  int32_t num_states; /* values that steps carry; the further outputs are stacks of what each step makes */
  int32_t counter_ndim, condition_ndim; /* of a Loop */
  const int32_t* axes; /* of a Scan: of the scanned inputs, then of the stacks */
  const int32_t* reversed;
  int32_t batched; /* whether all tensors of a Scan have a batch axis, and its first operand the lengths */
};

/* `shapes` has the dims of all outputs; those that are not known are 0. `left`: the bytes that it may allocate. */
#define FC_HIDDEN __attribute__((visibility("hidden")))
FC_HIDDEN int farcall_if(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes, int64_t left,
                         TVMFFIAny* result);
/* Raises a ValueError. Returns -1. */
FC_HIDDEN FC_COLD int farcall_fail(const char* message);
FC_HIDDEN int farcall_loop(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes, int64_t left,
                           TVMFFIAny* result);
FC_HIDDEN int farcall_scan(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes, int64_t left,
                           TVMFFIAny* result);
