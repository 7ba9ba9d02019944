/* Builds a plan: the primitives of all operators, their memories and buffers. */

static void* aligned(size_t size) { return aligned_alloc(64, (size / 64 + 1) * 64); }

static int plain_desc(dnnl* desc, int rank, const int64_t* dims) {
  int64_t strides[RANK];
  for (int64_t axis = rank - 1, step = 1; axis >= 0; step *= dims[axis--]) strides[axis] = step;
  return dnnl_memory_desc_create_with_strides(desc, rank, dims, DNNL_F32, strides);
}

static int any_desc(dnnl* desc, int rank, const int64_t* dims) {
  return dnnl_memory_desc_create_with_tag(desc, rank, dims, DNNL_F32, DNNL_ANY);
}

static dnnl add_memory(struct state* state, struct plan* plan, const void* desc, void* data) {
  dnnl memory = NULL;
  if (dnnl_memory_create(&memory, desc, state->engine, data) != 0) return NULL;
  plan->memories[plan->num_memories++] = memory;
  return memory;
}

/* A buffer of the plan that nothing uses now, the smallest that is large enough, or a new one. */
static void* take_buffer(struct plan* plan, size_t size) {
  int best = -1;
  for (int i = 0; i < plan->num_buffers; ++i) {
    if (!plan->buffer_free[i] || plan->buffer_sizes[i] < size) continue;
    if (best < 0 || plan->buffer_sizes[i] < plan->buffer_sizes[best]) best = i;
  }
  if (best < 0) {
    void* data = aligned(size);
    if (!data) return NULL;
    best = plan->num_buffers++;
    plan->buffers[best] = data;
    plan->buffer_sizes[best] = size;
  }
  plan->buffer_free[best] = 0;
  return plan->buffers[best];
}

static void give_buffer(struct plan* plan, const void* data) {
  for (int i = 0; data && i < plan->num_buffers; ++i) {
    if (plan->buffers[i] == data) plan->buffer_free[i] = 1;
  }
}

/* Adds a primitive, with memory of the plan for what it needs while it runs: oneDNN's own belongs to one thread. */
static int add_step(struct state* state, struct plan* plan, dnnl desc, int count, const struct dnnl_arg* args) {
  struct step* step = &plan->steps[plan->num_steps];
  const void* scratch = dnnl_primitive_desc_query_md(desc, DNNL_QUERY_SCRATCH, 0);
  size_t size = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
  for (int i = 0; i < count; ++i) {
    if (!args[i].memory) return -1;
    step->args[i] = args[i];
  }
  if (size) {
    void* buffer = take_buffer(plan, size);
    dnnl memory = buffer ? add_memory(state, plan, scratch, buffer) : NULL;
    if (!memory) return -1;
    step->args[count++] = (struct dnnl_arg){DNNL_SCRATCH, memory};
    give_buffer(plan, buffer);
  }
  step->count = count;
  if (dnnl_primitive_create(&step->primitive, desc) != 0) return -1;
  ++plan->num_steps;
  return 0;
}

static int add_reorder(struct state* state, struct plan* plan, const void* from, dnnl source, const void* to,
                       dnnl target) {
  dnnl desc = NULL, attr = NULL;
  int status = dnnl_primitive_attr_create(&attr);
  if (status == 0) status = dnnl_primitive_attr_set_scratchpad_mode(attr, 1);
  if (status == 0) status = dnnl_reorder_primitive_desc_create(&desc, from, state->engine, to, state->engine, attr);
  if (attr) dnnl_primitive_attr_destroy(attr);
  if (status != 0) return -1;
  status = add_step(state, plan, desc, 2, (struct dnnl_arg[]){{DNNL_SOURCE, source}, {DNNL_TARGET, target}});
  dnnl_primitive_desc_destroy(desc);
  return status;
}

/* The memory of a value in the layout `wanted`, by a reorder if it has another one; `*scratch` is its buffer then. */
static dnnl as_layout(struct state* state, struct plan* plan, const struct place* place, const void* wanted,
                      void** scratch) {
  *scratch = NULL;
  if (dnnl_memory_desc_equal(place->desc, wanted)) return place->memory;
  *scratch = take_buffer(plan, dnnl_memory_desc_get_size(wanted));
  dnnl memory = *scratch ? add_memory(state, plan, wanted, *scratch) : NULL;
  return memory && add_reorder(state, plan, place->desc, place->memory, wanted, memory) == 0 ? memory : NULL;
}

/* The data of a constant in a layout, which all plans share. */
static void* weight_as(struct state* state, struct plan* plan, const float* from, const void* plain,
                       const void* wanted) {
  if (dnnl_memory_desc_equal(plain, wanted)) return (void*)from;
  for (struct weight* one = state->weights; one; one = one->next) {
    if (one->from == from && dnnl_memory_desc_equal(one->desc, wanted)) return one->data;
  }
  struct weight* made = calloc(1, sizeof *made);
  dnnl desc = NULL, primitive = NULL, source = NULL, target = NULL;
  if (!made) return NULL;
  made->from = from;
  made->data = aligned(dnnl_memory_desc_get_size(wanted));
  int status = made->data ? dnnl_memory_desc_clone(&made->desc, wanted) : -1;
  if (status == 0)
    status = dnnl_reorder_primitive_desc_create(&desc, plain, state->engine, wanted, state->engine, NULL);
  if (status == 0) status = dnnl_primitive_create(&primitive, desc);
  if (status == 0) status = dnnl_memory_create(&source, plain, state->engine, (void*)from);
  if (status == 0) status = dnnl_memory_create(&target, wanted, state->engine, made->data);
  struct dnnl_arg args[] = {{DNNL_SOURCE, source}, {DNNL_TARGET, target}};
  if (status == 0) status = dnnl_primitive_execute(primitive, plan->stream, 2, args);
  if (status == 0) status = dnnl_stream_wait(plan->stream);
  if (source) dnnl_memory_destroy(source);
  if (target) dnnl_memory_destroy(target);
  if (primitive) dnnl_primitive_destroy(primitive);
  if (desc) dnnl_primitive_desc_destroy(desc);
  if (status != 0) {
    if (made->desc) dnnl_memory_desc_destroy(made->desc);
    free(made->data);
    free(made);
    return NULL;
  }
  made->next = state->weights;
  state->weights = made;
  return made->data;
}

static int attributes(dnnl* attr, const struct operator* op) {
  dnnl ops = NULL;
  int status = dnnl_primitive_attr_create(attr);
  if (status == 0) status = dnnl_primitive_attr_set_scratchpad_mode(*attr, 1);
  if (status != 0 || (op->residual < 0 && !op->activation)) return status;
  status = dnnl_post_ops_create(&ops);
  if (status == 0 && op->residual >= 0) status = dnnl_post_ops_append_sum(ops, 1, 0, DNNL_F32);
  if (status == 0 && op->activation) status = dnnl_post_ops_append_eltwise(ops, op->activation, op->alpha, op->beta);
  if (status == 0) status = dnnl_primitive_attr_set_post_ops(*attr, ops);
  if (ops) dnnl_post_ops_destroy(ops);
  return status;
}

/* The description of the primitive of an operator, which chooses the layouts that the arguments leave open. */
static int describe(struct state* state, const struct operator* op, const struct plan* plan, const void* source,
                    const void* weights, const void* bias, const void* target, dnnl attr, dnnl* made) {
  const int64_t* at = plan->sizes + op->window;
  const int64_t *strides = at, *taps = at + op->spatial, *dilations = taps + op->spatial;
  const int64_t *before = dilations + op->spatial, *after = before + op->spatial;
  switch (op->kind) {
    case CONVOLUTION:
      return dnnl_convolution_forward_primitive_desc_create(made, state->engine, DNNL_INFERENCE, DNNL_DIRECT, source,
                                                            weights, bias, target, strides, dilations, before, after,
                                                            attr);
    case PRODUCT: return dnnl_matmul_primitive_desc_create(made, state->engine, source, weights, bias, target, attr);
    case POOLING:
      return dnnl_pooling_forward_primitive_desc_create(made, state->engine, DNNL_INFERENCE, op->algorithm, source,
                                                        target, strides, taps, dilations, before, after, attr);
    default:
      return dnnl_softmax_forward_primitive_desc_create(made, state->engine, DNNL_INFERENCE, DNNL_SOFTMAX, source,
                                                        target, op->axis, attr);
  }
}

struct descs { /* what an operator's primitive is described by; all owned */
  dnnl source, weights, plain_weights, bias, target, attr, made;
};

static int describe_all(struct state* state, const struct region* region, struct plan* plan, const struct operator* op,
                        struct descs* descs) {
  const struct value *source = &region->values[op->source], *target = &region->values[op->target];
  const int64_t *in = plan->sizes + source->dims, *out = plan->sizes + target->dims;
  int status = 0, free_layout = op->kind == CONVOLUTION;
  if (free_layout) {
    status = any_desc(&descs->source, source->rank, in);
  } else if (op->kind == PRODUCT) {
    status = plain_desc(&descs->source, source->rank, in);
  } else {
    status = dnnl_memory_desc_clone(&descs->source, plan->places[op->source].desc);
  }
  if (status == 0 && op->kind == PRODUCT) status = plain_desc(&descs->target, target->rank, out);
  if (status == 0 && op->kind == SOFTMAX) status = dnnl_memory_desc_clone(&descs->target, descs->source);
  if (status == 0 && !descs->target) status = any_desc(&descs->target, target->rank, out);
  if (status == 0 && op->weights >= 0) {
    const int64_t* dims = plan->sizes + op->weights_dims;
    status = plain_desc(&descs->plain_weights, op->weights_rank, dims);
    if (status == 0) status = any_desc(&descs->weights, op->weights_rank, dims);
  }
  if (status == 0 && op->bias >= 0) {
    int64_t dims[RANK] = {1, 1, 1, 1, 1};
    int rank = op->kind == PRODUCT ? target->rank : 1;
    dims[rank - 1] = op->kind == PRODUCT ? out[rank - 1] : out[1];
    status = plain_desc(&descs->bias, rank, dims);
  }
  if (status == 0) status = attributes(&descs->attr, op);
  if (status == 0) {
    status =
        describe(state, op, plan, descs->source, descs->weights, descs->bias, descs->target, descs->attr, &descs->made);
  }
  return status;
}

static void drop_descs(struct descs* descs) {
  dnnl all[] = {descs->source, descs->weights, descs->plain_weights, descs->bias, descs->target};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (all[i]) dnnl_memory_desc_destroy(all[i]);
  }
  if (descs->attr) dnnl_primitive_attr_destroy(descs->attr);
  if (descs->made) dnnl_primitive_desc_destroy(descs->made);
}

/* The memory of a result of the region: that of the argument, if the layout is row-major. */
static dnnl result_in_place(struct state* state, const struct value* value, struct plan* plan, const void* layout) {
  dnnl plain = NULL, memory = NULL;
  if (!value->is_output || plain_desc(&plain, value->rank, plan->sizes + value->dims) != 0) return NULL;
  if (dnnl_memory_desc_equal(plain, layout)) memory = add_memory(state, plan, layout, NULL);
  if (memory) plan->bounds[plan->num_bounds++] = (struct bound){memory, value->argument};
  dnnl_memory_desc_destroy(plain);
  return memory;
}

/* The memory of the operator's result. A residual becomes it in place if nothing reads the residual later. */
static dnnl make_target(struct state* state, const struct region* region, struct plan* plan, const struct operator* op,
                        const void* layout) {
  int number = (int)(op - region->operators);
  struct place* place = &plan->places[op->target];
  const struct place* residual = op->residual < 0 ? NULL : &plan->places[op->residual];
  if (dnnl_memory_desc_clone(&place->desc, layout) != 0) return NULL;
  place->memory = result_in_place(state, &region->values[op->target], plan, layout);
  if (!place->memory && residual && residual->buffer && region->values[op->residual].last_use == number &&
      op->residual != op->source && dnnl_memory_desc_equal(residual->desc, layout)) {
    place->memory = residual->memory;
    place->buffer = residual->buffer;
    return place->memory;
  }
  if (!place->memory) {
    place->buffer = take_buffer(plan, dnnl_memory_desc_get_size(layout));
    place->memory = place->buffer ? add_memory(state, plan, layout, place->buffer) : NULL;
  }
  if (!place->memory) return NULL;
  if (residual && add_reorder(state, plan, residual->desc, residual->memory, layout, place->memory) != 0) return NULL;
  return place->memory;
}

/* Later operators read the value where the reorder for this one has put it. */
static int keep_layout(struct plan* plan, struct place* place, const void* desc, dnnl memory, void* buffer) {
  dnnl layout = NULL;
  if (dnnl_memory_desc_clone(&layout, dnnl_primitive_desc_query_md(desc, DNNL_QUERY_SOURCE, 0)) != 0) return -1;
  dnnl_memory_desc_destroy(place->desc);
  give_buffer(plan, place->buffer);
  *place = (struct place){layout, memory, buffer};
  return 0;
}

static int build_operator(struct state* state, const struct region* region, struct plan* plan,
                          const struct operator* op) {
  struct descs descs = {0};
  struct dnnl_arg args[4];
  const struct value* source = &region->values[op->source];
  void* scratch = NULL;
  int count = 0, number = (int)(op - region->operators), status = describe_all(state, region, plan, op, &descs);
  if (status == 0) {
    const void* wanted = dnnl_primitive_desc_query_md(descs.made, DNNL_QUERY_SOURCE, 0);
    args[count++] = (struct dnnl_arg){DNNL_SOURCE, as_layout(state, plan, &plan->places[op->source], wanted, &scratch)};
    if (op->weights >= 0) {
      wanted = dnnl_primitive_desc_query_md(descs.made, DNNL_QUERY_WEIGHTS, 0);
      void* data = weight_as(state, plan, region->values[op->weights].constant, descs.plain_weights, wanted);
      args[count++] = (struct dnnl_arg){DNNL_WEIGHTS, data ? add_memory(state, plan, wanted, data) : NULL};
    }
    if (op->bias >= 0) {
      void* data = (void*)region->values[op->bias].constant;
      args[count++] = (struct dnnl_arg){DNNL_BIAS, add_memory(state, plan, descs.bias, data)};
    }
    wanted = dnnl_primitive_desc_query_md(descs.made, DNNL_QUERY_TARGET, 0);
    args[count++] = (struct dnnl_arg){DNNL_TARGET, make_target(state, region, plan, op, wanted)};
    status = add_step(state, plan, descs.made, count, args);
  }
  if (status == 0 && scratch && !source->is_output && source->last_use > number) {
    status = keep_layout(plan, &plan->places[op->source], descs.made, args[0].memory, scratch);
  } else {
    give_buffer(plan, scratch);
  }
  drop_descs(&descs);
  const int used[] = {op->source, op->residual};
  for (int i = 0; i < 2; ++i) {
    if (used[i] < 0 || region->values[used[i]].last_use != number) continue;
    if (plan->places[used[i]].buffer != plan->places[op->target].buffer)
      give_buffer(plan, plan->places[used[i]].buffer);
  }
  return status;
}

/* Makes the memory of an argument, or copies a result to the argument that is its destination. */
static int build_border(struct state* state, const struct region* region, struct plan* plan, int number,
                        int is_output) {
  const struct value* value = &region->values[number];
  dnnl desc = NULL;
  if (is_output && !plan->places[number].buffer) return 0; /* it is in place */
  if (plain_desc(&desc, value->rank, plan->sizes + value->dims) != 0) return -1;
  dnnl memory = add_memory(state, plan, desc, NULL);
  int status = memory ? 0 : -1;
  if (status == 0) plan->bounds[plan->num_bounds++] = (struct bound){memory, value->argument};
  if (is_output) {
    const struct place* place = &plan->places[number];
    if (status == 0) status = add_reorder(state, plan, place->desc, place->memory, desc, memory);
    dnnl_memory_desc_destroy(desc);
  } else {
    plan->places[number] = (struct place){desc, memory, NULL};
  }
  return status;
}
