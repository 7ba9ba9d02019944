/*
 * Symbols that are registered by name: of the system library, of contexts, and which module a library's context is.
 * No Python here. Nothing is ever removed.
 */
#include <stdlib.h>

#include "runtime/dl/link.h"
#include "runtime/module.h"

typedef struct Symbol {
  struct Symbol* next;
  void* value;
  char name[];
} Symbol;

enum { BUCKETS = 4096 };
static Symbol* system_symbols[BUCKETS];
static Symbol* context_symbols;
static FcMutex symbols_lock = FC_MUTEX_INIT;

static Symbol** bucket_of(const char* name) { return &system_symbols[fc_hash_bytes(name, strlen(name)) % BUCKETS]; }

static Symbol* find(Symbol* in, const char* name) {
  while (in && strcmp(in->name, name) != 0) in = in->next;
  return in;
}

static int set(Symbol** list, const char* name, void* value) {
  fc_mutex_lock(&symbols_lock);
  Symbol* symbol = find(*list, name);
  if (!symbol) {
    symbol = malloc(sizeof *symbol + strlen(name) + 1);
    if (symbol) {
      symbol->next = *list;
      strcpy(symbol->name, name);
      *list = symbol;
    }
  }
  if (symbol) symbol->value = value;
  fc_mutex_unlock(&symbols_lock);
  if (symbol) return 0;
  fc_error_no_memory();
  return fc_registration_failed();
}

void* fc_system_symbol(const char* name) {
  fc_mutex_lock(&symbols_lock);
  Symbol* symbol = find(*bucket_of(name), name);
  void* value = symbol ? symbol->value : NULL;
  fc_mutex_unlock(&symbols_lock);
  return value;
}

void fc_context_fill(void* library) {
  fc_mutex_lock(&symbols_lock);
  for (Symbol* s = context_symbols; s; s = s->next) {
    void** variable = fc_link_symbol(library, s->name);
    if (variable) *variable = s->value;
  }
  fc_mutex_unlock(&symbols_lock);
}

/* Not under the lock: a visitor may throw. Symbols stay, and new ones come at the front. */
void fc_context_each(void (*visit)(void* context, const char* name, void* symbol), void* context) {
  fc_mutex_lock(&symbols_lock);
  const Symbol* first = context_symbols;
  fc_mutex_unlock(&symbols_lock);
  for (const Symbol* s = first; s; s = s->next) visit(context, s->name, s->value);
}

/* ---- which module a context is ---- */

typedef struct Context {
  struct Context* next;
  TVMFFIObject* module; /* owned for good: the library may ask at any time */
} Context;

static Context* contexts;

int fc_context_set(void* library, TVMFFIObject* module) {
  void** variable = fc_link_symbol(library, "__tvm_ffi__library_ctx");
  if (!variable) return 0;
  Context* context = malloc(sizeof *context);
  if (!context) {
    fc_error_no_memory();
    return -1;
  }
  fc_incref(module);
  fc_mutex_lock(&symbols_lock);
  *context = (Context){contexts, module};
  contexts = context;
  *variable = module;
  fc_mutex_unlock(&symbols_lock);
  return 0;
}

/* A pointer that another runtime has put there is not to be followed. */
static bool is_context(const void* pointer) {
  fc_mutex_lock(&symbols_lock);
  const Context* context = contexts;
  while (context && context->module != pointer) context = context->next;
  fc_mutex_unlock(&symbols_lock);
  return context != NULL;
}

/* ---- lookups of generated code ---- */

static FcMutex cache_lock = FC_MUTEX_INIT;

/* The first answer stays: the caller holds no reference to it. */
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

int TVMFFIEnvModRegisterContextSymbol(const char* name, void* symbol) { return set(&context_symbols, name, symbol); }

int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* symbol) { return set(bucket_of(name), name, symbol); }

/* The host is Python itself. Its names are accepted, as what they stand for is known here. */
int TVMFFIEnvRegisterCAPI(const char* name, void* symbol) {
  static const char* const names[] = {"PyErr_CheckSignals", "PyGILState_Ensure", "PyGILState_Release"};
  (void)symbol;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (strcmp(name, names[i]) == 0) return 0;
  }
  fc_error_format("ValueError",
                  "`%s` is no function of a host; expected PyErr_CheckSignals, PyGILState_Ensure or "
                  "PyGILState_Release",
                  name);
  return fc_registration_failed();
}
