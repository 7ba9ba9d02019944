#include "server/posix/far_module.h"

#include <stdlib.h>
#include <unistd.h>

#include "runtime/module.h"
#include "server/far.h"
#include "server/posix/files.h"

/* ---- the device's own functions ---- */

enum Own { UPLOAD, LOAD, LIST, GET };
static const char* const names[] = {[UPLOAD] = "tvm.rpc.server.upload",
                                    [LOAD] = "tvm.rpc.server.load_module",
                                    [LIST] = "farcall.rpc.module_functions",
                                    [GET] = "tvm.rpc.server.ModuleGetFunction"};

static TVMFFIAny text_value(const TVMFFIByteArray* text) {
  return (TVMFFIAny){.type_index = kTVMFFIRawStr, .v_ptr = (void*)text};
}

/* Calls one of them; the reply is valid until the next request. -1 with an error. */
static int ask(int32_t index, enum Own which, const TVMFFIAny* args, int32_t n, fc_wire_packet* reply) {
  TVMFFIByteArray name = {names[which], strlen(names[which])};
  FcFar* far = fc_far_open(index);
  if (!far || (far->own[which] == 0 && fc_far_look_up(index, name, &far->own[which]) != 0)) return -1;
  fc_wire_packet request = {.code = FC_WIRE_CALL_FUNC, .num_args = n, .args = args, .handle = far->own[which]};
  int rc = fc_far_ask(far, &request, NULL, reply, NULL);
  return rc == 0 && reply->num_args < 2 ? fc_far_unexpected(far) : rc;
}

/* The same for a function that returns an object. */
static int ask_for_object(int32_t index, enum Own which, const TVMFFIAny* args, int32_t n, uint64_t* out) {
  fc_wire_packet reply;
  if (ask(index, which, args, n, &reply) != 0) return -1;
  if (reply.args[1].type_index != kTVMFFIOpaquePtr) return fc_far_unexpected(fc_far_open(index));
  *out = reply.args[1].v_uint64;
  return 0;
}

/* ---- the module ---- */

static int send_file(int32_t index, TVMFFIByteArray name, const uint8_t* data, size_t size) {
  TVMFFIByteArray content = {(const char*)data, size};
  TVMFFIAny args[2] = {text_value(&name), {.type_index = kTVMFFIBytes, .v_ptr = &content}};
  fc_wire_packet reply;
  return ask(index, UPLOAD, args, 2, &reply);
}

/* The names of the module's functions, as an Array of texts. */
static int list_functions(int32_t index, const TVMFFIAny* module, TVMFFIAny* out) {
  fc_wire_packet reply;
  if (ask(index, LIST, module, 1, &reply) != 0) return -1;
  if (!fc_wire_is_text(reply.args[1].type_index)) return fc_far_unexpected(fc_far_open(index));
  const TVMFFIByteArray* json = reply.args[1].v_ptr;
  if (fc_json_parse(json->data, json->size, out) != 0) return -1;
  return out->type_index == kTVMFFIArray ? 0 : fc_far_unexpected(fc_far_open(index));
}

static int add_function(int32_t index, const TVMFFIAny* module, const TVMFFIAny* name, TVMFFIObject* functions) {
  TVMFFIByteArray text;
  uint64_t handle;
  TVMFFIAny function, key;
  if (!fc_any_text(name, &text)) return fc_far_unexpected(fc_far_open(index));
  if (fc_far_function_of(index, module->v_uint64, text, &handle) != 0) return -1;
  if (fc_far_function(index, handle, text.data, &function) != 0) return -1;
  if (fc_any_to_owned(name, &key) == 0) return fc_map_set(functions, key, function);
  fc_any_clear(&function);
  return -1;
}

/* A module whose functions are those of the device's module. */
static int mirror(int32_t index, const TVMFFIAny* module, TVMFFIAny* result) {
  TVMFFIAny listed = fc_any_none();
  TVMFFIObjectHandle functions = NULL;
  TVMFFIObject* mirrored = fc_module_new("device", FC_MODULE_RUNNABLE);
  int rc = mirrored ? list_functions(index, module, &listed) : -1;
  if (rc == 0) rc = fc_map_new(kTVMFFIMap, &functions);
  if (rc == 0) fc_module_of(mirrored)->functions = functions;
  const TVMFFISeqCell* all = rc == 0 ? TVMFFISeqGetCellPtr(listed.v_obj) : NULL;
  for (int64_t i = 0; rc == 0 && i < all->size; ++i) {
    rc = add_function(index, module, (const TVMFFIAny*)all->data + i, functions);
  }
  fc_any_clear(&listed);
  if (rc == 0) *result = fc_any_object(mirrored);
  else if (mirrored) fc_decref(mirrored);
  return rc;
}

int fc_far_load(int32_t index, TVMFFIByteArray name, const uint8_t* data, size_t size, uint64_t* module) {
  TVMFFIAny arg = text_value(&name);
  if (send_file(index, name, data, size) != 0) return -1;
  return ask_for_object(index, LOAD, &arg, 1, module);
}

int fc_far_function_of(int32_t index, uint64_t module, TVMFFIByteArray name, uint64_t* function) {
  TVMFFIAny args[3] = {
      {.type_index = kTVMFFIModule, .v_uint64 = module}, text_value(&name), {.type_index = kTVMFFIBool}};
  return ask_for_object(index, GET, args, 3, function);
}

static int load_there(int32_t index, TVMFFIByteArray name, const uint8_t* data, size_t size, TVMFFIAny* result) {
  TVMFFIAny module = {.type_index = kTVMFFIModule};
  if (fc_far_load(index, name, data, size, &module.v_uint64) != 0) return -1;
  uint32_t serial = fc_far_open(index)->serial;
  int rc = mirror(index, &module, result);
  fc_far_release(index, serial, FC_WIRE_FREE_HANDLE, module.v_uint64);
  return rc;
}

int fc_far_load_module(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcSession* session = self;
  int32_t index;
  TVMFFIByteArray name;
  size_t size;
  if (fc_far_arguments(session->options, args, n, &index, &name) != 0) return -1;
  if (!session->client->folder) {
    fc_error_set("UsageError", "this server keeps no files; start it with --workpath DIR");
    return -1;
  }
  uint8_t* data = fc_folder_read(session->client->folder, name, &size);
  if (!data) return -1;
  int rc = fc_far_named(index, name.data, load_there(index, name, data, size, result));
  free(data);
  return rc;
}
