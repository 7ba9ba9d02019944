/* A library that a loader has loaded becomes a module: its variables are filled, and the modules it embeds are read. */
#include "runtime/module.h"

static int check_version(void* library, FcSymbolFinder own, const char* what) {
  const uint32_t* version = own(library, FARCALL_ABI_SYMBOL);
  if (!version || *version == FARCALL_ABI_VERSION) return 0;
  fc_error_format("ImportError",
                  "%s is built for version %u of the ABI, and this farcall has version %u; build it "
                  "again with the headers of this one",
                  what, *version, FARCALL_ABI_VERSION);
  return -1;
}

typedef struct {
  void* library;
  FcSymbolFinder own;
} Filling;

static void fill_variable(void* context, const char* name, void* symbol) {
  const Filling* filling = context;
  void** variable = filling->own(filling->library, name);
  if (variable) *variable = symbol;
}

int fc_module_prepare(void* library, FcSymbolFinder own, const char* what) {
  if (check_version(library, own, what) != 0) return -1;
  const FarcallRuntime** runtime = own(library, FARCALL_RUNTIME_SYMBOL);
  if (runtime) *runtime = &fc_runtime;
  fc_context_each(fill_variable, &(Filling){library, own});
  return 0;
}

/* Makes a library's variable `__tvm_ffi__library_ctx` point to its module. */
static int set_context(void* library, FcSymbolFinder own, TVMFFIObject* module) {
  void** variable = own(library, "__tvm_ffi__library_ctx");
  if (!variable) return 0;
  if (fc_context_add(module) != 0) return -1;
  *variable = module;
  return 0;
}

/* An artifact makes the states of its regions, once it has its imports: its code does, or its root. */
static int start(void* library, FcSymbolFinder own, TVMFFIObject* root) {
  int (*function)(void) = NULL;
  FcModuleObj* object = fc_module_of(root);
  void* symbol = own(library, FARCALL_START_SYMBOL);
  memcpy(&function, &symbol, sizeof function);
  if (function && function() != 0) return -1;
  return object && object->start ? object->start(object) : 0;
}

TVMFFIObject* fc_module_root(TVMFFIObject* module, FcSymbolFinder own, size_t (*size_of)(void*, const char*)) {
  const FcModuleObj* object = fc_module_of(module);
  const char* bin = own(object->library, "__tvm_ffi__library_bin");
  TVMFFIObject* root = NULL;
  bool good = !object->bound_here || set_context(object->library, own, module) == 0;
  if (good && bin) {
    root = fc_module_from_bin(bin, size_of(object->library, bin), module);
  } else if (good) {
    fc_incref(module);
    root = module;
  }
  if (root && start(object->library, own, root) != 0) {
    fc_decref(root);
    root = NULL;
  }
  fc_decref(module);
  return root;
}
