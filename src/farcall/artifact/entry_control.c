/* If, Loop and Scan. What a step of a loop carries to the next one is a Tensor that moves: nothing is copied. */

/* ---------------------------------------------------------------------------------------------- errors ---- */

/* Raises "PLACE: PROBLEM", with up to two tensors: what is expected, and what there is. */
FC_COLD static int fc_refuse_control(const struct fc_control* c, const char* kind, const char* problem,
                                     const DLTensor* expected, const DLTensor* got) {
  struct fc_text text = {.size = 0};
  farcall_put(&text, "%s: %s", c->place, problem);
  if (expected) {
    farcall_put(&text, "; expected ");
    farcall_put_tensor(&text, expected);
  }
  if (got) {
    farcall_put(&text, ", got ");
    farcall_put_tensor(&text, got);
  }
  return farcall_raise_text(kind, &text);
}

int farcall_fail(const char* message) {
  struct fc_text text = {.size = 0};
  farcall_put(&text, "%s", message);
  return farcall_raise_text("ValueError", &text);
}

FC_COLD static int fc_refuse_bytes(const struct fc_control* c, const char* output, int64_t count, int64_t bytes,
                                   int64_t left) {
  struct fc_text text = {.size = 0};
  farcall_put(&text,
              "%s: its output `%s` would be larger than the call's limit: %" PRId64 " steps of %" PRId64
              " bytes, and %" PRId64 " bytes are left; run fewer steps",
              c->place, output, count, bytes, left);
  return farcall_raise_text("MemoryError", &text);
}

/* --------------------------------------------------------------------------------------------- tensors ---- */

static const DLTensor* fc_operand(const struct fc_control* c, const TVMFFIAny* args, int32_t from) {
  if (from == FC_ABSENT) return NULL;
  return from < 0 ? &c->constants[~from] : fc_tensor(&args[from]);
}

static TVMFFIAny fc_view(const DLTensor* tensor) {
  return (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = (void*)tensor};
}

static char* fc_data(const DLTensor* tensor) { return (char*)tensor->data + tensor->byte_offset; }

static int64_t fc_elements(int32_t ndim, const int64_t* shape) {
  int64_t count = 1;
  for (int32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return 0; /* the product of the others may not fit */
  }
  for (int32_t i = 0; i < ndim; ++i) count *= shape[i];
  return count;
}

/* The bytes of a tensor that exists. */
static int64_t fc_bytes(const DLTensor* tensor) {
  return fc_elements(tensor->ndim, tensor->shape) * (tensor->dtype.bits / 8);
}

static bool fc_same_shape(const DLTensor* a, const DLTensor* b) {
  return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)) == 0);
}

static void fc_copy_bytes(char* to, const char* from, int64_t bytes) {
  if (bytes > 0) memcpy(to, from, (size_t)bytes);
}

/* Makes a Tensor of a shape, and returns its elements. NULL: raised. */
static char* fc_make(const struct fc_control* c, const struct fc_parameter* like, const int64_t* shape, int64_t left,
                     TVMFFIAny* out) {
  const struct farcall_late late = {c->place, out, &left, like->dtype, like->ndim};
  return farcall_allocate(&late, shape);
}

/* The elements of an operand that must be one. */
static const void* fc_only(const struct fc_control* c, const DLTensor* tensor, const char* what) {
  if (fc_elements(tensor->ndim, tensor->shape) == 1) return fc_data(tensor);
  struct fc_text text = {.size = 0};
  farcall_put(&text, "%s: expected one element as its %s, got ", c->place, what);
  farcall_put_tensor(&text, tensor);
  (void)farcall_raise_text("ValueError", &text);
  return NULL;
}

/* ---------------------------------------------------------------------------------------------- bodies ---- */

/* Calls a body. `made` gets its outputs, which the caller owns. */
static int fc_call_body(const struct fc_control* c, const struct fc_body* body, const TVMFFIAny* args,
                        const TVMFFIAny* given, int32_t num_given, int64_t left, TVMFFIAny* made) {
  TVMFFIAny all[num_given + body->num_captured + body->num_sizes + 1], result = {.type_index = kTVMFFINone};
  int32_t n = num_given;
  for (int32_t i = 0; i < num_given; ++i) all[i] = given[i];
  for (int32_t i = 0; i < body->num_captured; ++i) all[n++] = fc_view(fc_operand(c, args, body->captured[i]));
  for (int32_t i = 0; i < body->num_sizes; ++i) all[n++] = args[body->sizes[i]];
  if (body->function(&left, all, n, &result) != 0) return -1;
  if (body->num_outputs == 1) {
    made[0] = result;
    return 0;
  }
  const TVMFFIAny* items = TVMFFISeqGetCellPtr(result.v_obj)->data;
  for (int32_t i = 0; i < body->num_outputs; ++i) made[i] = fc_share(&items[i]);
  fc_release(&result);
  return 0;
}

/* ------------------------------------------------------------------------------------------- results ---- */

/* Where the outputs of a node go. */
struct fc_targets {
  const DLTensor* const* into; /* memory of the caller, or NULL */
  TVMFFIAny* late;             /* or results: c->places has the index */
};

static bool fc_is_result(const struct fc_control* c, int32_t j) { return c->places[j] < 0; }

/* Gives an output, which moves or is copied. */
static int fc_deliver(const struct fc_control* c, struct fc_targets to, int32_t j, TVMFFIAny* value, int64_t left) {
  const DLTensor* from = fc_tensor(value);
  if (to.into[j]) {
    if (!fc_same_shape(from, to.into[j])) {
      struct fc_text text = {.size = 0};
      farcall_put(&text, "its output `%s` has another shape than the model says", c->outputs[j].name);
      return fc_refuse_control(c, "ValueError", text.data, to.into[j], from);
    }
    fc_copy_bytes(fc_data(to.into[j]), fc_data(from), fc_bytes(from));
  } else if (fc_is_result(c, j) && from->ndim != c->outputs[j].ndim) {
    struct fc_text text = {.size = 0};
    farcall_put(&text, "its output `%s` has another number of dims than the model says; expected %d",
                c->outputs[j].name, (int)c->outputs[j].ndim);
    return fc_refuse_control(c, "ValueError", text.data, NULL, from);
  } else if (fc_is_result(c, j) && value->type_index == kTVMFFITensor) {
    to.late[~c->places[j]] = *value;
    *value = (TVMFFIAny){.type_index = kTVMFFINone};
  } else if (fc_is_result(c, j)) {
    char* data = fc_make(c, &c->outputs[j], from->shape, left, &to.late[~c->places[j]]);
    if (!data) return -1;
    fc_copy_bytes(data, fc_data(from), fc_bytes(from));
  }
  fc_release(value);
  return 0;
}

static int fc_finish(const struct fc_control* c, int status, TVMFFIAny* late, TVMFFIAny* result) {
  const struct fc_function about = {.name = c->place};
  if (status == 0 && c->num_late > 1) return farcall_results(&about, late, c->num_late, result);
  if (status == 0 && c->num_late == 1) {
    *result = late[0];
    return 0;
  }
  for (int32_t k = 0; k < c->num_late; ++k) fc_release(&late[k]);
  return status;
}

static void fc_find_targets(const struct fc_control* c, const TVMFFIAny* args, const DLTensor** into, TVMFFIAny* late) {
  for (int32_t k = 0; k < c->num_late; ++k) late[k] = (TVMFFIAny){.type_index = kTVMFFINone};
  for (int32_t j = 0; j < c->num_outputs; ++j) {
    const int32_t at = c->places[j];
    into[j] = at == FC_ABSENT || at < 0 ? NULL : fc_tensor(&args[at]);
  }
}

/* -------------------------------------------------------------------------------------------------- If ---- */

int farcall_if(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes, int64_t left,
               TVMFFIAny* result) {
  (void)shapes;
  const DLTensor* into[c->num_outputs + 1];
  TVMFFIAny late[c->num_late + 1], made[c->num_outputs + 1];
  const bool* condition = fc_only(c, fc_operand(c, args, c->operands[0]), "condition");
  if (!condition) return -1;
  fc_find_targets(c, args, into, late);
  int status = fc_call_body(c, &c->bodies[*condition ? 0 : 1], args, NULL, 0, left, made);
  if (status != 0) return -1;
  for (int32_t j = 0; status == 0 && j < c->num_outputs; ++j) {
    status = fc_deliver(c, (struct fc_targets){into, late}, j, &made[j], left);
  }
  for (int32_t j = 0; j < c->num_outputs; ++j) fc_release(&made[j]);
  return fc_finish(c, status, late, result);
}

/* --------------------------------------------------------------------------------------------- stacks ---- */

/* What all steps make for one output, along a new axis. */
struct fc_stack {
  const struct fc_control* c;
  const struct fc_parameter* like;
  int32_t axis;
  bool reversed, wanted;
  int64_t total;  /* steps; -1 if they are not known before */
  int64_t count;  /* of steps so far */
  int64_t bytes;  /* of one item; -1: not known yet */
  int64_t* shape; /* of the whole; without steps, what is known of it */
  char* data;     /* the whole, if the number of steps is known */
  TVMFFIAny made; /* its Tensor, if it is a result */
  char* grown;
  int64_t capacity;
};

static bool fc_fits_stack(const struct fc_stack* s, const DLTensor* item) {
  for (int32_t i = 0; i < item->ndim; ++i) {
    if (s->shape[i + (i >= s->axis)] != item->shape[i]) return false;
  }
  return true;
}

FC_COLD static int fc_refuse_item(const struct fc_stack* s, const DLTensor* item) {
  int64_t shape[item->ndim + 1];
  for (int32_t i = 0; i < item->ndim; ++i) shape[i] = s->shape[i + (i >= s->axis)];
  const DLTensor expected = {.dtype = item->dtype, .ndim = item->ndim, .shape = shape};
  struct fc_text text = {.size = 0};
  farcall_put(&text, "step %" PRId64 " makes another shape for its output `%s`", s->count, s->like->name);
  return fc_refuse_control(s->c, "ValueError", text.data, &expected, item);
}

/* The first item tells the shape. */
static int fc_begin_stack(struct fc_stack* s, const DLTensor* item, int64_t left) {
  s->bytes = fc_bytes(item);
  if (s->data) return fc_fits_stack(s, item) ? 0 : fc_refuse_item(s, item);
  for (int32_t i = 0; i < item->ndim; ++i) s->shape[i + (i >= s->axis)] = item->shape[i];
  if (s->total < 0) return 0;
  s->shape[s->axis] = s->total;
  s->data = fc_make(s->c, s->like, s->shape, left, &s->made);
  return s->data ? 0 : -1;
}

static int fc_grow_stack(struct fc_stack* s, int64_t left) {
  bool bad = false;
  const int64_t need = fc_mul(&bad, s->count + 1, s->bytes);
  if (bad || need > left) return fc_refuse_bytes(s->c, s->like->name, s->count + 1, s->bytes, left);
  if (need <= s->capacity) return 0;
  const int64_t wanted = fc_max(need, fc_min(left, 2 * need));
  char* grown = realloc(s->grown, (size_t)wanted);
  if (!grown) return fc_refuse_bytes(s->c, s->like->name, s->count + 1, s->bytes, left);
  s->grown = grown;
  s->capacity = wanted;
  return 0;
}

static int fc_push(struct fc_stack* s, const DLTensor* item, int64_t left) {
  if (!s->wanted) return 0;
  if (item->ndim + 1 + s->c->batched != s->like->ndim) return fc_refuse_item(s, item);
  if (s->bytes < 0) {
    if (fc_begin_stack(s, item, left) != 0) return -1;
  } else if (!fc_fits_stack(s, item)) {
    return fc_refuse_item(s, item);
  }
  if (s->total < 0) {
    if (fc_grow_stack(s, left) != 0) return -1;
    fc_copy_bytes(s->grown + s->count * s->bytes, fc_data(item), s->bytes);
  } else if (s->count >= s->total) {
    return fc_refuse_control(s->c, "ValueError", "it runs more steps than the model says", NULL, NULL);
  } else if (s->bytes > 0) {
    const int64_t outer = fc_elements(s->axis, item->shape), inner = s->bytes / outer;
    const int64_t at = s->reversed ? s->total - 1 - s->count : s->count;
    for (int64_t k = 0; k < outer; ++k) {
      memcpy(s->data + (k * s->total + at) * inner, fc_data(item) + k * inner, (size_t)inner);
    }
  }
  ++s->count;
  return 0;
}

/* `into`: the caller's memory, or NULL. `shape`: scratch of the output's rank, with the dims that are known. */
static struct fc_stack fc_stack_of(const struct fc_control* c, int32_t j, const DLTensor* into, int64_t total,
                                   int64_t* shape) {
  const int32_t k = j - c->num_states, inputs = c->num_operands - c->batched - c->num_states;
  struct fc_stack s = {.c = c, .like = &c->outputs[j], .total = total, .bytes = -1, .shape = shape};
  s.wanted = c->places[j] != FC_ABSENT;
  s.axis = c->axes ? c->axes[inputs + k] : 0;
  s.reversed = c->reversed && c->reversed[inputs + k];
  s.made.type_index = kTVMFFINone;
  if (into) {
    fc_copy_bytes((char*)shape, (const char*)into->shape, into->ndim * (int64_t)sizeof *shape);
    s.data = fc_data(into);
    s.total = into->shape[s.axis];
  }
  return s;
}

/* Gives the whole. Without steps, the dims of an item that nothing tells are 0. */
static int fc_end_stack(struct fc_stack* s, struct fc_targets to, int32_t j, bool all, int64_t left) {
  if (!s->wanted) return 0;
  if (all && s->total >= 0 && s->count != s->total && s->data) {
    struct fc_text text = {.size = 0};
    farcall_put(&text, "it ran %" PRId64 " steps; expected %" PRId64 ", as the shape of its output `%s` says", s->count,
                s->total, s->like->name);
    return fc_refuse_control(s->c, "ValueError", text.data, NULL, NULL);
  }
  if (to.into[j]) return 0;
  TVMFFIAny* result = &to.late[~s->c->places[j]];
  if (s->made.type_index != kTVMFFINone) {
    *result = s->made;
    s->made.type_index = kTVMFFINone;
    return 0;
  }
  s->shape[s->axis] = s->count;
  char* data = fc_make(s->c, s->like, s->shape, left, result);
  if (!data) return -1;
  fc_copy_bytes(data, s->grown, s->grown ? s->count * s->bytes : 0);
  return 0;
}

static void fc_free_stack(struct fc_stack* s) {
  fc_release(&s->made);
  free(s->grown);
}

/* --------------------------------------------------------------------------------------------- steps ---- */

/* What a loop holds between its steps. */
struct fc_steps {
  TVMFFIAny* states;
  struct fc_stack* stacks;
  int32_t num_stacks;
};

/* The bytes that the next step may allocate. */
static int64_t fc_left(const struct fc_control* c, const struct fc_steps* at, int64_t left) {
  for (int32_t i = 0; i < c->num_states; ++i) {
    if (at->states[i].type_index == kTVMFFITensor) left -= fc_bytes(fc_tensor(&at->states[i]));
  }
  for (int32_t k = 0; k < at->num_stacks; ++k) left -= at->stacks[k].capacity;
  return fc_max(left, 0);
}

/* Takes what a step made: states, then items of stacks. Owns all of it. */
static int fc_take_step(const struct fc_control* c, struct fc_steps* at, TVMFFIAny* made, int64_t left) {
  int status = 0;
  for (int32_t i = 0; i < c->num_states; ++i) {
    fc_release(&at->states[i]);
    at->states[i] = made[i];
  }
  for (int32_t k = 0; k < at->num_stacks; ++k) {
    TVMFFIAny* item = &made[c->num_states + k];
    const int64_t more = fc_left(c, at, left) + at->stacks[k].capacity;
    if (status == 0) status = fc_push(&at->stacks[k], fc_tensor(item), more);
    fc_release(item);
  }
  return status;
}

/* Gives the outputs of a loop whose steps have run. `all`: a stack must hold as many steps as its shape says. */
static int fc_end_steps(const struct fc_control* c, struct fc_steps* at, struct fc_targets to, int status, bool all,
                        int64_t left) {
  for (int32_t i = 0; status == 0 && i < c->num_states; ++i) status = fc_deliver(c, to, i, &at->states[i], left);
  for (int32_t k = 0; status == 0 && k < at->num_stacks; ++k) {
    status = fc_end_stack(&at->stacks[k], to, c->num_states + k, all, left);
  }
  for (int32_t i = 0; i < c->num_states; ++i) fc_release(&at->states[i]);
  for (int32_t k = 0; k < at->num_stacks; ++k) fc_free_stack(&at->stacks[k]);
  return status;
}

static int32_t fc_words_of(const struct fc_control* c) {
  int32_t words = 1;
  for (int32_t j = 0; j < c->num_outputs; ++j) words += c->outputs[j].ndim;
  return words;
}

static void fc_begin_stacks(const struct fc_control* c, const DLTensor* const* into, int64_t total, int64_t* shape,
                            struct fc_steps* at) {
  for (int32_t j = 0; j < c->num_outputs; ++j) {
    if (j >= c->num_states) at->stacks[j - c->num_states] = fc_stack_of(c, j, into[j], total, shape);
    shape += c->outputs[j].ndim;
  }
}

/* ------------------------------------------------------------------------------------------------ Loop ---- */

static int fc_loop_steps(const struct fc_control* c, const TVMFFIAny* args, int64_t trips, bool goes_on,
                         struct fc_steps* at, int64_t left) {
  static int64_t one[2] = {1, 1};
  const struct fc_body* body = c->bodies;
  int64_t step = 0;
  const DLTensor counter = {&step, {kDLCPU, 0}, c->counter_ndim, {kDLInt, 64, 1}, one, one, 0};
  const DLTensor condition = {&goes_on, {kDLCPU, 0}, c->condition_ndim, {kDLBool, 8, 1}, one, one, 0};
  const int32_t given = 2 + c->num_states;
  TVMFFIAny take[given + 1], made[body->num_outputs + 1];
  take[0] = fc_view(&counter);
  take[1] = fc_view(&condition);
  for (; step < trips && goes_on; ++step) {
    for (int32_t i = 0; i < c->num_states; ++i) take[2 + i] = at->states[i];
    if (fc_call_body(c, body, args, take, given, fc_left(c, at, left), made) != 0) return -1;
    const bool* next = fc_only(c, fc_tensor(&made[0]), "condition");
    const bool stays = next && *next;
    fc_release(&made[0]);
    if (fc_take_step(c, at, made + 1, left) != 0 || !next) return -1;
    goes_on = stays;
  }
  return 0;
}

int farcall_loop(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes, int64_t left,
                 TVMFFIAny* result) {
  const int32_t num_stacks = c->num_outputs - c->num_states;
  const DLTensor *into[c->num_outputs + 1], *given = NULL;
  TVMFFIAny late[c->num_late + 1], states[c->num_states + 1];
  struct fc_stack stacks[num_stacks + 1];
  int64_t shape[fc_words_of(c)], trips = INT64_MAX;
  bool goes_on = true;
  const void* item = NULL;
  if ((given = fc_operand(c, args, c->operands[0]))) {
    if (!(item = fc_only(c, given, "trip count"))) return -1;
    memcpy(&trips, item, sizeof trips);
  }
  if ((given = fc_operand(c, args, c->operands[1]))) {
    if (!(item = fc_only(c, given, "condition"))) return -1;
    goes_on = *(const bool*)item;
  }
  fc_find_targets(c, args, into, late);
  fc_copy_bytes((char*)shape, (const char*)shapes, (fc_words_of(c) - 1) * (int64_t)sizeof *shape);
  struct fc_steps at = {states, stacks, num_stacks};
  for (int32_t i = 0; i < c->num_states; ++i) states[i] = fc_view(fc_operand(c, args, c->operands[2 + i]));
  fc_begin_stacks(c, into, -1, shape, &at);
  int status = fc_loop_steps(c, args, trips, goes_on, &at, left);
  status = fc_end_steps(c, &at, (struct fc_targets){into, late}, status, true, left);
  return fc_finish(c, status, late, result);
}

/* ------------------------------------------------------------------------------------------------ Scan ---- */

/* A tensor without one of its axes, at an index. `dims` is scratch of twice its rank. */
static DLTensor fc_slice(const DLTensor* from, int32_t axis, int64_t index, int64_t* dims) {
  const int32_t ndim = from->ndim - 1;
  int64_t stride = from->dtype.bits / 8, step = 0;
  for (int32_t i = from->ndim - 1; i >= 0; --i) {
    const int64_t own = from->strides ? from->strides[i] * (from->dtype.bits / 8) : stride;
    if (i == axis) step = own;
    if (i != axis) {
      dims[i - (i > axis)] = from->shape[i];
      dims[ndim + i - (i > axis)] = own / (from->dtype.bits / 8);
    }
    stride *= from->shape[i];
  }
  return (DLTensor){fc_data(from) + index * step, from->device, ndim, from->dtype, dims, dims + ndim, 0};
}

struct fc_scan {
  const DLTensor* operands; /* states, then scanned tensors */
  int32_t num_operands;
  int64_t length, steps; /* of the scanned axis, and those that run */
};

static int fc_scan_steps(const struct fc_control* c, const TVMFFIAny* args, const struct fc_scan* scan,
                         struct fc_steps* at, int64_t left) {
  const struct fc_body* body = c->bodies;
  const int32_t n = scan->num_operands, states = c->num_states;
  DLTensor slices[n + 1];
  TVMFFIAny take[n + 1], made[body->num_outputs + 1];
  int32_t words = 1;
  for (int32_t i = states; i < n; ++i) words += 2 * scan->operands[i].ndim;
  int64_t room[words];
  for (int64_t step = 0; step < scan->steps; ++step) {
    int64_t* dims = room;
    for (int32_t i = 0; i < states; ++i) take[i] = at->states[i];
    for (int32_t i = states; i < n; ++i) {
      const int32_t k = i - states;
      const int64_t index = c->reversed[k] ? scan->steps - 1 - step : step;
      slices[i] = fc_slice(&scan->operands[i], c->axes[k], index, dims);
      dims += 2 * slices[i].ndim;
      take[i] = fc_view(&slices[i]);
    }
    if (fc_call_body(c, body, args, take, n, fc_left(c, at, left), made) != 0) return -1;
    if (fc_take_step(c, at, made, left) != 0) return -1;
  }
  return 0;
}

static int fc_scan_length(const struct fc_control* c, const DLTensor* operands, int32_t n, int64_t* length) {
  *length = operands[c->num_states].shape[c->axes[0]];
  for (int32_t i = c->num_states; i < n; ++i) {
    if (operands[i].shape[c->axes[i - c->num_states]] != *length) {
      return fc_refuse_control(c, "ValueError", "the tensors that it scans have different lengths",
                               &operands[c->num_states], &operands[i]);
    }
  }
  return 0;
}

static int fc_scan_once(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes,
                        const struct fc_scan* scan, struct fc_targets to, int64_t left) {
  const int32_t num_stacks = c->num_outputs - c->num_states;
  TVMFFIAny states[c->num_states + 1];
  struct fc_stack stacks[num_stacks + 1];
  int64_t shape[fc_words_of(c)];
  fc_copy_bytes((char*)shape, (const char*)shapes, (fc_words_of(c) - 1) * (int64_t)sizeof *shape);
  struct fc_steps at = {states, stacks, num_stacks};
  for (int32_t i = 0; i < c->num_states; ++i) states[i] = fc_view(&scan->operands[i]);
  fc_begin_stacks(c, to.into, scan->length, shape, &at);
  const int status = fc_scan_steps(c, args, scan, &at, left);
  return fc_end_steps(c, &at, to, status, scan->steps == scan->length, left);
}

/* One sequence of each batch after the other. `outputs` of such a Scan have no batch axis here. */
static int fc_scan_batches(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes,
                           const DLTensor* operands, int32_t n, const DLTensor* const* into, int64_t left) {
  const DLTensor* lengths = fc_operand(c, args, c->operands[0]);
  const int64_t batches = operands[0].shape[0];
  DLTensor inner[n + 1], outer[c->num_outputs + 1];
  const DLTensor* to[c->num_outputs + 1];
  int32_t words = 1;
  for (int32_t i = 0; i < n; ++i) {
    words += 2 * operands[i].ndim;
    if (operands[i].shape[0] != batches) {
      return fc_refuse_control(c, "ValueError", "its inputs have different batches", &operands[0], &operands[i]);
    }
  }
  for (int32_t j = 0; j < c->num_outputs; ++j) words += into[j] ? 2 * into[j]->ndim : 0;
  if (lengths && fc_elements(lengths->ndim, lengths->shape) != batches) {
    return fc_refuse_control(c, "ValueError", "expected a length for each sequence of the batch", &operands[0],
                             lengths);
  }
  int64_t room[words];
  for (int64_t b = 0; b < batches; ++b) {
    int64_t* dims = room;
    for (int32_t i = 0; i < n; ++i, dims += 2 * inner[i - 1].ndim) inner[i] = fc_slice(&operands[i], 0, b, dims);
    for (int32_t j = 0; j < c->num_outputs; ++j) {
      to[j] = NULL;
      if (!into[j]) continue;
      outer[j] = fc_slice(into[j], 0, b, dims);
      dims += 2 * outer[j].ndim;
      to[j] = &outer[j];
    }
    struct fc_scan scan = {inner, n, 0, 0};
    if (fc_scan_length(c, inner, n, &scan.length) != 0) return -1;
    scan.steps = scan.length;
    if (lengths) memcpy(&scan.steps, fc_data(lengths) + b * 8, sizeof scan.steps);
    if (scan.steps < 0 || scan.steps > scan.length) {
      struct fc_text text = {.size = 0};
      farcall_put(&text, "sequence %" PRId64 " has the length %" PRId64 "; expected 0 to %" PRId64, b, scan.steps,
                  scan.length);
      return fc_refuse_control(c, "ValueError", text.data, NULL, NULL);
    }
    for (int32_t j = c->num_states; scan.steps < scan.length && j < c->num_outputs; ++j) {
      if (to[j] && fc_bytes(to[j]) > 0) memset(fc_data(to[j]), 0, (size_t)fc_bytes(to[j]));
    }
    if (fc_scan_once(c, args, shapes, &scan, (struct fc_targets){to, NULL}, left) != 0) return -1;
  }
  return 0;
}

int farcall_scan(const struct fc_control* c, const TVMFFIAny* args, const int64_t* shapes, int64_t left,
                 TVMFFIAny* result) {
  const int32_t n = c->num_operands - c->batched;
  const DLTensor* into[c->num_outputs + 1];
  DLTensor operands[n + 1];
  TVMFFIAny late[c->num_late + 1];
  struct fc_scan scan = {operands, n, 0, 0};
  for (int32_t i = 0; i < n; ++i) operands[i] = *fc_operand(c, args, c->operands[c->batched + i]);
  fc_find_targets(c, args, into, late);
  if (c->batched) return fc_scan_batches(c, args, shapes, operands, n, into, left);
  if (fc_scan_length(c, operands, n, &scan.length) != 0) return -1;
  scan.steps = scan.length;
  const int status = fc_scan_once(c, args, shapes, &scan, (struct fc_targets){into, late}, left);
  return fc_finish(c, status, late, result);
}
