/*
 * What the core and the library of C++ names (native/cxx) give each other.
 *
 * Modules of TVM FFI are C++ objects with virtual methods, which may throw: the core, which is C, can neither call
 * them nor have any. So the methods of all modules that are made here, the calls into modules that libraries made, and
 * the C++ functions that libraries import are in a library of their own. It is loaded with the first library that was
 * built for TVM FFI, which brings a C++ runtime anyway.
 */
#ifndef FARCALL_RUNTIME_CXX_H_
#define FARCALL_RUNTIME_CXX_H_

#include <farcall/c_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In front of the methods are the offset to the whole object, and its type. */
enum { FC_CXX_TABLE_HEAD = 2, FC_CXX_METHODS = 12 };

/* What the core gives. Functions that return int give 0, or -1 and an error in the slot. */
typedef struct {
  int (*call)(const char* builtin, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);
  const char* (*kind)(TVMFFIObject* module); /* of a module that was made here */
  int (*save)(TVMFFIObject* module, TVMFFIAny* result);
  /* What any module does unless its class has a method of its own for it. */
  int (*import)(TVMFFIObject* module, TVMFFIObject* other);
  int (*clear_imports)(TVMFFIObject* module);
  void (*each_context_symbol)(void (*visit)(void* context, const char* name, void* symbol), void* context);
  TVMFFIObject* (*take_error)(void);   /* owned */
  void (*raise)(TVMFFIObject* error); /* moves in */
  void (*raise_text)(const char* kind, const char* message);
} FcCxxCore;

/* What it gets: the methods of a C++ module. Names and formats are String values, which these borrow. */
typedef struct {
  void* const* table; /* of a module that is made here: FC_CXX_METHODS, and the head before them */
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

/* Its only entry. The core's table must stay. */
#define FC_CXX_ENTRY "fc_cxx_meet"
typedef const FcCxx* (*FcCxxEntry)(const FcCxxCore* core);

/* ---- in the core ---- */

/* Gives the library, or NULL with an error. runtime/dl/cxx.c sets it; NULL in a program that loads no libraries. */
extern const FcCxx* (*fc_cxx_find)(void);
/* The library; NULL, with an error, where it is not there. */
const FcCxx* fc_cxx(void);
/* The methods of all modules that are made here. They are there once the library is. */
extern void* fc_cxx_table[FC_CXX_TABLE_HEAD + FC_CXX_METHODS];

#ifdef __cplusplus
}
#endif

#endif /* FARCALL_RUNTIME_CXX_H_ */
