/*
 * Loading a library whose TVMFFI* imports are not resolved by the global scope or by the libraries that it needs.
 *
 * The dynamic linker looks for a library's imports in the global scope, and then in everything that the same dlopen()
 * loads. So we load the library together with this core: with a carrier, an empty library made in memory that needs
 * both, and is closed afterwards. No symbol becomes global, and the imports are bound before any constructor runs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/dl/link.h"

enum { PATHS = 3, PATH_ROOM = 4096, ENTRIES = PATHS + 6, SEGMENTS = 3 };

typedef struct {
  ElfW(Ehdr) header;
  ElfW(Phdr) segments[SEGMENTS];
  ElfW(Dyn) dynamic[ENTRIES];
  ElfW(Sym) symbols[1];
  uint32_t hash[4];                      /* one bucket, one symbol, both empty */
  char strings[1 + PATHS * PATH_ROOM];   /* the first is empty */
} Carrier;

#define AT(member) offsetof(Carrier, member)

static void fill_header(Carrier* carrier, const ElfW(Ehdr) * like) {
  ElfW(Ehdr)* header = &carrier->header;
  memcpy(header->e_ident, like->e_ident, sizeof header->e_ident);
  header->e_type = ET_DYN;
  header->e_machine = like->e_machine;
  header->e_version = EV_CURRENT;
  header->e_flags = like->e_flags;
  header->e_phoff = AT(segments);
  header->e_ehsize = sizeof *header;
  header->e_phentsize = sizeof carrier->segments[0];
  header->e_phnum = SEGMENTS;
}

/* The third segment says that no executable stack is needed: without it, the linker assumes one. */
static void fill_segments(Carrier* carrier, size_t size) {
  ElfW(Phdr)* segments = carrier->segments;
  segments[0] =
      (ElfW(Phdr)){.p_type = PT_LOAD, .p_flags = PF_R | PF_W, .p_filesz = size, .p_memsz = size, .p_align = 0x10000};
  segments[1] = (ElfW(Phdr)){.p_type = PT_DYNAMIC,
                             .p_flags = PF_R | PF_W,
                             .p_offset = AT(dynamic),
                             .p_vaddr = AT(dynamic),
                             .p_paddr = AT(dynamic),
                             .p_filesz = sizeof carrier->dynamic,
                             .p_memsz = sizeof carrier->dynamic,
                             .p_align = 8};
  segments[2] = (ElfW(Phdr)){.p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W, .p_align = 16};
}

/* Returns the carrier's size in bytes; 0 when a path is too long. */
static size_t fill(Carrier* carrier, const ElfW(Ehdr) * like, const char* const paths[PATHS]) {
  size_t end = 1;
  ElfW(Dyn)* dynamic = carrier->dynamic;
  memset(carrier, 0, AT(strings) + 1);
  for (int i = 0; i < PATHS; ++i) {
    size_t length = paths[i] ? strlen(paths[i]) + 1 : 0;
    if (length > PATH_ROOM) return 0;
    if (!length) continue;
    memcpy(carrier->strings + end, paths[i], length);
    *dynamic++ = (ElfW(Dyn)){.d_tag = DT_NEEDED, .d_un.d_val = end};
    end += length;
  }
  const ElfW(Dyn) tables[] = {
      {.d_tag = DT_STRTAB, .d_un.d_ptr = AT(strings)}, {.d_tag = DT_STRSZ, .d_un.d_val = end},
      {.d_tag = DT_SYMTAB, .d_un.d_ptr = AT(symbols)}, {.d_tag = DT_SYMENT, .d_un.d_val = sizeof(ElfW(Sym))},
      {.d_tag = DT_HASH, .d_un.d_ptr = AT(hash)},      {.d_tag = DT_NULL},
  };
  memcpy(dynamic, tables, sizeof tables);
  carrier->hash[0] = carrier->hash[1] = 1;
  fill_header(carrier, like);
  fill_segments(carrier, AT(strings) + end);
  return AT(strings) + end;
}

static void* load(const Carrier* carrier, size_t size) {
  char name[64];
  void* library = NULL;
  int file = memfd_create("farcall-carrier", MFD_CLOEXEC);
  if (file < 0) return NULL;
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  if (write(file, carrier, size) == (ssize_t)size) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  close(file);
  return library;
}

void* fc_carrier_open(const char* path, const char* other) {
  Dl_info core;
  Carrier carrier;
  if (!dladdr(&fc_runtime, &core)) return NULL;
  const char* const paths[PATHS] = {core.dli_fname, other, path};
  size_t size = fill(&carrier, core.dli_fbase, paths);
  void* made = size ? load(&carrier, size) : NULL;
  if (!made) return NULL;
  /* The library now has a handle of its own, so the carrier can be closed and its name reused. */
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  dlclose(made);
  return library;
}
