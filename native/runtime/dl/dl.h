/*
 * Libraries, for programs that have a dynamic loader: modules from files, C++ modules, and sharing the process with
 * another runtime of this ABI. The runtime works without this folder.
 */
#ifndef FARCALL_RUNTIME_DL_DL_H_
#define FARCALL_RUNTIME_DL_DL_H_

#include "runtime/builtins.h"
#include "runtime/cxx.h"

/* Registers this folder's functions with the runtime. Call it at the program's start, before other threads run. */
void fc_dl_start(void);

/*
 * Opens a library and the modules that it embeds. Returns a new reference; or NULL with either an error or `message`
 * set. A file whose extension has a registered loader is passed to that loader.
 */
TVMFFIObject* fc_module_load(const char* path, char* message, size_t size);
/* The same for a plain library; false, having done nothing, when the file may not be one: see runtime/dl/library.h. */
bool fc_module_load_plain(const char* path, TVMFFIObject** out, char* message, size_t size);

/* The number of callers recorded by this thread's last backtrace, and caller `i` as text. */
int fc_backtrace_count(void);
void fc_backtrace_describe(int i, char* out, size_t size);

/* ---- private to this folder ---- */

extern const FcForeign fc_dl_foreign;
extern const FcBuiltin fc_load_builtins[];
int fc_dl_write_file(TVMFFIByteArray path, TVMFFIByteArray data);
void fc_dl_note_callers(FcThreadMore* more, const char* caller);
/* The C++ support library; NULL with an error when it cannot be loaded. */
const FcCxx* fc_dl_cxx(void);
/* Loads it, so that C++ code can call the methods of modules. Sets no error on failure. */
void fc_cxx_open(void);
/* Its expected path; NULL when this core's own path is unknown. */
const char* fc_cxx_path(void);

#endif /* FARCALL_RUNTIME_DL_DL_H_ */
