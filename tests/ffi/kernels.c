/* The functions that the ffi tests call, written as a kernel author would, with c_api.h only. */
#include <farcall/c_api.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;

static int fail(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

static DLTensor* tensor_of(const TVMFFIAny* any) {
  if (any->type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(any->v_obj);
  return any->type_index == kTVMFFIDLTensorPtr ? (DLTensor*)any->v_ptr : NULL;
}

static int text_of(const TVMFFIAny* any, const char** data, size_t* size) {
  if (any->type_index == kTVMFFIRawStr) {
    *data = any->v_c_str;
    *size = strlen(any->v_c_str);
  } else if (any->type_index == kTVMFFISmallStr) {
    *data = any->v_bytes;
    *size = any->small_str_len;
  } else if (any->type_index == kTVMFFIStr) {
    *data = TVMFFIBytesGetByteArrayPtr(any->v_obj)->data;
    *size = TVMFFIBytesGetByteArrayPtr(any->v_obj)->size;
  } else {
    return fail("TypeError", "expected text");
  }
  return 0;
}

static int give_int(TVMFFIAny* result, int64_t value) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = value;
  return 0;
}

static int give_object(TVMFFIAny* result, int32_t type_index, TVMFFIObjectHandle object) {
  result->type_index = type_index;
  result->v_obj = object;
  return 0;
}

FARCALL_KERNEL(nothing) { return 0; }
FARCALL_KERNEL(count) { return give_int(result, num_args); }
FARCALL_KERNEL(first_tag) { return give_int(result, num_args ? args[0].type_index : -1); }
FARCALL_KERNEL(tag) { return give_int(result, args[0].type_index); }

FARCALL_KERNEL(add) {
  if (num_args != 2 || args[0].type_index != kTVMFFIInt || args[1].type_index != kTVMFFIInt) {
    return fail("TypeError", "add: expected two ints");
  }
  return give_int(result, args[0].v_int64 + args[1].v_int64);
}

/* ---- tensors ---- */

static int copy_tensor(DLTensor* from, TVMFFIAny* result) {
  TVMFFIObjectHandle out;
  if (TVMFFIEnvTensorAlloc(from, &out) != 0) return -1;
  char* to = (char*)TVMFFITensorGetDLTensorPtr(out)->data;
  size_t item = (size_t)from->dtype.bits * from->dtype.lanes / 8;
  int64_t n = 1, index[16] = {0};
  for (int i = 0; i < from->ndim; ++i) n *= from->shape[i];
  for (int64_t k = 0; k < n; ++k) {
    int64_t at = 0;
    for (int i = 0; i < from->ndim; ++i) at += index[i] * from->strides[i];
    memcpy(to + (size_t)k * item, (char*)from->data + from->byte_offset + at * (int64_t)item, item);
    for (int i = from->ndim - 1; i >= 0 && ++index[i] == from->shape[i]; --i) index[i] = 0;
  }
  return give_object(result, kTVMFFITensor, out);
}

/* Returns its argument; for a borrowed tensor, a copy in memory of the caller's framework. */
FARCALL_KERNEL(echo) {
  if (num_args < 1) return fail("TypeError", "echo: expected a value");
  if (args[0].type_index == kTVMFFIDLTensorPtr) return copy_tensor(tensor_of(&args[0]), result);
  return TVMFFIAnyViewToOwnedAny(&args[0], result);
}

FARCALL_KERNEL(copy) {
  DLTensor* t = num_args ? tensor_of(&args[0]) : NULL;
  return t ? copy_tensor(t, result) : fail("TypeError", "copy: expected a tensor");
}

FARCALL_KERNEL(stride) { return give_int(result, tensor_of(&args[0])->strides[args[1].v_int64]); }
FARCALL_KERNEL(ndim) { return give_int(result, tensor_of(&args[0])->ndim); }
FARCALL_KERNEL(has_strides) { return give_int(result, tensor_of(&args[0])->strides != NULL); }
FARCALL_KERNEL(address) {
  DLTensor* t = tensor_of(&args[0]);
  return give_int(result, (int64_t)(uintptr_t)t->data + (int64_t)t->byte_offset);
}

FARCALL_KERNEL(set_first) {
  *(float*)tensor_of(&args[0])->data = 42.0f;
  return 0;
}

/* Returns an empty tensor with the dtype and rank of the first argument; the second is its first dim. */
FARCALL_KERNEL(alloc) {
  DLTensor prototype = *tensor_of(&args[0]);
  int64_t shape[16];
  TVMFFIObjectHandle out;
  memcpy(shape, prototype.shape, (size_t)prototype.ndim * sizeof *shape);
  shape[0] = args[1].v_int64;
  prototype.shape = shape;
  prototype.strides = NULL;
  if (TVMFFIEnvTensorAlloc(&prototype, &out) != 0) return -1;
  return give_object(result, kTVMFFITensor, out);
}

FARCALL_KERNEL(twice) {
  TVMFFIAny items[2];
  TVMFFIObjectHandle array;
  for (int i = 0; i < 2; ++i) {
    memset(&items[i], 0, sizeof items[i]);
    if (copy_tensor(tensor_of(&args[0]), &items[i]) != 0) return -1;
  }
  if (__farcall_runtime->array_create(items, 2, &array) != 0) return -1;
  return give_object(result, kTVMFFIArray, array);
}

FARCALL_KERNEL(return_borrowed) {
  *result = args[0];
  return 0;
}

static TVMFFIAny kept;

FARCALL_KERNEL(keep) { return TVMFFIAnyViewToOwnedAny(&args[0], &kept); }

FARCALL_KERNEL(give_back) {
  *result = kept;
  memset(&kept, 0, sizeof kept);
  return 0;
}

/* ---- errors and callbacks ---- */

static void copy_text(const TVMFFIAny* any, char* out, size_t limit) {
  const char* data;
  size_t size;
  if (text_of(any, &data, &size) != 0) size = 0;
  if (size >= limit) size = limit - 1;
  memcpy(out, data, size);
  out[size] = 0;
}

FARCALL_KERNEL(raise) {
  char kind[64], message[256];
  copy_text(&args[0], kind, sizeof kind);
  copy_text(&args[1], message, sizeof message);
  return fail(kind, message);
}

FARCALL_KERNEL(raise_parts) {
  const char* parts[] = {"one ", NULL, "two"};
  TVMFFIErrorSetRaisedFromCStrParts("KeyError", parts, 3);
  return -1;
}

FARCALL_KERNEL(raise_nothing) { return -1; }
FARCALL_KERNEL(raise_through_runtime) {
  __farcall_runtime->error_set_raised_from_cstr("IndexError", "by the table");
  return -1;
}

FARCALL_KERNEL(call) {
  if (num_args < 1 || args[0].type_index != kTVMFFIFunction) return fail("TypeError", "call: expected a function");
  return TVMFFIFunctionCall(args[0].v_obj, (TVMFFIAny*)args + 1, num_args - 1, result);
}

/* Takes the pending error, inspects it, and raises it again. */
FARCALL_KERNEL(call_and_reraise) {
  if (TVMFFIFunctionCall(args[0].v_obj, NULL, 0, result) == 0) return 0;
  TVMFFIObjectHandle error;
  TVMFFIErrorMoveFromRaised(&error);
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}

FARCALL_KERNEL(call_or_kind) {
  if (TVMFFIFunctionCall(args[0].v_obj, NULL, 0, result) == 0) return 0;
  TVMFFIObjectHandle error;
  TVMFFIErrorMoveFromRaised(&error);
  int rc = TVMFFIStringFromByteArray(&TVMFFIErrorGetCellPtr(error)->kind, result);
  TVMFFIObjectDecRef(error);
  return rc;
}

static TVMFFIByteArray literal(const char* text) { return (TVMFFIByteArray){text, strlen(text)}; }

/* KeyError "inner" -> IndexError "middle" -> ValueError "outer"; the outer one has two frames, innermost first. */
FARCALL_KERNEL(raise_chain) {
  const char* const kinds[] = {"KeyError", "IndexError", "ValueError"};
  const char* const texts[] = {"inner", "middle", "outer"};
  TVMFFIObjectHandle error = NULL, cause = NULL;
  (void)args, (void)num_args, (void)result;
  for (int i = 0; i < 3; ++i) {
    TVMFFIByteArray kind = literal(kinds[i]), message = literal(texts[i]);
    TVMFFIByteArray trace = literal(i == 2 ? "  File \"deep.cc\", line 30, in deep\n  File \"top.cc\", line 4, in top\n" : "");
    if (TVMFFIErrorCreateWithCauseAndExtraContext(&kind, &message, &trace, cause, NULL, &error) != 0) return -1;
    if (cause) TVMFFIObjectDecRef(cause);
    cause = error;
  }
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}

/* Calls its argument, and adds a frame to the error. */
FARCALL_KERNEL(call_with_frame) {
  if (TVMFFIFunctionCall(args[0].v_obj, (TVMFFIAny*)args + 1, num_args - 1, result) == 0) return 0;
  TVMFFIObjectHandle error;
  TVMFFIErrorMoveFromRaised(&error);
  TVMFFIByteArray frame = literal("  File \"between.cc\", line 5, in between\n");
  TVMFFIErrorGetCellPtr(error)->update_backtrace(error, &frame, kTVMFFIBacktraceUpdateModeAppend);
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}

static int cause_kinds(TVMFFIObjectHandle error, char* text) {
  for (; error; error = TVMFFIErrorGetCellPtr(error)->cause_chain) {
    strcat(strcat(text, TVMFFIErrorGetCellPtr(error)->kind.data), " ");
  }
  return 0;
}

/* Returns the kinds of an error and of its causes. */
FARCALL_KERNEL(call_or_kinds) {
  char text[512] = "";
  if (TVMFFIFunctionCall(args[0].v_obj, NULL, 0, result) == 0) return 0;
  TVMFFIObjectHandle error;
  TVMFFIErrorMoveFromRaised(&error);
  cause_kinds(error, text);
  TVMFFIObjectDecRef(error);
  TVMFFIByteArray bytes = literal(text);
  (void)num_args;
  return TVMFFIStringFromByteArray(&bytes, result);
}

FARCALL_KERNEL(call_global) {
  const char* data;
  size_t size;
  if (text_of(&args[0], &data, &size) != 0) return -1;
  TVMFFIByteArray name = {data, size};
  TVMFFIObjectHandle function;
  if (TVMFFIFunctionGetGlobal(&name, &function) != 0) return -1;
  if (!function) return fail("KeyError", "no such global function");
  int rc = TVMFFIFunctionCall(function, (TVMFFIAny*)args + 1, num_args - 1, result);
  TVMFFIObjectDecRef(function);
  return rc;
}

static int plus_self(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)num_args;
  return give_int(result, *(int64_t*)self + args[0].v_int64);
}

FARCALL_KERNEL(make_adder) {
  int64_t* amount = malloc(sizeof *amount);
  TVMFFIObjectHandle function;
  *amount = args[0].v_int64;
  if (TVMFFIFunctionCreate(amount, plus_self, free, &function) != 0) return -1;
  return give_object(result, kTVMFFIFunction, function);
}

/* ---- threads ---- */

static atomic_int flag;

static int seconds_passed(const struct timespec* since, int seconds) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec - since->tv_sec > seconds;
}

FARCALL_KERNEL(set_flag) {
  atomic_store(&flag, (int)args[0].v_int64);
  return 0;
}

/* Waits until another thread sets the flag; gives up after 20 s. */
FARCALL_KERNEL(wait_flag) {
  struct timespec start;
  clock_gettime(CLOCK_MONOTONIC, &start);
  while (!atomic_load(&flag)) {
    if (seconds_passed(&start, 20)) return fail("TimeoutError", "nobody set the flag");
  }
  return 0;
}

FARCALL_KERNEL(wait_for_signal) {
  struct timespec start;
  clock_gettime(CLOCK_MONOTONIC, &start);
  while (!seconds_passed(&start, 20)) {
    if (TVMFFIEnvCheckSignals() != 0) return -1;
  }
  return fail("TimeoutError", "no signal came");
}

FARCALL_KERNEL(name_dtype) { return TVMFFIDataTypeToString(&args[0].v_dtype, result); }

/* ---- the other C functions; each check returns the line that failed first, or 0 ---- */

#define EXPECT(condition) \
  if (!(condition)) return give_int(result, __LINE__)

FARCALL_KERNEL(check_streams) {
  void *one = &flag, *old = one;
  EXPECT(TVMFFIEnvGetStream(kDLCUDA, 3) == NULL);
  EXPECT(TVMFFIEnvSetStream(kDLCUDA, 3, one, &old) == 0 && old == NULL);
  EXPECT(TVMFFIEnvGetStream(kDLCUDA, 3) == one && TVMFFIEnvGetStream(kDLCUDA, 4) == NULL);
  EXPECT(TVMFFIEnvSetStream(kDLCUDA, 3, NULL, &old) == 0 && old == one);
  EXPECT(TVMFFIEnvGetStream(kDLCUDA, 3) == NULL);
  for (int i = 0; i < 1000; ++i) {
    if (TVMFFIEnvSetStream(kDLROCM, i, one, NULL) == 0) continue;
    TVMFFIObjectHandle error;
    TVMFFIErrorMoveFromRaised(&error);
    EXPECT(error);
    TVMFFIObjectDecRef(error);
    return give_int(result, 0);
  }
  return give_int(result, __LINE__);
}

static int made, freed;

static int forget(void** out) {
  (void)out;
  return 0;
}

static int init(void** out) {
  ++made;
  *out = made > 1 ? &made : NULL;
  return made > 1 ? 0 : -1;
}

static int deinit(void* what) { return what == &made && ++freed ? 0 : -1; }

FARCALL_KERNEL(check_once) {
  static void* slot;
  made = freed = 0;
  EXPECT(TVMFFIHandleInitOnce(&slot, init) == -1 && slot == NULL);
  TVMFFIObjectHandle error = NULL;
  EXPECT(TVMFFIHandleInitOnce(&slot, forget) == -1 && slot == NULL);
  TVMFFIErrorMoveFromRaised(&error);
  EXPECT(error);
  TVMFFIObjectDecRef(error);
  EXPECT(TVMFFIHandleInitOnce(&slot, init) == 0 && slot == &made);
  EXPECT(TVMFFIHandleInitOnce(&slot, init) == 0 && made == 2);
  EXPECT(TVMFFIHandleDeinitOnce(&slot, deinit) == 0 && slot == NULL && freed == 1);
  EXPECT(TVMFFIHandleDeinitOnce(&slot, deinit) == 0 && freed == 1);
  return give_int(result, 0);
}

static void count_free(void* what) { ++*(int*)what; }

FARCALL_KERNEL(check_objects) {
  TVMFFIObjectHandle opaque;
  int32_t index;
  TVMFFIVersion version;
  int freed_here = 0;
  TVMFFIByteArray tensor = {"ffi.Tensor", 10}, unknown = {"x", 1};
  TVMFFIGetVersion(&version);
  EXPECT(version.major == 0 && version.minor == 1);
  EXPECT(TVMFFIObjectCreateOpaque(&freed_here, 74, count_free, &opaque) == 0);
  EXPECT(TVMFFIObjectIncRef(opaque) == 0 && TVMFFIObjectDecRef(opaque) == 0 && freed_here == 0);
  EXPECT(TVMFFIOpaqueObjectGetCellPtr(opaque)->handle == &freed_here);
  EXPECT(TVMFFIObjectDecRef(opaque) == 0 && freed_here == 1);
  EXPECT(TVMFFITypeKeyToIndex(&tensor, &index) == 0 && index == kTVMFFITensor);
  EXPECT(TVMFFITypeKeyToIndex(&unknown, &index) == -1);
  return give_int(result, 0);
}

/* An object can be moved out of the slot of an rvalue reference, once. */
FARCALL_KERNEL(check_moves) {
  TVMFFIByteArray text = {"longer than seven", 17};
  TVMFFIAny value, moved, view;
  memset(&view, 0, sizeof view);
  EXPECT(TVMFFIStringFromByteArray(&text, &value) == 0 && value.type_index == kTVMFFIStr);
  TVMFFIObject* slot = value.v_obj;
  view.type_index = kTVMFFIObjectRValueRef;
  view.v_ptr = &slot;
  EXPECT(TVMFFIAnyViewToOwnedAny(&view, &moved) == 0 && slot == NULL && moved.v_obj == value.v_obj);
  EXPECT(TVMFFIAnyViewToOwnedAny(&view, &moved) == -1);
  TVMFFIObjectDecRef(value.v_obj);
  return give_int(result, 0);
}

static int released;
static void release_managed(DLManagedTensorVersioned* self) { (void)self, ++released; }

FARCALL_KERNEL(check_dlpack) {
  float data[6];
  int64_t shape[2] = {2, 3}, odd[2] = {1, 2};
  DLManagedTensorVersioned from = {{1, 0}, NULL, release_managed, DLPACK_FLAG_BITMASK_READ_ONLY,
                                   {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}};
  DLManagedTensorVersioned* to;
  TVMFFIObjectHandle tensor;
  released = 0;
  from.version.major = 2;
  EXPECT(TVMFFITensorFromDLPackVersioned(&from, 0, 0, &tensor) == -1);
  from.version.major = 1;
  EXPECT(TVMFFITensorFromDLPackVersioned(&from, 1 << 30, 0, &tensor) == -1);
  from.dl_tensor.strides = odd;
  EXPECT(TVMFFITensorFromDLPackVersioned(&from, 0, 1, &tensor) == -1);
  from.dl_tensor.strides = NULL;
  EXPECT(TVMFFITensorFromDLPackVersioned(&from, 4, 1, &tensor) == 0);
  EXPECT(TVMFFITensorGetDLTensorPtr(tensor)->strides[0] == 3);
  EXPECT(TVMFFITensorToDLPackVersioned(tensor, &to) == 0 && to->flags == DLPACK_FLAG_BITMASK_READ_ONLY);
  TVMFFIObjectDecRef(tensor);
  EXPECT(released == 0);
  to->deleter(to);
  EXPECT(released == 1);
  return give_int(result, 0);
}

FARCALL_KERNEL(check_backtrace) {
  const TVMFFIByteArray* text = TVMFFIBacktrace("file.c", 12, "function", 0);
  EXPECT(strcmp(text->data, "  File \"file.c\", line 12, in function\n") == 0 && text->size == strlen(text->data));
  EXPECT(TVMFFIBacktrace(NULL, 0, NULL, 0)->size == 0);
  TVMFFIByteArray kind = {"ValueError", 10}, message = {"m", 1};
  TVMFFIObjectHandle error;
  EXPECT(TVMFFIErrorCreate(&kind, &message, TVMFFIBacktrace("a.c", 1, "f", 0), &error) == 0);
  TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  cell->update_backtrace(error, TVMFFIBacktrace("b.c", 2, "g", 0), kTVMFFIBacktraceUpdateModeAppend);
  EXPECT(strcmp(cell->backtrace.data, "  File \"a.c\", line 1, in f\n  File \"b.c\", line 2, in g\n") == 0);
  cell->update_backtrace(error, &message, kTVMFFIBacktraceUpdateModeReplace);
  EXPECT(strcmp(cell->backtrace.data, "m") == 0);
  TVMFFIObjectDecRef(error);
  return give_int(result, 0);
}

static int allocations;
static int refuse(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
                  void (*set_error)(void*, const char*, const char*)) {
  (void)prototype, (void)out, ++allocations;
  set_error(context, "MemoryError", "refused");
  return -1;
}

FARCALL_KERNEL(check_allocator) {
  int64_t shape[1] = {3};
  DLTensor prototype = {NULL, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
  DLPackManagedTensorAllocator old = refuse;
  TVMFFIObjectHandle tensor;
  EXPECT(TVMFFIEnvSetDLPackManagedTensorAllocator(refuse, 0, &old) == 0 && old == NULL);
  EXPECT(TVMFFIEnvGetDLPackManagedTensorAllocator() == refuse);
  EXPECT(TVMFFIEnvTensorAlloc(&prototype, &tensor) == -1 && allocations == 1);
  EXPECT(TVMFFIEnvSetDLPackManagedTensorAllocator(NULL, 0, &old) == 0 && old == refuse);
  EXPECT(TVMFFIEnvTensorAlloc(&prototype, &tensor) == 0);
  return TVMFFIObjectDecRef(tensor), give_int(result, 0);
}
