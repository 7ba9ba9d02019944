/*
 * Modules of kind farcall.remote: regions of an artifact that a device behind this server computes. Their artifacts are
 * loaded there once, when the module is loaded here. The format of the data is that of farcall/library/_far.py.
 *
 * The tensors of a call have buffers in the device's memory, which later calls use again. So the inputs, the call and
 * the reads of the outputs travel together, in one round trip.
 */
#include "server/far_regions.h"

#include <farcall/module.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/module.h"
#include "runtime/text.h"
#include "server/far.h"
#include "server/hops.h"
#include "server/posix/far_module.h"
#include "session/error_text.h"

#define KIND "farcall.remote"
enum { VERSION = 2 };

static int damaged(const char* problem) {
  fc_error_format("ArtifactError", "a module of kind `" KIND "` is damaged: %s; build the artifact again", problem);
  return -1;
}

/* ---- the head, a line of JSON ---- */

static const TVMFFIAny* field(const TVMFFIAny* map, const char* name, int32_t type) {
  TVMFFIByteArray text;
  const TVMFFIAny key = {.type_index = kTVMFFIRawStr, .v_c_str = name};
  const TVMFFIAny* found = map->type_index == kTVMFFIMap ? fc_map_find(map->v_obj, &key) : NULL;
  bool good = found && (type == kTVMFFIStr ? fc_any_text(found, &text) : found->type_index == type);
  return good ? found : NULL;
}

static int64_t number(const TVMFFIAny* map, const char* name) {
  const TVMFFIAny* found = field(map, name, kTVMFFIInt);
  return found ? found->v_int64 : -1;
}

static char* copy_text(TVMFFIByteArray text) {
  char* copy = malloc(text.size + 1);
  if (!copy) return fc_error_no_memory(), NULL;
  memcpy(copy, text.data, text.size);
  copy[text.size] = 0;
  return copy;
}

static int read_region(FcFarModule* module, const FcMapCursor* at, FcFarRegion* region) {
  TVMFFIByteArray name;
  const int64_t inputs = number(at->value, "inputs"), part = number(at->value, "part");
  if (inputs < 0 || inputs > INT32_MAX || part < 0 || part >= module->part_count || !fc_any_text(at->key, &name)) {
    return damaged("a region has no artifact");
  }
  *region = (FcFarRegion){module, copy_text(name), (int32_t)inputs, (int32_t)part};
  return region->name ? 0 : -1;
}

static int read_regions(FcFarModule* module, const TVMFFIAny* head) {
  const TVMFFIAny *sizes = field(head, "sizes", kTVMFFIArray), *regions = field(head, "regions", kTVMFFIMap);
  if (!sizes || !regions) return damaged("its first line is no head");
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(sizes->v_obj);
  FcMapCursor cursor = {.begun = false};
  const size_t count = (size_t)TVMFFIMapGetCellPtr(regions->v_obj)->size;
  module->part_count = cell->size;
  module->mains = calloc((size_t)cell->size + 1, sizeof *module->mains);
  module->regions = calloc(count + 1, sizeof *module->regions);
  if (!module->mains || !module->regions) return fc_error_no_memory(), -1;
  while (fc_map_next(regions->v_obj, &cursor)) {
    if (read_region(module, &cursor, &module->regions[module->region_count++]) != 0) return -1;
  }
  return 0;
}

/* ---- loading there ---- */

static int find_device(FcFarModule* module, const TVMFFIAny* head) {
  const TVMFFIAny* on = field(head, "on", kTVMFFIStr);
  if (!on) return damaged("it names no device");
  fc_any_text(on, &module->on);
  module->index = fc_hops_find(fc_far_options(), module->on);
  if (module->index >= 0) return 0;
  fc_hops_no_device(fc_far_options(), module->on);
  return -1;
}

static int load_part(FcFarModule* module, int64_t part, const uint8_t* data, size_t size) {
  static const TVMFFIByteArray entry = {"main", 4};
  static unsigned count;
  char name[48];
  uint64_t library;
  const TVMFFIByteArray file = {name, (size_t)snprintf(name, sizeof name, "farcall-region-%u.so", ++count)};
  if (fc_far_load(module->index, file, data, size, &library) != 0) return -1;
  int rc = fc_far_function_of(module->index, library, entry, &module->mains[part]);
  fc_far_release(module->index, module->serial, FC_WIRE_FREE_HANDLE, library);
  return rc;
}

static int load_parts(FcFarModule* module, const TVMFFIAny* head, const uint8_t* data, size_t left) {
  static const TVMFFIByteArray compute = {"farcall.rpc.compute", 19};
  const TVMFFISeqCell* sizes = TVMFFISeqGetCellPtr(field(head, "sizes", kTVMFFIArray)->v_obj);
  const FcFar* far = fc_far_open(module->index);
  if (!far) return -1;
  module->serial = far->serial;
  int rc = fc_far_look_up(module->index, compute, &module->compute);
  for (int64_t i = 0; rc == 0 && i < sizes->size; ++i) {
    const TVMFFIAny* size = (const TVMFFIAny*)sizes->data + i;
    if (size->type_index != kTVMFFIInt || size->v_int64 < 0 || (uint64_t)size->v_int64 > left) {
      return damaged("its artifacts have another size than its head says");
    }
    rc = load_part(module, i, data, (size_t)size->v_int64);
    data += size->v_int64;
    left -= (size_t)size->v_int64;
  }
  return rc == 0 && left != 0 ? damaged("bytes follow its artifacts") : rc;
}

/* ---- the module ---- */

static void release(FcFarModule* module, int32_t code, uint64_t handle) {
  if (handle != 0) fc_far_release(module->index, module->serial, code, handle);
}

void fc_far_module_drop(void* state) {
  FcFarModule* module = state;
  if (--module->references != 0) return;
  for (int64_t i = 0; module->mains && i < module->part_count; ++i) {
    release(module, FC_WIRE_FREE_HANDLE, module->mains[i]);
  }
  release(module, FC_WIRE_FREE_HANDLE, module->compute);
  for (FcFarBuffer *buffer = module->buffers, *next; buffer; buffer = next) {
    next = buffer->next;
    release(module, FC_WIRE_DEV_FREE_DATA, buffer->data);
    free(buffer);
  }
  for (int64_t i = 0; i < module->region_count; ++i) free(module->regions[i].name);
  free(module->regions);
  free(module->mains);
  free(module);
}

/* Names the regions and the device in the error, whose kind becomes `kind`; NULL: keeps its own. */
static void name_regions(const FcFarModule* module, const char* as) {
  TVMFFIObject* error = fc_error_take();
  FcText names = {0};
  char kind[FC_KIND_MAX];
  if (!error) return;
  for (int64_t i = 0; i < module->region_count; ++i) {
    fc_text_format(&names, "%s`%s`", i ? ", " : "", module->regions[i].name ? module->regions[i].name : "");
  }
  fc_text_add(&names, "", 1);
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  snprintf(kind, sizeof kind, "%.*s", (int)cell->kind.size, cell->kind.data);
  fc_error_format(as ? as : kind, "regions %s on %.*s: %.*s", names.data ? names.data : "", (int)module->on.size,
                  module->on.data, (int)cell->message.size, cell->message.data);
  free(names.data);
  fc_decref(error);
}

static int make(FcFarModule* module, TVMFFIAny* result) {
  struct FarcallModuleSpec spec = {.struct_size = sizeof spec, .kind = KIND, .state = module};
  struct FarcallModuleFunction* functions = calloc((size_t)module->region_count + 1, sizeof *functions);
  TVMFFIObjectHandle made = NULL;
  if (!functions) return fc_error_no_memory(), -1;
  for (int64_t i = 0; i < module->region_count; ++i) {
    functions[i] = (struct FarcallModuleFunction){module->regions[i].name, fc_far_region_call, &module->regions[i]};
  }
  spec.functions = functions;
  spec.function_count = module->region_count;
  spec.destroy = fc_far_module_drop;
  ++module->references;
  int rc = fc_module_create(&spec, &made);
  free(functions);
  if (rc == 0) *result = fc_any_object(made);
  return rc;
}

/* The head is valid while the module is loaded. */
static int fill(FcFarModule* module, const TVMFFIAny* head, const uint8_t* data, size_t size, TVMFFIAny* result) {
  int rc = read_regions(module, head);
  if (rc == 0 && (rc = find_device(module, head)) != 0) name_regions(module, "ArtifactError");
  if (rc == 0 && (rc = fc_far_named(module->index, "the artifact", load_parts(module, head, data, size))) != 0) {
    name_regions(module, NULL);
  }
  if (rc == 0) rc = make(module, result);
  module->on = (TVMFFIByteArray){"", 0};
  return rc;
}

static int load(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  static const struct FarcallModuleKind kind = {KIND, VERSION, VERSION, NULL};
  struct FarcallBlob blob;
  TVMFFIAny head = fc_any_none();
  (void)n;
  if (fc_runtime.blob_read(&kind, args, &blob) != 0) return -1;
  const char* end = memchr(blob.data, '\n', blob.size);
  const size_t line = end ? (size_t)(end - blob.data) : 0;
  if (!end || fc_json_parse(blob.data, line, &head) != 0) return fc_error_drop(), damaged("its first line is no head");
  FcFarModule* module = calloc(1, sizeof *module);
  int rc = module ? 0 : (fc_error_no_memory(), -1);
  if (module) {
    module->references = 1;
    rc = fill(module, &head, (const uint8_t*)end + 1, blob.size - line - 1, result);
    fc_far_module_drop(module);
  }
  fc_any_clear(&head);
  return rc;
}

const FcBuiltin fc_far_builtins[] = {{"ffi.Module.load_from_bytes." KIND, load, 1, 1}, {NULL, NULL, 0, 0}};
