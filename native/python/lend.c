/*
 * Lent tensors. A kernel whose parameter is an owning Tensor must get a Tensor object for each argument of each call;
 * these come from a pool. During the call only the caller's arguments keep the framework's tensor alive. If the
 * callee kept the Tensor object, that object takes a reference after the call, and does not return to the pool.
 */
#include <stdlib.h>

#include "python/args.h"
#include "python/errors.h"
#include "python/gil.h"

FcTensorObj* fc_pool[FC_POOL];
int fc_pool_count;

FC_COLD FcTensorObj* fc_pool_new(void) {
  int64_t dims[FC_INLINE_DIMS] = {0};
  DLTensor like = {.device = {kDLCPU, 0}, .ndim = FC_INLINE_DIMS, .dtype = {kDLFloat, 32, 1}, .shape = dims};
  FcTensorObj* tensor = fc_tensor_new(&like, NULL, NULL);
  if (!tensor) fc_raise_slot();
  return tensor;
}

void fc_pool_put(FcTensorObj* tensor) {
  if (FC_LIKELY(fc_pool_count < FC_POOL)) {
    fc_pool[fc_pool_count++] = tensor;
  } else {
    fc_decref(tensor);
  }
}

/* farcall holds its reference until here, so the tensor survives when others drop theirs meanwhile. */
static FC_COLD void settle(FcTensorObj* tensor) {
  Py_INCREF((PyObject*)tensor->context);
  tensor->release = fc_drop_context;
  fc_decref(tensor);
}

static void end_loan(void* what) {
  if (FC_LIKELY(fc_is_unique(what))) {
    fc_pool_put(what);
  } else {
    settle(what);
  }
}

int fc_lend(FcArgs* args, FcTensorObj* tensor, PyObject* object, TVMFFIAny* out) {
  tensor->context = object;
  out->type_index = kTVMFFITensor;
  out->v_obj = &tensor->header;
  return fc_args_keep(args, end_loan, tensor);
}
