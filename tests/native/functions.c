/* The functions that the small server exports in the tests. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/server.h"
#include "session/server/serve.h"
#include "mailbox_relay.h"
#include "numbers.h"

static int echo(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self;
  return n == 1 ? fc_any_to_owned(args, result) : (*result = fc_any_none(), 0);
}

static const DLTensor* floats_of(const TVMFFIAny* args, int32_t n) {
  const DLTensor* x = n == 1 ? fc_any_tensor(args) : NULL;
  bool good = x && x->dtype.code == kDLFloat && x->dtype.bits == 32 && x->dtype.lanes == 1;
  if (!good) fc_error_set("TypeError", "expected one float32 tensor");
  return good ? x : NULL;
}

/* y[i] = 2 * x[i], in place. */
static int twice(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* x = floats_of(args, n);
  (void)self;
  if (!x) return -1;
  float* data = (float*)((char*)x->data + x->byte_offset);
  for (int64_t i = 0; i < fc_numel(x); ++i) data[i] *= 2;
  *result = fc_any_none();
  return 0;
}

/* Returns a new tensor: the shape of x, as int64. */
static int sizes(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* x = floats_of(args, n);
  (void)self;
  if (!x) return -1;
  int64_t rank = x->ndim;
  DLTensor like = {.device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = &rank};
  FcTensorObj* made = fc_tensor_alloc(&like);
  if (!made) return -1;
  memcpy(made->dl.data, x->shape, (size_t)rank * sizeof *x->shape);
  *result = fc_any_object(made);
  return 0;
}

/* Calls its argument, a function of the client, with 20. */
static int call_back(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIAny number = fc_any_int(20);
  (void)self;
  if (n == 1 && args[0].type_index == kTVMFFIFunction) {
    return TVMFFIFunctionGetCellPtr(args[0].v_obj)->safe_call(args[0].v_obj, &number, 1, result);
  }
  fc_error_set("TypeError", "expected a function");
  return -1;
}

/* (n): a dict {0: b"", 1: b"", ...} of n items, which JSON lacks. */
static int dict(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObjectHandle map;
  TVMFFIAny empty;
  (void)self;
  if (n != 1 || fc_map_new(kTVMFFIDict, &map) != 0) return -1;
  for (int64_t i = 0; i < args[0].v_int64; ++i) {
    if (fc_any_from_bytes(kTVMFFIBytes, "", 0, &empty) != 0 || fc_map_set(map, fc_any_int(i), empty) != 0) return -1;
  }
  *result = fc_any_object(map);
  return 0;
}

static const DLTensor* tensor_of(const TVMFFIAny* args, int32_t n) {
  const DLTensor* t = n == 1 ? fc_any_tensor(args) : NULL;
  if (!t) fc_error_set("TypeError", "expected a tensor");
  return t;
}

/* Returns the numbers of a tensor, as this machine loads them, in hex, separated by blanks. */
static int numbers(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* t = tensor_of(args, n);
  (void)self;
  if (!t) return -1;
  const uint8_t* data = (const uint8_t*)t->data + t->byte_offset;
  size_t size = (size_t)fc_nbytes(t), step = width(t->dtype), used = 0;
  char* text = malloc(size * 3 + 1);
  for (size_t i = 0; i < size / step; ++i) {
    used += (size_t)sprintf(text + used, "%llx ", (unsigned long long)load(data + i * step, step));
  }
  int rc = fc_any_from_bytes(kTVMFFIStr, text, used, result);
  free(text);
  return rc;
}

/* Fills a tensor with numbers that differ in each byte. */
static int fill_tensor(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* t = tensor_of(args, n);
  (void)self;
  if (t) fill(t);
  *result = fc_any_none();
  return t ? 0 : -1;
}

/* ---- for the abuse of a server ---- */

static int add_numbers(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self;
  if (n == 2 && args[0].type_index == kTVMFFIInt && args[1].type_index == kTVMFFIInt) {
    return *result = fc_any_int(args[0].v_int64 + args[1].v_int64), 0;
  }
  fc_error_set("TypeError", "expected two numbers");
  return -1;
}

static int pid(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n;
  return *result = fc_any_int(getpid()), 0;
}

static int crash(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  return raise(SIGSEGV);
}

/* Runs until a signal ends it. */
static int spin(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  return pause();
}

/* Allocates as many bytes as its argument says: whether it got them. */
static int allocate(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)n;
  void* volatile memory = malloc((size_t)args[0].v_int64); /* volatile: or the compiler leaves the call out */
  *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = memory != NULL};
  free(memory);
  return 0;
}

/* Returns a function. */
static int give_add(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObjectHandle function;
  (void)self, (void)args, (void)n;
  if (fc_function_new(NULL, add_numbers, NULL, &function) != 0) return -1;
  *result = fc_any_object(function);
  return 0;
}

static int add(const char* name, TVMFFISafeCallType call) {
  TVMFFIObjectHandle function;
  if (fc_function_new(NULL, call, NULL, &function) != 0) return -1;
  TVMFFIByteArray key = {name, strlen(name)};
  int rc = TVMFFIFunctionSetGlobal(&key, function, 0);
  fc_decref(function);
  return rc;
}

int farcall_server_setup(void) {
  const char* place = getenv("FARCALL_TEST_RELAY");
  if (place && strcmp(place, "sessions") == 0) return relay_sessions(), 0;
  if (place) exit(relay_mailbox(place)); /* the program is this relay then, not a server */
  bool added = add("test.echo", echo) == 0 && add("test.twice", twice) == 0 && add("test.sizes", sizes) == 0 &&
               add("test.call_back", call_back) == 0 && add("test.numbers", numbers) == 0 &&
               add("test.dict", dict) == 0 && add("test.fill", fill_tensor) == 0 && add("test.add", add_numbers) == 0 &&
               add("test.pid", pid) == 0 && add("test.give_add", give_add) == 0 && add("test.segfault", crash) == 0 &&
               add("test.spin", spin) == 0 && add("test.allocate", allocate) == 0 &&
               TVMFFIEnvModRegisterSystemLibSymbol("__tvm_ffi_lib_twice", (void*)twice) == 0;
  return added ? 0 : -1;
}
