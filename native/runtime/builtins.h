/* The functions that native code finds by name without anybody registering them. No Python here. */
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

/* Makes the functions of a table known by their names. At the program's start, before other threads look. */
void fc_builtins_add(const FcBuiltin* table);

/* New reference, NULL when there is none of that name. */
TVMFFIObject* fc_builtin_get(const char* name, size_t size);
/* The same of one table, known or not. */
TVMFFIObject* fc_builtin_of(const FcBuiltin* table, const char* name, size_t size);
/* Calls one of them. */
int fc_builtin_call(const char* name, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);
/* The same of those alone that make, read and change containers: whoever has one may use these. */
TVMFFIObject* fc_container_function(const char* name, size_t size);
/* Like fc_global_each. */
void fc_builtin_each(bool (*visit)(void* context, const char* name, size_t size), void* context);

/* Arguments: each sets a TypeError, and returns false or NULL, when argument i is something else. */
FC_COLD bool fc_bad_argument(int32_t i, const char* expected, const TVMFFIAny* got);
bool fc_int_argument(const TVMFFIAny* args, int32_t i, int64_t* out);
bool fc_text_argument(const TVMFFIAny* args, int32_t i, TVMFFIByteArray* out);
TVMFFIObject* fc_object_argument(const TVMFFIAny* args, int32_t i, int32_t type_index);

/* `n` owned values as a function of an index: f(-1) is `n`, f(i) a value. They move in, on failure too. */
int fc_snapshot(TVMFFIAny* values, int64_t n, TVMFFISafeCallType call, TVMFFIAny* result);
typedef struct {
  int64_t n, at;
  TVMFFIAny values[];
} FcSnapshot;

#endif /* FARCALL_RUNTIME_BUILTINS_H_ */
