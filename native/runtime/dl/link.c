/*
 * Loading a library, and binding its TVMFFI* imports to this core only.
 *
 * The dynamic linker resolves symbols in the global scope. Making this core's symbols global would be simple, but they
 * would replace those of another runtime of this ABI that is loaded later (which calls itself through the same scope).
 * Instead:
 *
 *  1. A library that needs `libtvm_ffi.so` gets this core, which has that name (its SONAME).
 *  2. A library that needs no runtime by name is loaded together with this core: see runtime/dl/carrier.c.
 *  3. If another runtime's symbols are global, the linker chooses those. This file then overwrites the library's
 *     relocation slots, unless the library needs the other runtime by name or was loaded before.
 */
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/dl/dl.h"
#include "runtime/dl/link.h"

/* Relocations that hold a function's address. 32-bit machines use other tables (DT_REL), or other layouts. */
#if defined(__x86_64__)
#define IS_POINTER_RELOCATION(t) ((t) == R_X86_64_JUMP_SLOT || (t) == R_X86_64_GLOB_DAT || (t) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_POINTER_RELOCATION(t) ((t) == R_AARCH64_JUMP_SLOT || (t) == R_AARCH64_GLOB_DAT || (t) == R_AARCH64_ABS64)
#elif defined(__riscv) && __riscv_xlen == 64
#define IS_POINTER_RELOCATION(t) ((t) == R_RISCV_JUMP_SLOT || (t) == R_RISCV_64)
#elif defined(__s390x__)
#define IS_POINTER_RELOCATION(t) ((t) == R_390_JMP_SLOT || (t) == R_390_GLOB_DAT || (t) == R_390_64)
#endif

#if defined(IS_POINTER_RELOCATION)
enum { KNOWS_RELOCATIONS = 1 };
#else
enum { KNOWS_RELOCATIONS = 0 };
#define IS_POINTER_RELOCATION(t) ((void)(t), false)
#endif

#if UINTPTR_MAX > UINT32_MAX
#define SYMBOL_OF(relocation) ELF64_R_SYM((relocation)->r_info)
#define TYPE_OF(relocation) ELF64_R_TYPE((relocation)->r_info)
#else
#define SYMBOL_OF(relocation) ELF32_R_SYM((relocation)->r_info)
#define TYPE_OF(relocation) ELF32_R_TYPE((relocation)->r_info)
#endif

/* ---- the tables of a loaded library ---- */

/* glibc relocates these addresses in place, musl does not. */
static uintptr_t address(const struct link_map* map, uintptr_t value) {
  return value < map->l_addr ? value + map->l_addr : value;
}

bool fc_link_image(void* library, FcImage* image) {
  struct link_map* map = NULL;
  *image = (FcImage){0};
  if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return false;
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

/* A GNU hash table does not store the number of symbols; the last symbol ends the last chain, with an odd hash. */
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

static void* address_of(const FcImage* image, const ElfW(Sym) * symbol, const char* name) {
  int type = ELF64_ST_TYPE(symbol->st_info);
  bool plain = type == STT_OBJECT || type == STT_FUNC || type == STT_NOTYPE;
  if (!plain || symbol->st_shndx == SHN_UNDEF || strcmp(image->strings + symbol->st_name, name) != 0) return NULL;
  return (void*)(image->base + symbol->st_value);
}

/* The hash function of DT_GNU_HASH. */
static uint32_t hash_of(const char* name) {
  uint32_t hash = 5381;
  while (*name) hash = hash * 33 + (uint8_t)*name++;
  return hash;
}

static void* find_by_hash(const FcImage* image, const char* name) {
  uint32_t buckets = image->gnu_hash[0], first = image->gnu_hash[1], blooms = image->gnu_hash[2];
  const uint32_t* bucket = image->gnu_hash + 4 + blooms * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  uint32_t hash = hash_of(name), i = buckets ? bucket[hash % buckets] : 0;
  if (i < first || !i) return NULL;
  for (;; ++i) {
    uint32_t link = chain[i - first];
    void* found = (link | 1) == (hash | 1) ? address_of(image, &image->symbols[i], name) : NULL;
    if (found || (link & 1)) return found;
  }
}

static void* find_in(const FcImage* image, const char* name) {
  if (image->gnu_hash) return find_by_hash(image, name);
  for (uint32_t i = 1; i < image->sysv_hash[1]; ++i) {
    void* found = address_of(image, &image->symbols[i], name);
    if (found) return found;
  }
  return NULL;
}

void* fc_link_symbol(void* library, const char* name) {
  FcImage image;
  return fc_link_image(library, &image) ? find_in(&image, name) : NULL;
}

/* ---- writing slots ---- */

/* The pages that the linker makes read-only after relocation (PT_GNU_RELRO); empty when there are none. */
typedef struct {
  void* library;
  uintptr_t base, begin, end;
  bool known, writable;
} Relro;

static void read_relro(Relro* relro, const ElfW(Phdr) * headers, int count) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < count; ++i) {
    if (headers[i].p_type != PT_GNU_RELRO) continue;
    relro->begin = (relro->base + headers[i].p_vaddr) & ~(page - 1);
    relro->end = (relro->base + headers[i].p_vaddr + headers[i].p_memsz) & ~(page - 1);
  }
}

static int find_headers(struct dl_phdr_info* info, size_t size, void* relro) {
  (void)size;
  if (info->dlpi_addr != ((Relro*)relro)->base) return 0;
  read_relro(relro, info->dlpi_phdr, info->dlpi_phnum);
  return 1;
}

/* glibc returns a library's headers since 2.36; iterating takes longer the more libraries are loaded. */
static void know_relro(Relro* relro) {
  enum { DI_PHDR = 11 }; /* RTLD_DI_PHDR */
  const ElfW(Phdr)* headers = NULL;
  int count = dlinfo(relro->library, DI_PHDR, &headers);
  relro->known = true;
  if (count > 0 && headers) {
    read_relro(relro, headers, count);
  } else {
    dl_iterate_phdr(find_headers, relro);
  }
}

static bool protect(Relro* relro, int protection) {
  relro->writable = protection & PROT_WRITE;
  return mprotect((void*)relro->begin, relro->end - relro->begin, protection) == 0;
}

/* In most libraries the slots are outside these pages. */
static bool write_slot(Relro* relro, uintptr_t slot, void* value) {
  if (!relro->known) know_relro(relro);
  bool inside = slot >= relro->begin && slot < relro->end;
  if (inside && !relro->writable && !protect(relro, PROT_READ | PROT_WRITE)) return false;
  *(void**)slot = value;
  return true;
}

static void* own_handle;
static FcOnce own_found = FC_ONCE_INIT;

static void find_own(void) {
  Dl_info self;
  if (dladdr(&fc_runtime, &self)) own_handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

static void* own_library(void) {
  fc_once(&own_found, find_own);
  return own_handle;
}

static bool is_import_of_ours(const FcImage* image, const ElfW(Rela) * relocation) {
  const ElfW(Sym)* symbol = &image->symbols[SYMBOL_OF(relocation)];
  return IS_POINTER_RELOCATION(TYPE_OF(relocation)) && symbol->st_shndx == SHN_UNDEF &&
         is_ours(image->strings + symbol->st_name);
}

/* This core's symbol of the name that a relocation refers to. */
static void* own_symbol(const FcImage* image, const ElfW(Rela) * relocation, const FcImage* core) {
  return find_in(core, image->strings + image->symbols[SYMBOL_OF(relocation)].st_name);
}

/* False when this core lacks a function that the library imports. */
static bool bind_table(const FcImage* image, int which, const FcImage* core, Relro* relro) {
  const ElfW(Rela)* table = image->tables[which];
  for (size_t i = 0; table && i < image->sizes[which] / sizeof *table; ++i) {
    if (!is_import_of_ours(image, &table[i])) continue;
    void* own = own_symbol(image, &table[i], core);
    if (!own || !write_slot(relro, image->base + table[i].r_offset, own)) return false;
  }
  return true;
}

static bool bind_here(void* library, const FcImage* image, const FcImage* core) {
  Relro relro = {.library = library, .base = image->base};
  bool bound = bind_table(image, 0, core, &relro) && bind_table(image, 1, core, &relro);
  if (relro.writable) protect(&relro, PROT_READ);
  return bound;
}

/* The first relocation of a TVMFFI* function; NULL when the library imports none. */
static const ElfW(Rela) * first_import(const FcImage* image) {
  for (int which = 0; which < 2; ++which) {
    const ElfW(Rela)* table = image->tables[which];
    for (size_t i = 0; table && i < image->sizes[which] / sizeof *table; ++i) {
      if (is_import_of_ours(image, &table[i])) return &table[i];
    }
  }
  return NULL;
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

/* Whether a global lookup finds another runtime. */
static bool another_is_global(void) {
  void* found = dlsym(RTLD_DEFAULT, "TVMFFIFunctionGetGlobal");
  return found && found != (void*)TVMFFIFunctionGetGlobal;
}

/*
 * After loading: if the linker bound the imports to another runtime, binds them to this core. True if they are bound to
 * this core. On machines whose relocation types are not listed above, a library stays bound to the other runtime.
 */
static bool settle(void* library, bool was_loaded) {
  FcImage image, core;
  if (!KNOWS_RELOCATIONS) return !another_is_global();
  if (!fc_link_image(library, &image) || !fc_link_image(own_library(), &core)) return true;
  const ElfW(Rela)* import = first_import(&image);
  if (!import || *(void**)(image.base + import->r_offset) == own_symbol(&image, import, &core)) return true;
  return !was_loaded && !fc_link_needs_tvm(library) && bind_here(library, &image, &core);
}

static int read_additions(struct dl_phdr_info* info, size_t size, void* out) {
  (void)size;
  *(unsigned long long*)out = info->dlpi_adds;
  return 1;
}

/* Number of libraries ever loaded: unchanged if a dlopen() loaded nothing new. */
static unsigned long long additions(void) {
  unsigned long long count = 0;
  dl_iterate_phdr(read_additions, &count);
  return count;
}

static void* open_together(const char* path, const char* other, char* message, size_t size) {
  void* library = fc_carrier_open(path, other);
  return library ? library : fail(message, size, dlerror());
}

/* Tries several ways to open a library; each supplies imports that the previous one could not. */
static void* open_by_any_way(const char* path, char* message, size_t size) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(message, size, dlerror());
  if (!library && strstr(message, "undefined symbol") && strstr(message, "TVMFFI")) {
    library = open_together(path, NULL, message, size);
  }
  /* C++ names of TVM FFI: the C++ support library has these. */
  if (!library && strstr(message, "N3tvm3ffi")) library = open_together(path, fc_cxx_path(), message, size);
  if (library) message[0] = 0; /* an earlier attempt may have failed */
  return library;
}

static void* open_and_bind(const char* path, bool* bound_here, char* message, size_t size) {
  unsigned long long before = additions();
  void* library = open_by_any_way(path, message, size);
  /* A library that was loaded before may be bound to another runtime, which still uses it. */
  if (library) *bound_here = settle(library, additions() == before);
  return library;
}

/* If a library's constructor fails to register something, the load fails with that error. */
void* fc_link_open(const char* path, bool* bound_here, char* message, size_t size) {
  ++fc_thread.loading;
  message[0] = 0;
  void* library = open_and_bind(path, bound_here, message, size);
  if (--fc_thread.loading == 0 && fc_thread.load_error) {
    fc_error_raise(fc_thread.load_error);
    fc_thread.load_error = NULL;
    message[0] = 0;
    library = NULL;
  }
  return library;
}
