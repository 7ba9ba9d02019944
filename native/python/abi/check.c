/* Whether a native value plainly matches a leaf of a Signature. */
#include <float.h>
#include <math.h>

#include "python/abi/abi.h"

/* ---- tensors ---- */

static bool accepts_dims(const FcLeaf* leaf, const DLTensor* dl, int64_t* symbols) {
  if (leaf->flags & FC_LEAF_ANY_RANK) return true;
  if (FC_UNLIKELY(dl->ndim != leaf->ndim)) return false;
  for (int32_t i = 0; i < leaf->ndim; ++i) {
    if (FC_UNLIKELY(!fc_dim_accepts(leaf, i, dl->shape[i], symbols))) return false;
  }
  return true;
}

/* Alignment is checked only for memory with addresses in this process. */
static bool accepts_memory(const FcLeaf* leaf, const DLTensor* dl) {
  if (leaf->flags & FC_LEAF_ON_DEVICE) {
    if (dl->device.device_type != leaf->device.device_type || dl->device.device_id != leaf->device.device_id)
      return false;
  }
  if (!(leaf->flags & FC_LEAF_STRIDED) && !fc_is_contiguous(dl)) return false;
  uint64_t mask = leaf->alignment;
  if (leaf->flags & FC_LEAF_ANY_DTYPE) mask |= ((uint64_t)dl->dtype.bits >> 3) - (dl->dtype.bits >= 8);
  return dl->device.device_type != kDLCPU || (((uintptr_t)dl->data + dl->byte_offset) & mask) == 0;
}

static bool is_read_only(const TVMFFIAny* value) {
  return value->type_index == kTVMFFITensor && fc_tensor_flags(value->v_obj) & DLPACK_FLAG_BITMASK_READ_ONLY;
}

static bool accepts_tensor(const FcLeaf* leaf, const TVMFFIAny* value, int64_t* symbols) {
  const DLTensor* dl = fc_any_tensor(value);
  if (FC_UNLIKELY(!dl)) return false;
  if (FC_UNLIKELY(!fc_dtype_equal(dl->dtype, leaf->dtype) && !(leaf->flags & FC_LEAF_ANY_DTYPE))) return false;
  if (FC_UNLIKELY(leaf->flags & FC_LEAF_WRITTEN) && is_read_only(value)) return false;
  return accepts_memory(leaf, dl) && accepts_dims(leaf, dl, symbols);
}

/* ---- scalars ---- */

static bool fits(int64_t value, DLDataType dtype) {
  if (dtype.code == kDLUInt) return value >= 0 && (dtype.bits >= 63 || value >> dtype.bits == 0);
  return dtype.bits >= 64 || (value >= -(INT64_C(1) << (dtype.bits - 1)) && value < INT64_C(1) << (dtype.bits - 1));
}

static bool accepts_integer(const FcLeaf* leaf, const TVMFFIAny* value) {
  return value->type_index == kTVMFFIInt && fits(value->v_int64, leaf->dtype);
}

/* Only the two common sizes; the rules know the others. */
static bool accepts_float(const FcLeaf* leaf, TVMFFIAny* value) {
  int64_t exact = INT64_C(1) << (leaf->dtype.bits == 64 ? DBL_MANT_DIG : FLT_MANT_DIG);
  if (leaf->dtype.bits < 32) return false;
  if (value->type_index == kTVMFFIInt && value->v_int64 >= -exact && value->v_int64 <= exact) {
    value->type_index = kTVMFFIFloat;
    value->v_float64 = (double)value->v_int64;
  }
  if (value->type_index != kTVMFFIFloat) return false;
  return leaf->dtype.bits == 64 || isinf(value->v_float64) || !isinf((float)value->v_float64);
}

static bool accepts_complex(const FcLeaf* leaf, const TVMFFIAny* value) {
  const DLTensor* dl = fc_any_tensor(value);
  return dl && dl->ndim == 0 && fc_dtype_equal(dl->dtype, leaf->dtype) && dl->device.device_type == kDLCPU;
}

static bool accepts_scalar(const FcLeaf* leaf, TVMFFIAny* value) {
  switch (leaf->dtype.code) {
    case kDLInt:
    case kDLUInt: return accepts_integer(leaf, value);
    case kDLBool: return value->type_index == kTVMFFIBool;
    case kDLFloat: return accepts_float(leaf, value);
    case kDLComplex: return accepts_complex(leaf, value);
    default: return false;
  }
}

/* ---- references ---- */

static bool accepts_ref(const FcLeaf* leaf, const TVMFFIAny* value) {
  TVMFFIByteArray text;
  switch (leaf->ref) {
    case FC_REF_ANY: return true;
    case FC_REF_FUNCTION: return value->type_index == kTVMFFIFunction;
    case FC_REF_MODULE: return value->type_index == kTVMFFIModule;
    case FC_REF_STR: return fc_any_text(value, &text);
    case FC_REF_BYTES: return fc_any_bytes(value, &text);
    case FC_REF_DTYPE: return value->type_index == kTVMFFIDataType;
    case FC_REF_DEVICE: return value->type_index == kTVMFFIDevice;
    case FC_REF_SHAPE: return value->type_index == kTVMFFIShape;
    default: return false;
  }
}

/* ---- lists ---- */

static const FcLeaf* item_leaf(const FcLeaf* leaf, int64_t i) {
  return &leaf->items[leaf->flags & FC_LEAF_REPEATED ? 0 : i];
}

/* The items of a value that is a list of the right length; NULL: it is not. */
static const TVMFFISeqCell* list_of(const FcLeaf* leaf, const TVMFFIAny* value) {
  if (value->type_index != kTVMFFIArray) return NULL;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(value->v_obj);
  return leaf->flags & FC_LEAF_REPEATED || cell->size == leaf->n_items ? cell : NULL;
}

/* Accepts only items that need no conversion; the typed rules convert others. */
static bool accepts_list(const FcLeaf* leaf, const TVMFFIAny* value, int64_t* symbols) {
  const TVMFFISeqCell* cell = list_of(leaf, value);
  for (int64_t i = 0; cell && i < cell->size; ++i) {
    TVMFFIAny item = ((const TVMFFIAny*)cell->data)[i];
    int32_t before = item.type_index;
    if (!fc_leaf_accepts(item_leaf(leaf, i), &item, symbols) || item.type_index != before) return false;
  }
  return cell != NULL;
}

/* ---- all ---- */

bool fc_leaf_accepts(const FcLeaf* leaf, TVMFFIAny* value, int64_t* symbols) {
  if (FC_UNLIKELY(value->type_index == kTVMFFINone && leaf->flags & FC_LEAF_OPTIONAL)) return true;
  switch (leaf->kind) {
    case FC_LEAF_TENSOR: return accepts_tensor(leaf, value, symbols);
    case FC_LEAF_SCALAR: return accepts_scalar(leaf, value);
    case FC_LEAF_REF: return accepts_ref(leaf, value);
    case FC_LEAF_LIST: return accepts_list(leaf, value, symbols);
    default: return false;
  }
}

void fc_leaf_learn(const FcLeaf* leaf, const TVMFFIAny* value, int64_t* symbols) {
  const TVMFFISeqCell* cell = leaf->n_items ? list_of(leaf, value) : NULL;
  for (int64_t i = 0; cell && i < cell->size; ++i) {
    fc_leaf_learn(item_leaf(leaf, i), (const TVMFFIAny*)cell->data + i, symbols);
  }
  const DLTensor* dl = leaf->n_items ? NULL : fc_any_tensor(value);
  for (int32_t i = 0; dl && dl->ndim == leaf->ndim && i < leaf->ndim; ++i) {
    (void)fc_dim_accepts(leaf, i, dl->shape[i], symbols);
  }
}
