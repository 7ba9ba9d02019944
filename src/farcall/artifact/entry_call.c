/*
 * What every call of `main` goes through, for any model. Inline in the generated text, it took three quarters of the time
 * in which a small model is compiled.
 */

int farcall_take(const struct fc_function* about, const TVMFFIAny* args, int32_t num_args, int64_t* symbols,
                 const DLTensor** given, struct fc_scalar* numbers) {
  if (num_args != about->count) return farcall_refuse_count(about, num_args);
  for (int32_t k = 0; k < about->num_symbols; ++k) symbols[k] = -1;
  for (int32_t i = 0; i < about->count; ++i) {
    given[i] = fc_tensor(&args[i]);
    if (__builtin_expect(fc_bind(&about->parameters[i], given[i], symbols), 1)) continue;
    if (about->parameters[i].kind != FC_TENSOR) {
      given[i] = NULL;
      if (farcall_object(&args[i], &about->parameters[i], symbols)) continue;
      return farcall_refuse(about, i, args, symbols);
    }
    if (!farcall_scalar(&args[i], &about->parameters[i], &numbers[i])) return farcall_refuse(about, i, args, symbols);
    given[i] = &numbers[i].tensor;
  }
  return 0;
}

bool farcall_input(const struct fc_function* about, const DLTensor* tensor, int64_t item, void** data, void** owned) {
  char* start = (char*)tensor->data + tensor->byte_offset;
  *data = start;
  if (__builtin_expect(fc_row_major(tensor) && ((uintptr_t)start & (uintptr_t)(item - 1)) == 0, 1)) return true;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) return true;
  }
  *data = *owned = farcall_pack(about, tensor, start, item);
  return *data != NULL;
}

bool farcall_output(const struct fc_function* about, DLTensor* like, size_t bytes, TVMFFIAny* out, void** data) {
  TVMFFIObjectHandle made = NULL;
  int status = 0;
  if (__builtin_expect(__farcall_runtime != NULL, 1)) {
    status = __farcall_runtime->env_tensor_alloc(like, &made);
  } else if (TVMFFIEnvTensorAlloc && TVMFFIEnvGetDLPackManagedTensorAllocator &&
             TVMFFIEnvGetDLPackManagedTensorAllocator()) {
    status = TVMFFIEnvTensorAlloc(like, &made);
  } else {
    status = farcall_new_tensor(about, like, bytes, &made);
  }
  if (status != 0) return false;
  out->type_index = kTVMFFITensor;
  out->v_obj = made;
  DLTensor* tensor = TVMFFITensorGetDLTensorPtr(made);
  *data = (char*)tensor->data + tensor->byte_offset;
  return true;
}

struct fc_block* farcall_take_block(const struct fc_function* about, size_t size) {
  struct fc_block* block = NULL;
  for (int i = 0; i < FC_BLOCKS && !block; ++i) {
    block = atomic_exchange_explicit(&farcall_blocks[i], NULL, memory_order_acquire);
  }
  if (__builtin_expect(block && block->size >= size, 1)) return block;
  return farcall_new_block(about, block, size);
}

void farcall_give_block(struct fc_block* block) {
  for (int i = 0; i < FC_BLOCKS; ++i) {
    struct fc_block* none = NULL;
    if (atomic_compare_exchange_strong_explicit(&farcall_blocks[i], &none, block, memory_order_release,
                                                memory_order_relaxed)) {
      return;
    }
  }
  free(block);
}

/* The start time of a region's span; 0 if no trace is recorded, or the runtime is older than traces of regions. */
static int64_t fc_trace_begin(void) {
  const struct FarcallRuntime* runtime = __farcall_runtime;
  if (!runtime || runtime->struct_size < offsetof(struct FarcallRuntime, trace_end) + sizeof runtime->trace_end)
    return 0;
  if (__builtin_expect(!__atomic_load_n(runtime->tracing, __ATOMIC_RELAXED), 1)) return 0;
  return runtime->trace_begin();
}

static void fc_trace_end(const char* region, const TVMFFIAny* args, int32_t count, int64_t begin) {
  if (__builtin_expect(begin != 0, 0)) __farcall_runtime->trace_end(region, args, count, begin);
}

static void* fc_kept_data(const struct fc_place* at, const struct fc_frame* f) {
  return at->device.device_id > 0 ? f->data[at->device.device_id - 1] : NULL;
}

int farcall_run(const struct fc_step* steps, int32_t count, int32_t most, const struct fc_frame* f) {
  DLTensor tensors[most + 1];
  TVMFFIAny args[most + 1];
  for (const struct fc_step* step = steps; step < steps + count; ++step) {
    int32_t n = step->num_tensors;
    for (int32_t i = 0; i < n; ++i) {
      const struct fc_place* at = &step->tensors[i];
      int64_t* dims = at->table ? (int64_t*)at->table : f->dims + at->dims;
      void* data = fc_is_kept(at) ? fc_kept_data(at, f) : f->data[at->data];
      tensors[i] = (DLTensor){data, at->device, at->ndim, at->dtype, dims, dims + at->ndim, 0};
      args[i] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &tensors[i]};
      if (fc_is_kept(at) && fc_has_kept(at, f)) args[i] = f->late[at->data].tensor;
    }
    if (__builtin_expect(!step->code, 0)) {
      if (farcall_device_step(step, tensors, f) != 0) return -1;
      continue;
    }
    if (step->has_workspace) args[n++] = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_ptr = f->workspace};
    for (int32_t k = 0; k < step->num_symbols; ++k) {
      args[n++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = f->symbols[step->symbols[k]]};
    }
    if (step->code->bounded) args[n++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = *f->left};
    TVMFFIAny result = {.type_index = kTVMFFINone};
    const int64_t began = fc_trace_begin();
    const int status = fc_call_code(step->code, args, n, &result);
    fc_trace_end(step->code->name, args, step->num_tensors, began);
    if (status != 0) return -1;
    if (__builtin_expect(step->num_kept != 0, 0)) {
      if (farcall_take_kept(step, &result, f) != 0) return -1;
    } else if (__builtin_expect(step->num_late == 0, 1)) {
      fc_release(&result);
    } else if (farcall_take_late(step->code->place, &result, step->late, step->num_late, f->symbols, f->left,
                                 f->late + step->first_late) != 0) {
      return -1;
    } else {
      for (int32_t k = 0; k < step->num_late; ++k) f->data[step->late_data + k] = f->late[step->first_late + k].data;
    }
  }
  return 0;
}
