/* Modules: the object, what it finds, and what it is made from. No Python here. */
#ifndef FARCALL_RUNTIME_MODULE_H_
#define FARCALL_RUNTIME_MODULE_H_

#include "runtime/runtime.h"

/* What a module can do; the numbers are TVM FFI's. */
enum { FC_MODULE_TO_BYTES = 1, FC_MODULE_RUNNABLE = 2 };

/* The address of what a loaded library has under a name, or NULL. Each loader of libraries has one. */
typedef void* (*FcSymbolFinder)(void* library, const char* name);

/*
 * A module made here. A handle points to the header; the word in front of it is where C++ has the table of an object's
 * methods: see runtime/cxx.h. `imports` and `cache` stand where all modules have theirs.
 */
typedef struct FcModuleObj {
  void** methods;
  TVMFFIObject header;
  TVMFFIObject* imports; /* Array of modules; C++ code wants one, were it empty */
  TVMFFIObject* cache;   /* Map: what TVMFFIEnvModLookupFromImports found, by name; or NULL */
  char* kind;
  void* library;           /* of a library */
  FcSymbolFinder find;     /* finds its symbols */
  bool bound_here;         /* its TVMFFI* imports are this core's */
  char* prefix;            /* of the system library, else NULL */
  TVMFFIObject* functions; /* of any other kind: Map, name -> Function */
  TVMFFIObject* save;      /* a Function that gives the Bytes from which such a module can be made again; or NULL */
  TVMFFIObject* source;    /* a Function that gives the source; or NULL */
  void* python;            /* the Python object around it, borrowed; NULL when there is none */
  int properties;
} FcModuleObj;

/* All take and give handles (TVMFFIObject*). A module that is a C++ object has no FcModuleObj: NULL. */
FcModuleObj* fc_module_of(TVMFFIObject* module);
TVMFFIObject* fc_module_new(const char* kind, int properties);
TVMFFIObject* fc_module_of_library(void* library, FcSymbolFinder find, bool bound_here);
/* The one module of that prefix; borrowed. */
TVMFFIObject* fc_module_system(const char* prefix);

/* A symbol of a library or of the system: `__tvm_ffi_` and the name. NULL when there is none. */
TVMFFISafeCallType fc_module_symbol(const FcModuleObj* module, const char* name, size_t size);
/* Own functions first, then those of the imports, depth first. *out is a new reference, NULL when there is none. */
int fc_module_get(TVMFFIObject* module, const char* name, size_t size, bool query_imports, TVMFFIObject** out);
/* The text `metadata` or `doc` of a function (what = "_metadata_", "_doc_"); None when there is none. */
int fc_module_text(TVMFFIObject* module, const char* what, const char* name, size_t size, bool query_imports,
                   TVMFFIAny* result);
/* RuntimeError when `module` is `other` or among what it imports. */
int fc_module_import(TVMFFIObject* module, TVMFFIObject* other);
int fc_module_clear_imports(TVMFFIObject* module);
/* The same without asking the module's class, which may be C++ and have a method of its own. */
int fc_module_import_plainly(TVMFFIObject* module, TVMFFIObject* other);
int fc_module_clear_imports_plainly(TVMFFIObject* module);
/* What any module says of itself. */
int fc_module_kind(TVMFFIObject* module, const char** out);
int fc_module_properties(TVMFFIObject* module, int* out);
int fc_module_source(TVMFFIObject* module, const TVMFFIAny* format, TVMFFIAny* result);
/* The Bytes from which such a module can be made again; RuntimeError when it has none. */
int fc_module_save(TVMFFIObject* module, TVMFFIAny* result);
/* Its formats as an Array of names; and written in one of them. */
int fc_module_formats(TVMFFIObject* module, TVMFFIAny* result);
int fc_module_write(TVMFFIObject* module, const TVMFFIAny* file, const TVMFFIAny* format);
/* The imports as they are now: an Array, new reference. */
TVMFFIObject* fc_module_imports(TVMFFIObject* module);

/* ---- making modules ---- */

/* A module of that kind from its bytes, by the function `ffi.Module.load_from_bytes.<kind>`. */
TVMFFIObject* fc_module_from_bytes(const char* kind, size_t kind_size, const char* data, size_t size);
/* The tree of modules that a library embeds: see runtime/modulebin.c. `library` stands for the entry `_lib`. */
TVMFFIObject* fc_module_from_bin(const char* data, size_t size, TVMFFIObject* library);
/* How many bytes they are by what they say of themselves. */
size_t fc_module_bin_size(const char* data);
/* The global function of that name, which makes modules; new reference, NULL when there is none. */
TVMFFIObject* fc_module_loader(const char* name);
/* Calls it, and takes ownership of the reference. The module, or NULL with an error. */
TVMFFIObject* fc_module_call_loader(TVMFFIObject* loader, const TVMFFIAny* args, int32_t n, const char* name);

/* ---- symbols that others registered: see runtime/symbols.c ---- */

void* fc_system_symbol(const char* name);
/* Calls visit for each symbol that was registered by TVMFFIEnvModRegisterContextSymbol. */
void fc_context_each(void (*visit)(void* context, const char* name, void* symbol), void* context);
/* Keeps the module for good, as what a library's variable `__tvm_ffi__library_ctx` points to. -1 with an error. */
int fc_context_add(TVMFFIObject* module);

#endif /* FARCALL_RUNTIME_MODULE_H_ */
