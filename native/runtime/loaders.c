/* Modules from bytes: finds the loader of a kind, and checks the frame of the bytes before it calls the loader. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/frame.h"
#include "runtime/module.h"
#include "runtime/text.h"

#define LOADER "ffi.Module.load_from_bytes."
#define EXPORTED "__farcall_load_"

enum { MOST_KINDS = 24 }; /* that an error lists */

int (*fc_module_plugins)(TVMFFIByteArray kind, FcText* kinds);

/* An ArtifactError says already which module it is about. */
static bool names_module(TVMFFIObject* error) {
  static const char typed[] = "ArtifactError";
  TVMFFIByteArray kind = error ? TVMFFIErrorGetCellPtr(error)->kind : (TVMFFIByteArray){"", 0};
  return kind.size == sizeof typed - 1 && memcmp(kind.data, typed, kind.size) == 0;
}

/* Adds the name of a loader to its error. */
static void name_loader(const char* name) {
  char place[sizeof LOADER + FC_FRAME_NAME + 16];
  TVMFFIObject* error = fc_error_take();
  bool named = names_module(error);
  if (error) fc_error_raise(error);
  if (named) return;
  snprintf(place, sizeof place, "the loader `%s`", name);
  fc_error_add_place(place);
}

TVMFFIObject* fc_module_call_loader(TVMFFIObject* loader, const TVMFFIAny* args, int32_t n, const char* name) {
  TVMFFIAny result = fc_any_none();
  int rc = TVMFFIFunctionGetCellPtr(loader)->safe_call(loader, args, n, &result);
  fc_decref(loader);
  if (rc != 0) {
    name_loader(name);
    return NULL;
  }
  if (result.type_index == kTVMFFIModule) return result.v_obj;
  fc_error_format("TypeError", "the loader `%s` returned a `%s`, not a module", name, fc_type_name(result.type_index));
  fc_any_clear(&result);
  return NULL;
}

TVMFFIObject* fc_module_loader(const char* name) {
  TVMFFIByteArray text = {name, strlen(name)};
  TVMFFIObjectHandle loader = NULL;
  TVMFFIFunctionGetGlobal(&text, &loader);
  return loader;
}

/* ---- a kind that nobody loads ---- */

typedef struct {
  FcText text;
  int count;
} Kinds;

static bool add_kind(void* context, const char* name, size_t size) {
  static const char prefix[] = LOADER;
  Kinds* kinds = context;
  size_t skip = sizeof prefix - 1;
  if (size <= skip || memcmp(name, prefix, skip) != 0) return true;
  fc_text_format(&kinds->text, "%s`%.*s`", kinds->count ? ", " : "", (int)(size - skip), name + skip);
  return ++kinds->count < MOST_KINDS;
}

/* The kind that the runtime itself loads is in no table of registered functions. */
static void add_built_in(Kinds* kinds) {
  static const char name[] = LOADER "farcall.json";
  TVMFFIObject* loader = fc_module_loader(name);
  if (!loader) return;
  fc_decref(loader);
  add_kind(kinds, name, sizeof name - 1);
}

/* `frame`: that of the bytes; or NULL. `offered`: the kinds that installed packages offer, or empty. */
static void set_unknown(TVMFFIByteArray kind, const FcFrame* frame, const char* offered) {
  Kinds kinds = {.count = 0};
  TVMFFIByteArray package = frame ? fc_frame_package(frame) : (TVMFFIByteArray){"", 0};
  char cure[320];
  add_built_in(&kinds);
  fc_global_each(add_kind, &kinds);
  fc_text_add(&kinds.text, "", 1);
  if (package.size) {
    snprintf(cure, sizeof cure, "`pip install %.*s`, which made the module, in the process that loads it",
             (int)package.size, package.data);
  } else {
    snprintf(cure, sizeof cure,
             "install the package that offers it, or register a loader as the global function `" LOADER "%.*s`",
             (int)kind.size, kind.data);
  }
  fc_error_format("ArtifactError", "no loader for modules of kind `%.*s`; loaders are there for: %s%s%s; %s",
                  (int)kind.size, kind.data, kinds.count ? kinds.text.data : "none",
                  offered[0] ? "; packages offer: " : "", offered, cure);
  free(kinds.text.data);
}

/* ---- finding the loader ---- */

/* The loader that installed packages offer; NULL with an error when they offer none. */
static TVMFFIObject* find_offered(TVMFFIByteArray kind, const FcFrame* frame, const char* name) {
  FcText offered = {0};
  TVMFFIObject* loader = NULL;
  if (!fc_module_plugins) return set_unknown(kind, frame, ""), NULL;
  if (fc_module_plugins(kind, &offered) == 0) {
    loader = fc_module_loader(name);
    fc_text_add(&offered, "", 1);
    if (!loader) set_unknown(kind, frame, offered.data ? offered.data : "");
  }
  free(offered.data);
  return loader;
}

static int check_frame(TVMFFIByteArray kind, TVMFFIByteArray data, FcFrame* frame) {
  if (fc_frame_read(kind, data.data, data.size, frame) != 0) return -1;
  const TVMFFIByteArray* missing = fc_frame_missing(frame);
  if (!missing) return 0;
  fc_error_format(
      "ArtifactError",
      "a module of kind `%.*s` (version %u) needs `%.*s`, which this runtime does not have; load it where it "
      "is there, or install a newer farcall",
      (int)kind.size, kind.data, frame->version, (int)missing->size, missing->data);
  return -1;
}

/* The loader that a library exports; new reference, or NULL. The library then stays, for the loader's modules. */
static TVMFFIObject* find_exported(FcModuleObj* library, TVMFFIByteArray kind) {
  char name[sizeof EXPORTED + FC_FRAME_NAME];
  TVMFFISafeCallType call = NULL;
  TVMFFIObjectHandle loader = NULL;
  void* self = NULL;
  if (!library || !library->library) return NULL;
  int size = snprintf(name, sizeof name, EXPORTED "%.*s", (int)kind.size, kind.data);
  for (char* at = name; at < name + size; ++at) {
    if (*at == '.' || *at == '-') *at = '_';
  }
  void* found = library->find(library->library, name);
  if (!found) return NULL;
  library->unload = NULL;
  memcpy(&call, &found, sizeof call);
  if (!library->bound_here && fc_foreign) fc_foreign->wrap(&call, &self);
  fc_function_new(self, call, NULL, &loader);
  return loader;
}

TVMFFIObject* fc_module_from_bytes(TVMFFIByteArray kind, TVMFFIByteArray data, FcModuleObj* library) {
  char name[sizeof LOADER + FC_FRAME_NAME];
  FcFrame frame;
  const TVMFFIAny arg = {.type_index = kTVMFFIByteArrayPtr, .v_ptr = &data};
  if (!fc_frame_is_name(kind)) {
    fc_error_set("ArtifactError",
                 "the kind of an embedded module is not 1 to 64 letters, digits and `_.-`; the file is corrupted, or "
                 "not for farcall: copy or build it again");
    return NULL;
  }
  bool framed = fc_frame_begins(data.data, data.size);
  if (framed && check_frame(kind, data, &frame) != 0) return NULL;
  snprintf(name, sizeof name, LOADER "%.*s", (int)kind.size, kind.data);
  TVMFFIObject* loader = find_exported(library, kind);
  if (!loader) loader = fc_module_loader(name);
  if (!loader) loader = find_offered(kind, framed ? &frame : NULL, name);
  return loader ? fc_module_call_loader(loader, &arg, 1, name) : NULL;
}
