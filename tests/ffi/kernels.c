/* What the ffi tests call: written as a kernel author would, against c_api.h alone. */
#include <farcall/c_api.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

FARCALL_EXPORT const struct FarcallRuntime* __farcall_runtime;

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

/* Any value comes back; of a borrowed tensor a copy, in memory of the caller's framework. */
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

/* An empty tensor with the dtype and rank of the first and a first dim of the second. */
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

/* Takes the error out, looks at it, and raises it again. */
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
