/* Plans for calls, and what a region keeps between them. */

static void drop_plan(const struct region* region, struct plan* plan) {
  for (int i = 0; i < plan->num_steps; ++i) {
    if (plan->steps[i].primitive) dnnl_primitive_destroy(plan->steps[i].primitive);
  }
  for (int i = 0; i < plan->num_memories; ++i) dnnl_memory_destroy(plan->memories[i]);
  for (int i = 0; i < plan->num_buffers; ++i) free(plan->buffers[i]);
  for (int i = 0; plan->places && i < region->num_values; ++i) {
    if (plan->places[i].desc) dnnl_memory_desc_destroy(plan->places[i].desc);
  }
  if (plan->stream) dnnl_stream_destroy(plan->stream);
  void* all[] = {plan->sizes,    plan->steps,   plan->bounds,       plan->places,      plan->tiles, plan->rows,
                 plan->memories, plan->buffers, plan->buffer_sizes, plan->buffer_free, plan};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
}

static int fill_plan(struct state* state, const struct region* region, struct plan* plan, const int64_t* sizes) {
  size_t most = (size_t)region->num_operands * 4 + (size_t)region->num_operators * 4 + (size_t)region->num_values * 2;
  plan->sizes = calloc((size_t)region->num_sizes + 1, sizeof *plan->sizes);
  plan->steps = calloc(most, sizeof *plan->steps);
  plan->bounds = calloc(most, sizeof *plan->bounds);
  plan->places = calloc((size_t)region->num_values, sizeof *plan->places);
  plan->rows = calloc((size_t)region->num_operators, sizeof *plan->rows);
  plan->tiles = calloc((size_t)region->num_operators, sizeof *plan->tiles);
  plan->memories = calloc(most * 2, sizeof *plan->memories);
  plan->buffers = calloc(most, sizeof *plan->buffers);
  plan->buffer_sizes = calloc(most, sizeof *plan->buffer_sizes);
  plan->buffer_free = calloc(most, 1);
  if (!plan->sizes || !plan->steps || !plan->bounds || !plan->places || !plan->tiles || !plan->rows ||
      !plan->memories || !plan->buffers || !plan->buffer_sizes || !plan->buffer_free) {
    return -1;
  }
  memcpy(plan->sizes, sizes, (size_t)region->num_sizes * sizeof *sizes);
  if (dnnl_stream_create(&plan->stream, state->engine, 1) != 0) return -1;
  for (int i = 0; i < region->num_values; ++i) {
    const struct value* value = &region->values[i];
    if (value->argument >= 0 && !value->is_output && build_border(state, region, plan, i, 0) != 0) return -1;
  }
  for (int i = 0; i < region->num_operators; ++i) {
    if (build_operator(state, region, plan, &region->operators[i]) != 0) return -1;
  }
  for (int i = 0; i < region->num_values; ++i) {
    if (region->values[i].is_output && build_border(state, region, plan, i, 1) != 0) return -1;
  }
  return 0;
}

static struct plan* make_plan(struct state* state, const struct region* region, const int64_t* sizes) {
  struct plan* plan = calloc(1, sizeof *plan);
  if (!plan) return NULL;
  if (fill_plan(state, region, plan, sizes) == 0) return plan;
  drop_plan(region, plan);
  return NULL;
}

static struct plan* take_plan(struct state* state, const struct region* region, const int64_t* sizes) {
  pthread_mutex_lock(&state->lock);
  struct plan** at = &state->idle;
  while (*at && memcmp((*at)->sizes, sizes, (size_t)region->num_sizes * sizeof *sizes) != 0) at = &(*at)->next;
  struct plan* plan = *at;
  if (plan) {
    *at = plan->next;
  } else {
    plan = make_plan(state, region, sizes);
  }
  pthread_mutex_unlock(&state->lock);
  return plan;
}

/* Puts a plan first, and drops the one that was not used for the longest time if there are many. */
static void give_plan(struct state* state, const struct region* region, struct plan* plan) {
  enum { MOST = 32 };
  pthread_mutex_lock(&state->lock);
  plan->next = state->idle;
  state->idle = plan;
  int count = 0;
  struct plan** at = &state->idle;
  while (*at && count++ < MOST) at = &(*at)->next;
  struct plan* old = *at;
  *at = NULL;
  pthread_mutex_unlock(&state->lock);
  while (old) {
    struct plan* next = old->next;
    drop_plan(region, old);
    old = next;
  }
}

static int run_plan(struct plan* plan, void* const* arguments) {
  for (int i = 0; i < plan->num_bounds; ++i) {
    if (dnnl_memory_set_data_handle(plan->bounds[i].memory, arguments[plan->bounds[i].argument]) != 0) return -1;
  }
  for (int i = 0; i < plan->num_steps; ++i) {
    const struct step* step = &plan->steps[i];
    if (step->tiles) {
      if (run_tiles(step->tiles, step->scatters) != 0) return -1;
      continue;
    }
    if (step->row) {
      if (run_row(step->row) != 0) return -1;
      continue;
    }
    if (dnnl_primitive_execute(step->primitive, plan->stream, step->count, step->args) != 0) return -1;
  }
  return dnnl_stream_wait(plan->stream);
}

/* Threads are a setting of the calling thread. Returns what it was. */
static int set_threads(int count) {
  int before = omp_get_max_threads();
  if (before != count) omp_set_num_threads(count);
  return before;
}

static int run_region(struct state* state, const struct region* region, const int64_t* sizes, void* const* arguments) {
  int before = set_threads(region->threads);
  struct plan* plan = take_plan(state, region, sizes);
  int status = plan ? run_plan(plan, arguments) : -1;
  if (plan) give_plan(state, region, plan);
  set_threads(before);
  return status;
}

/* Makes the first plan for sizes that are known before any call. */
static inline int prepare(struct state* state, const struct region* region, const int64_t* sizes) {
  int before = set_threads(region->threads);
  struct plan* plan = take_plan(state, region, sizes);
  if (plan) give_plan(state, region, plan);
  set_threads(before);
  return plan ? 0 : -1;
}

static struct state* make_state(void) {
  struct state* state = calloc(1, sizeof *state);
  if (!state) return NULL;
  if (dnnl_engine_create(&state->engine, DNNL_CPU, 0) != 0) {
    free(state);
    return NULL;
  }
  pthread_mutex_init(&state->lock, NULL);
  return state;
}

static void drop_state(struct state* state, const struct region* region) {
  for (struct plan *plan = state->idle, *next; plan; plan = next) {
    next = plan->next;
    drop_plan(region, plan);
  }
  for (struct weight *one = state->weights, *next; one; one = next) {
    next = one->next;
    dnnl_memory_desc_destroy(one->desc);
    free(one->data);
    free(one);
  }
  dnnl_engine_destroy(state->engine);
  pthread_mutex_destroy(&state->lock);
  free(state);
}
