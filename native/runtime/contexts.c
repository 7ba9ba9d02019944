/* Library contexts: a context is a library's module, through which generated code looks up functions. */
#include <stdlib.h>

#include "runtime/module.h"

/* ---- known contexts ---- */

typedef struct Context {
  struct Context* next;
  TVMFFIObject* module; /* owned for ever: the library may use it at any time */
} Context;

static Context* contexts;
static FcMutex contexts_lock = FC_MUTEX_INIT;

int fc_context_add(TVMFFIObject* module) {
  Context* context = malloc(sizeof *context);
  if (!context) {
    fc_error_no_memory();
    return -1;
  }
  fc_incref(module);
  fc_mutex_lock(&contexts_lock);
  *context = (Context){contexts, module};
  contexts = context;
  fc_mutex_unlock(&contexts_lock);
  return 0;
}

/* A context that another runtime has set must not be dereferenced. */
static bool is_context(const void* pointer) {
  fc_mutex_lock(&contexts_lock);
  const Context* context = contexts;
  while (context && context->module != pointer) context = context->next;
  fc_mutex_unlock(&contexts_lock);
  return context != NULL;
}

/* ---- lookups of generated code ---- */

static FcMutex cache_lock = FC_MUTEX_INIT;

/* The first function found stays in the cache, because callers borrow it. */
static TVMFFIObject* cached(FcModuleObj* module, const TVMFFIAny* name, TVMFFIObject* found) {
  TVMFFIObject* out = NULL;
  fc_mutex_lock(&cache_lock);
  const TVMFFIAny* known = module->cache ? fc_map_find(module->cache, name) : NULL;
  if (known) out = known->v_obj;
  if (!known && found && (module->cache || fc_map_new(kTVMFFIMap, (void**)&module->cache) == 0)) {
    TVMFFIAny key;
    fc_incref(found);
    bool good = fc_any_to_owned(name, &key) == 0 && fc_map_set(module->cache, key, fc_any_object(found)) == 0;
    out = good ? found : NULL;
  }
  fc_mutex_unlock(&cache_lock);
  return out;
}

/* New reference. */
static TVMFFIObject* look_up(TVMFFIObject* module, const char* name) {
  TVMFFIObject* imports = fc_module_imports(module);
  TVMFFIObject* found = NULL;
  const TVMFFISeqCell* cell = imports ? TVMFFISeqGetCellPtr(imports) : NULL;
  int rc = cell ? 0 : -1;
  for (int64_t i = 0; rc == 0 && !found && i < cell->size; ++i) {
    rc = fc_module_get(((TVMFFIAny*)cell->data)[i].v_obj, name, strlen(name), true, &found);
  }
  if (imports) fc_decref(imports);
  TVMFFIByteArray text = {name, strlen(name)};
  TVMFFIObjectHandle global = NULL;
  if (rc == 0 && !found && TVMFFIFunctionGetGlobal(&text, &global) == 0) found = global;
  if (rc == 0 && !found) {
    fc_error_format("RuntimeError", "no imported module and no global registration has a function `%s`", name);
  }
  return found;
}

int TVMFFIEnvModLookupFromImports(TVMFFIObjectHandle library_ctx, const char* func_name, TVMFFIObjectHandle* out) {
  TVMFFIAny name = {.type_index = kTVMFFIRawStr, .v_c_str = func_name};
  TVMFFIObject* found = NULL;
  *out = NULL;
  if (!is_context(library_ctx)) {
    fc_error_format("RuntimeError", "cannot look for `%s`: the library was not loaded by this runtime", func_name);
  } else {
    FcModuleObj* module = fc_module_of(library_ctx);
    *out = cached(module, &name, NULL);
    if (*out) return 0;
    found = look_up(library_ctx, func_name);
    *out = found ? cached(module, &name, found) : NULL;
  }
  if (found) fc_decref(found);
  if (*out) return 0;
  fc_foreign_error_mirror();
  return -1;
}
