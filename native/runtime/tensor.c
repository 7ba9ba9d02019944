/* Tensor objects, and their conversion from and to DLPack's managed tensors. */
#include <stdlib.h>

#include "runtime/runtime.h"

enum { DATA_ALIGNMENT = 64, LARGE = 1 << 22 };
const FcTensorHeap* fc_tensor_heap;

int64_t fc_numel(const DLTensor* dl) {
  int64_t n = 1;
  for (int32_t i = 0; i < dl->ndim; ++i) n *= dl->shape[i];
  return n;
}

void fc_row_major(int32_t ndim, const int64_t* shape, int64_t* strides) {
  int64_t step = 1;
  for (int32_t i = ndim - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
}

/* Dims of size 1 have no layout, and an empty tensor has none at all. */
bool fc_is_contiguous(const DLTensor* dl) {
  if (!dl->strides) return true;
  int64_t step = 1;
  bool row_major = true;
  for (int32_t i = dl->ndim - 1; i >= 0; --i) {
    if (dl->shape[i] == 0) return true;
    if (dl->shape[i] != 1 && dl->strides[i] != step) row_major = false;
    step *= dl->shape[i];
  }
  return row_major;
}

static int64_t size_error(const DLTensor* dl, int32_t axis) {
  if (axis >= 0 && dl->shape[axis] < 0) {
    fc_error_format("ValueError", "dimension %d is %lld; a dimension cannot be negative", (int)axis,
                    (long long)dl->shape[axis]);
  } else {
    fc_error_set("MemoryError", "the tensor's size in bytes does not fit in 64 bits");
  }
  return -1;
}

int64_t fc_nbytes(const DLTensor* dl) {
  if (FC_UNLIKELY(fc_is_scalable(dl->dtype))) {
    fc_error_set("ValueError", "a tensor has no elements of a scalable vector type: their size is the machine's");
    return -1;
  }
  int64_t bits = (int64_t)dl->dtype.bits * dl->dtype.lanes;
  bool empty = false;
  for (int32_t i = 0; i < dl->ndim; ++i) {
    if (dl->shape[i] < 0) return size_error(dl, i);
    if (dl->shape[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bits, dl->shape[i], &bits)) {
      return size_error(dl, -1);
    }
  }
  if (empty) return 0;
  return bits > INT64_MAX - 7 ? size_error(dl, -1) : (bits + 7) / 8;
}

/* ---- the object ---- */

static void tensor_delete(void* handle, int flags) {
  FcTensorObj* tensor = handle;
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) && tensor->release) tensor->release(tensor);
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak)
    tensor->room ? fc_tensor_heap->give(handle, tensor->room) : free(handle);
}

bool fc_tensor_is_ours(const TVMFFIObject* object) { return object->deleter == tensor_delete; }

uint64_t fc_tensor_flags(const TVMFFIObject* tensor) {
  return fc_tensor_is_ours(tensor) ? ((const FcTensorObj*)tensor)->flags : 0;
}

static FcTensorObj* tensor_init(FcTensorObj* tensor, const DLTensor* like, const int64_t* strides) {
  fc_object_init(&tensor->header, kTVMFFITensor, tensor_delete);
  tensor->dl = *like;
  tensor->dl.shape = (int64_t*)(tensor + 1);
  tensor->dl.strides = tensor->dl.shape + like->ndim;
  for (int32_t i = 0; i < like->ndim; ++i) tensor->dl.shape[i] = like->shape[i];
  if (strides) {
    for (int32_t i = 0; i < like->ndim; ++i) tensor->dl.strides[i] = strides[i];
  } else {
    fc_row_major(like->ndim, tensor->dl.shape, tensor->dl.strides);
  }
  tensor->release = NULL;
  tensor->context = NULL;
  tensor->flags = tensor->room = 0;
  return tensor;
}

FcTensorObj* fc_tensor_new(const DLTensor* like, void (*release)(FcTensorObj*), void* context) {
  FcTensorObj* tensor = malloc(sizeof *tensor + (size_t)like->ndim * 2 * sizeof(int64_t));
  if (!tensor) {
    fc_error_no_memory();
    return NULL;
  }
  tensor_init(tensor, like, like->strides);
  tensor->release = release;
  tensor->context = context;
  return tensor;
}

static FcTensorObj* tensor_alloc(const DLTensor* prototype, bool zeroed) {
  int64_t nbytes = fc_nbytes(prototype);
  if (nbytes < 0) return NULL;
  size_t meta = sizeof(FcTensorObj) + (size_t)prototype->ndim * 2 * sizeof(int64_t), room = 0;
  FcTensorObj* tensor = NULL;
  if ((uint64_t)nbytes <= SIZE_MAX - meta - DATA_ALIGNMENT) {
    size_t size = meta + DATA_ALIGNMENT + (size_t)nbytes;
    tensor = zeroed ? calloc(1, size) : fc_tensor_heap ? fc_tensor_heap->take(size, &room) : malloc(size);
  }
  if (!tensor) {
    fc_error_format("MemoryError", "no memory for a tensor of %lld bytes; ask for a smaller one", (long long)nbytes);
    return NULL;
  }
  tensor_init(tensor, prototype, NULL)->room = room;
  tensor->dl.data = (void*)(((uintptr_t)tensor + meta + DATA_ALIGNMENT - 1) & ~(uintptr_t)(DATA_ALIGNMENT - 1));
  tensor->dl.byte_offset = 0;
  if (FC_UNLIKELY(nbytes >= LARGE)) fc_advise_large_pages(tensor->dl.data, (size_t)nbytes);
  return tensor;
}

FcTensorObj* fc_tensor_alloc(const DLTensor* prototype) { return tensor_alloc(prototype, false); }
FcTensorObj* fc_tensor_zeros(const DLTensor* prototype) { return tensor_alloc(prototype, true); }

/* ---- row-major copies on the CPU ---- */

/* Copies dims from `axis` on; a dense innermost dim in one piece. Returns the end of the copy. */
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
    fc_error_set("BufferError", "a strided tensor whose elements are not whole bytes cannot be copied");
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

/* ---- from managed tensors ---- */

static void release_managed(FcTensorObj* self) {
  DLManagedTensorVersioned* managed = self->context;
  if (managed && managed->deleter) managed->deleter(managed);
}

static void release_legacy(FcTensorObj* self) {
  DLManagedTensor* managed = self->context;
  if (managed && managed->deleter) managed->deleter(managed);
}

FcTensorObj* fc_tensor_from_managed(DLManagedTensorVersioned* managed) {
  FcTensorObj* tensor = fc_tensor_new(&managed->dl_tensor, release_managed, managed);
  if (tensor) tensor->flags = managed->flags;
  return tensor;
}

FcTensorObj* fc_tensor_from_legacy(DLManagedTensor* managed) {
  return fc_tensor_new(&managed->dl_tensor, release_legacy, managed);
}

DLManagedTensorVersioned* fc_tensor_unwrap(TVMFFIObject* object) {
  FcTensorObj* tensor = (FcTensorObj*)object;
  if (!fc_tensor_is_ours(object) || tensor->release != release_managed || !fc_is_unique(object)) return NULL;
  DLManagedTensorVersioned* managed = tensor->context;
  tensor->release = NULL;
  fc_decref(object);
  return managed;
}

static int check_layout(const DLTensor* dl, int32_t alignment, int32_t contiguous) {
  uintptr_t address = (dl->device.device_type == kDLCPU ? (uintptr_t)dl->data : 0) + (uintptr_t)dl->byte_offset;
  if (alignment > 0 && address % (uintptr_t)alignment != 0) {
    fc_error_format("RuntimeError", "the tensor's data is not aligned to %d bytes", (int)alignment);
    return -1;
  }
  if (contiguous && !fc_is_contiguous(dl)) {
    fc_error_set("RuntimeError", "the tensor is not contiguous (row-major)");
    return -1;
  }
  return 0;
}

int TVMFFITensorFromDLPack(DLManagedTensor* from, int32_t require_alignment, int32_t require_contiguous,
                           TVMFFIObjectHandle* out) {
  if (check_layout(&from->dl_tensor, require_alignment, require_contiguous) != 0) return -1;
  *out = fc_tensor_from_legacy(from);
  return *out ? 0 : -1;
}

int TVMFFITensorFromDLPackVersioned(DLManagedTensorVersioned* from, int32_t require_alignment,
                                    int32_t require_contiguous, TVMFFIObjectHandle* out) {
  if (from->version.major != DLPACK_MAJOR_VERSION) {
    fc_error_format("RuntimeError", "the tensor is described by DLPack %u.%u; this runtime reads %d.x",
                    from->version.major, from->version.minor, DLPACK_MAJOR_VERSION);
    return -1;
  }
  if (from->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) {
    fc_error_set("RuntimeError", "tensors with padded sub-byte elements are not supported; pack them");
    return -1;
  }
  if (check_layout(&from->dl_tensor, require_alignment, require_contiguous) != 0) return -1;
  *out = fc_tensor_from_managed(from);
  return *out ? 0 : -1;
}

/* ---- to managed tensors ---- */

static void managed_delete(DLManagedTensorVersioned* self) {
  fc_decref(self->manager_ctx);
  free(self);
}

static void legacy_delete(DLManagedTensor* self) {
  fc_decref(self->manager_ctx);
  free(self);
}

DLManagedTensorVersioned* fc_tensor_to_managed(TVMFFIObject* tensor) {
  DLManagedTensorVersioned* managed = malloc(sizeof *managed);
  if (!managed) {
    fc_error_no_memory();
    return NULL;
  }
  fc_incref(tensor);
  managed->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->manager_ctx = tensor;
  managed->deleter = managed_delete;
  managed->flags = fc_tensor_flags(tensor);
  managed->dl_tensor = *fc_tensor_dl(tensor);
  return managed;
}

DLManagedTensor* fc_tensor_to_legacy(TVMFFIObject* tensor) {
  DLManagedTensor* managed = malloc(sizeof *managed);
  if (!managed) {
    fc_error_no_memory();
    return NULL;
  }
  fc_incref(tensor);
  managed->dl_tensor = *fc_tensor_dl(tensor);
  managed->manager_ctx = tensor;
  managed->deleter = legacy_delete;
  return managed;
}

int TVMFFITensorToDLPack(TVMFFIObjectHandle from, DLManagedTensor** out) {
  *out = fc_tensor_to_legacy(from);
  return *out ? 0 : -1;
}

int TVMFFITensorToDLPackVersioned(TVMFFIObjectHandle from, DLManagedTensorVersioned** out) {
  *out = fc_tensor_to_managed(from);
  return *out ? 0 : -1;
}
