/*
 * A TVM server returns an argument tensor as (7, tensor), without a handle (facts A.8). The argument still owns the
 * memory, so the result must keep the argument alive.
 */
#include <stdlib.h>

#include "session/client/remote.h"

FcLenders* fc_remote_lenders(const FcRemoteArgs* wire) {
  int32_t n = 0;
  for (int32_t i = 0; i < wire->n; ++i) n += wire->slots[i].lent != NULL;
  FcLenders* lenders = n ? malloc(sizeof *lenders + (size_t)n * sizeof *lenders->tensors) : NULL;
  if (!lenders) return NULL;
  lenders->n = 0;
  for (int32_t i = 0; i < wire->n; ++i) {
    if (!wire->slots[i].lent) continue;
    fc_incref(lenders->tensors[lenders->n++] = wire->slots[i].lent);
  }
  return lenders;
}

void fc_lenders_free(FcLenders* lenders) {
  for (int32_t i = 0; lenders && i < lenders->n; ++i) fc_decref(lenders->tensors[i]);
  free(lenders);
}

int fc_remote_borrow(const fc_wire_packet* reply, const FcLenders* lenders, TVMFFIAny* result) {
  if (!lenders || result->type_index != kTVMFFITensor || reply->num_args != 2) return 0;
  const DLTensor* part = fc_tensor_dl(result->v_obj);
  TVMFFIObject* base = NULL;
  for (int32_t i = 0; i < lenders->n && !base; ++i) {
    if (fc_tensor_dl(lenders->tensors[i])->data == part->data) base = lenders->tensors[i];
  }
  if (!base) return 0;
  FcTensorObj* view = fc_remote_view(base, part);
  fc_any_clear(result);
  if (view) *result = fc_any_object(view);
  return view ? 0 : -1;
}
