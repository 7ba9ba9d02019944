/* Recursive equality and hashes of values. */
#include "runtime/whole.h"

#include <math.h>

#include "runtime/text.h"

/* Bits of a field's flags. */
enum { STRUCTURAL_IGNORE = 1 << 3, COMPARE_OFF = 1 << 7, HASH_OFF = 1 << 8 };

/* ---- fields ---- */

static int read_field(TVMFFIObject* object, const TVMFFIFieldInfo* field, TVMFFIAny* value) {
  *value = fc_any_none();
  if (!field->getter) return 0;
  return field->getter((char*)object + field->offset, value);
}

static int visit_fields(TVMFFIObject* object, const TVMFFITypeInfo* type,
                        int (*visit)(void*, const TVMFFIFieldInfo*, TVMFFIAny*), void* context) {
  int rc = 0;
  for (int32_t i = 0; rc == 0 && i < type->num_fields; ++i) {
    TVMFFIAny value;
    rc = read_field(object, &type->fields[i], &value);
    if (rc == 0) rc = visit(context, &type->fields[i], &value);
    fc_any_clear(&value);
  }
  return rc;
}

int fc_whole_fields(TVMFFIObject* object, int (*visit)(void*, const TVMFFIFieldInfo*, TVMFFIAny*), void* context) {
  const TVMFFITypeInfo* type = TVMFFIGetTypeInfo(object->type_index);
  int rc = 0;
  for (int32_t i = 0; rc == 0 && i < type->type_depth; ++i) {
    rc = visit_fields(object, type->type_ancestors[i], visit, context);
  }
  return rc == 0 ? visit_fields(object, type, visit, context) : rc;
}

bool fc_whole_has_fields(const TVMFFIObject* object) {
  const TVMFFITypeInfo* type = TVMFFIGetTypeInfo(object->type_index);
  int32_t count = type->num_fields;
  for (int32_t i = 0; i < type->type_depth; ++i) count += type->type_ancestors[i]->num_fields;
  return count > 0;
}

static bool counts(const TVMFFIFieldInfo* field, FcWholeMode mode, int64_t off) {
  return !(field->flags & (mode.structural ? STRUCTURAL_IGNORE : off));
}

/* ---- equality ---- */

typedef struct {
  FcWholeMode mode;
  int depth;
  bool same; /* so far */
} Equal;

static int equal(Equal* e, const TVMFFIAny* a, const TVMFFIAny* b);

static int too_deep(void) {
  fc_error_set("RecursionError", "the value is nested too deeply, or contains itself");
  return -1;
}

/* Text has one kind however it is stored, and so have bytes. */
static int32_t kind_of(const TVMFFIAny* any) {
  switch (any->type_index) {
    case kTVMFFIRawStr:
    case kTVMFFISmallStr: return kTVMFFIStr;
    case kTVMFFIByteArrayPtr:
    case kTVMFFISmallBytes: return kTVMFFIBytes;
    case kTVMFFIDLTensorPtr: return kTVMFFITensor;
    default: return any->type_index;
  }
}

static bool equal_floats(double a, double b, bool structural) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b && (!structural || signbit(a) == signbit(b));
}

static bool equal_shapes(const TVMFFIShapeCell* a, const TVMFFIShapeCell* b) {
  return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size * sizeof *a->data) == 0);
}

static const char* contents(const DLTensor* tensor) { return (const char*)tensor->data + tensor->byte_offset; }

static bool readable(const DLTensor* tensor) {
  return tensor->device.device_type == kDLCPU && fc_is_contiguous(tensor) && fc_nbytes(tensor) >= 0;
}

static bool equal_tensors(const DLTensor* a, const DLTensor* b, bool skip_contents) {
  size_t dims = (size_t)a->ndim * sizeof *a->shape;
  if (!fc_dtype_equal(a->dtype, b->dtype) || a->ndim != b->ndim || memcmp(a->shape, b->shape, dims) != 0) return false;
  if (skip_contents || contents(a) == contents(b)) return true;
  return readable(a) && readable(b) && memcmp(contents(a), contents(b), (size_t)fc_nbytes(a)) == 0;
}

static int equal_items(Equal* e, const TVMFFISeqCell* a, const TVMFFISeqCell* b) {
  e->same = a->size == b->size;
  int rc = 0;
  for (int64_t i = 0; rc == 0 && e->same && i < a->size; ++i) {
    rc = equal(e, (const TVMFFIAny*)a->data + i, (const TVMFFIAny*)b->data + i);
  }
  return rc;
}

static int equal_maps(Equal* e, const TVMFFIObject* a, TVMFFIObject* b) {
  FcMapCursor cursor = {.begun = false};
  int rc = 0;
  e->same = TVMFFIMapGetCellPtr((void*)a)->size == TVMFFIMapGetCellPtr(b)->size;
  while (rc == 0 && e->same && fc_map_next(a, &cursor)) {
    const TVMFFIAny* other = fc_map_find(b, cursor.key);
    e->same = other != NULL;
    if (other) rc = equal(e, cursor.value, other);
  }
  return rc;
}

typedef struct {
  Equal* equal;
  TVMFFIObject* other;
} Fields;

static int equal_field(void* context, const TVMFFIFieldInfo* field, TVMFFIAny* value) {
  Fields* fields = context;
  TVMFFIAny other;
  if (!fields->equal->same || !counts(field, fields->equal->mode, COMPARE_OFF)) return 0;
  int rc = read_field(fields->other, field, &other);
  if (rc == 0) rc = equal(fields->equal, value, &other);
  fc_any_clear(&other);
  return rc;
}

static int equal_objects(Equal* e, TVMFFIObject* a, TVMFFIObject* b) {
  Fields fields = {e, b};
  if (e->depth == FC_DEPTH_LIMIT) return too_deep();
  ++e->depth;
  int rc = 0;
  switch (a->type_index) {
    case kTVMFFIArray:
    case kTVMFFIList: rc = equal_items(e, TVMFFISeqGetCellPtr(a), TVMFFISeqGetCellPtr(b)); break;
    case kTVMFFIMap:
    case kTVMFFIDict: rc = equal_maps(e, a, b); break;
    case kTVMFFIShape: e->same = equal_shapes(TVMFFIShapeGetCellPtr(a), TVMFFIShapeGetCellPtr(b)); break;
    default: e->same = fc_whole_has_fields(a); rc = e->same ? fc_whole_fields(a, equal_field, &fields) : 0;
  }
  --e->depth;
  return rc;
}

static int equal(Equal* e, const TVMFFIAny* a, const TVMFFIAny* b) {
  int32_t kind = kind_of(a);
  e->same = kind == kind_of(b);
  if (!e->same) return 0;
  if (kind == kTVMFFITensor) {
    e->same = equal_tensors(fc_any_tensor(a), fc_any_tensor(b), e->mode.skip_tensor_contents);
  } else if (kind == kTVMFFIFloat) {
    e->same = equal_floats(a->v_float64, b->v_float64, e->mode.structural);
  } else if (!fc_any_equal(a, b)) {
    e->same = fc_any_is_object(a) && kind != kTVMFFIStr && kind != kTVMFFIBytes;
    if (e->same) return equal_objects(e, a->v_obj, b->v_obj);
  }
  return 0;
}

int fc_whole_equal(const TVMFFIAny* a, const TVMFFIAny* b, FcWholeMode mode, bool* out) {
  Equal e = {mode, 0, true};
  int rc = equal(&e, a, b);
  *out = rc == 0 && e.same;
  return rc;
}

/* ---- hashes ---- */

typedef struct {
  FcWholeMode mode;
  int depth;
  uint64_t hash;
} Hash;

static uint64_t combine(uint64_t a, uint64_t b) { return a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2)); }

static int hash_into(Hash* h, const TVMFFIAny* value);

static int hash_items(Hash* h, const TVMFFISeqCell* cell) {
  int rc = 0;
  h->hash = combine(h->hash, (uint64_t)cell->size);
  for (int64_t i = 0; rc == 0 && i < cell->size; ++i) rc = hash_into(h, (const TVMFFIAny*)cell->data + i);
  return rc;
}

/* The order of pairs does not matter: combines each key with its value, and adds up the pairs' hashes. */
static int hash_pairs(Hash* h, const TVMFFIObject* map) {
  FcMapCursor cursor = {.begun = false};
  uint64_t sum = 0;
  int rc = 0;
  while (rc == 0 && fc_map_next(map, &cursor)) {
    Hash pair = {h->mode, h->depth, fc_any_hash(cursor.key)};
    rc = hash_into(&pair, cursor.value);
    sum += pair.hash;
  }
  h->hash = combine(h->hash, sum);
  return rc;
}

static int hash_field(void* context, const TVMFFIFieldInfo* field, TVMFFIAny* value) {
  Hash* h = context;
  return counts(field, h->mode, COMPARE_OFF | HASH_OFF) ? hash_into(h, value) : 0;
}

static int hash_object(Hash* h, TVMFFIObject* object) {
  if (h->depth == FC_DEPTH_LIMIT) return too_deep();
  ++h->depth;
  int rc = 0;
  switch (object->type_index) {
    case kTVMFFIArray:
    case kTVMFFIList: rc = hash_items(h, TVMFFISeqGetCellPtr(object)); break;
    case kTVMFFIMap:
    case kTVMFFIDict: rc = hash_pairs(h, object); break;
    case kTVMFFIShape: {
      const TVMFFIShapeCell* cell = TVMFFIShapeGetCellPtr(object);
      h->hash = combine(h->hash, fc_hash_bytes((const char*)cell->data, cell->size * sizeof *cell->data));
      break;
    }
    default:
      if (fc_whole_has_fields(object)) rc = fc_whole_fields(object, hash_field, h);
      else h->hash = combine(h->hash, (uint64_t)(uintptr_t)object);
  }
  --h->depth;
  return rc;
}

static uint64_t hash_tensor(const DLTensor* tensor, bool skip_contents) {
  uint64_t hash = fc_hash_bytes((const char*)tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
  hash = combine(hash, fc_hash_bytes((const char*)&tensor->dtype, sizeof tensor->dtype));
  if (skip_contents || !readable(tensor)) return hash;
  return combine(hash, fc_hash_bytes(contents(tensor), (size_t)fc_nbytes(tensor)));
}

/* Gives equal floats the same bits. */
static TVMFFIAny canonical(const TVMFFIAny* value, bool structural) {
  TVMFFIAny out = *value;
  if (isnan(out.v_float64)) out.v_float64 = __builtin_nan("");
  if (!structural && out.v_float64 == 0) out.v_float64 = 0;
  return out;
}

static int hash_into(Hash* h, const TVMFFIAny* value) {
  int32_t kind = kind_of(value);
  bool text = kind == kTVMFFIStr || kind == kTVMFFIBytes;
  h->hash = combine(h->hash, (uint64_t)kind);
  if (kind == kTVMFFITensor) {
    h->hash = combine(h->hash, hash_tensor(fc_any_tensor(value), h->mode.skip_tensor_contents));
  } else if (kind == kTVMFFIFloat) {
    TVMFFIAny same = canonical(value, h->mode.structural);
    h->hash = combine(h->hash, fc_any_hash(&same));
  } else if (fc_any_is_object(value) && !text) {
    return hash_object(h, value->v_obj);
  } else {
    h->hash = combine(h->hash, fc_any_hash(value));
  }
  return 0;
}

int fc_whole_hash(const TVMFFIAny* value, FcWholeMode mode, uint64_t* out) {
  Hash h = {mode, 0, 0};
  int rc = hash_into(&h, value);
  *out = h.hash;
  return rc;
}
