/*
 * Loading a library, and binding its TVMFFI* imports to this core, and to it alone. No Python here.
 *
 * The dynamic linker supplies symbols from the global scope. Making ours global would be simple, and would
 * capture the symbols of another runtime of this ABI that is loaded later (its own calls to itself go through
 * the same scope). Instead:
 *
 *  1. A library that asks for `libtvm_ffi.so` finds this core, which answers to that name.
 *  2. One that asks for nobody is loaded together with it: see rt_carrier.c.
 *  3. Where another runtime's symbols are global, the linker takes these. The slots of the library's relocations are
 *     then written here, unless it asks for the other by name, or the other has loaded it before.
 */
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rt_cxx.h"
#include "rt_link.h"

#if defined(__x86_64__)
#define IS_POINTER_RELOCATION(t) ((t) == R_X86_64_JUMP_SLOT || (t) == R_X86_64_GLOB_DAT || (t) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_POINTER_RELOCATION(t) \
  ((t) == R_AARCH64_JUMP_SLOT || (t) == R_AARCH64_GLOB_DAT || (t) == R_AARCH64_ABS64)
#elif defined(__riscv)
#define IS_POINTER_RELOCATION(t) ((t) == R_RISCV_JUMP_SLOT || (t) == R_RISCV_64)
#else
#error "name the relocations of this machine that hold a function's address"
#endif

/* ---- the tables of a loaded library ---- */

/* glibc has relocated these addresses in place, musl has not. */
static uintptr_t address(const struct link_map* map, uintptr_t value) {
  return value < map->l_addr ? value + map->l_addr : value;
}

bool fc_link_image(void* library, FcImage* image) {
  struct link_map* map = NULL;
  *image = (FcImage){0};
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return false;
  image->base = map->l_addr;
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    uintptr_t at = address(map, d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB) image->symbols = (const ElfW(Sym)*)at;
    if (d->d_tag == DT_STRTAB) image->strings = (const char*)at;
    if (d->d_tag == DT_GNU_HASH) image->gnu_hash = (const uint32_t*)at;
    if (d->d_tag == DT_HASH) image->sysv_hash = (const uint32_t*)at;
    if (d->d_tag == DT_RELA) image->tables[0] = (const ElfW(Rela)*)at;
    if (d->d_tag == DT_RELASZ) image->sizes[0] = d->d_un.d_val;
    if (d->d_tag == DT_JMPREL) image->tables[1] = (const ElfW(Rela)*)at;
    if (d->d_tag == DT_PLTRELSZ) image->sizes[1] = d->d_un.d_val;
  }
  return image->symbols && image->strings && (image->gnu_hash || image->sysv_hash);
}

/* A GNU hash table says only implicitly how many symbols there are: the last chain ends with an odd hash. */
uint32_t fc_link_symbol_count(const FcImage* image) {
  if (image->sysv_hash) return image->sysv_hash[1];
  uint32_t buckets = image->gnu_hash[0], first = image->gnu_hash[1], blooms = image->gnu_hash[2], last = 0;
  const uint32_t* bucket = image->gnu_hash + 4 + blooms * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return first;
  while (!(chain[last - first] & 1)) ++last;
  return last + 1;
}

static bool is_ours(const char* name) { return strncmp(name, "TVMFFI", 6) == 0; }

bool fc_link_imports_runtime(void* library) {
  FcImage image;
  if (!fc_link_image(library, &image)) return false;
  uint32_t count = fc_link_symbol_count(&image);
  for (uint32_t i = 1; i < count; ++i) {
    if (image.symbols[i].st_shndx == SHN_UNDEF && is_ours(image.strings + image.symbols[i].st_name)) return true;
  }
  return false;
}

/* ---- writing slots ---- */

typedef struct {
  uintptr_t base, slot;
  bool inside;
} RelroQuery;

static int find_relro(struct dl_phdr_info* info, size_t size, void* data) {
  RelroQuery* query = data;
  (void)size;
  if (info->dlpi_addr != query->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* p = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + p->p_vaddr;
    if (p->p_type == PT_GNU_RELRO && query->slot >= begin && query->slot < begin + p->p_memsz) query->inside = true;
  }
  return 1;
}

/* What the linker has made read-only (PT_GNU_RELRO) becomes so again. */
static bool write_slot(uintptr_t base, uintptr_t slot, void* value) {
  uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
  void* page = (void*)(slot & ~(page_size - 1));
  RelroQuery query = {base, slot, false};
  dl_iterate_phdr(find_relro, &query);
  if (query.inside && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) return false;
  *(void**)slot = value;
  if (query.inside) mprotect(page, page_size, PROT_READ);
  return true;
}

static void* own_handle;
static pthread_once_t own_found = PTHREAD_ONCE_INIT;

static void find_own(void) {
  Dl_info self;
  if (dladdr(&fc_runtime, &self)) own_handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

static void* own_library(void) {
  pthread_once(&own_found, find_own);
  return own_handle;
}

/* The name of an import that neither this core nor anyone else supplies; NULL when all is bound. */
static const char* bind_table(const FcImage* image, int which, void* core, void* library) {
  const ElfW(Rela)* table = image->tables[which];
  for (size_t i = 0; table && i < image->sizes[which] / sizeof *table; ++i) {
    const ElfW(Sym)* symbol = &image->symbols[ELF64_R_SYM(table[i].r_info)];
    const char* name = image->strings + symbol->st_name;
    if (!IS_POINTER_RELOCATION(ELF64_R_TYPE(table[i].r_info)) || symbol->st_shndx != SHN_UNDEF || !*name) continue;
    if (!is_ours(name)) {
      if (ELF64_ST_BIND(symbol->st_info) != STB_WEAK && !dlsym(library, name) && !dlsym(RTLD_DEFAULT, name)) return name;
      continue;
    }
    void* own = dlsym(core, name);
    if (!own || !write_slot(image->base, image->base + table[i].r_offset, own)) return name;
  }
  return NULL;
}

static const char* bind_here(void* library) {
  FcImage image;
  void* core = own_library();
  if (!core || !fc_link_image(library, &image)) return "TVMFFI*";
  const char* missing = bind_table(&image, 0, core, library);
  return missing ? missing : bind_table(&image, 1, core, library);
}

/* Whether an earlier load has bound this library here: one look at one slot. */
static bool is_bound_here(void* library) {
  FcImage image;
  void* core = own_library();
  if (!core || !fc_link_image(library, &image)) return false;
  for (int which = 0; which < 2; ++which) {
    const ElfW(Rela)* table = image.tables[which];
    for (size_t i = 0; table && i < image.sizes[which] / sizeof *table; ++i) {
      const ElfW(Sym)* symbol = &image.symbols[ELF64_R_SYM(table[i].r_info)];
      const char* name = image.strings + symbol->st_name;
      if (!IS_POINTER_RELOCATION(ELF64_R_TYPE(table[i].r_info)) || !is_ours(name)) continue;
      return *(void**)(image.base + table[i].r_offset) == dlsym(core, name);
    }
  }
  return false;
}

bool fc_link_needs_tvm(void* library) {
  struct link_map* map = NULL;
  FcImage image;
  if (!fc_link_image(library, &image) || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return true;
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_NEEDED && strstr(image.strings + d->d_un.d_val, "tvm_ffi")) return true;
  }
  return false;
}

/* ---- loading ---- */

static void* fail(char* message, size_t size, const char* text) {
  snprintf(message, size, "%s", text ? text : "dlopen failed");
  return NULL;
}

/* The linker found everything; where that is another runtime, ours takes its place. */
static bool settle(void* library, bool was_loaded) {
  if (!fc_link_imports_runtime(library) || is_bound_here(library)) return true;
  return !was_loaded && !fc_link_needs_tvm(library) && !bind_here(library);
}

static void* open_together(const char* path, const char* other, char* message, size_t size) {
  void* library = fc_carrier_open(path, other);
  return library ? library : fail(message, size, dlerror());
}

static void* open_and_bind(const char* path, bool* bound_here, char* message, size_t size) {
  /* Who had it before matters only where another runtime may have bound it. */
  void* before = fc_foreign_present() ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) {
    *bound_here = settle(library, before != NULL);
    return library;
  }
  fail(message, size, dlerror());
  if (strstr(message, "undefined symbol") && strstr(message, "TVMFFI")) library = open_together(path, NULL, message, size);
  /* C++ names of TVM FFI: these are in a library of their own. */
  if (!library && strstr(message, "N3tvm3ffi")) library = open_together(path, fc_cxx_path(), message, size);
  if (library) *bound_here = settle(library, false);
  return library;
}

static pthread_mutex_t load_lock;
static pthread_once_t load_lock_made = PTHREAD_ONCE_INIT;
static void make_load_lock(void) { fc_recursive_mutex_init(&load_lock); }

/*
 * One at a time: slots are written, and pages change their protection. A constructor may load libraries itself; what
 * it registers in vain makes the loading fail.
 */
void* fc_link_open(const char* path, bool* bound_here, char* message, size_t size) {
  pthread_once(&load_lock_made, make_load_lock);
  pthread_mutex_lock(&load_lock);
  ++fc_thread.loading;
  message[0] = 0;
  void* library = open_and_bind(path, bound_here, message, size);
  if (--fc_thread.loading == 0 && fc_thread.load_error) {
    fc_error_raise(fc_thread.load_error);
    fc_thread.load_error = NULL;
    message[0] = 0;
    library = NULL;
  }
  pthread_mutex_unlock(&load_lock);
  return library;
}
