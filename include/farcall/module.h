/*
 * Modules of kinds of your own, in C: what a loader needs to check the bytes that it gets, and to make a Module of C
 * functions. docs/extending.md has an example, docs/spec/blob.md the frame of the bytes.
 *
 * The loader of kind `npu` is a function of the universal signature, with one argument, the bytes:
 *
 *     FARCALL_MODULE_LOADER(npu) { ... *result = the module; return 0; }
 *
 * If the library that embeds the module exports it, the loader travels with the library, and comes before any loader
 * that the process has. A library that only brings the loader registers it when it is loaded, as the global function
 * `ffi.Module.load_from_bytes.npu`; such a loader checks `__farcall_runtime`, which is NULL under TVM FFI, and its
 * `struct_size`, which is smaller in a farcall that has no `module_create`.
 */
#ifndef FARCALL_MODULE_H_
#define FARCALL_MODULE_H_

#include "c_api.h"

/* Begins the loader of a kind; its body follows in braces. A character of the kind that C does not allow is a `_`. */
#define FARCALL_MODULE_LOADER(kind)                                                                               \
  FARCALL_EXTERN_C FARCALL_VISIBLE int __farcall_load_##kind(void* self, const TVMFFIAny* args, int32_t num_args, \
                                                             TVMFFIAny* result);                                  \
  FARCALL_EXTERN_C FARCALL_VISIBLE int __farcall_load_##kind(                                                     \
      __attribute__((unused)) void* self, __attribute__((unused)) const TVMFFIAny* args,                          \
      __attribute__((unused)) int32_t num_args, __attribute__((unused)) TVMFFIAny* result)

/* What a loader reads: blobs of this kind, of these versions, that need no other features than these. */
struct FarcallModuleKind {
  const char* kind;
  uint32_t oldest_version;
  uint32_t newest_version;
  const char* const* features; /* ends in NULL; or NULL for none */
};

/* What a frame holds. `data` points into the loader's argument, and is valid as long as that. */
struct FarcallBlob {
  const char* data;
  size_t size;
  uint32_t version;
};

/* One function of a Module. `call` gets `self` as its first argument; where that is NULL, the module's state. */
struct FarcallModuleFunction {
  const char* name;
  TVMFFISafeCallType call;
  void* self;
};

/* A Module to be made. Its functions keep the state alive, so they may outlive the Module. All texts are copied. */
struct FarcallModuleSpec {
  uint32_t struct_size; /* sizeof(struct FarcallModuleSpec) */
  const char* kind;
  const struct FarcallModuleFunction* functions;
  int64_t function_count;
  void* state;
  void (*destroy)(void* state); /* gets the state with the last reference to the Module and its functions; or NULL */
  TVMFFISafeCallType save;      /* () -> Bytes, from which the loader makes the module again; or NULL */
  TVMFFISafeCallType source;    /* (format) -> str; or NULL */
};

#endif /* FARCALL_MODULE_H_ */
