/* The builtin functions on Array, List, Shape, String and Bytes. */
#include <stdlib.h>

#include "runtime/builtins.h"

typedef int (*MakeSequence)(const TVMFFIAny* items, int64_t n, TVMFFIObjectHandle* out);

static int make(MakeSequence new_sequence, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObjectHandle sequence;
  TVMFFIAny* items = malloc(((size_t)n + 1) * sizeof *items);
  int32_t done = 0;
  if (!items) {
    fc_error_no_memory();
    return -1;
  }
  while (done < n && fc_any_to_owned(&args[done], &items[done]) == 0) ++done;
  int rc = done == n ? new_sequence(items, n, &sequence) : -1;
  if (rc == 0) *result = fc_any_object(sequence);
  while (done < n && done > 0) fc_any_clear(&items[--done]);
  free(items);
  return rc;
}

static int make_array(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  return make(fc_array_new, args, n, result);
}
static int make_list(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) { return make(fc_list_new, args, n, result); }

/* ---- reading ---- */

/* Negative indices count from the end. `end`: the index may be `size`, for insertion. */
static bool index_argument(const TVMFFIAny* args, int32_t i, int64_t size, bool end, int64_t* out) {
  int64_t index;
  if (!fc_int_argument(args, i, &index)) return false;
  *out = index < 0 ? index + size : index;
  if (*out >= 0 && *out < size + end) return true;
  fc_error_format("IndexError", "index %lld of %lld items", (long long)index, (long long)size);
  return false;
}

static int size_of(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  TVMFFIObject* sequence = fc_object_argument(args, 0, type_index);
  if (!sequence) return -1;
  *result = fc_any_int(TVMFFISeqGetCellPtr(sequence)->size);
  return 0;
}

static int item_of(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  int64_t i;
  TVMFFIObject* sequence = fc_object_argument(args, 0, type_index);
  if (!sequence || !index_argument(args, 1, TVMFFISeqGetCellPtr(sequence)->size, false, &i)) return -1;
  return fc_any_to_owned((TVMFFIAny*)TVMFFISeqGetCellPtr(sequence)->data + i, result);
}

static int contains(const TVMFFIAny* args, int32_t type_index, TVMFFIAny* result) {
  TVMFFIObject* sequence = fc_object_argument(args, 0, type_index);
  if (!sequence) return -1;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(sequence);
  bool found = false;
  for (int64_t i = 0; i < cell->size && !found; ++i) found = fc_any_equal((TVMFFIAny*)cell->data + i, &args[1]);
  *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = found};
  return 0;
}

#define BUILTIN(name) static int name(const TVMFFIAny* args, int32_t n, TVMFFIAny* result)

BUILTIN(array_size) { return (void)n, size_of(args, kTVMFFIArray, result); }
BUILTIN(array_item) { return (void)n, item_of(args, kTVMFFIArray, result); }
BUILTIN(array_contains) { return (void)n, contains(args, kTVMFFIArray, result); }
BUILTIN(list_size) { return (void)n, size_of(args, kTVMFFIList, result); }
BUILTIN(list_item) { return (void)n, item_of(args, kTVMFFIList, result); }
BUILTIN(list_contains) { return (void)n, contains(args, kTVMFFIList, result); }

/* ---- changing a List ---- */

BUILTIN(list_set) {
  int64_t i;
  TVMFFIAny item;
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  if (!list || !index_argument(args, 1, TVMFFISeqGetCellPtr(list)->size, false, &i)) return -1;
  if (fc_any_to_owned(&args[2], &item) != 0) return -1;
  TVMFFIAny* place = (TVMFFIAny*)TVMFFISeqGetCellPtr(list)->data + i;
  TVMFFIAny old = *place;
  *place = item;
  fc_any_clear(&old);
  return 0;
}

static int insert(TVMFFIObject* list, int64_t at, const TVMFFIAny* view) {
  TVMFFIAny item;
  return fc_any_to_owned(view, &item) == 0 ? fc_list_insert(list, at, item) : -1;
}

BUILTIN(list_append) {
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  return list ? insert(list, TVMFFISeqGetCellPtr(list)->size, &args[1]) : -1;
}

BUILTIN(list_insert) {
  int64_t i;
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  if (!list || !index_argument(args, 1, TVMFFISeqGetCellPtr(list)->size, true, &i)) return -1;
  return insert(list, i, &args[2]);
}

BUILTIN(list_pop) {
  int64_t i;
  (void)n;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  const TVMFFIAny last[2] = {fc_any_none(), fc_any_int(-1)};
  if (!list || !index_argument(n > 1 ? args : last, 1, TVMFFISeqGetCellPtr(list)->size, false, &i)) return -1;
  if (fc_any_to_owned((TVMFFIAny*)TVMFFISeqGetCellPtr(list)->data + i, result) != 0) return -1;
  fc_list_erase(list, i, i + 1);
  return 0;
}

BUILTIN(list_erase) {
  int64_t i;
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  if (!list || !index_argument(args, 1, TVMFFISeqGetCellPtr(list)->size, false, &i)) return -1;
  fc_list_erase(list, i, i + 1);
  return 0;
}

BUILTIN(list_erase_range) {
  int64_t begin, end;
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  if (!list || !index_argument(args, 1, TVMFFISeqGetCellPtr(list)->size, true, &begin)) return -1;
  if (!index_argument(args, 2, TVMFFISeqGetCellPtr(list)->size, true, &end)) return -1;
  fc_list_erase(list, begin, end);
  return 0;
}

BUILTIN(list_clear) {
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  if (!list) return -1;
  fc_list_erase(list, 0, TVMFFISeqGetCellPtr(list)->size);
  return 0;
}

BUILTIN(list_reverse) {
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  if (!list) return -1;
  TVMFFIAny* items = TVMFFISeqGetCellPtr(list)->data;
  for (int64_t i = 0, k = TVMFFISeqGetCellPtr(list)->size - 1; i < k; ++i, --k) {
    TVMFFIAny item = items[i];
    items[i] = items[k];
    items[k] = item;
  }
  return 0;
}

/* No effect: a List grows when needed. */
BUILTIN(list_reserve) {
  int64_t room;
  (void)n, (void)result;
  return fc_object_argument(args, 0, kTVMFFIList) && fc_int_argument(args, 1, &room) ? 0 : -1;
}

/* Replaces items begin to end of the first list by those of the second. */
BUILTIN(list_replace) {
  int64_t begin, end;
  (void)n, (void)result;
  TVMFFIObject* list = fc_object_argument(args, 0, kTVMFFIList);
  if (!list || !index_argument(args, 1, TVMFFISeqGetCellPtr(list)->size, true, &begin)) return -1;
  if (!index_argument(args, 2, TVMFFISeqGetCellPtr(list)->size, true, &end)) return -1;
  bool listed = args[3].type_index == kTVMFFIList || args[3].type_index == kTVMFFIArray;
  if (!listed && !fc_bad_argument(3, "a list", &args[3])) return -1;
  TVMFFIAny with; /* a copy: it may be the same list */
  const TVMFFISeqCell* source = TVMFFISeqGetCellPtr(args[3].v_obj);
  if (source->size > INT32_MAX || make(fc_array_new, source->data, (int32_t)source->size, &with) != 0) return -1;
  fc_list_erase(list, begin, end);
  const TVMFFISeqCell* items = TVMFFISeqGetCellPtr(with.v_obj);
  int rc = 0;
  for (int64_t i = 0; rc == 0 && i < items->size; ++i) rc = insert(list, begin + i, (TVMFFIAny*)items->data + i);
  fc_any_clear(&with);
  return rc;
}

/* ---- Shape, String, Bytes ---- */

BUILTIN(make_shape) {
  TVMFFIObjectHandle shape;
  int64_t* dims = malloc(((size_t)n + 1) * sizeof *dims);
  if (!dims) {
    fc_error_no_memory();
    return -1;
  }
  int rc = 0;
  for (int32_t i = 0; i < n && rc == 0; ++i) rc = fc_int_argument(args, i, &dims[i]) ? 0 : -1;
  if (rc == 0) rc = fc_shape_new(dims, (size_t)n, &shape);
  if (rc == 0) *result = fc_any_object(shape);
  free(dims);
  return rc;
}

BUILTIN(make_string) {
  TVMFFIByteArray text;
  (void)n;
  if (!fc_text_argument(args, 0, &text)) return -1;
  return fc_any_from_bytes(kTVMFFIStr, text.data, text.size, result);
}

BUILTIN(make_bytes) {
  TVMFFIByteArray bytes;
  (void)n;
  if (!fc_any_bytes(&args[0], &bytes) && !fc_bad_argument(0, "bytes", &args[0])) return -1;
  return fc_any_from_bytes(kTVMFFIBytes, bytes.data, bytes.size, result);
}

const FcBuiltin fc_container_builtins[] = {
    {"ffi.Array", make_array, 0, -1},        {"ffi.ArraySize", array_size, 1, 1},
    {"ffi.ArrayGetItem", array_item, 2, 2},  {"ffi.ArrayContains", array_contains, 2, 2},
    {"ffi.List", make_list, 0, -1},          {"ffi.ListSize", list_size, 1, 1},
    {"ffi.ListGetItem", list_item, 2, 2},    {"ffi.ListContains", list_contains, 2, 2},
    {"ffi.ListSetItem", list_set, 3, 3},     {"ffi.ListAppend", list_append, 2, 2},
    {"ffi.ListInsert", list_insert, 3, 3},   {"ffi.ListPop", list_pop, 1, 2},
    {"ffi.ListErase", list_erase, 2, 2},     {"ffi.ListEraseRange", list_erase_range, 3, 3},
    {"ffi.ListClear", list_clear, 1, 1},     {"ffi.ListReverse", list_reverse, 1, 1},
    {"ffi.ListReserve", list_reserve, 2, 2}, {"ffi.ListReplaceSlice", list_replace, 4, 4},
    {"ffi.Shape", make_shape, 0, -1},        {"ffi.String", make_string, 1, 1},
    {"ffi.Bytes", make_bytes, 1, 1},         {NULL, NULL, 0, 0},
};
