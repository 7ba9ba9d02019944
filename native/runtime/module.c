/* Modules: the object, and the system library. */
#include "runtime/module.h"

#include <stdlib.h>

#include "runtime/cxx.h"

void* fc_cxx_table[FC_CXX_TABLE_HEAD + FC_CXX_METHODS];
const FcCxx* (*fc_cxx_find)(void);

const FcCxx* fc_cxx(void) {
  if (fc_cxx_find) return fc_cxx_find();
  fc_error_set("RuntimeError", "the module is a C++ object, and this program has no support for C++ modules");
  return NULL;
}

static void module_delete(void* handle, int flags) {
  FcModuleObj* module = (FcModuleObj*)((char*)handle - offsetof(FcModuleObj, header));
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    TVMFFIObject* const held[] = {module->imports, module->cache, module->functions, module->save, module->source};
    for (size_t i = 0; i < sizeof held / sizeof *held; ++i) {
      if (held[i]) fc_decref(held[i]);
    }
    free(module->kind);
    free(module->prefix);
    if (module->unload) module->unload(module->library);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(module);
}

FcModuleObj* fc_module_of(TVMFFIObject* handle) {
  if (handle->type_index != kTVMFFIModule || handle->deleter != module_delete) return NULL;
  return (FcModuleObj*)((char*)handle - offsetof(FcModuleObj, header));
}

TVMFFIObject* fc_module_new(const char* kind, int properties) {
  FcModuleObj* module = calloc(1, sizeof *module);
  TVMFFIObjectHandle imports = NULL;
  char* name = strdup(kind);
  if (!module || !name || fc_array_new(NULL, 0, &imports) != 0) {
    free(module);
    free(name);
    fc_error_no_memory();
    return NULL;
  }
  fc_object_init(&module->header, kTVMFFIModule, module_delete);
  module->methods = fc_cxx_table + FC_CXX_TABLE_HEAD;
  module->imports = imports;
  module->kind = name;
  module->properties = properties;
  module->bound_here = true;
  return &module->header;
}

TVMFFIObject* fc_module_of_library(void* library, FcSymbolFinder find, bool bound_here) {
  TVMFFIObject* handle = fc_module_new("library", FC_MODULE_RUNNABLE);
  if (!handle) return NULL;
  FcModuleObj* module = fc_module_of(handle);
  module->library = library;
  module->find = find;
  module->bound_here = bound_here;
  return handle;
}

/* ---- the system library ---- */

typedef struct System {
  struct System* next;
  TVMFFIObject* module; /* owned, never released */
} System;

static System* systems;
static FcMutex systems_lock = FC_MUTEX_INIT;

static TVMFFIObject* new_system(const char* prefix) {
  TVMFFIObject* handle = fc_module_new("library", FC_MODULE_RUNNABLE);
  System* system = malloc(sizeof *system);
  char* copy = strdup(prefix);
  if (!handle || !system || !copy) {
    if (handle) fc_decref(handle);
    free(system);
    free(copy);
    fc_error_no_memory();
    return NULL;
  }
  fc_module_of(handle)->prefix = copy;
  *system = (System){systems, handle};
  systems = system;
  return handle;
}

TVMFFIObject* fc_module_system(const char* prefix) {
  fc_mutex_lock(&systems_lock);
  const System* system = systems;
  while (system && strcmp(fc_module_of(system->module)->prefix, prefix) != 0) system = system->next;
  TVMFFIObject* module = system ? system->module : new_system(prefix);
  fc_mutex_unlock(&systems_lock);
  return module;
}
