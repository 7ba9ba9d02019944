/* Libraries by their files: see runtime/dl/library.c. No Python here. */
#ifndef FARCALL_RUNTIME_DL_LIBRARY_H_
#define FARCALL_RUNTIME_DL_LIBRARY_H_

#include "runtime/dl/link.h"

typedef struct {
  void* handle; /* NULL: it cannot be loaded; the message says why, or the thread's error does */
  bool bound_here;
} FcLibrary;

/* Loads a library, or gives the one that is loaded of that file. A path without a slash is the linker's to find. */
FcLibrary fc_library_open(const char* path, char* message, size_t size);
/*
 * The same for a plain library: one that is sound, for this machine, and made by another than farcall's artifact
 * builder. False, and nothing was loaded, where the file is something else.
 */
bool fc_library_open_plain(const char* path, FcLibrary* out, char* message, size_t size);

#endif /* FARCALL_RUNTIME_DL_LIBRARY_H_ */
