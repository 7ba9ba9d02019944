/* Checks of the runtime that only native code can make; each returns 0, or the line that failed. */
#include <farcall/c_api.h>
#include <string.h>

static int give(TVMFFIAny* result, int64_t value) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = value;
  return 0;
}

#define EXPECT(condition) \
  if (!(condition)) return give(result, __LINE__)

static TVMFFIByteArray text(const char* data) { return (TVMFFIByteArray){data, strlen(data)}; }

static int index_of(const char* key, int32_t fixed, int32_t slots, int32_t parent) {
  TVMFFIByteArray name = text(key);
  return TVMFFITypeGetOrAllocIndex(&name, fixed, 1, slots, 1, parent);
}

static int has_error(const char* kind) {
  TVMFFIObjectHandle error;
  TVMFFIErrorMoveFromRaised(&error);
  int same = error && strcmp(TVMFFIErrorGetCellPtr(error)->kind.data, kind) == 0;
  if (error) TVMFFIObjectDecRef(error);
  return same;
}

static int call(const char* function, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIByteArray name = text(function);
  TVMFFIObjectHandle handle;
  if (TVMFFIFunctionGetGlobal(&name, &handle) != 0 || !handle) return -1;
  int rc = TVMFFIFunctionCall(handle, (TVMFFIAny*)args, n, result);
  TVMFFIObjectDecRef(handle);
  return rc;
}

/* ---- types ---- */

FARCALL_KERNEL(check_types) {
  EXPECT(index_of("checks.Nobody", -1, 0, -2) == -2);
  int32_t parent = index_of("checks.Parent", -1, 3, kTVMFFIObject);
  int32_t other = index_of("checks.Other", -1, 0, kTVMFFIObject);
  EXPECT(parent >= kTVMFFIDynObjectBegin && other == parent + 4);
  EXPECT(index_of("checks.Parent", -1, 3, kTVMFFIObject) == parent && index_of("checks.Parent", -1, 0, -2) == parent);
  int32_t first = index_of("checks.First", -1, 1, parent), second = index_of("checks.Second", -1, 0, parent);
  EXPECT(first == parent + 1 && second == parent + 3);
  EXPECT(index_of("checks.Third", -1, 0, parent) > other); /* no free index after the parent's */
  int32_t deep = index_of("checks.Deep", -1, 0, first);
  EXPECT(deep == first + 1);
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(deep);
  EXPECT(info->type_index == deep && info->type_depth == 3 && strcmp(info->type_key.data, "checks.Deep") == 0);
  EXPECT(info->type_ancestors[0]->type_index == kTVMFFIObject && info->type_ancestors[1]->type_index == parent);
  EXPECT(info->type_ancestors[2] == TVMFFIGetTypeInfo(first));
  EXPECT(strcmp(TVMFFIGetTypeInfo(kTVMFFIMap)->type_key.data, "ffi.Map") == 0);
  EXPECT(TVMFFIGetTypeInfo(kTVMFFIMap)->type_depth == 1 && TVMFFIGetTypeInfo(kTVMFFIInt)->type_depth == 0);
  const int32_t strange[] = {-5, 100, 1 << 17, 1 << 30};
  for (int i = 0; i < 4; ++i) EXPECT(strcmp(TVMFFIGetTypeInfo(strange[i])->type_key.data, "(unregistered type)") == 0);
  /* Two types that ask for the same index: the second gets another. */
  EXPECT(index_of("checks.Fixed", 120, 0, kTVMFFIObject) == 120);
  EXPECT(index_of("checks.Late", 120, 0, kTVMFFIObject) >= kTVMFFIDynObjectBegin);
  return give(result, 0);
}

static int get_field(void* field, TVMFFIAny* result) { return give(result, *(int64_t*)field); }

FARCALL_KERNEL(check_descriptions) {
  int32_t type = index_of("checks.Described", -1, 0, kTVMFFIObject);
  TVMFFIFieldInfo field = {.name = text("x"), .doc = text("the x"), .metadata = text("{}"), .size = 8, .alignment = 8,
                           .offset = 24, .getter = get_field};
  EXPECT(TVMFFITypeRegisterField(type, &field) == 0 && TVMFFITypeRegisterField(type, &field) == 0);
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(type);
  EXPECT(info->num_fields == 1 && strcmp(info->fields[0].doc.data, "the x") == 0 && info->fields[0].offset == 24);
  field.offset = 32;
  EXPECT(TVMFFITypeRegisterField(type, &field) == -1 && has_error("ValueError") && info->num_fields == 1);
  field.name = text("y");
  EXPECT(TVMFFITypeRegisterField(type, &field) == 0 && info->num_fields == 2 && info->fields[1].offset == 32);
  TVMFFIMethodInfo method = {.name = text("m"), .doc = text(""), .metadata = text("")};
  EXPECT(TVMFFITypeRegisterMethod(type, &method) == 0 && TVMFFITypeRegisterMethod(type, &method) == 0);
  EXPECT(info->num_methods == 1 && info->metadata == NULL);
  method.metadata = text("{\"type_schema\": \"another overload\"}");
  EXPECT(TVMFFITypeRegisterMethod(type, &method) == 0 && TVMFFITypeRegisterMethod(type, &method) == 0);
  EXPECT(info->num_methods == 2 && strcmp(info->methods[1].name.data, "m") == 0);
  TVMFFITypeMetadata metadata = {.doc = text("a thing"), .total_size = 40};
  EXPECT(TVMFFITypeRegisterMetadata(type, &metadata) == 0 && info->metadata->total_size == 40);
  metadata.total_size = 48;
  EXPECT(TVMFFITypeRegisterMetadata(type, &metadata) == -1 && has_error("ValueError"));
  EXPECT(TVMFFITypeRegisterField(9999, &field) == -1 && has_error("IndexError"));
  return give(result, 0);
}

FARCALL_KERNEL(check_attributes) {
  int32_t type = index_of("checks.Attributed", -1, 0, kTVMFFIObject);
  TVMFFIByteArray name = text("checks.attribute");
  TVMFFIAny value = {.type_index = kTVMFFIInt, .v_int64 = 5};
  EXPECT(TVMFFIGetTypeAttrColumn(&name) == NULL);
  EXPECT(TVMFFITypeRegisterAttr(type, &name, &value) == 0 && TVMFFITypeRegisterAttr(type, &name, &value) == 0);
  const TVMFFITypeAttrColumn* column = TVMFFIGetTypeAttrColumn(&name);
  EXPECT(column && type - column->begin_index < column->size);
  EXPECT(column->data[type - column->begin_index].v_int64 == 5 && column->data[0].type_index == kTVMFFINone);
  value.v_int64 = 6;
  EXPECT(TVMFFITypeRegisterAttr(type, &name, &value) == -1 && has_error("ValueError"));
  EXPECT(TVMFFITypeRegisterAttr(kTVMFFITensor, &name, &value) == 0 && column->data[kTVMFFITensor].v_int64 == 6);
  int32_t far_type = index_of("checks.Far", -1, 2000, kTVMFFIObject);
  far_type = index_of("checks.Farther", -1, 0, kTVMFFIObject);
  EXPECT(TVMFFITypeRegisterAttr(far_type, &name, &value) == 0 && column->size > far_type);
  EXPECT(column->data[type].v_int64 == 5);
  return give(result, 0);
}

/* ---- values ---- */

FARCALL_KERNEL(check_big_integers) {
  const int64_t small[3] = {-3, -1, -1}, large[2] = {-3, 0};
  TVMFFIByteArray words = {(const char*)small, sizeof small};
  TVMFFIAny value;
  EXPECT(TVMFFIBigIntFromByteArray(&words, &value) == 0 && value.type_index == kTVMFFIInt && value.v_int64 == -3);
  TVMFFIByteArray back = TVMFFIBigIntGetContentByteArray(&value);
  EXPECT(back.size == 8 && memcmp(back.data, small, 8) == 0);
  words = (TVMFFIByteArray){(const char*)large, sizeof large};
  EXPECT(TVMFFIBigIntFromByteArray(&words, &value) == 0 && value.type_index == kTVMFFIBigInt);
  back = TVMFFIBigIntGetContentByteArray(&value);
  EXPECT(back.size == 16 && memcmp(back.data, large, 16) == 0);
  TVMFFIObjectDecRef(value.v_obj);
  words.size = 7;
  EXPECT(TVMFFIBigIntFromByteArray(&words, &value) == -1 && has_error("ValueError"));
  words.size = 0;
  EXPECT(TVMFFIBigIntFromByteArray(&words, &value) == -1 && has_error("ValueError"));
  value = (TVMFFIAny){.type_index = kTVMFFIFloat};
  EXPECT(TVMFFIBigIntGetContentByteArray(&value).data == NULL);
  return give(result, 0);
}

FARCALL_KERNEL(check_views) {
  int64_t shape[2] = {2, 3};
  DLTensor like = {NULL, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  TVMFFIObjectHandle tensor, view;
  EXPECT(TVMFFIEnvTensorAlloc(&like, &tensor) == 0);
  float* data = TVMFFITensorGetDLTensorPtr(tensor)->data;
  for (int i = 0; i < 6; ++i) data[i] = (float)i;
  int64_t row[1] = {3};
  DLTensor part = {data + 3, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, row, NULL, 0};
  EXPECT(TVMFFITensorCreateUnsafeView(tensor, &part, &view) == 0);
  TVMFFIObjectDecRef(tensor); /* the view keeps it alive */
  EXPECT(((float*)TVMFFITensorGetDLTensorPtr(view)->data)[2] == 5);
  EXPECT(TVMFFITensorGetDLTensorPtr(view)->strides[0] == 1 && TVMFFITensorGetDLTensorPtr(view)->shape != row);
  TVMFFIObjectDecRef(view);
  return give(result, 0);
}

/* ---- a List and a Dict that live through many operations: a list of (op, key, value), then the content ---- */

static TVMFFIAny integer(int64_t value) { return (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = value}; }

FARCALL_KERNEL(list_session) {
  static const char* const operations[] = {"ffi.ListAppend", "ffi.ListInsert", "ffi.ListSetItem",  "ffi.ListErase",
                                           "ffi.ListPop",    "ffi.ListClear",  "ffi.ListEraseRange"};
  static const int32_t counts[] = {2, 3, 3, 2, 2, 1, 3};
  TVMFFIAny list;
  memset(&list, 0, sizeof list);
  if (call("ffi.List", NULL, 0, &list) != 0) return -1;
  for (int32_t i = 0; i + 2 < num_args; i += 3) {
    TVMFFIAny dropped = {.type_index = kTVMFFINone};
    TVMFFIAny call_args[3] = {list, args[i + 1], args[i + 2]};
    int64_t op = args[i].v_int64;
    if (call(operations[op], call_args, counts[op], &dropped) == 0) continue;
    TVMFFIObjectDecRef(list.v_obj);
    return -1;
  }
  *result = list;
  return 0;
}

FARCALL_KERNEL(dict_session) {
  TVMFFIAny dict = {.type_index = kTVMFFINone};
  if (call("ffi.Dict", NULL, 0, &dict) != 0) return -1;
  int rc = 0;
  for (int32_t i = 0; i + 2 < num_args && rc == 0; i += 3) {
    TVMFFIAny none = {.type_index = kTVMFFINone}, count = integer(0);
    TVMFFIAny call_args[3] = {dict, args[i + 1], args[i + 2]};
    int64_t op = args[i].v_int64;
    if (op == 0) rc = call("ffi.DictSetItem", call_args, 3, &none);
    if (op == 2) rc = call("ffi.DictClear", call_args, 1, &none);
    if (op == 1) rc = call("ffi.DictCount", call_args, 2, &count);
    if (op == 1 && count.v_int64) rc = call("ffi.DictErase", call_args, 2, &none);
  }
  *result = dict;
  if (rc == 0) return 0;
  TVMFFIObjectDecRef(dict.v_obj);
  return rc;
}
