/* A kernel library, as a user writes one: uploaded and called in the tests. */
#include <farcall/c_api.h>

static const DLTensor* tensor_of(const TVMFFIAny* arg) {
  if (arg->type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(arg->v_obj);
  return arg->type_index == kTVMFFIDLTensorPtr ? arg->v_ptr : 0;
}

/* add_one(x, out), both float32 */
FARCALL_KERNEL(add_one) {
  const DLTensor *x = num_args == 2 ? tensor_of(&args[0]) : 0, *out = num_args == 2 ? tensor_of(&args[1]) : 0;
  if (!x || !out) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "add_one: expected two tensors");
    return -1;
  }
  int64_t n = 1;
  for (int32_t i = 0; i < x->ndim; ++i) n *= x->shape[i];
  const float* from = (const float*)((const char*)x->data + x->byte_offset);
  float* to = (float*)((char*)out->data + out->byte_offset);
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] + 1;
  return 0;
}

FARCALL_KERNEL(crash) { *(volatile int*)0 = 1; return 0; }
