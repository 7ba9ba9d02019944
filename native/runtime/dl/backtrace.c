/*
 * Backtraces of libraries that raise: return addresses, which become text only on demand.
 *
 *
 * Most errors are caught, and their backtraces are never read. So the thread keeps only addresses, until its next
 * error, and resolves their names on demand. Walking the stack costs as much as the rest of an error (2 us for five
 * frames), so only the innermost caller is recorded unless FARCALL_BACKTRACE=1 is set in the environment.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

#include "runtime/dl/dl.h"

/* ---- capturing ---- */

typedef _Unwind_Reason_Code (*Walk)(_Unwind_Trace_Fn, void*);
typedef _Unwind_Ptr (*AddressOf)(struct _Unwind_Context*);

static Walk walk;
static AddressOf address_of; /* not NULL if walk is not */
/* The address range of this core. It makes the calls into libraries, so the frames above its own are Python's. */
static const char* core_begin;
static const char* core_end;
static FcOnce prepared = FC_ONCE_INIT;

/* The stack walker is in the compiler's runtime library, which not every compiler links by default. */
static void prepare(void) {
  static const char last;
  Dl_info info;
  const char* wanted = getenv("FARCALL_BACKTRACE");
  bool all = wanted && *wanted && strcmp(wanted, "0") != 0;
  void* library = all ? dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_LOCAL) : NULL;
  void* found = library ? dlsym(library, "_Unwind_Backtrace") : NULL;
  void* getter = found ? dlsym(library, "_Unwind_GetIP") : NULL;
  memcpy(&address_of, &getter, sizeof address_of);
  if (getter) memcpy(&walk, &found, sizeof walk);
  if (dladdr(&last, &info)) core_begin = info.dli_fbase;
  core_end = &last; /* a constant: the linker places all code before it */
}

typedef struct {
  FcThreadMore* more;
  bool left; /* the walk has left the innermost frames, which are this core's */
} Capture;

static _Unwind_Reason_Code step(struct _Unwind_Context* context, void* data) {
  Capture* capture = data;
  const char* address = (const char*)address_of(context);
  bool core = address >= core_begin && address < core_end;
  if (core) return capture->left ? _URC_END_OF_STACK : _URC_NO_REASON;
  capture->left = true;
  if (capture->more->address_count == FC_MAX_ADDRESSES) return _URC_END_OF_STACK;
  capture->more->addresses[capture->more->address_count++] = address;
  return _URC_NO_REASON;
}

void fc_dl_note_callers(FcThreadMore* more, const char* caller) {
  Capture capture = {more, false};
  fc_once(&prepared, prepare);
  more->address_count = 0;
  if (walk) walk(step, &capture);
  if (!more->address_count) more->addresses[more->address_count++] = caller;
}

/* ---- describing ---- */

int fc_backtrace_count(void) { return fc_thread.more ? fc_thread.more->address_count : 0; }

void fc_backtrace_describe(int i, char* out, size_t size) {
  Dl_info info;
  const char* address = fc_thread.more->addresses[i];
  /* A return address follows its call, and may be past the end of the function. */
  if (!dladdr(address - 1, &info) || !info.dli_fname) {
    snprintf(out, size, "%p", (const void*)address);
  } else if (info.dli_sname) {
    snprintf(out, size, "%s: %s+0x%zx", info.dli_fname, info.dli_sname, (size_t)(address - (char*)info.dli_saddr));
  } else {
    snprintf(out, size, "%s: +0x%zx", info.dli_fname, (size_t)(address - (char*)info.dli_fbase));
  }
}
