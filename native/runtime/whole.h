/* Values as a whole: containers by their items, objects of registered types by their fields. No Python here. */
#ifndef FARCALL_RUNTIME_WHOLE_H_
#define FARCALL_RUNTIME_WHOLE_H_

#include "runtime/runtime.h"

/*
 * How to look at values. Structurally, as compilers do: a float is its bits, and a field may say that it does not
 * count. Else as Python does: 0.0 equals -0.0. NaN equals itself in both.
 */
typedef struct {
  bool structural;
  bool skip_tensor_contents; /* dtype and shape only */
} FcWholeMode;

/* Each gives 0, or -1 with an error: a field that cannot be read, or too many levels (FC_DEPTH_LIMIT). */
int fc_whole_equal(const TVMFFIAny* a, const TVMFFIAny* b, FcWholeMode mode, bool* out);
/* Equal values have the same hash, in this process. */
int fc_whole_hash(const TVMFFIAny* value, FcWholeMode mode, uint64_t* out);
/* As Python would show it: (1, "a"), [1], {"a": None}, float32[2, 3]@cpu:0, my.Type(x=1). */
int fc_whole_repr(const TVMFFIAny* value, TVMFFIAny* out);

/* The fields of an object's type, those of its ancestors first. Stops where `visit` gives not 0, and gives that. */
int fc_whole_fields(TVMFFIObject* object, int (*visit)(void* context, const TVMFFIFieldInfo* field, TVMFFIAny* value),
                    void* context);
bool fc_whole_has_fields(const TVMFFIObject* object);

#endif /* FARCALL_RUNTIME_WHOLE_H_ */
