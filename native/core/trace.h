/* What took how long, noted while somebody wants to know. Off, it costs one test of a variable. */
#ifndef FARCALL_TRACE_H_
#define FARCALL_TRACE_H_

#include <stdint.h>

#include "channel.h"
#include "runtime.h"

extern int fc_trace_on; /* set and read atomically */

/* When something begins: now, or 0 while nobody wants to know. */
static inline int64_t fc_trace_begin(void) {
  return FC_UNLIKELY(__atomic_load_n(&fc_trace_on, __ATOMIC_RELAXED)) ? fc_now_ns() : 0;
}

FC_COLD void fc_trace_add(const char* category, const char* name, int32_t track, int64_t start, int64_t end);

/* It ended now. category: a text that stays. track: of a client, the session's slot; of a server, -1. */
static inline void fc_trace_end(const char* category, const char* name, int32_t track, int64_t start) {
  if (FC_UNLIKELY(start != 0)) fc_trace_add(category, name, track, start, fc_now_ns());
}

#endif /* FARCALL_TRACE_H_ */
