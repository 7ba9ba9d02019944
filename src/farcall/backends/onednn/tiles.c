/* Adds a convolution by Winograd's method to a plan: two steps of our own around a product of matrices. */

static void add_tiles(struct plan* plan, const struct tiles* tiles, int scatters) {
  plan->steps[plan->num_steps++] = (struct step){.tiles = tiles, .scatters = scatters};
}

static int add_products(struct build* b, const struct use* weights, const struct tiles* tiles, int64_t count) {
  int64_t size = weights->dims[0];
  int64_t left_dims[] = {size, count, tiles->channels}, result_dims[] = {size, count, tiles->filters};
  dnnl left = NULL, result = NULL, plain = NULL;
  int status =
      plain_desc(&left, 3, left_dims) != 0 || plain_desc(&result, 3, result_dims) != 0 ||
      plain_desc(&plain, 3, weights->dims) != 0 || dnnl_primitive_attr_create(&b->attr) != 0 ||
      dnnl_primitive_attr_set_scratchpad_mode(b->attr, 1) != 0 ||
      dnnl_matmul_primitive_desc_create(&b->made, b->state->engine, left, weights->desc, NULL, result, b->attr) != 0;
  if (status == 0) {
    const void* wanted = dnnl_primitive_desc_query_md(b->made, DNNL_QUERY_WEIGHTS, 0);
    const float* from = b->region->values[weights->operand->value].constant;
    void* data = weight_as(b->state, b->plan, from, plain, wanted);
    struct dnnl_arg args[] = {
        {DNNL_SOURCE, add_memory(b->state, b->plan, left, tiles->inputs)},
        {DNNL_WEIGHTS, data ? add_memory(b->state, b->plan, wanted, data) : NULL},
        {DNNL_TARGET, add_memory(b->state, b->plan, result, tiles->products)},
    };
    status = add_step(b->state, b->plan, b->made, 3, args);
  }
  dnnl all[] = {left, result, plain};
  for (int i = 0; i < 3; ++i) {
    if (all[i]) dnnl_memory_desc_destroy(all[i]);
  }
  return status == 0 ? 0 : -1;
}

static int build_tiles(struct build* b) {
  const struct use *weights = use_of(b, DNNL_WEIGHTS), *bias = use_of(b, DNNL_BIAS);
  struct use *source = use_of(b, DNNL_SOURCE), *target = use_of(b, DNNL_TARGET);
  const int64_t *in = source->dims, *out = target->dims, *pads = b->plan->sizes + b->op->window;
  int outputs = b->op->algorithm;
  struct tiles* t = &b->plan->tiles[b->number];
  *t = (struct tiles){.outputs = outputs, .is_relu = b->op->axis, .images = in[0], .channels = in[1]};
  t->height = in[2], t->width = in[3], t->above = pads[0], t->left = pads[1];
  t->filters = out[1], t->out_height = out[2], t->out_width = out[3];
  t->down = (out[2] + outputs - 1) / outputs, t->across = (out[3] + outputs - 1) / outputs;
  t->bias = bias ? b->region->values[bias->operand->value].constant : NULL;
  size_t count = (size_t)(t->images * t->down * t->across), each = count * (size_t)weights->dims[0] * sizeof(float);
  if (place_use(b, source) != 0) return -1;
  t->source = source->place.memory;
  t->inputs = take_buffer(b->plan, each * (size_t)t->channels);
  if (!t->inputs) return -1;
  add_tiles(b->plan, t, 0);
  t->products = take_buffer(b->plan, each * (size_t)t->filters);
  if (!t->products || add_products(b, weights, t, (int64_t)count) != 0) return -1;
  give_buffer(b->plan, t->inputs);
  if (place_target(b) != 0) return -1;
  t->target = target->place.memory;
  add_tiles(b->plan, t, 1);
  give_buffer(b->plan, t->products);
  return 0;
}
