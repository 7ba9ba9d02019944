/* What the runtime offers to loaders in C: modules of C functions, and blobs that were checked. */
#include <farcall/module.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/frame.h"
#include "runtime/module.h"

/* ---- the state, which the module and each of its functions keep ---- */

typedef struct {
  void* state;
  void (*destroy)(void* state);
} State;

static void drop_state(void* handle) {
  State* state = handle;
  if (state->destroy) state->destroy(state->state);
  free(state);
}

static TVMFFIObject* keep_state(const struct FarcallModuleSpec* spec) {
  TVMFFIObjectHandle keeper = NULL;
  State* state = malloc(sizeof *state);
  if (state) *state = (State){spec->state, spec->destroy};
  if (state && fc_opaque_new(state, kTVMFFIOpaquePyObject, drop_state, &keeper) == 0) return keeper;
  if (!state) fc_error_no_memory();
  free(state);
  if (spec->destroy) spec->destroy(spec->state);
  return NULL;
}

/* ---- functions ---- */

typedef struct {
  TVMFFISafeCallType call;
  void* self;
  TVMFFIObject* keeper;
} Bound;

static int call_bound(void* handle, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const Bound* bound = handle;
  return bound->call(bound->self, args, n, result);
}

static void drop_bound(void* handle) {
  fc_decref(((Bound*)handle)->keeper);
  free(handle);
}

static TVMFFIObject* bind(TVMFFISafeCallType call, void* self, TVMFFIObject* keeper) {
  TVMFFIObjectHandle function = NULL;
  Bound* bound = malloc(sizeof *bound);
  if (!bound) return fc_error_no_memory(), NULL;
  *bound = (Bound){call, self, keeper};
  fc_incref(keeper);
  if (fc_function_new(bound, call_bound, drop_bound, &function) == 0) return function;
  drop_bound(bound);
  return NULL;
}

static int add_functions(FcModuleObj* module, const struct FarcallModuleSpec* spec, TVMFFIObject* keeper) {
  if (fc_map_new(kTVMFFIMap, (TVMFFIObjectHandle*)&module->functions) != 0) return -1;
  for (int64_t i = 0; i < spec->function_count; ++i) {
    const struct FarcallModuleFunction* each = &spec->functions[i];
    TVMFFIAny name;
    TVMFFIObject* function = bind(each->call, each->self ? each->self : spec->state, keeper);
    if (!function) return -1;
    if (fc_any_from_bytes(kTVMFFIStr, each->name, strlen(each->name), &name) != 0) return fc_decref(function), -1;
    if (fc_map_set(module->functions, name, fc_any_object(function)) != 0) return -1;
  }
  return 0;
}

static int fill(FcModuleObj* module, const struct FarcallModuleSpec* spec, TVMFFIObject* keeper) {
  if (add_functions(module, spec, keeper) != 0) return -1;
  if (spec->save && !(module->save = bind(spec->save, spec->state, keeper))) return -1;
  if (spec->source && !(module->source = bind(spec->source, spec->state, keeper))) return -1;
  if (module->save) module->properties |= FC_MODULE_TO_BYTES;
  return 0;
}

int fc_module_create(const struct FarcallModuleSpec* spec, TVMFFIObjectHandle* out) {
  if (spec->struct_size < sizeof *spec) {
    fc_error_format("ValueError", "module_create: struct_size is %u, expected at least %zu", spec->struct_size,
                    sizeof *spec);
    return -1;
  }
  TVMFFIObject* keeper = keep_state(spec);
  TVMFFIObject* module = keeper ? fc_module_new(spec->kind, FC_MODULE_RUNNABLE) : NULL;
  bool good = module && fill(fc_module_of(module), spec, keeper) == 0;
  if (keeper) fc_decref(keeper);
  if (good) return *out = module, 0;
  if (module) fc_decref(module);
  return -1;
}

/* ---- blobs ---- */

static bool listed(const char* const* names, TVMFFIByteArray name) {
  for (; names && *names; ++names) {
    if (strlen(*names) == name.size && memcmp(*names, name.data, name.size) == 0) return true;
  }
  return false;
}

/* What brings a newer loader, for the end of a message. */
static void write_cure(const FcFrame* frame, char* out, size_t room) {
  TVMFFIByteArray package = fc_frame_package(frame);
  snprintf(out, room, package.size ? "`pip install --upgrade %.*s`" : "install a newer version of the loader",
           (int)package.size, package.data);
}

static int check_version(const struct FarcallModuleKind* kind, const FcFrame* frame) {
  char cure[300] = "build the module again";
  if (frame->version >= kind->oldest_version && frame->version <= kind->newest_version) return 0;
  if (frame->version > kind->newest_version) write_cure(frame, cure, sizeof cure);
  fc_error_format("ArtifactError",
                  "a module of kind `%s` has version %u%s%.*s, and its loader reads versions %u to %u; %s", kind->kind,
                  frame->version, frame->producer.size ? ", made by " : "", (int)frame->producer.size,
                  frame->producer.data, kind->oldest_version, kind->newest_version, cure);
  return -1;
}

static int check_features(const struct FarcallModuleKind* kind, const FcFrame* frame) {
  char cure[300];
  for (uint32_t i = 0; i < frame->feature_count; ++i) {
    TVMFFIByteArray name = frame->features[i];
    if (fc_frame_asks_runtime(name) || listed(kind->features, name)) continue;
    write_cure(frame, cure, sizeof cure);
    fc_error_format("ArtifactError",
                    "a module of kind `%s` (version %u) needs `%.*s`, which its loader does not have; %s", kind->kind,
                    frame->version, (int)name.size, name.data, cure);
    return -1;
  }
  return 0;
}

static bool read_bytes(const TVMFFIAny* any, TVMFFIByteArray* out) {
  if (fc_any_bytes(any, out)) return true;
  fc_error_format("TypeError", "the loader of a module: expected bytes, got `%s`", fc_type_name(any->type_index));
  return false;
}

int fc_blob_read(const struct FarcallModuleKind* kind, const TVMFFIAny* bytes, struct FarcallBlob* out) {
  TVMFFIByteArray data;
  FcFrame frame;
  if (!read_bytes(bytes, &data)) return -1;
  if (fc_frame_read((TVMFFIByteArray){kind->kind, strlen(kind->kind)}, data.data, data.size, &frame) != 0) return -1;
  if (check_version(kind, &frame) != 0 || check_features(kind, &frame) != 0) return -1;
  *out = (struct FarcallBlob){frame.data.data, frame.data.size, frame.version};
  return 0;
}
