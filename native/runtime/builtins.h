/* Builtin functions: native code finds them by name, but they are not in the registry. */
#ifndef FARCALL_RUNTIME_BUILTINS_H_
#define FARCALL_RUNTIME_BUILTINS_H_

#include "runtime/runtime.h"

/* `least` and `most` arguments; most = -1 for any number. */
typedef struct {
  const char* name;
  int (*call)(const TVMFFIAny* args, int32_t n, TVMFFIAny* result);
  int32_t least, most;
} FcBuiltin;

/* Tables, each ended by an entry without a name. */
extern const FcBuiltin fc_container_builtins[], fc_map_builtins[], fc_registry_builtins[], fc_module_builtins[],
    fc_whole_builtins[];

/* Adds the functions of a table to the builtins. Call it at the program's start, before other threads look any up. */
void fc_builtins_add(const FcBuiltin* table);

/* New reference, NULL when no builtin has that name. */
TVMFFIObject* fc_builtin_get(const char* name, size_t size);
/* The same for one table, whether or not it was added. */
TVMFFIObject* fc_builtin_of(const FcBuiltin* table, const char* name, size_t size);
/* Calls a builtin by name. */
int fc_builtin_call(const char* name, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);
/* Like fc_builtin_get, but only for the functions that make, read and change containers: any peer may use these. */
TVMFFIObject* fc_container_function(const char* name, size_t size);
/* Like fc_global_each. */
void fc_builtin_each(bool (*visit)(void* context, const char* name, size_t size), void* context);

/* Arguments: each sets a TypeError, and returns false or NULL, when argument i has another type. */
FC_COLD bool fc_bad_argument(int32_t i, const char* expected, const TVMFFIAny* got);
bool fc_int_argument(const TVMFFIAny* args, int32_t i, int64_t* out);
bool fc_text_argument(const TVMFFIAny* args, int32_t i, TVMFFIByteArray* out);
TVMFFIObject* fc_object_argument(const TVMFFIAny* args, int32_t i, int32_t type_index);

/* A Function over `n` values: f(-1) returns `n`, f(i) a value. Takes ownership of the values, even on failure. */
int fc_snapshot(TVMFFIAny* values, int64_t n, TVMFFISafeCallType call, TVMFFIAny* result);
typedef struct {
  int64_t n, at;
  TVMFFIAny values[];
} FcSnapshot;

#endif /* FARCALL_RUNTIME_BUILTINS_H_ */
