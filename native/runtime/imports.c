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

/* ---- the walk through a module and its imports ---- */

/*
 * A module may be reached on many ways (a chain of 40 diamonds has 2^40), so the walk remembers which modules it has
 * seen; and it keeps no frame of the C stack for each level.
 */
enum { FEWEST = 16 };

typedef struct Walk {
  TVMFFIObject** waiting; /* references, the next one last */
  size_t count, room;
  TVMFFIObject** seen; /* references, so that no address is used again meanwhile: a hash table, at most half full */
  size_t known, slots; /* a power of two */
} Walk;

static bool grow(Walk* walk, size_t more) {
  size_t room = walk->room ? walk->room : FEWEST;
  while (room < walk->count + more) room *= 2;
  TVMFFIObject** longer = room == walk->room ? walk->waiting : realloc(walk->waiting, room * sizeof *longer);
  if (!longer) return false;
  walk->waiting = longer;
  walk->room = room;
  return true;
}

/* The first import comes last, since that is the next one. */
static int add_imports(Walk* walk, TVMFFIObject* module) {
  TVMFFIObject* imports = fc_module_imports(module);
  if (!imports) return -1;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(imports);
  bool good = cell->size == 0 || grow(walk, (size_t)cell->size);
  for (int64_t i = cell->size; good && i-- > 0;) {
    TVMFFIObject* import = ((TVMFFIAny*)cell->data)[i].v_obj;
    fc_incref(import);
    walk->waiting[walk->count++] = import;
  }
  fc_decref(imports);
  if (!good) fc_error_no_memory();
  return good ? 0 : -1;
}

static TVMFFIObject** slot_of(const Walk* walk, const TVMFFIObject* module) {
  size_t at = (size_t)((uint64_t)(uintptr_t)module * 0x9e3779b97f4a7c15u >> 32);
  for (;; ++at) {
    TVMFFIObject** slot = &walk->seen[at & (walk->slots - 1)];
    if (!*slot || *slot == module) return slot;
  }
}

static bool make_room(Walk* walk) {
  Walk larger = {.slots = walk->slots ? 2 * walk->slots : FEWEST};
  if (2 * walk->known < walk->slots) return true;
  larger.seen = calloc(larger.slots, sizeof *larger.seen);
  if (!larger.seen) return false;
  for (size_t i = 0; i < walk->slots; ++i) {
    if (walk->seen[i]) *slot_of(&larger, walk->seen[i]) = walk->seen[i];
  }
  free(walk->seen);
  walk->seen = larger.seen;
  walk->slots = larger.slots;
  return true;
}

/* Takes ownership of the module. *is_new: it was not seen before. */
static int remember(Walk* walk, TVMFFIObject* module, bool* is_new) {
  *is_new = false;
  if (!make_room(walk)) {
    fc_decref(module);
    fc_error_no_memory();
    return -1;
  }
  TVMFFIObject** slot = slot_of(walk, module);
  if (*slot) {
    fc_decref(module);
    return 0;
  }
  *slot = module;
  ++walk->known;
  *is_new = true;
  return 0;
}

static void clear(Walk* walk) {
  for (size_t i = 0; i < walk->count; ++i) fc_decref(walk->waiting[i]);
  for (size_t i = 0; i < walk->slots; ++i) {
    if (walk->seen[i]) fc_decref(walk->seen[i]);
  }
  free(walk->waiting);
  free(walk->seen);
}

int fc_module_walk(TVMFFIObject* module, FcModuleVisitor visit, void* context) {
  Walk walk = {0};
  bool is_new;
  int step = visit(context, module), rc = step == FC_WALK_ON ? add_imports(&walk, module) : step < 0 ? -1 : 0;
  while (rc == 0 && walk.count > 0 && step != FC_WALK_END) {
    TVMFFIObject* next = walk.waiting[--walk.count];
    rc = remember(&walk, next, &is_new);
    if (rc != 0 || !is_new) continue;
    step = visit(context, next);
    rc = step == FC_WALK_ON ? add_imports(&walk, next) : step < 0 ? -1 : 0;
  }
  clear(&walk);
  return rc;
}

/* ---- importing ---- */

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
    fc_error_format("RuntimeError", "a module of kind `%s` cannot be saved: %s", module->kind,
                    module->library ? "copy the file that it was loaded from" : "it was made without `save`");
    return -1;
  }
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->save(handle, result) : -1;
}

/* A module that can be saved is written in one format, that of its kind. */
static int own_formats(const FcModuleObj* module, TVMFFIAny* result) {
  TVMFFIObjectHandle formats = NULL;
  TVMFFIAny kind;
  if (module->save && fc_any_from_bytes(kTVMFFIStr, module->kind, strlen(module->kind), &kind) != 0) return -1;
  if (fc_array_new(&kind, module->save != NULL, &formats) != 0) return -1;
  *result = fc_any_object(formats);
  return 0;
}

int fc_module_formats(TVMFFIObject* handle, TVMFFIAny* result) {
  const FcModuleObj* module = fc_module_of(handle);
  if (module) return own_formats(module, result);
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->formats(handle, result) : -1;
}

int (*fc_file_write)(TVMFFIByteArray path, TVMFFIByteArray data);

static int write_bytes(const TVMFFIAny* file, const TVMFFIAny* bytes) {
  TVMFFIByteArray path, data;
  if (fc_any_text(file, &path) && fc_any_bytes(bytes, &data)) return fc_file_write(path, data);
  fc_error_format("TypeError", "a module's `save` returned a `%s`, not bytes", fc_type_name(bytes->type_index));
  return -1;
}

static int write_own(TVMFFIObject* handle, const FcModuleObj* module, const TVMFFIAny* file, const TVMFFIAny* format) {
  TVMFFIByteArray text = {"", 0};
  TVMFFIAny bytes = fc_any_none();
  bool known = fc_any_text(format, &text) && text.size == strlen(module->kind) &&
               memcmp(text.data, module->kind, text.size) == 0;
  if (!fc_file_write || (module->save && !known)) {
    fc_error_format("RuntimeError", "a module of kind `%s` cannot be written as `%.*s`: its format is `%s`",
                    module->kind, (int)text.size, text.data, fc_file_write ? module->kind : "none");
    return -1;
  }
  int rc = fc_module_save(handle, &bytes) == 0 ? write_bytes(file, &bytes) : -1;
  fc_any_clear(&bytes);
  return rc;
}

int fc_module_write(TVMFFIObject* handle, const TVMFFIAny* file, const TVMFFIAny* format) {
  const FcModuleObj* module = fc_module_of(handle);
  if (module) return write_own(handle, module, file, format);
  const FcCxx* cxx = fc_cxx();
  return cxx ? cxx->write(handle, file, format) : -1;
}
