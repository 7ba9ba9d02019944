/* Times functions with their arguments, as TVM's time evaluator does. */
#ifndef FARCALL_RUNTIME_EVALUATOR_H_
#define FARCALL_RUNTIME_EVALUATOR_H_

#include "runtime/runtime.h"

enum { FC_EVALUATOR_REPEATS = 1 << 20 };

/* A measurement is the mean over its calls, in seconds. */
typedef struct FcEvaluator {
  TVMFFIObject* function;
  TVMFFIObject* before; /* called with the arguments before each measurement; may be NULL */
  int64_t number, repeat, min_repeat_ms, zero_limit, cooldown_ms, repeats_to_cooldown, flush_bytes;
  TVMFFISafeCallType call; /* the target of `function`; fc_evaluator_new sets both */
  void* self;
} FcEvaluator;

/* A Function that takes the arguments of `function`, and returns all measurements as bytes of little-endian doubles.
 * Takes references to both functions. -1 with an error: a number is out of its range. */
int fc_evaluator_new(const FcEvaluator* wanted, TVMFFIObjectHandle* out);

#endif /* FARCALL_RUNTIME_EVALUATOR_H_ */
