/* ---------------------------------------------------------------------------------------------- memory ---- */

static void* fc_allocate(size_t bytes) {
  if (bytes > (size_t)PTRDIFF_MAX - FC_ALIGNMENT) return NULL;
  size_t rounded = (bytes + FC_ALIGNMENT - 1) & ~(size_t)(FC_ALIGNMENT - 1);
  return aligned_alloc(FC_ALIGNMENT, rounded ? rounded : FC_ALIGNMENT);
}

static inline bool fc_row_major(const DLTensor* tensor) {
  if (!tensor->strides) return true;
  uint64_t expected = 1;
  bool plain = true, empty = false;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    plain &= tensor->shape[i] == 1 || tensor->strides[i] == (int64_t)expected;
    empty |= tensor->shape[i] == 0;
    expected *= (uint64_t)tensor->shape[i];
  }
  return plain || empty;
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

FC_COLD static void* fc_pack(const DLTensor* tensor, const char* data, int64_t item) {
  int64_t bytes = item;
  bool bad = false;
  for (int32_t i = 0; i < tensor->ndim; ++i) bytes = fc_mul(&bad, bytes, tensor->shape[i]);
  void* copy = bad ? NULL : fc_allocate((size_t)bytes);
  if (!copy) {
    (void)fc_no_memory("a row-major copy of an argument", bad ? SIZE_MAX : (size_t)bytes);
  } else if (tensor->strides && !fc_row_major(tensor)) {
    fc_gather(copy, data, tensor->ndim, tensor->shape, tensor->strides, (size_t)item);
  } else {
    memcpy(copy, data, (size_t)bytes); /* row-major already, but misaligned */
  }
  return copy;
}

/* Returns in `*data` the elements of an argument, row-major and aligned to `item`, the size of an element, a power
 * of two. The caller must free `*owned`. False: raised. */
static inline bool fc_input(const DLTensor* tensor, int64_t item, void** data, void** owned) {
  char* start = (char*)tensor->data + tensor->byte_offset;
  *data = start;
  if (__builtin_expect(fc_row_major(tensor) && ((uintptr_t)start & (uintptr_t)(item - 1)) == 0, 1)) return true;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) return true;
  }
  *data = *owned = fc_pack(tensor, start, item);
  return *data != NULL;
}

/* A block of working memory, reused by later calls. As many blocks are kept as calls ran at once, up to a limit. */
struct fc_block {
  size_t size;
};
#define FC_BLOCKS 16
static _Atomic(struct fc_block*) fc_blocks[FC_BLOCKS];

static FC_USED_MAYBE inline char* fc_block_data(struct fc_block* block) { return (char*)block + FC_ALIGNMENT; }

FC_COLD static struct fc_block* fc_new_block(struct fc_block* old, size_t size) {
  free(old);
  struct fc_block* block = size > (size_t)PTRDIFF_MAX ? NULL : fc_allocate(size + FC_ALIGNMENT);
  if (block) {
    block->size = size;
  } else {
    (void)fc_no_memory("its working memory", size);
  }
  return block;
}

static FC_USED_MAYBE inline struct fc_block* fc_take_block(size_t size) {
  struct fc_block* block = NULL;
  for (int i = 0; i < FC_BLOCKS && !block; ++i) {
    block = atomic_exchange_explicit(&fc_blocks[i], NULL, memory_order_acquire);
  }
  if (__builtin_expect(block && block->size >= size, 1)) return block;
  return fc_new_block(block, size);
}

static FC_USED_MAYBE inline void fc_give_block(struct fc_block* block) {
  for (int i = 0; i < FC_BLOCKS; ++i) {
    struct fc_block* none = NULL;
    if (atomic_compare_exchange_strong_explicit(&fc_blocks[i], &none, block, memory_order_release,
                                                memory_order_relaxed)) {
      return;
    }
  }
  free(block);
}

__attribute__((destructor)) static void fc_free_blocks(void) {
  for (int i = 0; i < FC_BLOCKS; ++i) free(atomic_exchange(&fc_blocks[i], NULL));
}

/* --------------------------------------------------------------------------------------------- results ---- */

static void fc_release(TVMFFIAny* value) {
  if (value->type_index < kTVMFFIStaticObjectBegin) return;
  if (__farcall_runtime) {
    (void)__farcall_runtime->object_dec_ref(value->v_obj);
  } else if (TVMFFIObjectDecRef) {
    (void)TVMFFIObjectDecRef(value->v_obj);
  }
  value->type_index = kTVMFFINone;
  value->v_int64 = 0;
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

FC_COLD static int fc_new_tensor(const DLTensor* like, size_t bytes, TVMFFIObjectHandle* out) {
  size_t ndim = (size_t)like->ndim;
  size_t head = sizeof(struct fc_own_tensor) + 2 * ndim * sizeof(int64_t);
  head = (head + FC_ALIGNMENT - 1) & ~(size_t)(FC_ALIGNMENT - 1);
  struct fc_own_tensor* made = bytes > (size_t)PTRDIFF_MAX - head ? NULL : fc_allocate(head + bytes);
  if (!made) return fc_no_memory("a result", bytes);
  made->head = (TVMFFIObject){.combined_ref_count = (UINT64_C(1) << 32) | 1, .type_index = kTVMFFITensor,
                              .deleter = fc_free_object};
  made->tensor = *like;
  made->tensor.data = (char*)made + head;
  if (ndim) {
    memcpy(made->dims, like->shape, ndim * sizeof(int64_t));
    memcpy(made->dims + ndim, like->strides, ndim * sizeof(int64_t));
  }
  made->tensor.shape = made->dims;
  made->tensor.strides = made->dims + ndim;
  *out = made;
  return 0;
}

/* Allocates a result of the shape and dtype of `like`; `*data` points to its elements. False: raised. */
static inline bool fc_output(DLTensor* like, size_t bytes, TVMFFIAny* out, void** data) {
  TVMFFIObjectHandle made = NULL;
  int status = 0;
  if (__builtin_expect(__farcall_runtime != NULL, 1)) {
    status = __farcall_runtime->env_tensor_alloc(like, &made);
  } else if (TVMFFIEnvTensorAlloc && TVMFFIEnvGetDLPackManagedTensorAllocator &&
             TVMFFIEnvGetDLPackManagedTensorAllocator()) {
    status = TVMFFIEnvTensorAlloc(like, &made);
  } else {
    status = fc_new_tensor(like, bytes, &made);
  }
  if (status != 0) return false;
  out->type_index = kTVMFFITensor;
  out->v_obj = made;
  DLTensor* tensor = TVMFFITensorGetDLTensorPtr(made);
  *data = (char*)tensor->data + tensor->byte_offset;
  return true;
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

/* Makes one Array of `items`, and takes ownership of them, even on failure (returns -1, raised). */
static FC_USED_MAYBE int fc_results(TVMFFIAny* items, int64_t count, TVMFFIAny* result) {
  TVMFFIObjectHandle made = NULL;
  if (__farcall_runtime) {
    int status = __farcall_runtime->array_create(items, count, &made);
    for (int64_t i = 0; i < count; ++i) items[i] = (TVMFFIAny){.type_index = kTVMFFINone};
    if (status != 0) return -1;
  } else {
    size_t bytes = sizeof(struct fc_own_array) + (size_t)count * sizeof(TVMFFIAny);
    struct fc_own_array* array = fc_allocate(bytes);
    if (!array) return fc_no_memory("the results", bytes);
    array->head = (TVMFFIObject){.combined_ref_count = (UINT64_C(1) << 32) | 1, .type_index = kTVMFFIArray,
                                 .deleter = fc_free_array};
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
