/* Products of one row by constant weights: bound by memory, so the weights are packed to be read in order, once. */

static const int64_t PANEL = 64; /* columns: four times LANES */

static void run_panel(const float* x, const float* weights, int64_t inner, lanes* sums) {
  lanes more[4] = {{0}};
  int64_t k = 0;
  for (; k + 2 <= inner; k += 2, weights += 2 * PANEL) {
    for (int64_t j = 0; j < 4; ++j) {
      lanes one, other;
      memcpy(&one, weights + j * LANES, sizeof one);
      memcpy(&other, weights + PANEL + j * LANES, sizeof other);
      sums[j] += x[k] * one;
      more[j] += x[k + 1] * other;
    }
  }
  for (int64_t j = 0; j < 4; ++j) {
    lanes last = {0};
    if (k < inner) memcpy(&last, weights + j * LANES, sizeof last);
    sums[j] += more[j] + (k < inner ? x[k] : 0) * last;
  }
}

static int run_row(const struct row* row) {
  void *x = NULL, *y = NULL;
  if (dnnl_memory_get_data_handle(row->source, &x) != 0 || dnnl_memory_get_data_handle(row->target, &y) != 0) return -1;
  for (int64_t at = 0; at < row->columns; at += PANEL) {
    lanes sums[4] = {{0}};
    int64_t count = row->columns - at < PANEL ? row->columns - at : PANEL;
    if (row->bias) memcpy(sums, row->bias + at, (size_t)count * sizeof(float));
    run_panel(x, row->weights + at * row->inner, row->inner, sums);
    memcpy((float*)y + at, sums, (size_t)count * sizeof(float));
  }
  return 0;
}

/* Weights in panels: PANEL columns of all rows, then the next ones. All plans share them. */
static const float* pack_panels(struct state* state, const float* from, int64_t inner, int64_t columns) {
  int64_t panels = (columns + PANEL - 1) / PANEL, dims[] = {panels, inner, PANEL};
  dnnl desc = NULL;
  if (plain_desc(&desc, 3, dims) != 0) return NULL;
  for (struct weight* one = state->weights; one; one = one->next) {
    if (one->from != from || !dnnl_memory_desc_equal(one->desc, desc)) continue;
    dnnl_memory_desc_destroy(desc);
    return one->data;
  }
  struct weight* made = calloc(1, sizeof *made);
  float* data = made ? aligned((size_t)(panels * inner * PANEL) * sizeof *data) : NULL;
  if (!data) {
    dnnl_memory_desc_destroy(desc);
    free(made);
    return NULL;
  }
  for (int64_t i = 0; i < panels * inner * PANEL; ++i) {
    int64_t column = i / (inner * PANEL) * PANEL + i % PANEL, k = i / PANEL % inner;
    data[i] = column < columns ? from[k * columns + column] : 0;
  }
  *made = (struct weight){state->weights, from, desc, data};
  state->weights = made;
  return data;
}

/* Computes what follows the product, in place: by a primitive each. */
static int add_after(struct build* b, const struct after* after, struct use* target) {
  const struct use* other = after->operand < 0 ? NULL : &b->uses[after->operand];
  dnnl attr = NULL, made = NULL;
  struct dnnl_arg args[] = {
      {DNNL_SOURCE, target->place.memory}, {DNNL_TARGET, target->place.memory}, {DNNL_SECOND, NULL}};
  int status = dnnl_primitive_attr_create(&attr);
  if (status == 0) status = dnnl_primitive_attr_set_scratchpad_mode(attr, 1);
  if (status == 0 && other) {
    args[2].memory = other->place.memory;
    status = dnnl_binary_primitive_desc_create(&made, b->state->engine, after->algorithm, target->desc, other->desc,
                                               target->desc, attr);
  } else if (status == 0) {
    status = dnnl_eltwise_forward_primitive_desc_create(&made, b->state->engine, DNNL_INFERENCE, after->algorithm,
                                                        target->desc, target->desc, after->alpha, after->beta, attr);
  }
  if (status == 0) status = add_step(b->state, b->plan, made, other ? 3 : 2, args);
  if (attr) dnnl_primitive_attr_destroy(attr);
  if (made) dnnl_primitive_desc_destroy(made);
  return status;
}

/* Whether an operator is a product of one row by constant weights. */
static int is_row(struct build* b) {
  const struct use *weights = use_of(b, DNNL_WEIGHTS), *bias = use_of(b, DNNL_BIAS);
  if (b->op->kind != PRODUCT || b->region->threads > 1 || weights->operand->rank != 2 || weights->is_empty) return 0;
  return use_of(b, DNNL_SOURCE)->dims[0] == 1 && b->region->values[weights->operand->value].constant &&
         (!bias || b->region->values[bias->operand->value].constant);
}

static int build_row(struct build* b) {
  struct use *source = use_of(b, DNNL_SOURCE), *target = use_of(b, DNNL_TARGET);
  const struct use *weights = use_of(b, DNNL_WEIGHTS), *bias = use_of(b, DNNL_BIAS);
  struct row* row = &b->plan->rows[b->number];
  const float* from = b->region->values[weights->operand->value].constant;
  row->inner = weights->dims[0], row->columns = weights->dims[1];
  row->weights = pack_panels(b->state, from, row->inner, row->columns);
  row->bias = bias ? b->region->values[bias->operand->value].constant : NULL;
  if (!row->weights || place_use(b, source) != 0) return -1;
  for (int i = 0; i < b->op->num_afters; ++i) {
    int operand = b->region->afters[b->op->afters + i].operand;
    if (operand >= 0 && place_use(b, &b->uses[operand]) != 0) return -1;
  }
  if (place_target(b) != 0) return -1;
  row->source = source->place.memory, row->target = target->place.memory;
  b->plan->steps[b->plan->num_steps++] = (struct step){.row = row};
  for (int i = 0; i < b->op->num_afters; ++i) {
    if (add_after(b, &b->region->afters[b->op->afters + i], target) != 0) return -1;
  }
  return 0;
}

static int build_primitive(struct build* b) {
  int status = describe_afters(b);
  if (status == 0) status = describe(b);
  return status == 0 ? place_all(b) : status;
}

static int build_operator(struct state* state, const struct region* region, struct plan* plan,
                          const struct operator* op) {
  struct build b = {.state = state, .region = region, .plan = plan, .op = op};
  int status = 0;
  b.number = (int)(op - region->operators);
  for (int i = 0; i < op->num_operands; ++i) b.uses[i].operand = &region->operands[op->operands + i];
  const struct operand* target = b.uses[op->num_operands - 1].operand;
  int skip = elements(plan->sizes + target->dims, target->rank) == 0;
  for (int i = 0; !skip && status == 0 && i < op->num_operands; ++i) status = describe_use(&b, &b.uses[i]);
  if (!skip && status == 0)
    status = op->kind == WINOGRAD ? build_tiles(&b) : is_row(&b) ? build_row(&b) : build_primitive(&b);
  for (int i = 0; i < op->num_operands; ++i) release_use(&b, &b.uses[i]);
  if (b.attr) dnnl_primitive_attr_destroy(b.attr);
  if (b.made) dnnl_primitive_desc_destroy(b.made);
  return status;
}

/* Makes the memory of an argument, or copies a result to the argument that is its destination. */
static int build_border(struct state* state, const struct region* region, struct plan* plan, int number,
                        int is_output) {
  const struct value* value = &region->values[number];
  dnnl desc = NULL;
  if (is_output && !plan->places[number].buffer) return 0; /* it is in place, or without elements */
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
