/* Collects spans of time while tracing is on. */
#include "session/trace.h"

#include <stdio.h>
#include <stdlib.h>

enum { SPANS_MAX = 1 << 20 }; /* later spans are dropped */

int fc_trace_on;
static FcMutex lock = FC_MUTEX_INIT;
static FcTraceSpan* spans;
static size_t count, capacity;

static bool make_room(void) {
  if (count < capacity) return true;
  size_t wanted = capacity ? 2 * capacity : 1024;
  FcTraceSpan* grown = wanted <= SPANS_MAX ? realloc(spans, wanted * sizeof *grown) : NULL;
  if (!grown) return false;
  spans = grown;
  capacity = wanted;
  return true;
}

void fc_trace_add(const char* category, const char* name, int32_t track, int64_t start, int64_t end) {
  fc_mutex_lock(&lock);
  if (fc_trace_on && make_room()) {
    FcTraceSpan* span = &spans[count++];
    span->category = category;
    span->start = start;
    span->end = end;
    span->track = track;
    snprintf(span->name, sizeof span->name, "%s", name);
  }
  fc_mutex_unlock(&lock);
}

void fc_trace_start(void) {
  fc_mutex_lock(&lock);
  count = 0;
  __atomic_store_n(&fc_trace_on, 1, __ATOMIC_RELAXED);
  fc_mutex_unlock(&lock);
}

FcTraceSpan* fc_trace_stop(size_t* n) {
  fc_mutex_lock(&lock);
  FcTraceSpan* taken = spans;
  *n = count;
  __atomic_store_n(&fc_trace_on, 0, __ATOMIC_RELAXED);
  spans = NULL;
  count = capacity = 0;
  fc_mutex_unlock(&lock);
  return taken;
}
