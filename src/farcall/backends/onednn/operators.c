/* Adds an operator to a plan: its primitive, and the memories of its operands and of its result. */

struct use { /* an operand of an operator, in a plan */
  const struct operand* operand;
  int64_t dims[RANK];
  int is_empty; /* without elements, though the result has some: read as one of zeros */
  dnnl desc;    /* owned, as the primitive is described by */
  struct place place;
  int moved; /* whether the place has a buffer of its own */
};

struct build { /* what an operator is built of; the last use is the result */
  struct state* state;
  const struct region* region;
  struct plan* plan;
  const struct operator* op;
  struct use uses[MOST_OPERANDS];
  int number;
  dnnl attr, made; /* owned */
};

static int64_t elements(const int64_t* dims, int rank) {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= dims[i];
  return count;
}

static struct use* use_of(struct build* b, int what) {
  for (int i = 0; i < b->op->num_operands; ++i) {
    if (b->uses[i].operand->what == what) return &b->uses[i];
  }
  return NULL;
}

static const void* desc_of(struct build* b, int what) {
  const struct use* use = use_of(b, what);
  return use ? use->desc : NULL;
}

/* The layout of an operand, as the primitive is asked for it. */
static int describe_use(struct build* b, struct use* use) {
  const struct operand* operand = use->operand;
  const int64_t* dims = b->plan->sizes + operand->dims;
  const void* like = operand->layout == KEPT ? b->plan->places[operand->value].desc : desc_of(b, DNNL_SOURCE);
  memcpy(use->dims, dims, (size_t)operand->rank * sizeof *dims);
  use->is_empty = elements(dims, operand->rank) == 0;
  for (int i = 0; use->is_empty && i < operand->rank; ++i) {
    if (use->dims[i] == 0) use->dims[i] = 1;
  }
  if (operand->layout == PREFERRED) return any_desc(&use->desc, operand->rank, use->dims);
  if (use->is_empty || ((operand->layout == KEPT || operand->layout == LIKE_SOURCE) && !like))
    return plain_desc(&use->desc, operand->rank, use->dims);
  if (operand->layout == CHANNELS_LAST) return last_desc(&use->desc, use->dims);
  if (operand->layout != STRIDED) return dnnl_memory_desc_clone(&use->desc, like);
  return dnnl_memory_desc_create_with_strides(&use->desc, operand->rank, use->dims, DNNL_F32, dims + operand->rank);
}

static int describe_afters(struct build* b) {
  dnnl ops = NULL;
  int status = dnnl_primitive_attr_create(&b->attr);
  if (status == 0) status = dnnl_primitive_attr_set_scratchpad_mode(b->attr, 1);
  if (status != 0 || b->op->num_afters == 0) return status;
  status = dnnl_post_ops_create(&ops);
  for (int i = 0; status == 0 && i < b->op->num_afters; ++i) {
    const struct after* after = &b->region->afters[b->op->afters + i];
    if (after->algorithm == 0) {
      status = dnnl_post_ops_append_sum(ops, 1, 0, DNNL_F32);
    } else if (after->algorithm >= DNNL_FIRST_BINARY) {
      status = dnnl_post_ops_append_binary(ops, after->algorithm, b->uses[after->operand].desc);
    } else {
      status = dnnl_post_ops_append_eltwise(ops, after->algorithm, after->alpha, after->beta);
    }
  }
  if (status == 0) status = dnnl_primitive_attr_set_post_ops(b->attr, ops);
  if (ops) dnnl_post_ops_destroy(ops);
  return status;
}

/* Copies the window. An axis without elements is read as one zero, which takes the place of padding; what a transposed
 * one makes of it is cut off. */
static void copy_window(struct build* b, int64_t* window) {
  const struct use* source = use_of(b, DNNL_SOURCE);
  int spatial = b->op->spatial;
  memcpy(window, b->plan->sizes + b->op->window, (size_t)spatial * 5 * sizeof *window);
  for (int i = 0; source->is_empty && i < spatial; ++i) {
    if (b->plan->sizes[source->operand->dims + 2 + i] != 0) continue;
    int64_t *before = &window[spatial * 3 + i], *after = &window[spatial * 4 + i];
    if (b->op->kind == DECONVOLUTION) *after += window[i];
    else --*(*before > 0 ? before : after);
  }
}

/* The description of the primitive, which chooses the layouts that the operands leave open. */
static int describe(struct build* b) {
  const struct operator* op = b->op;
  const void *source = desc_of(b, DNNL_SOURCE), *target = desc_of(b, DNNL_TARGET);
  const void *weights = desc_of(b, DNNL_WEIGHTS), *bias = desc_of(b, DNNL_BIAS);
  unsigned flags = (use_of(b, DNNL_SCALE) ? DNNL_USE_SCALE : 0) | (use_of(b, DNNL_SHIFT) ? DNNL_USE_SHIFT : 0);
  int64_t strides[5 * RANK];
  copy_window(b, strides);
  const int64_t *taps = strides + op->spatial, *dilations = taps + op->spatial;
  const int64_t *before = dilations + op->spatial, *after = before + op->spatial;
  dnnl engine = b->state->engine, *made = &b->made;
  switch (op->kind) {
    case CONVOLUTION:
      return dnnl_convolution_forward_primitive_desc_create(made, engine, DNNL_INFERENCE, DNNL_DIRECT, source, weights,
                                                            bias, target, strides, dilations, before, after, b->attr);
    case DECONVOLUTION:
      return dnnl_deconvolution_forward_primitive_desc_create(made, engine, DNNL_INFERENCE, DNNL_DIRECT_TRANSPOSED,
                                                              source, weights, bias, target, strides, dilations, before,
                                                              after, b->attr);
    case PRODUCT: return dnnl_matmul_primitive_desc_create(made, engine, source, weights, bias, target, b->attr);
    case POOLING:
      return dnnl_pooling_forward_primitive_desc_create(made, engine, DNNL_INFERENCE, op->algorithm, source, target,
                                                        strides, taps, dilations, before, after, b->attr);
    case SOFTMAX:
      return dnnl_softmax_forward_primitive_desc_create(made, engine, DNNL_INFERENCE, DNNL_SOFTMAX, source, target,
                                                        op->axis, b->attr);
    case LAYER_NORMALIZATION:
      return dnnl_layer_normalization_forward_primitive_desc_create(made, engine, DNNL_INFERENCE, source, target, NULL,
                                                                    op->alpha, flags, b->attr);
    case BATCH_NORMALIZATION:
      return dnnl_batch_normalization_forward_primitive_desc_create(made, engine, DNNL_INFERENCE, source, target,
                                                                    op->alpha, flags | DNNL_GIVEN_STATISTICS, b->attr);
    case ELEMENTWISE:
      return dnnl_eltwise_forward_primitive_desc_create(made, engine, DNNL_INFERENCE, op->algorithm, source, target,
                                                        op->alpha, op->beta, b->attr);
    default:
      return dnnl_binary_primitive_desc_create(made, engine, op->algorithm, source, desc_of(b, DNNL_SECOND), target,
                                               b->attr);
  }
}

/* The layout that the primitive wants for an operand. */
static const void* wanted_by(const struct build* b, const struct use* use) {
  if (use->operand->layout != PREFERRED) return use->desc;
  int what = use->operand->what;
  int query = what == DNNL_SOURCE ? DNNL_QUERY_SOURCE : what == DNNL_WEIGHTS ? DNNL_QUERY_WEIGHTS : DNNL_QUERY_TARGET;
  return dnnl_primitive_desc_query_md(b->made, query, 0);
}

/* Elements that no step writes. A mean of no elements is not a number, all else of none is a sum. */
static int place_empty(struct build* b, struct use* use, const void* wanted) {
  size_t size = dnnl_memory_desc_get_size(wanted);
  use->place.buffer = new_buffer(b->plan, size);
  float* data = use->place.buffer;
  for (size_t i = 0; data && i < size / sizeof *data; ++i) data[i] = b->op->kind == POOLING ? NAN : 0;
  use->place.memory = data ? add_memory(b->state, b->plan, wanted, data) : NULL;
  return use->place.memory ? 0 : -1;
}

static int place_constant(struct build* b, struct use* use, const void* wanted) {
  const float* from = b->region->values[use->operand->value].constant;
  dnnl plain = NULL;
  if (plain_desc(&plain, use->operand->rank, use->dims) != 0) return -1;
  void* data = use->operand->layout == STRIDED ? (void*)from : weight_as(b->state, b->plan, from, plain, wanted);
  dnnl_memory_desc_destroy(plain);
  use->place.memory = data ? add_memory(b->state, b->plan, wanted, data) : NULL;
  return use->place.memory ? 0 : -1;
}

/* Puts an operand where the primitive reads it. */
static int place_use(struct build* b, struct use* use) {
  const struct operand* operand = use->operand;
  const struct value* value = &b->region->values[operand->value];
  const void* wanted = wanted_by(b, use);
  if (use->is_empty) return place_empty(b, use, wanted);
  if (value->constant) return place_constant(b, use, wanted);
  const struct place* place = &b->plan->places[operand->value];
  dnnl plain = NULL;
  use->place = (struct place){NULL, place->memory, place->buffer};
  int status = dnnl_memory_desc_clone(&use->place.desc, place->desc);
  if (status == 0 && (operand->viewed || operand->layout == STRIDED))
    status = plain_desc(&plain, value->rank, b->plan->sizes + value->dims);
  if (status == 0 && plain) status = into_layout(b->state, b->plan, &use->place, plain);
  if (plain) dnnl_memory_desc_destroy(plain);
  void* before = use->place.buffer;
  if (status == 0 && operand->viewed) {
    dnnl described = use->desc;
    if (operand->layout != STRIDED) status = plain_desc(&described, operand->rank, use->dims);
    if (status == 0) status = view(b->state, b->plan, value, &use->place, described);
    if (described && described != use->desc) dnnl_memory_desc_destroy(described);
  }
  if (status == 0) status = into_layout(b->state, b->plan, &use->place, wanted);
  if (before != use->place.buffer && before != place->buffer) give_buffer(b->plan, before);
  use->moved = use->place.buffer != place->buffer;
  return status;
}

/* Whether the result may take the place of the value that is added to it. */
static int becomes_result(const struct build* b, const struct use* added, const void* layout) {
  const struct value* value = &b->region->values[added->operand->value];
  const struct place* place = &b->plan->places[added->operand->value];
  for (int i = 0; i < b->op->num_operands - 1; ++i) {
    if (&b->uses[i] != added && b->uses[i].operand->value == added->operand->value) return 0;
  }
  return place->buffer && value->last_use == b->number && dnnl_memory_desc_equal(place->desc, layout);
}

static struct use* added_use(struct build* b) {
  for (int i = 0; i < b->op->num_afters; ++i) {
    const struct after* after = &b->region->afters[b->op->afters + i];
    if (after->algorithm == 0) return &b->uses[after->operand];
  }
  return NULL;
}

/* Makes the memory of the result: that of the argument, if the layout is row-major, or a buffer. */
static int place_target(struct build* b) {
  struct use* use = &b->uses[b->op->num_operands - 1];
  const struct operand* operand = use->operand;
  const struct value* value = &b->region->values[operand->value];
  const struct use* added = added_use(b);
  const void* layout = operand->layout == LIKE_SOURCE || operand->layout == PREFERRED
                           ? dnnl_primitive_desc_query_md(b->made, DNNL_QUERY_TARGET, 0)
                           : use->desc;
  struct place* place = &b->plan->places[operand->value];
  dnnl plain = NULL;
  if (plain_desc(&plain, value->rank, b->plan->sizes + value->dims) != 0) return -1;
  int is_plain = operand->viewed || dnnl_memory_desc_equal(plain, layout);
  int status = dnnl_memory_desc_clone(&place->desc, is_plain ? plain : layout);
  dnnl_memory_desc_destroy(plain);
  if (status != 0) return -1;
  if (added && !(value->is_output && is_plain) && becomes_result(b, added, layout)) {
    place->buffer = b->plan->places[added->operand->value].buffer;
    place->memory = use->place.memory = b->plan->places[added->operand->value].memory;
    return 0;
  }
  if (!(value->is_output && is_plain)) {
    place->buffer = take_buffer(b->plan, dnnl_memory_desc_get_size(layout));
    if (!place->buffer) return -1;
  }
  place->memory = add_memory(b->state, b->plan, place->desc, place->buffer);
  use->place.memory = operand->viewed ? add_memory(b->state, b->plan, layout, place->buffer) : place->memory;
  if (!place->memory || !use->place.memory) return -1;
  for (int i = 0; !place->buffer && i <= operand->viewed; ++i) {
    dnnl memory = i ? use->place.memory : place->memory;
    b->plan->bounds[b->plan->num_bounds++] = (struct bound){memory, value->argument};
  }
  if (!added) return 0;
  const struct place* from = &b->plan->places[added->operand->value];
  return add_reorder(b->state, b->plan, from->desc, from->memory, layout, place->memory);
}

static int place_all(struct build* b) {
  struct dnnl_arg args[MOST_ARGS];
  const struct use* added = added_use(b);
  int count = 0, status = 0;
  for (int i = 0; status == 0 && i < b->op->num_operands; ++i) {
    struct use* use = &b->uses[i];
    if (use == added) continue;
    status = i == b->op->num_operands - 1 ? place_target(b) : place_use(b, use);
    args[count++] = (struct dnnl_arg){use->operand->what, use->place.memory};
  }
  return status == 0 ? add_step(b->state, b->plan, b->made, count, args) : -1;
}

/* Ends the use of an operand. Later operators read the value where a reorder for this one has put it. */
static void release_use(struct build* b, struct use* use) {
  const struct operand* operand = use->operand;
  const struct value* value = &b->region->values[operand->value];
  struct place* place = &b->plan->places[operand->value];
  int is_target = use == &b->uses[b->op->num_operands - 1];
  if (use->moved && !operand->viewed && !value->is_output && value->last_use > b->number) {
    give_buffer(b->plan, place->buffer);
    dnnl_memory_desc_destroy(place->desc);
    *place = use->place;
    use->place.desc = NULL;
  } else if (use->moved) {
    give_buffer(b->plan, use->place.buffer);
  }
  if (use->place.desc) dnnl_memory_desc_destroy(use->place.desc);
  if (use->desc) dnnl_memory_desc_destroy(use->desc);
  const struct place* target = &b->plan->places[b->uses[b->op->num_operands - 1].operand->value];
  if (!is_target && !value->constant && value->last_use == b->number && place->buffer != target->buffer)
    give_buffer(b->plan, place->buffer);
}
