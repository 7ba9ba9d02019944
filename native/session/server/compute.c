/*
 * farcall.rpc.compute(function, n, x1..xn, y1..ym): y1..ym get the results of function(x1..xn).
 *
 * The client made the tensors before, so it can send inputs, this call and the reads of the results together.
 */
#include "session/server/serve.h"

static int wrong(const char* what, int64_t i) {
  fc_error_format("TypeError", "farcall.rpc.compute: %s %lld", what, (long long)i);
  return -1;
}

static bool are_alike(const DLTensor* a, const DLTensor* b) {
  bool alike = a->ndim == b->ndim && memcmp(&a->dtype, &b->dtype, sizeof a->dtype) == 0;
  for (int32_t i = 0; alike && i < a->ndim; ++i) alike = a->shape[i] == b->shape[i];
  return alike;
}

static int give(const TVMFFIAny* result, const TVMFFIAny* place, int64_t i) {
  const DLTensor *from = fc_any_tensor(result), *to = fc_any_tensor(place);
  if (!from || !to || !are_alike(from, to)) return wrong("another shape or dtype is expected of result", i + 1);
  FcTensorObj* compact = NULL;
  if (!fc_is_contiguous(from)) {
    if (from->device.device_type != kDLCPU) return wrong("expected a row-major tensor as result", i + 1);
    if (!(compact = fc_tensor_compact(from))) return -1;
    from = &compact->dl;
  }
  const FcPlace source = {(char*)from->data + from->byte_offset, from->device};
  const FcPlace target = {(char*)to->data + to->byte_offset, to->device};
  int rc = fc_device_copy(target, source, (uint64_t)fc_nbytes(to));
  if (compact) fc_decref(compact);
  return rc;
}

static int give_all(const TVMFFIAny* result, const TVMFFIAny* places, int32_t n) {
  const TVMFFIAny* all = result;
  int64_t count = 1;
  int rc = 0;
  if (result->type_index == kTVMFFIArray || result->type_index == kTVMFFIList) {
    const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(result->v_obj);
    all = cell->data;
    count = cell->size;
  }
  if (count != n) return wrong("the number of its results is", count);
  for (int32_t i = 0; rc == 0 && i < n; ++i) rc = give(&all[i], &places[i], i);
  return rc;
}

int fc_server_compute(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIAny made = fc_any_none();
  (void)self;
  bool good = n >= 2 && args[0].type_index == kTVMFFIFunction && args[1].type_index == kTVMFFIInt;
  if (!good || args[1].v_int64 < 0 || args[1].v_int64 > n - 2) {
    fc_error_set("TypeError", "farcall.rpc.compute takes a function, a number of inputs, the inputs, and the outputs");
    return -1;
  }
  const int32_t inputs = (int32_t)args[1].v_int64;
  int rc = TVMFFIFunctionGetCellPtr(args[0].v_obj)->safe_call(args[0].v_obj, args + 2, inputs, &made);
  if (rc == 0) rc = give_all(&made, args + 2 + inputs, n - 2 - inputs);
  fc_any_clear(&made);
  *result = fc_any_none();
  return rc;
}
