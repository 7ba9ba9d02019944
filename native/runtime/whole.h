/* Recursive operations on values: containers by their items, objects of registered types by their fields. */
#ifndef FARCALL_RUNTIME_WHOLE_H_
#define FARCALL_RUNTIME_WHOLE_H_

#include "runtime/runtime.h"

/*
 * How values are compared. Structurally, as compilers do: floats by their bits, and without the fields that are marked
 * as ignored. Else as Python does: 0.0 equals -0.0. NaN equals itself in both modes.
 */
typedef struct {
  bool structural;
  bool skip_tensor_contents; /* dtype and shape only */
} FcWholeMode;

/* Each returns 0, or -1 with an error: a field cannot be read, or the nesting is too deep (FC_DEPTH_LIMIT). */
int fc_whole_equal(const TVMFFIAny* a, const TVMFFIAny* b, FcWholeMode mode, bool* out);
/* Equal values have the same hash within this process. */
int fc_whole_hash(const TVMFFIAny* value, FcWholeMode mode, uint64_t* out);
/* As Python would show it: (1, "a"), [1], {"a": None}, float32[2, 3]@cpu:0, my.Type(x=1). */
int fc_whole_repr(const TVMFFIAny* value, TVMFFIAny* out);

/* Visits an object's fields, those of its ancestors first. Stops when `visit` returns non-zero, and returns that. */
int fc_whole_fields(TVMFFIObject* object, int (*visit)(void* context, const TVMFFIFieldInfo* field, TVMFFIAny* value),
                    void* context);
bool fc_whole_has_fields(const TVMFFIObject* object);

#endif /* FARCALL_RUNTIME_WHOLE_H_ */
