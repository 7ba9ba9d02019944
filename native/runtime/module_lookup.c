/* Looking up functions and their documentation in modules and their imports. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cxx.h"
#include "runtime/module.h"

/* ---- symbols ---- */

/* Joins up to three parts, in `inline_text` if the result fits. NULL when out of memory. */
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
  if (text && !memchr(name, 0, size))
    found = module->library ? module->find(module->library, text) : fc_system_symbol(text);
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

static void drop(void* module) { fc_decref(module); }

/* A function keeps its module, if that is unloaded with it. An exported function ignores `self`. */
static int keeping_function(FcModuleObj* module, TVMFFISafeCallType call, TVMFFIObject** out) {
  fc_incref(&module->header);
  if (fc_function_new(&module->header, call, drop, (TVMFFIObjectHandle*)out) == 0) return 0;
  fc_decref(&module->header);
  return -1;
}

/* An exported function ignores `self`, so it may get NULL, or the handle when it is called through the object. */
static int own_function(const FcModuleObj* module, const char* name, size_t size, TVMFFIObject** out) {
  TVMFFISafeCallType call = fc_module_symbol(module, name, size);
  void* self = NULL;
  if (call && module->unload) return keeping_function((FcModuleObj*)module, call, out);
  if (call && !module->bound_here && fc_foreign) fc_foreign->wrap(&call, &self);
  if (call) return fc_function_new(self, call, NULL, (TVMFFIObjectHandle*)out);
  TVMFFIAny text;
  if (!module->functions) return 0;
  if (fc_any_from_bytes(kTVMFFIStr, name, size, &text) != 0) return -1;
  const TVMFFIAny* found = fc_map_find(module->functions, &text);
  fc_any_clear(&text);
  if (found && module->make) return module->make((FcModuleObj*)module, found, out);
  if (!found || found->type_index != kTVMFFIFunction) return 0;
  fc_incref(found->v_obj);
  *out = found->v_obj;
  return 0;
}

/* ---- modules that are C++ objects ---- */

static bool make_text(const char* data, size_t size, TVMFFIAny* out) {
  return fc_any_from_bytes(kTVMFFIStr, data, size, out) == 0;
}

static int get_from_cxx(TVMFFIObject* module, const char* name, size_t size, TVMFFIObject** out) {
  const FcCxx* cxx = fc_cxx();
  TVMFFIAny text, result = fc_any_none();
  if (!cxx || !make_text(name, size, &text)) return -1;
  int rc = cxx->function(module, &text, &result);
  fc_any_clear(&text);
  if (rc == 0 && result.type_index == kTVMFFIFunction) *out = result.v_obj;
  return rc;
}

static int text_from_cxx(TVMFFIObject* module, bool doc, const char* name, size_t size, TVMFFIAny* result) {
  const FcCxx* cxx = fc_cxx();
  TVMFFIAny text;
  if (!cxx || !make_text(name, size, &text)) return -1;
  int rc = cxx->text(module, doc, &text, result);
  fc_any_clear(&text);
  return rc;
}

/* ---- lookup ---- */

typedef struct Search {
  const char* name;
  size_t size;
  bool imports; /* are searched, too */
  TVMFFIObject** out;
} Search;

static int search(void* context, TVMFFIObject* handle) {
  const Search* s = context;
  const FcModuleObj* module = fc_module_of(handle);
  int rc = module ? own_function(module, s->name, s->size, s->out) : get_from_cxx(handle, s->name, s->size, s->out);
  if (rc != 0) return -1;
  return *s->out ? FC_WALK_END : s->imports ? FC_WALK_ON : FC_WALK_PAST;
}

int fc_module_get(TVMFFIObject* handle, const char* name, size_t size, bool query_imports, TVMFFIObject** out) {
  Search s = {name, size, query_imports, out};
  *out = NULL;
  return fc_module_walk(handle, search, &s);
}

/* ---- names ---- */

typedef struct {
  FcNameVisitor visit;
  void* context;
  const char* prefix; /* behind FARCALL_SYMBOL_PREFIX */
} Names;

static bool begins(const char** name, size_t* size, const char* with) {
  size_t skip = strlen(with);
  if (*size < skip || memcmp(*name, with, skip) != 0) return false;
  *name += skip;
  *size -= skip;
  return true;
}

/* Excluded: `__tvm_ffi__metadata_f` and the like, which describe a function. */
static bool visit_symbol(void* context, const char* name, size_t size) {
  const Names* names = context;
  if (!begins(&name, &size, FARCALL_SYMBOL_PREFIX)) return true;
  if (begins(&name, &size, "_metadata_") || begins(&name, &size, "_doc_")) return true;
  return !begins(&name, &size, names->prefix) || names->visit(names->context, name, size);
}

void fc_module_each(const FcModuleObj* module, FcNameVisitor visit, void* context) {
  if (!module) return;
  Names names = {visit, context, module->prefix ? module->prefix : ""};
  if (module->prefix) fc_system_each(visit_symbol, &names);
  if (module->each) module->each(module->library, visit_symbol, &names);
  TVMFFIByteArray text;
  FcMapCursor cursor = {.begun = false};
  while (module->functions && fc_map_next(module->functions, &cursor)) {
    if (fc_any_text(cursor.key, &text) && !visit(context, text.data, text.size)) return;
  }
}

/* ---- metadata and documentation ---- */

static int own_text(const FcModuleObj* module, const char* what, const char* name, size_t size, TVMFFIAny* result) {
  TVMFFISafeCallType call = NULL;
  void* found = module->library || module->prefix ? find_symbol(module, what, name, size) : NULL;
  memcpy(&call, &found, sizeof call);
  return call ? call(NULL, NULL, 0, result) : 0;
}

typedef struct Text {
  const char* what; /* "_metadata_", "_doc_" */
  const char* name;
  size_t size;
  bool imports; /* are searched, too */
  TVMFFIAny* result;
} Text;

/* A function without the text still hides the functions of that name in the imports. */
static int search_text(void* context, TVMFFIObject* handle) {
  const Text* t = context;
  const FcModuleObj* module = fc_module_of(handle);
  bool doc = strcmp(t->what, "_doc_") == 0;
  int rc = module ? own_text(module, t->what, t->name, t->size, t->result)
                  : text_from_cxx(handle, doc, t->name, t->size, t->result);
  if (rc != 0) return -1;
  if (t->result->type_index != kTVMFFINone) return FC_WALK_END;
  bool hidden = module && fc_module_symbol(module, t->name, t->size);
  return t->imports && !hidden ? FC_WALK_ON : FC_WALK_PAST;
}

int fc_module_text(TVMFFIObject* handle, const char* what, const char* name, size_t size, bool query_imports,
                   TVMFFIAny* result) {
  Text text = {what, name, size, query_imports, result};
  *result = fc_any_none();
  return fc_module_walk(handle, search_text, &text);
}
