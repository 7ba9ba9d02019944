/* Libraries by their files: see runtime/dl/library.c. */
#ifndef FARCALL_RUNTIME_DL_LIBRARY_H_
#define FARCALL_RUNTIME_DL_LIBRARY_H_

#include "runtime/dl/link.h"

typedef struct {
  void* handle; /* NULL: it cannot be loaded; the message or the thread's error says why */
  bool bound_here;
} FcLibrary;

/* Loads a library, unless that file is loaded already. The linker searches for a path without a slash. */
FcLibrary fc_library_open(const char* path, char* message, size_t size);
/*
 * The same for a plain library: an intact library for this machine that is not an artifact. False, having loaded
 * nothing, when the file is something else.
 */
bool fc_library_open_plain(const char* path, FcLibrary* out, char* message, size_t size);

#endif /* FARCALL_RUNTIME_DL_LIBRARY_H_ */
