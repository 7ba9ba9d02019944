/*
 * Loads shared objects on machines without a dynamic loader: from bytes, into one range of memory. A file that is not
 * understood whole is refused before memory is reserved and before any of its code runs: see docs/spec/image.md.
 */
#ifndef FARCALL_RUNTIME_IMAGE_IMAGE_H_
#define FARCALL_RUNTIME_IMAGE_IMAGE_H_

#include "runtime/image/elf.h"
#include "runtime/module.h"

/* Memory for code. A machine without an MMU may hand out static memory, with a `protect` that does nothing. */
typedef struct FcImageMemory {
  size_t page; /* granularity of `protect`; a power of two */
  /* Zeroed, readable and writable; NULL when there is none. `size` is a multiple of `page`. */
  void* (*reserve)(size_t size, size_t alignment);
  /* Gives whole pages the access FC_ELF_READ | ..., and makes the processor see instructions that were written. */
  bool (*protect)(void* at, size_t size, uint32_t access);
  void (*release)(void* at, size_t size);
} FcImageMemory;

/* A loaded shared object. */
typedef struct FcImage {
  const FcImageMemory* memory;
  char* base; /* of its span */
  FcElf elf;  /* its tables' `bytes` are in the span */
  bool begun; /* its functions to begin with have run */
} FcImage;

/*
 * Loads a shared object. The bytes may go afterwards. `most` bounds the memory that it takes. NULL with an ArtifactError
 * or MemoryError that calls the file `what`.
 */
FcImage* fc_image_load(const uint8_t* data, size_t size, const char* what, const FcImageMemory* memory, size_t most);
/* Runs its last functions and frees its memory. */
void fc_image_free(FcImage* image);
/* The address of a symbol that it exports; NULL when there is none. */
void* fc_image_symbol(const FcImage* image, const char* name);
/* The number of bytes from there to the end of its data. */
size_t fc_image_left(const FcImage* image, const void* at);

/* A function that images import from this program; NULL when it exports none of that name: runtime/image/exports.inc. */
void* fc_image_export(const char* name);

/*
 * A module of a shared object. New reference, or NULL with an error. The image is unloaded with its module and the last
 * of its functions when it exports FC_IMAGE_UNLOADS; others stay, since objects that they made may refer to their code.
 */
TVMFFIObject* fc_image_module(const uint8_t* data, size_t size, const char* what, const FcImageMemory* memory,
                              size_t most);
#define FC_IMAGE_UNLOADS "__farcall_unloads"

#endif /* FARCALL_RUNTIME_IMAGE_IMAGE_H_ */
