/* Finding and opening the C++ support library: see runtime/cxx.h. */
#include "runtime/cxx.h"

#include <dlfcn.h>
#include <stdio.h>

#include "runtime/builtins.h"
#include "runtime/dl/dl.h"
#include "runtime/module.h"

static const FcCxx* cxx;
static char path[4096];
static char why_not[1024];
static FcOnce path_made = FC_ONCE_INIT;
static FcOnce opened = FC_ONCE_INIT;

static const char* kind_of(TVMFFIObject* module) { return fc_module_of(module)->kind; }

static const FcCxxCore core = {
    .call = fc_builtin_call,
    .kind = kind_of,
    .save = fc_module_save,
    .import = fc_module_import_plainly,
    .clear_imports = fc_module_clear_imports_plainly,
    .each_context_symbol = fc_context_each,
    .take_error = fc_error_take,
    .raise = fc_error_raise,
    .raise_text = fc_error_set,
};

/* The library is in the same folder as this core. */
static void make_path(void) {
  Dl_info self;
  const char* slash = dladdr(&fc_runtime, &self) ? strrchr(self.dli_fname, '/') : NULL;
  if (!slash) return;
  int folder = (int)(slash - self.dli_fname);
  if (snprintf(path, sizeof path, "%.*s/libfarcall_cxx.so", folder, self.dli_fname) >= (int)sizeof path) path[0] = 0;
}

const char* fc_cxx_path(void) {
  fc_once(&path_made, make_path);
  return path[0] ? path : NULL;
}

static void meet(void) {
  void* library = fc_cxx_path() ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void* found = library ? dlsym(library, FC_CXX_ENTRY) : NULL;
  FcCxxEntry entry;
  if (!found) {
    const char* text = dlerror();
    snprintf(why_not, sizeof why_not, "%s", text ? text : "it is missing");
    return;
  }
  memcpy(&entry, &found, sizeof entry);
  cxx = entry(&core);
  memcpy(fc_cxx_table, cxx->table - FC_CXX_TABLE_HEAD, sizeof fc_cxx_table);
}

void fc_cxx_open(void) { fc_once(&opened, meet); }

const FcCxx* fc_dl_cxx(void) {
  fc_cxx_open();
  if (!cxx) {
    fc_error_format("RuntimeError", "the module is a C++ object, and farcall's library for these cannot be loaded: %s",
                    why_not);
  }
  return cxx;
}
