/*
 * The callers of a library that raises: return addresses, which become text only for who looks at them.
 * No Python here.
 *
 * Most errors are caught, and nobody reads where they came from. So addresses stay with the thread until its next
 * error, and are named when somebody looks. Finding all callers costs as much as the rest of an error (2 us for five
 * frames), so that without FARCALL_BACKTRACE=1 in the environment only the innermost is noted.
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
static AddressOf address_of; /* there where walk is */
static const char* core_begin; /* where this core is: a call came from there, and above is Python */
static const char* core_end;
static FcOnce prepared = FC_ONCE_INIT;

/* The walk is in the compiler's run time, which not every compiler links by itself. */
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
  core_end = &last; /* constants and code: all code is before the data */
}

typedef struct {
  FcThreadMore* more;
  bool left; /* the frames of this core that come first */
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

/* ---- looking ---- */

int fc_backtrace_count(void) { return fc_thread.more ? fc_thread.more->address_count : 0; }

void fc_backtrace_describe(int i, char* out, size_t size) {
  Dl_info info;
  const char* address = fc_thread.more->addresses[i];
  /* A return address is behind its call, and may be behind its function. */
  if (!dladdr(address - 1, &info) || !info.dli_fname) {
    snprintf(out, size, "%p", (const void*)address);
  } else if (info.dli_sname) {
    snprintf(out, size, "%s: %s+0x%zx", info.dli_fname, info.dli_sname, (size_t)(address - (char*)info.dli_saddr));
  } else {
    snprintf(out, size, "%s: +0x%zx", info.dli_fname, (size_t)(address - (char*)info.dli_fbase));
  }
}
