/* What the small server of bench_mailbox and bench_chain exports: `bench.nop`. */
#include "runtime/runtime.h"
#include "server/server.h"

static int nop(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n;
  return *result = fc_any_none(), 0;
}

int farcall_server_setup(void) {
  TVMFFIByteArray name = {"bench.nop", 9};
  TVMFFIObjectHandle function;
  if (fc_function_new(NULL, nop, NULL, &function) != 0) return -1;
  int rc = TVMFFIFunctionSetGlobal(&name, function, 0);
  fc_decref(function);
  return rc;
}
