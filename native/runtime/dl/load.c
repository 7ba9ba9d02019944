/* Modules from library files. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/builtins.h"
#include "runtime/dl/dl.h"
#include "runtime/dl/library.h"
#include "runtime/module.h"

/* ---- contents of a library ---- */

/* The size of a symbol according to the linker; 0 when unknown (hand-written assembly, or musl without dladdr1). */
static size_t linked_size(const char* data) {
#ifdef __GLIBC__
  Dl_info info;
  const ElfW(Sym)* symbol = NULL;
  return dladdr1(data, &info, (void**)&symbol, RTLD_DL_SYMENT) && symbol ? symbol->st_size : 0;
#else
  (void)data;
  return 0;
#endif
}

/* The size of a symbol; when the linker does not know it, the size that the data's first number states. */
static size_t symbol_size(const char* data) {
  size_t linked = linked_size(data);
  return linked ? linked : fc_module_bin_size(data);
}

/* A symbol of a library, or of the libraries that it needs. */
static void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

static size_t size_of(void* library, const char* data) {
  (void)library;
  return symbol_size(data);
}

static TVMFFIObject* module_of(FcLibrary library) {
  TVMFFIObject* module = fc_module_of_library(library.handle, find_symbol, library.bound_here);
  if (!module) return NULL;
  if (fc_link_needs_tvm(library.handle)) fc_cxx_open();
  return fc_module_root(module, fc_link_symbol, size_of);
}

/* The registered loader for a file's extension; NULL when the dynamic linker loads it (".so" and unknown ones). */
static TVMFFIObject* loader_of(const char* path, const char** ending) {
  char name[256];
  const char* slash = strrchr(path, '/');
  const char* dot = strrchr(path, '.');
  if (!dot || (slash && dot < slash) || strlen(dot) > 64) return NULL;
  *ending = dot + 1;
  snprintf(name, sizeof name, "ffi.Module.load_from_file.%s", *ending);
  return strcmp(*ending, "so") == 0 ? NULL : fc_module_loader(name);
}

static TVMFFIObject* load_library(FcLibrary library, const char* path) {
  if (!library.handle || fc_module_prepare(library.handle, fc_link_symbol, path) != 0) return NULL;
  return module_of(library);
}

TVMFFIObject* fc_module_load(const char* path, char* message, size_t size) {
  const char* ending = "";
  message[0] = 0;
  TVMFFIObject* loader = loader_of(path, &ending);
  if (!loader) return load_library(fc_library_open(path, message, size), path);
  const TVMFFIAny args[2] = {{.type_index = kTVMFFIRawStr, .v_c_str = path},
                             {.type_index = kTVMFFIRawStr, .v_c_str = ending}};
  return fc_module_call_loader(loader, args, 2, ending);
}

bool fc_module_load_plain(const char* path, TVMFFIObject** out, char* message, size_t size) {
  FcLibrary library;
  const char* ending;
  TVMFFIObject* loader = loader_of(path, &ending);
  if (loader) fc_decref(loader);
  if (loader) return false;
  if (!fc_library_open_plain(path, &library, message, size)) return false;
  *out = load_library(library, path);
  return true;
}

/* ---- builtin functions ---- */

static int load_from_file(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIAny path;
  TVMFFIByteArray text;
  char message[1024];
  (void)n;
  if (!fc_text_argument(args, 0, &text) || fc_any_from_bytes(kTVMFFIStr, text.data, text.size, &path) != 0) return -1;
  fc_any_text(&path, &text); /* an owned text ends in NUL */
  TVMFFIObject* module = fc_module_load(text.data, message, sizeof message);
  fc_any_clear(&path);
  if (!module && message[0]) fc_error_format("OSError", "cannot load library: %s", message);
  if (!module) return -1;
  *result = fc_any_object(module);
  return 0;
}

const FcBuiltin fc_load_builtins[] = {
    {"ffi.ModuleLoadFromFile", load_from_file, 1, 1},
    {"ffi.Module.load_from_file.so", load_from_file, 1, 2},
    {NULL, NULL, 0, 0},
};
