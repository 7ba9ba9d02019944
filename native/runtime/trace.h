/* Records how long operations take, while a trace is on. Off, it costs one test of a variable. */
#ifndef FARCALL_RUNTIME_TRACE_H_
#define FARCALL_RUNTIME_TRACE_H_

#include <stdint.h>

#include "runtime/runtime.h"

extern int fc_trace_on; /* set and read atomically */

/* What takes the time. */
typedef struct FcTraceWork {
  const char* category; /* a static text */
  const char* name;
  int32_t track;         /* the session's slot in a client; else -1 */
  int32_t num_args;      /* of args */
  const TVMFFIAny* args; /* of a call: a span keeps their shapes, as text; NULL: none */
  uint64_t bytes;        /* that a connection carries; 0: none */
} FcTraceWork;

typedef struct FcTraceSpan {
  const char* category;
  int64_t start, end; /* fc_now_ns() */
  uint64_t bytes;
  int32_t track;
  char name[60];
  char args[96]; /* cut short where there are many */
} FcTraceSpan;

/* Starts to collect spans; drops those of an earlier trace. */
void fc_trace_start(void);
/* Ends the trace. *dropped: spans for which there was no room. The caller must free() the spans; NULL when there are
 * none. */
FcTraceSpan* fc_trace_stop(size_t* n, size_t* dropped);

static inline bool fc_tracing(void) { return FC_UNLIKELY(__atomic_load_n(&fc_trace_on, __ATOMIC_RELAXED)); }

/* The start time of a span: now, or 0 while no trace is on. */
static inline int64_t fc_trace_begin(void) { return fc_tracing() ? fc_now_ns() : 0; }

FC_COLD void fc_trace_add(const FcTraceWork* work, int64_t start, int64_t end);

/* Ends a span now. */
static inline void fc_trace_end(const FcTraceWork* work, int64_t start) {
  if (FC_UNLIKELY(start != 0)) fc_trace_add(work, start, fc_now_ns());
}

/* Members of FarcallRuntime. */
int64_t fc_trace_region_begin(void);
void fc_trace_region_end(const char* name, const TVMFFIAny* args, int32_t num_args, int64_t begin);

#endif /* FARCALL_RUNTIME_TRACE_H_ */
