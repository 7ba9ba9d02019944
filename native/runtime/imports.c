/* Imports and properties of modules: of the core's own, and of those that are C++ objects. */
#include <stdlib.h>

#include "runtime/cxx.h"
#include "runtime/module.h"

/* ---- imports ---- */

/* For the word `imports` of every module: importing is rare. */
static FcMutex tree_lock = FC_MUTEX_INIT;
/* Held from the check for cycles until the import is there: two threads could close a cycle together. */
static FcMutex import_lock = FC_MUTEX_INIT;

/* All modules, C++ ones too, have `imports` at this offset; NULL means an empty Array. */
static TVMFFIObject** imports_of(TVMFFIObject* module) { return (TVMFFIObject**)(module + 1); }

TVMFFIObject* fc_module_imports(TVMFFIObject* handle) {
  TVMFFIObjectHandle imports = NULL;
  fc_mutex_lock(&tree_lock);
  imports = *imports_of(handle);
  if (imports) fc_incref(imports);
  fc_mutex_unlock(&tree_lock);
  return imports || fc_array_new(NULL, 0, &imports) == 0 ? imports : NULL;
}

typedef struct Goal {
  const TVMFFIObject* module;
  bool reached;
} Goal;

static int look_for(void* context, TVMFFIObject* module) {
  Goal* goal = context;
  goal->reached = module == goal->module;
  return goal->reached ? FC_WALK_END : FC_WALK_ON;
}

/* Call with the lock held. Makes a new array: readers may hold the old one. */
static int append_import(TVMFFIObject** imports, TVMFFIObject* other) {
  const TVMFFISeqCell* cell = *imports ? TVMFFISeqGetCellPtr(*imports) : NULL;
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
  if (*imports) fc_decref(*imports);
  *imports = longer;
  return 0;
}

static int import_checked(TVMFFIObject* module, TVMFFIObject* other) {
  Goal goal = {module, false};
  if (fc_module_walk(other, look_for, &goal) != 0) return -1;
  if (goal.reached) {
    fc_error_set("RuntimeError", "cyclic import: the imported module imports this one, or is this one");
    return -1;
  }
  fc_mutex_lock(&tree_lock);
  int rc = append_import(imports_of(module), other);
  fc_mutex_unlock(&tree_lock);
  return rc;
}

int fc_module_import_plainly(TVMFFIObject* module, TVMFFIObject* other) {
  fc_mutex_lock(&import_lock);
  int rc = import_checked(module, other);
  fc_mutex_unlock(&import_lock);
  return rc;
}

int fc_module_clear_imports_plainly(TVMFFIObject* module) {
  TVMFFIObjectHandle none = NULL;
  if (fc_array_new(NULL, 0, &none) != 0) return -1;
  fc_mutex_lock(&tree_lock);
  TVMFFIObject* old = *imports_of(module);
  *imports_of(module) = none;
  fc_mutex_unlock(&tree_lock);
  if (old) fc_decref(old);
  return 0;
}

int fc_module_import(TVMFFIObject* module, TVMFFIObject* other) {
  if (fc_module_of(module)) return fc_module_import_plainly(module, other);
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->import(module, other) : -1;
}

int fc_module_clear_imports(TVMFFIObject* module) {
  if (fc_module_of(module)) return fc_module_clear_imports_plainly(module);
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->clear_imports(module) : -1;
}

/* ---- the module itself ---- */

int fc_module_kind(TVMFFIObject* handle, const char** out) {
  const FcModuleObj* module = fc_module_of(handle);
  const FcCxx* cxx = module ? NULL : fc_cxx();
  if (module) *out = module->kind;
  if (module) return 0;
  return cxx ? cxx->kind(handle, out) : -1;
}

int fc_module_properties(TVMFFIObject* handle, int* out) {
  const FcModuleObj* module = fc_module_of(handle);
  const FcCxx* cxx = module ? NULL : fc_cxx();
  if (module) *out = module->properties;
  if (module) return 0;
  return cxx ? cxx->properties(handle, out) : -1;
}

static int call_hook(TVMFFIObject* hook, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  *result = fc_any_none();
  return TVMFFIFunctionGetCellPtr(hook)->safe_call(hook, args, n, result);
}

int fc_module_source(TVMFFIObject* handle, const TVMFFIAny* format, TVMFFIAny* result) {
  const FcModuleObj* module = fc_module_of(handle);
  if (module) {
    return module->source ? call_hook(module->source, format, 1, result) : fc_any_from_bytes(kTVMFFIStr, "", 0, result);
  }
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->source(handle, format, result) : -1;
}

int fc_module_save(TVMFFIObject* handle, TVMFFIAny* result) {
  const FcModuleObj* module = fc_module_of(handle);
  if (module && module->save) return call_hook(module->save, NULL, 0, result);
  if (module) {
    fc_error_format("RuntimeError", "a module of kind `%s` cannot be saved: it was made without `save`", module->kind);
    return -1;
  }
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->save(handle, result) : -1;
}

int fc_module_formats(TVMFFIObject* handle, TVMFFIAny* result) {
  TVMFFIObjectHandle none = NULL;
  if (fc_module_of(handle)) {
    if (fc_array_new(NULL, 0, &none) != 0) return -1;
    *result = fc_any_object(none);
    return 0;
  }
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->formats(handle, result) : -1;
}

int fc_module_write(TVMFFIObject* handle, const TVMFFIAny* file, const TVMFFIAny* format) {
  const FcModuleObj* module = fc_module_of(handle);
  if (module) {
    fc_error_format("RuntimeError", "a module of kind `%s` cannot be written to files", module->kind);
    return -1;
  }
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->write(handle, file, format) : -1;
}
