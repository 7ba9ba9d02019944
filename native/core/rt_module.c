/* Modules: the object, the tree of imports, and what is found in it. No Python here. */
#include "rt_module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* One lock for all trees: importing is rare, and a check for cycles looks at many. */
static pthread_mutex_t tree_lock = PTHREAD_MUTEX_INITIALIZER;

static void module_delete(void* handle, int flags) {
  FcModuleObj* module = (FcModuleObj*)((char*)handle - offsetof(FcModuleObj, header));
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    TVMFFIObject* const held[] = {module->imports, module->cache, module->functions, module->save, module->source};
    for (size_t i = 0; i < sizeof held / sizeof *held; ++i) {
      if (held[i]) fc_decref(held[i]);
    }
    free(module->kind);
    free(module->prefix);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(module);
}

FcModuleObj* fc_module_of(TVMFFIObject* handle) {
  if (handle->type_index != kTVMFFIModule || handle->deleter != module_delete) return NULL;
  return (FcModuleObj*)((char*)handle - offsetof(FcModuleObj, header));
}

TVMFFIObject* fc_module_new(const char* kind, int properties) {
  FcModuleObj* module = calloc(1, sizeof *module);
  char* name = strdup(kind);
  if (!module || !name) {
    free(module);
    free(name);
    fc_error_no_memory();
    return NULL;
  }
  fc_object_init(&module->header, kTVMFFIModule, module_delete);
  module->kind = name;
  module->properties = properties;
  module->bound_here = true;
  return &module->header;
}

TVMFFIObject* fc_module_of_library(void* library, bool bound_here) {
  TVMFFIObject* handle = fc_module_new("library", FC_MODULE_RUNNABLE);
  if (!handle) return NULL;
  FcModuleObj* module = fc_module_of(handle);
  module->library = library;
  module->bound_here = bound_here;
  if (!bound_here || fc_context_set(library, handle) == 0) return handle;
  fc_decref(handle);
  return NULL;
}

/* ---- the system library ---- */

typedef struct System {
  struct System* next;
  TVMFFIObject* module; /* for good */
} System;

static System* systems;

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
  pthread_mutex_lock(&tree_lock);
  const System* system = systems;
  while (system && strcmp(fc_module_of(system->module)->prefix, prefix) != 0) system = system->next;
  TVMFFIObject* module = system ? system->module : new_system(prefix);
  pthread_mutex_unlock(&tree_lock);
  return module;
}

/* ---- symbols ---- */

/* The text of up to three parts; in `inline_text` where it fits. NULL without memory. */
static char* join(char inline_text[256], const char* prefix, const char* name, size_t size) {
  const char* const parts[] = {FARCALL_SYMBOL_PREFIX, prefix};
  size_t need = strlen(parts[0]) + strlen(parts[1]) + size + 1;
  char* text = need <= 256 ? inline_text : malloc(need);
  if (text) snprintf(text, need, "%s%s%.*s", parts[0], parts[1], (int)size, name);
  return text;
}

static void* find_symbol(const FcModuleObj* module, const char* prefix, const char* name, size_t size) {
  char inline_text[256];
  char* text = join(inline_text, prefix, name, size);
  void* found = NULL;
  if (text && !memchr(name, 0, size)) found = module->library ? dlsym(module->library, text) : fc_system_symbol(text);
  if (text != inline_text) free(text);
  return found;
}

TVMFFISafeCallType fc_module_symbol(const FcModuleObj* module, const char* name, size_t size) {
  TVMFFISafeCallType call = NULL;
  void* found = NULL;
  if (module->library) found = find_symbol(module, "", name, size);
  if (module->prefix) found = find_symbol(module, module->prefix, name, size);
  if (module->prefix && !found) found = find_symbol(module, "", name, size);
  memcpy(&call, &found, sizeof call);
  return call;
}

/* ---- functions ---- */

/* An exported function expects no self, whereas the object's own call gives it the handle: both are fine with it. */
static int own_function(const FcModuleObj* module, const char* name, size_t size, TVMFFIObject** out) {
  TVMFFISafeCallType call = fc_module_symbol(module, name, size);
  void* self = NULL;
  if (call && !module->bound_here) fc_foreign_wrap(&call, &self);
  if (call) return fc_function_new(self, call, NULL, (TVMFFIObjectHandle*)out);
  TVMFFIAny text;
  if (!module->functions) return 0;
  if (fc_any_from_bytes(kTVMFFIStr, name, size, &text) != 0) return -1;
  const TVMFFIAny* found = fc_map_find(module->functions, &text);
  fc_any_clear(&text);
  if (!found || found->type_index != kTVMFFIFunction) return 0;
  fc_incref(found->v_obj);
  *out = found->v_obj;
  return 0;
}

/* A module of the other runtime in this process: it answers through the function that it registered there. */
static int ask_other(const char* question, TVMFFIObject* module, const char* name, size_t size, bool imports,
                     TVMFFIAny* result) {
  TVMFFIObject* function = fc_foreign_global(question, strlen(question));
  TVMFFIAny args[3] = {fc_any_object(module), fc_any_none(),
                       {.type_index = kTVMFFIBool, .v_int64 = imports}};
  int rc = -1;
  if (!function) {
    fc_error_set("RuntimeError", "the module was not made by this runtime, and the one that made it is not here");
    return -1;
  }
  if (fc_any_from_bytes(kTVMFFIStr, name, size, &args[1]) == 0) {
    rc = TVMFFIFunctionGetCellPtr(function)->safe_call(function, args, 3, result);
    fc_any_clear(&args[1]);
  }
  fc_decref(function);
  return rc;
}

static int get_from_other(TVMFFIObject* module, const char* name, size_t size, bool imports, TVMFFIObject** out) {
  TVMFFIAny result = fc_any_none();
  if (ask_other("ffi.ModuleGetFunction", module, name, size, imports, &result) != 0) return -1;
  if (result.type_index == kTVMFFIFunction) *out = result.v_obj;
  return 0;
}

int fc_module_get(TVMFFIObject* handle, const char* name, size_t size, bool query_imports, TVMFFIObject** out) {
  *out = NULL;
  const FcModuleObj* module = fc_module_of(handle);
  if (!module) return get_from_other(handle, name, size, query_imports, out);
  if (own_function(module, name, size, out) != 0) return -1;
  if (*out || !query_imports || !module->imports) return 0;
  TVMFFIObject* imports = fc_module_imports(handle);
  int rc = 0;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(imports);
  for (int64_t i = 0; rc == 0 && !*out && i < cell->size; ++i) {
    rc = fc_module_get(((TVMFFIAny*)cell->data)[i].v_obj, name, size, true, out);
  }
  fc_decref(imports);
  return rc;
}

/* ---- texts about functions ---- */

static int text_of_other(TVMFFIObject* module, const char* what, const char* name, size_t size, bool imports,
                         TVMFFIAny* result) {
  const char* question = strcmp(what, "_doc_") == 0 ? "ffi.ModuleGetFunctionDoc" : "ffi.ModuleGetFunctionMetadata";
  return ask_other(question, module, name, size, imports, result);
}

int fc_module_text(TVMFFIObject* handle, const char* what, const char* name, size_t size, bool query_imports,
                   TVMFFIAny* result) {
  const FcModuleObj* module = fc_module_of(handle);
  *result = fc_any_none();
  if (!module) return text_of_other(handle, what, name, size, query_imports, result);
  TVMFFISafeCallType call = NULL;
  void* found = module->library || module->prefix ? find_symbol(module, what, name, size) : NULL;
  memcpy(&call, &found, sizeof call);
  if (call) return call(NULL, NULL, 0, result);
  if (!query_imports || !module->imports || fc_module_symbol(module, name, size)) return 0;
  TVMFFIObject* imports = fc_module_imports(handle);
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(imports);
  int rc = 0;
  for (int64_t i = 0; rc == 0 && result->type_index == kTVMFFINone && i < cell->size; ++i) {
    rc = fc_module_text(((TVMFFIAny*)cell->data)[i].v_obj, what, name, size, true, result);
  }
  fc_decref(imports);
  return rc;
}

/* ---- imports ---- */

TVMFFIObject* fc_module_imports(TVMFFIObject* handle) {
  FcModuleObj* module = fc_module_of(handle);
  TVMFFIObjectHandle imports = NULL;
  pthread_mutex_lock(&tree_lock);
  if (module) imports = module->imports;
  if (imports) fc_incref(imports);
  pthread_mutex_unlock(&tree_lock);
  return imports || fc_array_new(NULL, 0, &imports) == 0 ? imports : NULL;
}

/* Under the lock. Trees have no cycles, so this ends. */
static bool reaches(TVMFFIObject* from, const TVMFFIObject* to) {
  const FcModuleObj* module = fc_module_of(from);
  if (from == to) return true;
  const TVMFFISeqCell* cell = module && module->imports ? TVMFFISeqGetCellPtr(module->imports) : NULL;
  for (int64_t i = 0; cell && i < cell->size; ++i) {
    if (reaches(((TVMFFIAny*)cell->data)[i].v_obj, to)) return true;
  }
  return false;
}

/* Under the lock. Readers hold the old array. */
static int append_import(FcModuleObj* module, TVMFFIObject* other) {
  const TVMFFISeqCell* cell = module->imports ? TVMFFISeqGetCellPtr(module->imports) : NULL;
  int64_t n = cell ? cell->size : 0;
  TVMFFIObjectHandle longer;
  TVMFFIAny* items = malloc(((size_t)n + 1) * sizeof *items);
  if (!items) {
    fc_error_no_memory();
    return -1;
  }
  for (int64_t i = 0; i < n; ++i) fc_any_to_owned((TVMFFIAny*)cell->data + i, &items[i]);
  items[n] = fc_any_object(other);
  fc_incref(other);
  int rc = fc_array_new(items, n + 1, &longer);
  free(items);
  if (rc != 0) return -1;
  if (module->imports) fc_decref(module->imports);
  module->imports = longer;
  return 0;
}

static int not_ours(void) {
  fc_error_set("RuntimeError", "the imports of a module of another runtime are changed there");
  return -1;
}

int fc_module_import(TVMFFIObject* handle, TVMFFIObject* other) {
  FcModuleObj* module = fc_module_of(handle);
  if (!module) return not_ours();
  pthread_mutex_lock(&tree_lock);
  bool cycle = reaches(other, handle);
  int rc = cycle ? -1 : append_import(module, other);
  pthread_mutex_unlock(&tree_lock);
  if (cycle) fc_error_set("RuntimeError", "cyclic import: the imported module imports this one, or is it");
  return rc;
}

int fc_module_clear_imports(TVMFFIObject* handle) {
  FcModuleObj* module = fc_module_of(handle);
  if (!module) return not_ours();
  pthread_mutex_lock(&tree_lock);
  TVMFFIObject* old = module->imports;
  module->imports = NULL;
  pthread_mutex_unlock(&tree_lock);
  if (old) fc_decref(old);
  return 0;
}
