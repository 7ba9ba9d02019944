/* Loading of libraries, and their tables as they stand in memory. No Python here. */
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
/* Whether the library asks for TVM FFI's by name. */
bool fc_link_needs_tvm(void* library);
/*
 * What the library itself exports under a name, or NULL. dlsym() would look at what the library needs, too, and would
 * write a text about each name that is not there, which takes ten times as long.
 */
void* fc_link_symbol(void* library, const char* name);
/*
 * dlopen, for good. NULL on failure, with a message, or without one and with an error. `bound_here`: the library's
 * TVMFFI* imports, if it has any, are bound to this core, and not to another runtime. One at a time, for slots are
 * written and pages change their protection: see runtime/dl/library.c.
 */
void* fc_link_open(const char* path, bool* bound_here, char* message, size_t size);

/* Loads a library together with this core, and with another one (may be NULL). NULL, with dlerror(), on failure. */
void* fc_carrier_open(const char* path, const char* other);

#endif /* FARCALL_RUNTIME_DL_LINK_H_ */
