/* Tensors on devices: regions whose code runs on an accelerator get its memory, and `main` copies where two differ. */

static int fc_device_error(const char* problem) {
  struct fc_text text = {.size = 0};
  farcall_put(&text, "%s; load the artifact with farcall, of this version or a newer one", problem);
  return farcall_raise_text("RuntimeError", &text);
}

FC_COLD static int fc_copy_tensor(const DLTensor* from, const DLTensor* to) {
  const struct FarcallRuntime* runtime = __farcall_runtime;
  if (!runtime || runtime->struct_size < offsetof(struct FarcallRuntime, tensor_copy) + sizeof runtime->tensor_copy) {
    return fc_device_error("this runtime does not copy between devices");
  }
  return runtime->tensor_copy(from, to);
}

/* A tensor on the device of `like`, whose `data` it sets. */
FC_COLD static int fc_make_on_device(DLTensor* like, struct fc_late* out) {
  TVMFFIObjectHandle made = NULL;
  if (!__farcall_runtime) return fc_device_error("this runtime has no memory on devices");
  if (__farcall_runtime->env_tensor_alloc(like, &made) != 0) return -1;
  const DLTensor* tensor = TVMFFITensorGetDLTensorPtr(made);
  *out = (struct fc_late){{.type_index = kTVMFFITensor, .v_obj = made}, (char*)tensor->data + tensor->byte_offset};
  like->data = out->data;
  return 0;
}

int farcall_device_step(const struct fc_step* step, DLTensor* tensors, const struct fc_frame* f) {
  if (step->num_tensors == 2) return fc_copy_tensor(&tensors[0], &tensors[1]);
  if (fc_make_on_device(&tensors[0], &f->late[step->first_late]) != 0) return -1;
  f->data[step->tensors[0].data] = tensors[0].data;
  return 0;
}
