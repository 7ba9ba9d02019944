/* Arrays, Lists, Shapes, big integers, and views of tensors. */
#include <stdlib.h>

#include "runtime/runtime.h"

/* ---- sequences ---- */

typedef struct {
  TVMFFIObject header;
  TVMFFISeqCell seq;
} SeqObj;

static void seq_delete(void* self, int flags) {
  SeqObj* sequence = self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    TVMFFIAny* items = sequence->seq.data;
    for (int64_t i = sequence->seq.size - 1; i >= 0; --i) fc_any_clear(&items[i]);
    if (sequence->seq.data_deleter) sequence->seq.data_deleter(sequence->seq.data);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

static int no_room(const TVMFFIAny* items, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    TVMFFIAny item = items[i];
    fc_any_clear(&item);
  }
  fc_error_no_memory();
  return -1;
}

static void seq_init(SeqObj* object, int32_t type_index, void* data, const TVMFFIAny* items, int64_t n) {
  fc_object_init(&object->header, type_index, seq_delete);
  object->seq = (TVMFFISeqCell){data, n, n, NULL};
  if (n) memcpy(data, items, (size_t)n * sizeof *items);
}

int fc_array_new(const TVMFFIAny* items, int64_t n, TVMFFIObjectHandle* out) {
  SeqObj* array = malloc(sizeof *array + (size_t)n * sizeof(TVMFFIAny));
  if (!array) return no_room(items, n);
  seq_init(array, kTVMFFIArray, array + 1, items, n);
  *out = array;
  return 0;
}

/* The items are a separate allocation, because appending may move them. */
int fc_list_new(const TVMFFIAny* items, int64_t n, TVMFFIObjectHandle* out) {
  SeqObj* list = malloc(sizeof *list);
  TVMFFIAny* data = malloc(((size_t)n + 1) * sizeof *data);
  if (!list || !data) {
    free(list);
    free(data);
    return no_room(items, n);
  }
  seq_init(list, kTVMFFIList, data, items, n);
  list->seq.capacity = n + 1;
  list->seq.data_deleter = free;
  *out = list;
  return 0;
}

int fc_list_insert(TVMFFIObject* list, int64_t at, TVMFFIAny item) {
  TVMFFISeqCell* seq = TVMFFISeqGetCellPtr(list);
  if (seq->size == seq->capacity) {
    int64_t room = seq->capacity * 2 + 4;
    TVMFFIAny* data = malloc((size_t)room * sizeof *data);
    if (!data) return no_room(&item, 1);
    if (seq->size) memcpy(data, seq->data, (size_t)seq->size * sizeof *data);
    if (seq->data_deleter) seq->data_deleter(seq->data);
    *seq = (TVMFFISeqCell){data, seq->size, room, free};
  }
  TVMFFIAny* items = seq->data;
  memmove(items + at + 1, items + at, (size_t)(seq->size - at) * sizeof *items);
  items[at] = item;
  ++seq->size;
  return 0;
}

void fc_list_erase(TVMFFIObject* list, int64_t begin, int64_t end) {
  TVMFFISeqCell* seq = TVMFFISeqGetCellPtr(list);
  TVMFFIAny* items = seq->data;
  for (; end > begin; --end) {
    TVMFFIAny old = items[begin];
    memmove(items + begin, items + begin + 1, (size_t)(seq->size - begin - 1) * sizeof *items);
    --seq->size;
    fc_any_clear(&old); /* last: a deleter may look at the list */
  }
}

/* ---- shapes ---- */

typedef struct {
  TVMFFIObject header;
  TVMFFIShapeCell cell;
} ShapeObj;

static void free_plain(void* self, int flags) {
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

int fc_shape_new(const int64_t* dims, size_t n, TVMFFIObjectHandle* out) {
  ShapeObj* shape = malloc(sizeof *shape + n * sizeof *dims);
  if (!shape) {
    fc_error_no_memory();
    return -1;
  }
  fc_object_init(&shape->header, kTVMFFIShape, free_plain);
  shape->cell.data = (int64_t*)(shape + 1);
  shape->cell.size = n;
  if (n) memcpy(shape + 1, dims, n * sizeof *dims);
  *out = shape;
  return 0;
}

/* ---- big integers: the words follow their count ---- */

typedef struct {
  TVMFFIObject header;
  size_t count;
  int64_t words[];
} BigIntObj;

/* Leading words that only repeat the sign are not needed. */
static size_t needed_words(const int64_t* words, size_t count) {
  while (count > 1 && words[count - 1] == (words[count - 2] < 0 ? -1 : 0)) --count;
  return count;
}

int TVMFFIBigIntFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out) {
  size_t given = input->size / sizeof(int64_t);
  if (input->size == 0 || input->size % sizeof(int64_t) != 0) {
    fc_error_format("ValueError", "an integer consists of words of 8 bytes, got %zu bytes", input->size);
    fc_foreign_error_mirror();
    return -1;
  }
  BigIntObj* number = malloc(sizeof *number + input->size);
  if (!number) {
    fc_error_no_memory();
    return -1;
  }
  fc_object_init(&number->header, kTVMFFIBigInt, free_plain);
  memcpy(number->words, input->data, input->size);
  number->count = needed_words(number->words, given);
  if (number->count == 1) {
    *out = fc_any_int(number->words[0]);
    free(number);
  } else {
    *out = fc_any_object(number);
  }
  return 0;
}

TVMFFIByteArray TVMFFIBigIntGetContentByteArray(const TVMFFIAny* value) {
  if (value->type_index == kTVMFFIInt) return (TVMFFIByteArray){(const char*)&value->v_int64, sizeof(int64_t)};
  if (value->type_index != kTVMFFIBigInt) return (TVMFFIByteArray){NULL, 0};
  const BigIntObj* number = (const BigIntObj*)value->v_obj;
  return (TVMFFIByteArray){(const char*)number->words, number->count * sizeof(int64_t)};
}

/* ---- views of tensors ---- */

static void release_source(FcTensorObj* view) { fc_decref(view->context); }

int TVMFFITensorCreateUnsafeView(TVMFFIObjectHandle source, const DLTensor* prototype, TVMFFIObjectHandle* out) {
  FcTensorObj* view = fc_tensor_new(prototype, release_source, source);
  if (!view) return -1;
  fc_incref(source);
  view->flags = fc_tensor_flags(source);
  *out = view;
  return 0;
}
