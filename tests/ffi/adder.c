/* A loader in C: the data is a number in digits; the module has a function that adds it. Living states are counted. */
#include <farcall/module.h>
#include <stdlib.h>
FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;
static int living;

#ifndef SIZE
#define SIZE sizeof spec
#endif

static int add(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)n;
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = args[0].v_int64 + *(int64_t*)self};
  return 0;
}
static int save(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n;
  TVMFFIByteArray bytes = {"saved", 5};
  return TVMFFIBytesFromByteArray(&bytes, result);
}
static int source(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n;
  TVMFFIByteArray text = {"x + amount", 10};
  return TVMFFIStringFromByteArray(&text, result);
}
static void destroy(void* state) {
  --living;
  free(state);
}
FARCALL_MODULE_LOADER(adder) {
  static const char* const features[] = {"sums", NULL};
  const struct FarcallModuleKind kind = {"adder", 1, 2, features};
  struct FarcallBlob blob;
  if (__farcall_runtime->blob_read(&kind, args, &blob) != 0) return -1;
  int64_t* amount = calloc(1, sizeof *amount);
  for (size_t i = 0; i < blob.size; ++i) *amount = *amount * 10 + blob.data[i] - '0';
  ++living;
  const struct FarcallModuleFunction functions[] = {{"add", add, NULL}};
  const struct FarcallModuleSpec spec = {SIZE, "adder", functions, 1, amount, destroy, save, source};
  TVMFFIObjectHandle module;
  if (__farcall_runtime->module_create(&spec, &module) != 0) return -1;
  *result = (TVMFFIAny){.type_index = kTVMFFIModule, .v_obj = module};
  return 0;
}
FARCALL_KERNEL(living) {
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = living};
  return 0;
}
#ifdef REGISTERS
__attribute__((constructor)) static void begin(void) {
  TVMFFIByteArray name = {"ffi.Module.load_from_bytes.adder", 32};
  TVMFFIObjectHandle function;
  if (TVMFFIFunctionCreate(NULL, __farcall_load_adder, NULL, &function) != 0) return;
  TVMFFIFunctionSetGlobal(&name, function, 1);
  TVMFFIObjectDecRef(function);
}
#endif
