/* Modules: the object, function lookup, and loading. */
#ifndef FARCALL_RUNTIME_MODULE_H_
#define FARCALL_RUNTIME_MODULE_H_

#include "runtime/runtime.h"
#include "runtime/text.h"

/* A module's properties, as TVM FFI numbers them. */
enum { FC_MODULE_TO_BYTES = 1, FC_MODULE_RUNNABLE = 2 };

/* The address of a symbol in a loaded library, or NULL. Each loader of libraries supplies one. */
typedef void* (*FcSymbolFinder)(void* library, const char* name);
/* Gets a name; false ends the visit. */
typedef bool (*FcNameVisitor)(void* context, const char* name, size_t size);

/*
 * A module that this core made. A handle points to the header; the word before it is where C++ keeps an object's table
 * of methods: see runtime/cxx.h. The offsets of `imports` and `cache` are TVM FFI's.
 */
typedef struct FcModuleObj {
  void** methods;
  TVMFFIObject header;
  TVMFFIObject* imports; /* Array of modules; not NULL, because C++ code reads it */
  TVMFFIObject* cache;   /* Map from names to functions that TVMFFIEnvModLookupFromImports found; or NULL */
  char* kind;
  void* library;           /* the library's handle, for modules of libraries; else NULL */
  FcSymbolFinder find;     /* finds symbols of `library` */
  void (*each)(void* library, FcNameVisitor visit, void* context); /* visits the symbols of functions; or NULL */
  void (*unload)(void* library); /* with the module and the last of its functions; NULL: it stays loaded */
  bool bound_here;         /* the TVMFFI* imports of `library` are bound to this core */
  char* prefix;            /* for modules of the system library; else NULL */
  TVMFFIObject* functions; /* for other modules: Map, name -> Function */
  /* Makes the function of a name in `functions`, which keeps the module; NULL: the Map has the functions themselves. */
  int (*make)(struct FcModuleObj* module, const TVMFFIAny* entry, TVMFFIObject** out);
  int (*start)(struct FcModuleObj* module); /* of the root of a library, once it has its imports; NULL: nothing to do */
  TVMFFIObject* save; /* a Function that returns the Bytes from which the module can be loaded again; or NULL */
  TVMFFIObject* source; /* a Function that returns the source; or NULL */
  void* python; /* the Python object that wraps the module, borrowed; or NULL */
  int properties;
} FcModuleObj;

/* These take and return handles (TVMFFIObject*). NULL for a module that is a C++ object: it has no FcModuleObj. */
FcModuleObj* fc_module_of(TVMFFIObject* module);
TVMFFIObject* fc_module_new(const char* kind, int properties);
TVMFFIObject* fc_module_of_library(void* library, FcSymbolFinder find, bool bound_here);
/* Gives a library that was loaded what it wants: the runtime, and context symbols. `own` finds its own exports. */
int fc_module_prepare(void* library, FcSymbolFinder own, const char* what);
/*
 * The root of the modules that a library embeds; without any, the library's module itself. Takes ownership of that.
 * `size_of` tells how many bytes of the library follow an address.
 */
TVMFFIObject* fc_module_root(TVMFFIObject* module, FcSymbolFinder own, size_t (*size_of)(void*, const char*));
/* The system library's module of that prefix; borrowed. */
TVMFFIObject* fc_module_system(const char* prefix);

/* The symbol `__tvm_ffi_<name>` of a module's library, or of the system library. NULL when there is none. */
TVMFFISafeCallType fc_module_symbol(const FcModuleObj* module, const char* name, size_t size);
/* Searches the module, then its imports, depth first. *out is a new reference; NULL when the function is not found. */
int fc_module_get(TVMFFIObject* module, const char* name, size_t size, bool query_imports, TVMFFIObject** out);
/* The text `metadata` or `doc` of a function (what = "_metadata_", "_doc_"); None when there is none. */
int fc_module_text(TVMFFIObject* module, const char* what, const char* name, size_t size, bool query_imports,
                   TVMFFIAny* result);
/* Visits the names of the module's own functions, as far as this core can list them. NULL: none. */
void fc_module_each(const FcModuleObj* module, FcNameVisitor visit, void* context);
/* Makes `module` import `other`. RuntimeError when `other` is `module` or imports it. */
int fc_module_import(TVMFFIObject* module, TVMFFIObject* other);
int fc_module_clear_imports(TVMFFIObject* module);
/* The same, without calling the methods of a C++ module's class. */
int fc_module_import_plainly(TVMFFIObject* module, TVMFFIObject* other);
int fc_module_clear_imports_plainly(TVMFFIObject* module);
/* Properties of any module, C++ or not. */
int fc_module_kind(TVMFFIObject* module, const char** out);
int fc_module_properties(TVMFFIObject* module, int* out);
int fc_module_source(TVMFFIObject* module, const TVMFFIAny* format, TVMFFIAny* result);
/* The Bytes from which the module can be loaded again; RuntimeError when it cannot be saved. */
int fc_module_save(TVMFFIObject* module, TVMFFIAny* result);
/* The names of the formats in which the module can be written, as an Array; and writing it to a file in one of them. */
int fc_module_formats(TVMFFIObject* module, TVMFFIAny* result);
int fc_module_write(TVMFFIObject* module, const TVMFFIAny* file, const TVMFFIAny* format);
/* Writes a file beside its destination, and renames it; -1 with an error. NULL: this program writes no files. */
extern int (*fc_file_write)(TVMFFIByteArray path, TVMFFIByteArray data);
/* The current imports: an Array, new reference. NULL with an error. */
TVMFFIObject* fc_module_imports(TVMFFIObject* module);

enum { FC_WALK_ON, FC_WALK_PAST, FC_WALK_END };

/* FC_WALK_ON; FC_WALK_PAST: without the imports of this module; FC_WALK_END; -1 with an error. */
typedef int (*FcModuleVisitor)(void* context, TVMFFIObject* module);
/* Visits the module, then its imports, depth first and each once. -1 with an error. */
int fc_module_walk(TVMFFIObject* module, FcModuleVisitor visit, void* context);

/* ---- making modules ---- */

/* Members of FarcallRuntime: see farcall/module.h. */
int fc_module_create(const struct FarcallModuleSpec* spec, TVMFFIObjectHandle* out);
int fc_blob_read(const struct FarcallModuleKind* kind, const TVMFFIAny* bytes, struct FarcallBlob* out);

/*
 * Makes a module of that kind from its bytes, with the loader that `library` exports (`__farcall_load_<kind>`; may be
 * NULL), or with the function `ffi.Module.load_from_bytes.<kind>`. The loader gets the whole frame, which was checked;
 * bytes that are not a frame it gets as they are. NULL with an error.
 */
TVMFFIObject* fc_module_from_bytes(TVMFFIByteArray kind, TVMFFIByteArray data, FcModuleObj* library);
/*
 * Asks installed packages for the loader of a kind, which registers itself then, and adds the kinds that they offer to
 * `kinds`. -1 with an error. NULL: this program has no packages.
 */
extern int (*fc_module_plugins)(TVMFFIByteArray kind, FcText* kinds);
/* The tree of modules that a library embeds: see runtime/modulebin.c. `library` stands for the entry `_lib`. */
TVMFFIObject* fc_module_from_bin(const char* data, size_t size, TVMFFIObject* library);
/* The size in bytes that the header of this data states. */
size_t fc_module_bin_size(const char* data);
/* The global function of that name, which loads modules; new reference, NULL when there is none. */
TVMFFIObject* fc_module_loader(const char* name);
/* Calls a loader, and takes ownership of the reference to it. Returns the module, or NULL with an error. */
TVMFFIObject* fc_module_call_loader(TVMFFIObject* loader, const TVMFFIAny* args, int32_t n, const char* name);

/* ---- registered symbols: see runtime/symbols.c ---- */

void* fc_system_symbol(const char* name);
void fc_system_each(FcNameVisitor visit, void* context);
/* Calls `visit` for each symbol that was registered with TVMFFIEnvModRegisterContextSymbol. */
void fc_context_each(void (*visit)(void* context, const char* name, void* symbol), void* context);
/* Keeps the module alive for ever, because a library's `__tvm_ffi__library_ctx` will point to it. -1 with an error. */
int fc_context_add(TVMFFIObject* module);

#endif /* FARCALL_RUNTIME_MODULE_H_ */
