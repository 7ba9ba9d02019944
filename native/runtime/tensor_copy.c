/* Row-major copies of CPU tensors. */
#include "runtime/runtime.h"

/* Rows of the innermost dim, which are copied whole where they are dense. */
static char* copy_dims(const DLTensor* from, int32_t axis, const char* source, char* to, size_t item) {
  if (axis == from->ndim) return (char*)memcpy(to, source, item) + item;
  int64_t step = from->strides[axis] * (int64_t)item;
  if (axis == from->ndim - 1 && from->strides[axis] == 1) {
    size_t row = (size_t)from->shape[axis] * item;
    return (char*)memcpy(to, source, row) + row;
  }
  for (int64_t i = 0; i < from->shape[axis]; ++i) to = copy_dims(from, axis + 1, source + i * step, to, item);
  return to;
}

FcTensorObj* fc_tensor_compact(const DLTensor* from) {
  DLTensor prototype = *from;
  size_t bits = (size_t)from->dtype.bits * from->dtype.lanes;
  bool plain = fc_is_contiguous(from);
  if (!plain && bits % 8) {
    fc_error_set("BufferError", "a strided tensor whose elements are no whole bytes cannot be copied");
    return NULL;
  }
  prototype.device = (DLDevice){kDLCPU, 0};
  FcTensorObj* copy = fc_tensor_alloc(&prototype);
  if (!copy) return NULL;
  const char* source = (const char*)from->data + from->byte_offset;
  size_t nbytes = (size_t)fc_nbytes(from);
  if (!plain) copy_dims(from, 0, source, copy->dl.data, bits / 8);
  else if (nbytes) memcpy(copy->dl.data, source, nbytes);
  return copy;
}
