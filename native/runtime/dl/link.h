/* Loading libraries, and reading the ELF tables of loaded ones. */
#ifndef FARCALL_RUNTIME_DL_LINK_H_
#define FARCALL_RUNTIME_DL_LINK_H_

#include <link.h>

#include "runtime/runtime.h"

typedef struct {
  uintptr_t base;
  const ElfW(Sym) * symbols;
  const char* strings;
  const uint32_t* gnu_hash;
  const uint32_t* sysv_hash;
  const ElfW(Rela) * tables[2]; /* DT_RELA and DT_JMPREL */
  size_t sizes[2];
} FcImage;

bool fc_link_image(void* library, FcImage* image);
uint32_t fc_link_symbol_count(const FcImage* image);
/* Whether the library needs TVM FFI's own library by name. */
bool fc_link_needs_tvm(void* library);
/*
 * The library's own export of that name, or NULL. dlsym() would also search the libraries that it needs, and would
 * format an error message for each missing name, which takes ten times as long.
 */
void* fc_link_symbol(void* library, const char* name);
/*
 * Opens a library, which stays loaded. NULL on failure, with either a message or an error. `bound_here`: the library's
 * TVMFFI* imports, if any, are bound to this core rather than to another runtime. Callers must serialise these calls,
 * which write slots and change page protection: see runtime/dl/library.c.
 */
void* fc_link_open(const char* path, bool* bound_here, char* message, size_t size);

/* Loads a library together with this core and `other`, a path or NULL. On failure NULL; dlerror() says why. */
void* fc_carrier_open(const char* path, const char* other);

#endif /* FARCALL_RUNTIME_DL_LINK_H_ */
