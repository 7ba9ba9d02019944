/* Remote Functions: the trampoline that makes a call. */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"

static int call_remote(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

static void delete_remote(void* self) {
  FcRemoteFunction* f = self;
  fc_remote_free_later(f->owned.ep, f->owned.handle, fc_no_device());
  fc_endpoint_decref(f->owned.ep);
  free(f);
}

TVMFFIObject* fc_remote_function(FcEndpoint* ep, uint64_t handle, const char* name) {
  FcRemoteFunction* f = malloc(sizeof *f);
  TVMFFIObjectHandle object = NULL;
  if (!f) {
    fc_error_no_memory();
    fc_remote_free_later(ep, handle, fc_no_device());
    return NULL;
  }
  fc_endpoint_incref(ep);
  f->owned = (FcOwned){ep, handle, fc_no_device()};
  snprintf(f->name, sizeof f->name, "%s", name);
  if (fc_function_new(f, call_remote, delete_remote, &object) != 0) {
    delete_remote(f);
    return NULL;
  }
  return object;
}

FcRemoteFunction* fc_remote_function_of(TVMFFIObject* function) {
  TVMFFISafeCallType call;
  void* self;
  fc_function_target(function, &call, &self);
  return call == call_remote ? self : NULL;
}

const char* fc_function_label(TVMFFIObject* function) {
  const FcRemoteFunction* f = fc_remote_function_of(function);
  return f ? f->name : "<function>";
}

static int call_locked(FcRemoteFunction* f, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcEndpoint* ep = f->owned.ep;
  FcRemoteArgs wire;
  fc_wire_packet reply;
  bool sent = false;
  int rc = fc_remote_args_begin(&wire, ep, f->name, args, n);
  if (rc == 0) {
    fc_wire_packet call = {.code = FC_WIRE_CALL_FUNC, .num_args = n, .args = wire.any, .handle = f->owned.handle};
    ++ep->client->calls;
    rc = fc_remote_request(ep, &call, f->name, &reply);
    sent = rc != FC_NOT_SENT;
  }
  if (rc == 0) rc = fc_remote_result(ep, f->name, &reply, result);
  if (FC_UNLIKELY(rc == 0 && result->type_index == kTVMFFITensor && reply.num_args == 2)) {
    FcLenders* lenders = fc_remote_lenders(&wire);
    rc = fc_remote_borrow(&reply, lenders, result);
    fc_lenders_free(lenders);
  }
  fc_remote_args_end(&wire, ep, sent);
  return rc;
}

static int call_remote(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  FcRemoteFunction* f = self;
  if (fc_endpoint_enter(f->owned.ep) < 0) return -1;
  int rc = call_locked(f, args, num_args, result);
  fc_endpoint_leave(f->owned.ep);
  return rc < 0 ? -1 : fc_remote_finish(f->owned.ep, f->name, result);
}
