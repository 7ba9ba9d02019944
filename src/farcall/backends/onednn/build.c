/* The parts of plans: memories, buffers, steps, and values in the layouts that are wanted. */

static void* aligned(size_t size) { return aligned_alloc(64, (size / 64 + 1) * 64); }

static int plain_desc(dnnl* desc, int rank, const int64_t* dims) {
  int64_t strides[RANK];
  for (int64_t axis = rank - 1, step = 1; axis >= 0; step *= dims[axis--]) strides[axis] = step;
  return dnnl_memory_desc_create_with_strides(desc, rank, dims, DNNL_F32, strides);
}

/* The dims of images, with the channels last in memory. */
static int last_desc(dnnl* desc, const int64_t* dims) {
  const int64_t strides[] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
  return dnnl_memory_desc_create_with_strides(desc, 4, dims, DNNL_F32, strides);
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

static void* new_buffer(struct plan* plan, size_t size) {
  void* data = aligned(size);
  if (!data) return NULL;
  plan->buffers[plan->num_buffers] = data;
  plan->buffer_sizes[plan->num_buffers] = size;
  plan->buffer_free[plan->num_buffers++] = 0;
  return data;
}

/* A buffer of the plan that nothing uses now, the smallest that is large enough, or a new one. */
static void* take_buffer(struct plan* plan, size_t size) {
  int best = -1;
  for (int i = 0; i < plan->num_buffers; ++i) {
    if (!plan->buffer_free[i] || plan->buffer_sizes[i] < size) continue;
    if (best < 0 || plan->buffer_sizes[i] < plan->buffer_sizes[best]) best = i;
  }
  if (best < 0) return new_buffer(plan, size);
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

/* Puts a value into the layout `wanted`, by a reorder if it has another one. The buffer is a new one then. */
static int into_layout(struct state* state, struct plan* plan, struct place* place, const void* wanted) {
  if (dnnl_memory_desc_equal(place->desc, wanted)) return 0;
  void* buffer = take_buffer(plan, dnnl_memory_desc_get_size(wanted));
  dnnl desc = NULL, memory = buffer ? add_memory(state, plan, wanted, buffer) : NULL;
  if (!memory || add_reorder(state, plan, place->desc, place->memory, wanted, memory) != 0) return -1;
  if (dnnl_memory_desc_clone(&desc, wanted) != 0) return -1;
  dnnl_memory_desc_destroy(place->desc);
  *place = (struct place){desc, memory, buffer};
  return 0;
}

/* The elements of a row-major value, described otherwise. */
static int view(struct state* state, struct plan* plan, const struct value* value, struct place* place,
                const void* wanted) {
  dnnl desc = NULL, memory = add_memory(state, plan, wanted, place->buffer);
  if (!memory || dnnl_memory_desc_clone(&desc, wanted) != 0) return -1;
  if (!place->buffer) plan->bounds[plan->num_bounds++] = (struct bound){memory, value->argument};
  dnnl_memory_desc_destroy(place->desc);
  *place = (struct place){desc, memory, place->buffer};
  return 0;
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
