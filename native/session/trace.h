/* Records how long operations take, while tracing is on. Off, it costs one test of a variable. */
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

/* Starts to collect spans; drops those of an earlier trace. */
void fc_trace_start(void);
/* Ends the trace. The caller must free() the spans; NULL when there are none. */
FcTraceSpan* fc_trace_stop(size_t* n);

/* The start time of a span: now, or 0 while tracing is off. */
static inline int64_t fc_trace_begin(void) {
  return FC_UNLIKELY(__atomic_load_n(&fc_trace_on, __ATOMIC_RELAXED)) ? fc_now_ns() : 0;
}

FC_COLD void fc_trace_add(const char* category, const char* name, int32_t track, int64_t start, int64_t end);

/* Ends a span now. category: a static text. track: the session's slot in a client; -1 in a server. */
static inline void fc_trace_end(const char* category, const char* name, int32_t track, int64_t start) {
  if (FC_UNLIKELY(start != 0)) fc_trace_add(category, name, track, start, fc_now_ns());
}

#endif /* FARCALL_SESSION_TRACE_H_ */
