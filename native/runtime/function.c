/* Function objects. */
#include <stdlib.h>

#include "runtime/runtime.h"

static int hop(void* handle, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  FcFunctionObj* function = handle;
  int rc = function->call(function->self, args, num_args, result);
  if (FC_UNLIKELY(rc != 0)) fc_foreign_error_mirror(); /* the caller may look for the error there */
  return rc;
}

static void function_delete(void* handle, int flags) {
  FcFunctionObj* function = handle;
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) && function->deleter) function->deleter(function->self);
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(handle);
}

int fc_function_new(void* self, TVMFFISafeCallType call, void (*deleter)(void*), TVMFFIObjectHandle* out) {
  FcFunctionObj* function = malloc(sizeof *function);
  if (!function) {
    fc_error_no_memory();
    return -1;
  }
  fc_object_init(&function->header, kTVMFFIFunction, function_delete);
  bool plain = !self && !deleter;
  function->cell.safe_call = plain ? call : hop;
  function->cell.cpp_call = NULL;
  function->self = self;
  function->call = call;
  function->deleter = deleter;
  *out = function;
  return 0;
}

void fc_function_target(TVMFFIObject* handle, TVMFFISafeCallType* call, void** self) {
  TVMFFIFunctionCell* cell = TVMFFIFunctionGetCellPtr(handle);
  bool hopping = cell->safe_call == hop;
  *call = hopping ? ((FcFunctionObj*)handle)->call : cell->safe_call;
  *self = hopping ? ((FcFunctionObj*)handle)->self : handle;
}

/* ---- the exported names ---- */

int TVMFFIFunctionCreate(void* self, TVMFFISafeCallType safe_call, void (*deleter)(void*), TVMFFIObjectHandle* out) {
  return fc_function_new(self, safe_call, deleter, out);
}

int TVMFFIFunctionCall(TVMFFIObjectHandle func, TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFISafeCallType call = TVMFFIFunctionGetCellPtr(func)->safe_call;
  return call == hop ? hop(func, args, num_args, result) : call(func, args, num_args, result); /* hop is inlined */
}
