/*
 * The entry of a region: it does for any region, with tables, what the generated text of `main` does for the model. Users
 * call a region alone to measure or to debug it, so this code is short rather than fast: see entry.h.
 */

/* Writes the shape and strides of `tensor` to `*dims`, advances that, and returns the bytes of the tensor. */
static int64_t fc_shape(bool* bad, DLTensor* tensor, const int64_t* shape, const int64_t* symbols, int64_t** dims) {
  tensor->shape = *dims;
  tensor->strides = *dims + tensor->ndim;
  *dims += 2 * (ptrdiff_t)tensor->ndim;
  for (int32_t i = 0; i < tensor->ndim; ++i) tensor->shape[i] = shape[i] < 0 ? symbols[~shape[i]] : shape[i];
  return fc_size_of(bad, fc_strides(bad, tensor->ndim, tensor->shape, tensor->strides), tensor->dtype);
}

static int32_t fc_words(const struct fc_parameter* parameters, int32_t count) {
  int32_t words = 0;
  for (int32_t i = 0; i < count; ++i) words += 2 * fc_rank(&parameters[i]);
  return words;
}

/* Allocates the results. `out` describes them as the region's function expects them. */
static bool fc_make_outputs(const struct fc_region* r, const int64_t* symbols, DLTensor* out, TVMFFIAny* results,
                            int64_t* dims) {
  bool bad = false;
  for (int32_t j = 0; j < r->num_outputs; ++j) {
    const struct fc_parameter* like = &r->outputs[j];
    out[j] = (DLTensor){.device = {kDLCPU, 0}, .ndim = like->ndim, .dtype = like->dtype};
    int64_t bytes = fc_shape(&bad, &out[j], like->dims, symbols, &dims);
    if (bad) return farcall_refuse_sizes(r->about, "the sizes are too large", symbols) == 0;
    if (!farcall_output(r->about, &out[j], (size_t)bytes, &results[j], &out[j].data)) return false;
  }
  return true;
}

/* The arguments as the region's function expects them: row-major. The caller must free `owned`. */
static bool fc_make_inputs(const struct fc_region* r, const DLTensor* const* given, DLTensor* in, void** owned,
                           int64_t* dims) {
  bool bad = false;
  for (int32_t i = 0; i < r->num_inputs; ++i) {
    if (!given[i]) continue; /* an object */
    in[i] = *given[i];
    in[i].byte_offset = 0;
    (void)fc_shape(&bad, &in[i], given[i]->shape, NULL, &dims);
    if (!farcall_input(r->about, given[i], fc_item(in[i].dtype), &in[i].data, &owned[i])) return false;
  }
  return true;
}

/* `given`: the entry's arguments, of which the function gets the objects. `late` gets the outputs that it allocates. */
static int fc_run_region(const struct fc_region* r, const TVMFFIAny* given, const DLTensor* tensors, int64_t* symbols,
                         int64_t workspace, struct fc_late* late) {
  int32_t count = r->num_inputs + r->num_outputs;
  TVMFFIAny args[count + 2 + r->num_wanted], none = {.type_index = kTVMFFINone};
  for (int32_t i = 0; i < count; ++i) {
    args[i] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = (void*)&tensors[i]};
    if (i < r->num_inputs && r->about->parameters[i].kind != FC_TENSOR) args[i] = given[i];
  }
  struct fc_block* block = workspace > 0 ? farcall_take_block(r->about, (size_t)workspace) : NULL;
  if (workspace > 0 && !block) return -1;
  if (r->workspace != 0) {
    void* space = block ? fc_block_data(block) : NULL;
    args[count++] = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_ptr = space};
  }
  for (int32_t k = 0; k < r->num_wanted; ++k) {
    args[count++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = symbols[r->wanted[k]]};
  }
  int64_t left = farcall_late_bytes;
  if (r->code->bounded) args[count++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = left};
  int status = fc_call_code(r->code, args, count, &none);
  if (status == 0 && r->num_late) {
    status = farcall_take_late(r->code->place, &none, r->late, r->num_late, symbols, &left, late);
  } else if (status == 0) {
    fc_release(&none);
  }
  if (block) farcall_give_block(block);
  return status;
}

/* Runs it with copies of the tensors on its device. */
static int fc_run_on_device(const struct fc_region* r, const TVMFFIAny* given, const DLTensor* tensors,
                            int64_t* symbols, int64_t workspace, struct fc_late* late) {
  const int32_t ins = r->num_inputs, count = ins + r->num_outputs;
  DLTensor there[count + 1];
  struct fc_late made[count + 1];
  int status = 0;
  memset(made, 0, sizeof made);
  memset(there, 0, sizeof there);
  for (int32_t i = 0; status == 0 && i < count; ++i) {
    there[i] = tensors[i];
    there[i].device = r->code->device;
    status = fc_make_on_device(&there[i], &made[i]);
    if (status == 0 && i < ins) status = fc_copy_tensor(&tensors[i], &there[i]);
  }
  if (status == 0) status = fc_run_region(r, given, there, symbols, workspace, late);
  for (int32_t j = ins; status == 0 && j < count; ++j) status = fc_copy_tensor(&there[j], &tensors[j]);
  for (int32_t i = 0; i < count; ++i) fc_release(&made[i].tensor);
  return status;
}

/* Moves a reference. */
static TVMFFIAny fc_move(TVMFFIAny* from) {
  TVMFFIAny value = *from;
  *from = (TVMFFIAny){.type_index = kTVMFFINone};
  return value;
}

static int fc_give_results(const struct fc_region* r, TVMFFIAny* made, struct fc_late* late, TVMFFIAny* result) {
  const int32_t count = r->num_outputs + r->num_late;
  TVMFFIAny results[count + 1];
  for (int32_t j = 0; j < count; ++j) {
    int32_t from = r->order ? r->order[j] : j;
    results[j] = fc_move(from < 0 ? &late[~from].tensor : &made[from]);
  }
  if (count != 1) return farcall_results(r->about, results, count, result);
  *result = results[0];
  return 0;
}

int farcall_call_region(const struct fc_region* r, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const int32_t ins = r->num_inputs, outs = r->num_outputs, taken = r->about->count;
  const int32_t in_words = fc_words(r->about->parameters, ins);
  int64_t symbols[r->about->num_symbols + r->num_derived + 1], dims[in_words + fc_words(r->outputs, outs) + 1];
  const DLTensor* given[taken + 1];
  struct fc_scalar numbers[taken + 1];
  DLTensor tensors[ins + outs + 1];
  void* owned[ins + 1];
  TVMFFIAny results[outs + 1];
  struct fc_late late[r->num_late + 1];
  int64_t workspace = r->workspace;
  int status = -1;
  memset(symbols, 0, sizeof symbols);
  memset(late, 0, sizeof late);
  if (farcall_take(r->about, args, num_args, symbols, given, numbers) != 0) return -1;
  for (int32_t i = ins; i < taken; ++i) symbols[r->first_size + i - ins] = fc_size(given[i]);
  if (r->derive && r->derive(symbols, &workspace) != 0) return -1;
  for (int32_t i = 0; i < ins; ++i) owned[i] = NULL;
  for (int32_t j = 0; j < outs; ++j) results[j] = (TVMFFIAny){.type_index = kTVMFFINone};
  if (fc_make_inputs(r, given, tensors, owned, dims) &&
      fc_make_outputs(r, symbols, tensors + ins, results, dims + in_words) &&
      (r->code->device.device_type == kDLCPU ? fc_run_region : fc_run_on_device)(r, args, tensors, symbols, workspace,
                                                                                 late) == 0) {
    status = fc_give_results(r, results, late, result);
  }
  for (int32_t i = 0; i < ins; ++i) free(owned[i]);
  for (int32_t j = 0; j < outs; ++j) fc_release(&results[j]);
  for (int32_t j = 0; j < r->num_late; ++j) fc_release(&late[j].tensor);
  return status;
}
