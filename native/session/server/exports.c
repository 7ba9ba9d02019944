/* The server: the objects behind handles, and their lifetime. */
#include <stdlib.h>

#include "session/server/serve.h"

FcExport* fc_export_new(TVMFFIObject* object, const char* name, size_t size, uint32_t scope) {
  if (size > FC_PAGE_NAME_MAX) size = FC_PAGE_NAME_MAX;
  FcExport* function = malloc(sizeof *function + size + 1);
  if (!function) {
    fc_decref(object);
    fc_error_no_memory();
    return NULL;
  }
  *function =
      (FcExport){.object = object, .refs = 1, .scope = (uint16_t)scope, .name_size = (uint16_t)size, .naming = -1};
  fc_function_target(object, &function->call, &function->self);
  memcpy(function->name, name, size);
  function->name[size] = 0;
  return function;
}

void fc_export_decref(FcExport* function) {
  if (--function->refs != 0) return;
  if (function->object) fc_decref(function->object);
  free(function);
}

void fc_server_drop(FcServer* server, FcEntry entry) {
  if (entry.kind == FC_KIND_FUNCTION) {
    if (server->noted == entry.function) server->noted = NULL;
    fc_export_decref(entry.function);
    return;
  }
  if (entry.kind == FC_KIND_ALLOCATED) server->allocated -= entry.other;
  fc_decref(entry.object);
}

static int set_missing_error(const FcServer* server, const FcExport* function, int rc) {
  TVMFFIObject* error = fc_error_take();
  TVMFFIObject* own = server->policy->take_error();
  if (own && error) fc_decref(error);
  if (own) error = own;
  if (error) fc_error_raise(error);
  else fc_error_format("RuntimeError", "`%s` returned %d without setting an error", function->name, rc);
  return -1;
}

int fc_export_call(const FcServer* server, const FcExport* function, const TVMFFIAny* args, int32_t n,
                   TVMFFIAny* result) {
  int rc = function->call(function->self, args, n, result);
  return FC_LIKELY(rc == 0) ? 0 : set_missing_error(server, function, rc);
}

int fc_server_free_handle(FcServer* server, const fc_wire_packet* p) {
  FcEntry entry;
  if (fc_server_expect(p, 1, (int32_t[]){kTVMFFIOpaquePtr}) != 0) return -1;
  uint64_t handle = p->args[0].v_uint64;
  if (fc_promise_forget(server, handle)) return fc_server_reply_void(server);
  if (!fc_handles_remove(&server->handles, handle, FC_KIND_OWNED, &entry)) return -1;
  FcEntry data;
  if (entry.kind == FC_KIND_TENSOR && fc_handles_remove(&server->handles, entry.other, FC_KIND_RETURNED, &data)) {
    fc_server_drop(server, data);
  }
  fc_server_drop(server, entry);
  return fc_server_reply_void(server);
}

void fc_server_clear(FcServer* server) {
  for (uint32_t i = 0; i < server->handles.size; ++i) {
    if (server->handles.entries[i].kind) fc_server_drop(server, server->handles.entries[i]);
  }
  fc_handles_free(&server->handles);
  fc_promises_free(&server->promises);
  fc_deadline_clear(server);
  free(server->filling_buffer);
  server->filling_buffer = NULL;
  if (server->next_hop) fc_endpoint_decref(server->next_hop);
  server->next_hop = NULL;
  TVMFFIObject** held[] = {&server->filling, &server->refusal, &server->last_error};
  for (size_t i = 0; i < sizeof held / sizeof *held; ++i) {
    if (*held[i]) fc_decref(*held[i]);
    *held[i] = NULL;
  }
}
