/* What took how long, noted while somebody wants to know. Off, it costs one test of a variable. */
#ifndef FARCALL_SESSION_TRACE_H_
#define FARCALL_SESSION_TRACE_H_

#include <stdint.h>

#include "session/channel.h"
#include "runtime/runtime.h"

extern int fc_trace_on; /* set and read atomically */

typedef struct FcTraceSpan {
  const char* category;
  int64_t start, end; /* fc_now_ns() */
  int32_t track;
  char name[60];
} FcTraceSpan;

/* Collects spans from now on; those of an earlier trace are forgotten. */
void fc_trace_start(void);
/* Ends the trace. The caller owns the spans, and frees them; NULL when there are none. */
FcTraceSpan* fc_trace_stop(size_t* n);

/* When something begins: now, or 0 while nobody wants to know. */
static inline int64_t fc_trace_begin(void) {
  return FC_UNLIKELY(__atomic_load_n(&fc_trace_on, __ATOMIC_RELAXED)) ? fc_now_ns() : 0;
}

FC_COLD void fc_trace_add(const char* category, const char* name, int32_t track, int64_t start, int64_t end);

/* It ended now. category: a text that stays. track: of a client, the session's slot; of a server, -1. */
static inline void fc_trace_end(const char* category, const char* name, int32_t track, int64_t start) {
  if (FC_UNLIKELY(start != 0)) fc_trace_add(category, name, track, start, fc_now_ns());
}

#endif /* FARCALL_SESSION_TRACE_H_ */
