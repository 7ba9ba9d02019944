/* Memory of an artifact's entries: copies of arguments, working memory, results: see entry.h. */

static void* fc_allocate(size_t bytes) {
  if (bytes > (size_t)PTRDIFF_MAX - FC_ALIGNMENT) return NULL;
  size_t rounded = (bytes + FC_ALIGNMENT - 1) & ~(size_t)(FC_ALIGNMENT - 1);
  return aligned_alloc(FC_ALIGNMENT, rounded ? rounded : FC_ALIGNMENT);
}

/* Copies `tensor`, which may have any strides but no dim of 0, to row-major memory. */
FC_COLD static void fc_gather(char* to, const char* from, int32_t ndim, const int64_t* shape, const int64_t* strides,
                              size_t item) {
  if (ndim == 0) {
    memcpy(to, from, item);
    return;
  }
  if (ndim == 1) {
    for (int64_t i = 0; i < shape[0]; ++i) memcpy(to + (size_t)i * item, from + i * strides[0] * (int64_t)item, item);
    return;
  }
  size_t step = item;
  for (int32_t i = 1; i < ndim; ++i) step *= (size_t)shape[i];
  for (int64_t i = 0; i < shape[0]; ++i) {
    fc_gather(to + (size_t)i * step, from + i * strides[0] * (int64_t)item, ndim - 1, shape + 1, strides + 1, item);
  }
}

void* farcall_pack(const struct fc_function* about, const DLTensor* tensor, const char* data, int64_t item) {
  if (tensor->dtype.bits < 8) { /* not misaligned, so strided */
    struct fc_text text = {.size = 0};
    farcall_put(&text, "`%s`: a strided tensor whose elements share bytes cannot be copied; pass a row-major one",
                about->name);
    (void)farcall_raise_text("ValueError", &text);
    return NULL;
  }
  int64_t bytes = item;
  bool bad = false;
  for (int32_t i = 0; i < tensor->ndim; ++i) bytes = fc_mul(&bad, bytes, tensor->shape[i]);
  void* copy = bad ? NULL : fc_allocate((size_t)bytes);
  if (!copy) {
    (void)fc_no_memory(about, "a row-major copy of an argument", bad ? SIZE_MAX : (size_t)bytes);
  } else if (tensor->strides && !fc_row_major(tensor)) {
    fc_gather(copy, data, tensor->ndim, tensor->shape, tensor->strides, (size_t)item);
  } else {
    memcpy(copy, data, (size_t)bytes); /* row-major already, but misaligned */
  }
  return copy;
}

_Atomic(struct fc_block*) farcall_blocks[FC_BLOCKS];

struct fc_block* farcall_new_block(const struct fc_function* about, struct fc_block* old, size_t size) {
  free(old);
  struct fc_block* block = size > (size_t)PTRDIFF_MAX ? NULL : fc_allocate(size + FC_ALIGNMENT);
  if (block) {
    block->size = size;
  } else {
    (void)fc_no_memory(about, "its working memory", size);
  }
  return block;
}

__attribute__((destructor)) static void fc_free_blocks(void) {
  for (int i = 0; i < FC_BLOCKS; ++i) free(atomic_exchange(&farcall_blocks[i], NULL));
}

/* A Tensor whose memory this library allocates: for a runtime without an allocator. */
struct fc_own_tensor {
  TVMFFIObject head;
  DLTensor tensor;
  int64_t dims[]; /* shape, then strides; then the elements, aligned */
};

static void fc_free_object(void* self, int flags) {
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

/* Makes a Tensor of the shape of `like`, with the elements at `data`; NULL: `bytes` of them behind the object. */
static struct fc_own_tensor* fc_make_tensor(const DLTensor* like, void* data, size_t bytes) {
  size_t ndim = (size_t)like->ndim;
  size_t head = sizeof(struct fc_own_tensor) + 2 * ndim * sizeof(int64_t);
  head = (head + FC_ALIGNMENT - 1) & ~(size_t)(FC_ALIGNMENT - 1);
  struct fc_own_tensor* made = bytes > (size_t)PTRDIFF_MAX - head ? NULL : fc_allocate(head + bytes);
  if (!made) return NULL;
  made->head = (TVMFFIObject){
      .combined_ref_count = (UINT64_C(1) << 32) | 1, .type_index = kTVMFFITensor, .deleter = fc_free_object};
  made->tensor = *like;
  made->tensor.data = data ? data : (char*)made + head;
  if (ndim) {
    memcpy(made->dims, like->shape, ndim * sizeof(int64_t));
    memcpy(made->dims + ndim, like->strides, ndim * sizeof(int64_t));
  }
  made->tensor.shape = made->dims;
  made->tensor.strides = made->dims + ndim;
  return made;
}

int farcall_new_tensor(const struct fc_function* about, const DLTensor* like, size_t bytes, TVMFFIObjectHandle* out) {
  *out = fc_make_tensor(like, NULL, bytes);
  return *out ? 0 : fc_no_memory(about, "a result", bytes);
}

int farcall_view(const DLTensor* like, TVMFFIObjectHandle* out) {
  *out = fc_make_tensor(like, like->data, 0);
  return *out ? 0 : -1;
}

/* An Array that this library implements: for a runtime other than farcall. */
struct fc_own_array {
  TVMFFIObject head;
  TVMFFISeqCell cell;
  TVMFFIAny items[];
};

FC_COLD static void fc_free_array(void* self, int flags) {
  struct fc_own_array* array = self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    for (int64_t i = 0; i < array->cell.size; ++i) fc_release(&array->items[i]);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

int farcall_results(const struct fc_function* about, TVMFFIAny* items, int64_t count, TVMFFIAny* result) {
  TVMFFIObjectHandle made = NULL;
  if (__farcall_runtime) {
    int status = __farcall_runtime->array_create(items, count, &made);
    for (int64_t i = 0; i < count; ++i) items[i] = (TVMFFIAny){.type_index = kTVMFFINone};
    if (status != 0) return -1;
  } else {
    size_t bytes = sizeof(struct fc_own_array) + (size_t)count * sizeof(TVMFFIAny);
    struct fc_own_array* array = fc_allocate(bytes);
    if (!array) return fc_no_memory(about, "the results", bytes);
    array->head = (TVMFFIObject){
        .combined_ref_count = (UINT64_C(1) << 32) | 1, .type_index = kTVMFFIArray, .deleter = fc_free_array};
    array->cell = (TVMFFISeqCell){.data = array->items, .size = count, .capacity = count};
    for (int64_t i = 0; i < count; ++i) {
      array->items[i] = items[i];
      items[i] = (TVMFFIAny){.type_index = kTVMFFINone};
    }
    made = array;
  }
  result->type_index = kTVMFFIArray;
  result->zero_padding = 0;
  result->v_obj = made;
  return 0;
}

int farcall_share(const struct fc_function* about, const TVMFFIAny* value, TVMFFIAny* result) {
  if (value->type_index != kTVMFFIDLTensorPtr) {
    *result = fc_share(value);
    return 0;
  }
  const DLTensor* from = fc_tensor(value);
  int64_t dims[2 * from->ndim + 1];
  bool bad = false;
  for (int32_t i = 0; i < from->ndim; ++i) {
    bad |= from->shape[i] < 0;
    dims[i] = from->shape[i];
  }
  const int64_t count = fc_strides(&bad, from->ndim, dims, dims + from->ndim);
  const int64_t bytes = fc_size_of(&bad, count, from->dtype);
  if (bad) return fc_no_memory(about, "a result", SIZE_MAX);
  DLTensor like = {NULL, {kDLCPU, 0}, from->ndim, from->dtype, dims, dims + from->ndim, 0};
  void *data = NULL, *source = NULL, *owned = NULL;
  if (!farcall_input(about, from, fc_item(from->dtype), &source, &owned)) return -1;
  const bool made = farcall_output(about, &like, (size_t)bytes, result, &data);
  if (made && bytes > 0) memcpy(data, source, (size_t)bytes);
  free(owned);
  return made ? 0 : -1;
}
