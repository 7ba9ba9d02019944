/* Outputs that regions allocate, because their sizes are known only when the region has run, or that modules keep. */

FC_COLD static int fc_refuse_late(const char* place, const char* expected, const TVMFFIAny* got) {
  struct fc_text text = {.size = 0};
  const DLTensor* tensor = fc_tensor(got);
  farcall_put(&text, "%s: expected that its function returns %s, got ", place, expected);
  if (tensor) {
    farcall_put_tensor(&text, tensor);
    if (!fc_row_major(tensor)) farcall_put(&text, " that is not row-major");
  } else {
    farcall_put_kind(&text, got);
  }
  farcall_put(&text, "; its backend must allocate the outputs in `region.allocated`");
  return farcall_raise_text("TypeError", &text);
}

#define FC_LATE_CURE "pass other arguments, or build with a larger `late_bytes`"

/* The bytes of a row-major tensor; INT64_MAX if their number does not fit. */
static int64_t fc_tensor_bytes(int32_t ndim, const int64_t* shape, DLDataType dtype) {
  int64_t count = 1;
  bool wide = false;
  for (int32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return 0;
    count = fc_mul(&wide, count, shape[i]);
  }
  const int64_t bytes = fc_size_of(&wide, count, dtype);
  return wide ? INT64_MAX : bytes;
}

/* The bytes of a value of a region: of tensors, strings, and Arrays of such; INT64_MAX if their number does not fit. */
static int64_t fc_object_bytes(const TVMFFIAny* value, int32_t depth) {
  const TVMFFISeqCell* cell = fc_items(value);
  const DLTensor* tensor = value->type_index == kTVMFFITensor ? fc_tensor(value) : NULL;
  if (tensor) return fc_tensor_bytes(tensor->ndim, tensor->shape, tensor->dtype);
  if (value->type_index == kTVMFFIStr) return (int64_t)TVMFFIBytesGetByteArrayPtr(value->v_obj)->size;
  bool wide = depth == 0;
  int64_t bytes = 0;
  for (int64_t i = 0; cell && !wide && i < cell->size; ++i) {
    const int64_t item = fc_object_bytes((const TVMFFIAny*)cell->data + i, depth - 1);
    bytes = fc_add(&wide, bytes, fc_add(&wide, item, (int64_t)sizeof(TVMFFIAny)));
  }
  return wide ? INT64_MAX : bytes;
}

enum { FC_DEEPEST = 16 }; /* levels of Arrays in an object */

/* The bytes of a value that a region made; -1: it is not what the parameter wants. */
static int64_t fc_made_bytes(const TVMFFIAny* value, const struct fc_parameter* want, int64_t* symbols) {
  const bool borrowed = value->type_index == kTVMFFIDLTensorPtr;
  if (want->kind != FC_TENSOR) {
    return !borrowed && farcall_object(value, want, symbols) ? fc_object_bytes(value, FC_DEEPEST) : -1;
  }
  const DLTensor* tensor = value->type_index == kTVMFFITensor ? fc_tensor(value) : NULL;
  if (!tensor || !fc_bind(want, tensor, symbols) || !fc_row_major(tensor)) return -1;
  return fc_tensor_bytes(tensor->ndim, tensor->shape, tensor->dtype);
}

static int fc_take_one(const char* place, const TVMFFIAny* value, const struct fc_parameter* want, int64_t* symbols,
                       int64_t* left, struct fc_late* out) {
  const int64_t bytes = fc_made_bytes(value, want, symbols);
  if (bytes < 0) return fc_refuse_late(place, want->type, value);
  if (bytes > *left) {
    struct fc_text text = {.size = 0};
    farcall_put(&text,
                "%s: it allocated %" PRId64 " bytes for its output %s; the call may take %" PRId64 " more of %" PRId64
                "; " FC_LATE_CURE,
                place, bytes, want->type, *left, farcall_late_bytes);
    return farcall_raise_text("MemoryError", &text);
  }
  *left -= bytes;
  const DLTensor* tensor = want->kind == FC_TENSOR ? fc_tensor(value) : NULL;
  *out = (struct fc_late){fc_share(value), tensor ? (char*)tensor->data + tensor->byte_offset : NULL};
  return 0;
}

int farcall_take_late(const char* place, TVMFFIAny* result, const struct fc_parameter* want, int32_t count,
                      int64_t* symbols, int64_t* left, struct fc_late* out) {
  const TVMFFIAny* items = result;
  int status = 0;
  if (count != 1) {
    const TVMFFISeqCell* cell = fc_items(result);
    if (!cell || cell->size != count) {
      status = fc_refuse_late(place, "an Array of all outputs that it allocates", result);
    } else {
      items = cell->data;
    }
  }
  for (int32_t i = 0; status == 0 && i < count; ++i) {
    status = fc_take_one(place, &items[i], &want[i], symbols, left, &out[i]);
  }
  fc_release(result);
  return status;
}

int farcall_spend(const struct fc_function* about, const char* after, int64_t bytes, int64_t* left,
                  const int64_t* symbols) {
  if (bytes <= *left) {
    *left -= bytes;
    return 0;
  }
  struct fc_text text = {.size = 0};
  farcall_put(&text, "`%s`: after %s, it needs %" PRId64 " bytes", about->name, after, bytes);
  farcall_put_symbols(&text, about, symbols);
  farcall_put(&text, "; the call may take %" PRId64 " more of %" PRId64 "; " FC_LATE_CURE, *left, farcall_late_bytes);
  return farcall_raise_text("MemoryError", &text);
}

FC_COLD static void* fc_refuse_shape(const struct farcall_late* late, const int64_t* shape, int64_t bytes) {
  struct fc_text text = {.size = 0};
  const DLTensor like = {.dtype = late->dtype, .ndim = late->ndim, .shape = (int64_t*)shape};
  farcall_put(&text, "%s: its output would be ", late->node);
  farcall_put_tensor(&text, &like);
  if (bytes < 0) {
    farcall_put(&text, "; a size cannot be negative");
    (void)farcall_raise_text("ValueError", &text);
    return NULL;
  }
  if (bytes < INT64_MAX) farcall_put(&text, ", %" PRId64 " bytes", bytes);
  farcall_put(&text, "; the call may take %" PRId64 " more of %" PRId64 "; " FC_LATE_CURE, *late->left,
              farcall_late_bytes);
  (void)farcall_raise_text("MemoryError", &text);
  return NULL;
}

void* farcall_allocate(const struct farcall_late* late, const int64_t* shape) {
  int64_t dims[2 * late->ndim + 1];
  for (int32_t i = 0; i < late->ndim; ++i) {
    if (shape[i] < 0) return fc_refuse_shape(late, shape, -1);
    dims[i] = shape[i];
  }
  const int64_t bytes = fc_tensor_bytes(late->ndim, shape, late->dtype);
  if (bytes > *late->left || bytes > PTRDIFF_MAX) return fc_refuse_shape(late, shape, bytes);
  bool bad = false; /* strides of an empty tensor may not fit: nothing reads them */
  (void)fc_strides(&bad, late->ndim, dims, dims + late->ndim);
  DLTensor like = {NULL, {kDLCPU, 0}, late->ndim, late->dtype, dims, dims + late->ndim, 0};
  const struct fc_function about = {.name = late->node};
  void* data = NULL;
  if (!farcall_output(&about, &like, (size_t)bytes, late->made, &data)) return NULL;
  *late->left -= bytes;
  return data ? data : (void*)late; /* an empty tensor may have no memory */
}

int farcall_give(TVMFFIAny* made, int32_t count, int status, TVMFFIAny* result) {
  static const struct fc_function about = {.name = "main"};
  if (status == 0 && count > 1) return farcall_results(&about, made, count, result);
  for (int32_t i = 0; status != 0 && i < count; ++i) fc_release(&made[i]);
  if (status != 0) return -1;
  *result = made[0];
  return 0;
}

FC_COLD static int fc_refuse_kept(const struct fc_step* step, const TVMFFIAny* got) {
  struct fc_text text = {.size = 0};
  farcall_put(&text, "%s: expected that its function returns %s, got ", step->code->place,
              step->num_kept == 1 ? "an object for the output that its module keeps"
                                  : "an Array with an object for each output that its module keeps");
  farcall_put_kind(&text, got);
  return farcall_raise_text("TypeError", &text);
}

int farcall_take_kept(const struct fc_step* step, TVMFFIAny* result, const struct fc_frame* f) {
  const TVMFFIAny* items = result;
  int status = 0;
  if (step->num_kept != 1) {
    const TVMFFISeqCell* cell = fc_items(result);
    items = cell && cell->size == step->num_kept ? cell->data : NULL;
  }
  if (!items) status = fc_refuse_kept(step, result);
  for (int32_t i = 0; status == 0 && i < step->num_tensors; ++i) {
    const struct fc_place* at = &step->tensors[i];
    if (!fc_is_kept(at) || fc_has_kept(at, f)) continue;
    if (items->type_index < kTVMFFIStaticObjectBegin) status = fc_refuse_kept(step, items);
    else f->late[at->data].tensor = fc_share(items++);
  }
  fc_release(result);
  return status;
}
