/*
 * The interface between the core and the C++ support library (native/cxx, libfarcall_cxx.so).
 *
 * TVM FFI's modules are C++ objects with virtual methods, which may throw: the core is C, and can neither call nor
 * implement them. So the C++ support library contains the methods of all modules that the core makes, the calls into
 * modules that libraries made, and the C++ functions that libraries import. The core loads it together with the first
 * library that was built for TVM FFI, which needs a C++ runtime anyway.
 */
#ifndef FARCALL_RUNTIME_CXX_H_
#define FARCALL_RUNTIME_CXX_H_

#include <farcall/c_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A table of methods begins with a head of two words: the offset to the whole object, and its type. */
enum { FC_CXX_TABLE_HEAD = 2, FC_CXX_METHODS = 12 };

/* What the core provides. Functions that return int return 0, or -1 with an error in the slot. */
typedef struct {
  int (*call)(const char* builtin, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);
  const char* (*kind)(TVMFFIObject* module); /* of a module that the core made */
  int (*save)(TVMFFIObject* module, TVMFFIAny* result);
  /* The default implementations of these methods. */
  int (*import)(TVMFFIObject* module, TVMFFIObject* other);
  int (*clear_imports)(TVMFFIObject* module);
  void (*each_context_symbol)(void (*visit)(void* context, const char* name, void* symbol), void* context);
  TVMFFIObject* (*take_error)(void);   /* owned */
  void (*raise)(TVMFFIObject* error); /* takes ownership */
  void (*raise_text)(const char* kind, const char* message);
} FcCxxCore;

/* What the library provides: calls of a C++ module's methods. They borrow names and formats, which are Strings. */
typedef struct {
  void* const* table; /* the FC_CXX_METHODS methods of modules that the core makes; the head is before them */
  int (*kind)(TVMFFIObject* module, const char** out);
  int (*properties)(TVMFFIObject* module, int* out);
  int (*function)(TVMFFIObject* module, const TVMFFIAny* name, TVMFFIAny* result);
  int (*text)(TVMFFIObject* module, bool doc, const TVMFFIAny* name, TVMFFIAny* result);
  int (*write)(TVMFFIObject* module, const TVMFFIAny* file, const TVMFFIAny* format);
  int (*formats)(TVMFFIObject* module, TVMFFIAny* result);
  int (*save)(TVMFFIObject* module, TVMFFIAny* result);
  int (*source)(TVMFFIObject* module, const TVMFFIAny* format, TVMFFIAny* result);
  int (*import)(TVMFFIObject* module, TVMFFIObject* other);
  int (*clear_imports)(TVMFFIObject* module);
} FcCxx;

/* The library's only entry. The core's table must outlive the library. */
#define FC_CXX_ENTRY "fc_cxx_meet"
typedef const FcCxx* (*FcCxxEntry)(const FcCxxCore* core);

/* ---- in the core ---- */

/* Returns the library, or NULL with an error. Set by runtime/dl/cxx.c; itself NULL in a program that loads none. */
extern const FcCxx* (*fc_cxx_find)(void);
/* The library, or NULL with an error when it is not available. */
const FcCxx* fc_cxx(void);
/* The methods of all modules that the core makes. Zero until the library is loaded. */
extern void* fc_cxx_table[FC_CXX_TABLE_HEAD + FC_CXX_METHODS];

#ifdef __cplusplus
}
#endif

#endif /* FARCALL_RUNTIME_CXX_H_ */
