/*
 * Libraries, for programs that have a dynamic loader: modules of files, C++ modules, and life beside another runtime of
 * this ABI. The runtime works without this room. No Python here.
 */
#ifndef FARCALL_RUNTIME_DL_DL_H_
#define FARCALL_RUNTIME_DL_DL_H_

#include "runtime/builtins.h"
#include "runtime/cxx.h"

/* Fills the tables of the runtime that are for this room. At the program's start, before other threads run. */
void fc_dl_start(void);

/*
 * Opens a library and all that it embeds. New reference; NULL with an error, or without one and with `message`.
 * A file whose name ends in something that a loader is registered for is given to that loader.
 */
TVMFFIObject* fc_module_load(const char* path, char* message, size_t size);
/* The same for a plain library: false, and nothing happened, when the file is not surely one. See runtime/dl/library.h. */
bool fc_module_load_plain(const char* path, TVMFFIObject** out, char* message, size_t size);

/* The callers of the library that last asked for a backtrace in this thread; each as text, for whoever looks. */
int fc_backtrace_count(void);
void fc_backtrace_describe(int i, char* out, size_t size);

/* ---- between the files of this room ---- */

extern const FcForeign fc_dl_foreign;
extern const FcBuiltin fc_load_builtins[];
void fc_dl_note_callers(FcThreadMore* more, const char* caller);
/* The library of C++ modules; NULL with an error where it is not there. */
const FcCxx* fc_dl_cxx(void);
/* Loads it, so that C++ code can call the methods of modules. Without an error. */
void fc_cxx_open(void);
/* Where it should be; NULL when nobody knows. */
const char* fc_cxx_path(void);

#endif /* FARCALL_RUNTIME_DL_DL_H_ */
