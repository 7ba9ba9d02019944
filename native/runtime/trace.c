/* Collects spans of time while a trace is on. */
#include "runtime/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  SPANS_MAX = 1 << 19, /* later spans are dropped, and counted */
  TEXT_MAX = 16        /* bytes of a text argument that a span keeps */
};

int fc_trace_on;
static FcMutex lock = FC_MUTEX_INIT;
static FcTraceSpan* spans;
static size_t count, capacity, lost;

/* ---- arguments as text ---- */

/* Appends to the text, and cuts it short at its end. Returns the new end. */
FC_PRINTF(3, 4) static char* add(char* at, const char* end, const char* format, ...) {
  va_list values;
  va_start(values, format);
  int n = vsnprintf(at, (size_t)(end - at), format, values);
  va_end(values);
  return n < 0 ? at : n < end - at ? at + n : (char*)end - 1;
}

/* "float32[2, 3] on cuda:0" */
static char* add_tensor(char* at, const char* end, const DLTensor* dl) {
  char name[FC_NAME_MAX];
  fc_dtype_print(dl->dtype, name);
  at = add(at, end, "%s[", name);
  for (int32_t i = 0; i < dl->ndim; ++i) at = add(at, end, i ? ", %" PRId64 : "%" PRId64, dl->shape[i]);
  at = add(at, end, "]");
  if (dl->device.device_type == kDLCPU) return at;
  fc_device_print(dl->device, name);
  return add(at, end, " on %s", name);
}

static char* add_value(char* at, const char* end, const TVMFFIAny* any) {
  const DLTensor* dl = fc_any_tensor(any);
  TVMFFIByteArray text;
  if (dl) return add_tensor(at, end, dl);
  if (fc_any_text(any, &text)) {
    return add(at, end, "\"%.*s\"", (int)(text.size < TEXT_MAX ? text.size : TEXT_MAX), text.data);
  }
  switch (any->type_index) {
    case kTVMFFINone: return add(at, end, "None");
    case kTVMFFIBool: return add(at, end, any->v_int64 ? "True" : "False");
    case kTVMFFIInt: return add(at, end, "%" PRId64, any->v_int64);
    case kTVMFFIFloat: return add(at, end, "%g", any->v_float64);
    case kTVMFFIRawStr: return add(at, end, "\"%.*s\"", TEXT_MAX, any->v_c_str);
    default: return add(at, end, "...");
  }
}

static void add_args(const FcTraceWork* work, FcTraceSpan* span) {
  char* at = span->args;
  const char* end = span->args + sizeof span->args;
  *at = 0;
  for (int32_t i = 0; work->args && i < work->num_args; ++i) {
    if (i) at = add(at, end, ", ");
    at = add_value(at, end, &work->args[i]);
  }
}

/* ---- spans ---- */

static bool make_room(void) {
  if (count < capacity) return true;
  size_t wanted = capacity ? 2 * capacity : 1024;
  FcTraceSpan* grown = wanted <= SPANS_MAX ? realloc(spans, wanted * sizeof *grown) : NULL;
  if (!grown) return false;
  spans = grown;
  capacity = wanted;
  return true;
}

void fc_trace_add(const FcTraceWork* work, int64_t start, int64_t end) {
  fc_mutex_lock(&lock);
  if (fc_trace_on && make_room()) {
    FcTraceSpan* span = &spans[count++];
    span->category = work->category;
    span->start = start;
    span->end = end;
    span->bytes = work->bytes;
    span->track = work->track;
    snprintf(span->name, sizeof span->name, "%s", work->name);
    add_args(work, span);
  } else if (fc_trace_on) {
    ++lost;
  }
  fc_mutex_unlock(&lock);
}

void fc_trace_start(void) {
  fc_mutex_lock(&lock);
  count = lost = 0;
  __atomic_store_n(&fc_trace_on, 1, __ATOMIC_RELAXED);
  fc_mutex_unlock(&lock);
}

FcTraceSpan* fc_trace_stop(size_t* n, size_t* dropped) {
  fc_mutex_lock(&lock);
  FcTraceSpan* taken = spans;
  *n = count;
  *dropped = lost;
  __atomic_store_n(&fc_trace_on, 0, __ATOMIC_RELAXED);
  spans = NULL;
  count = capacity = lost = 0;
  fc_mutex_unlock(&lock);
  return taken;
}

/* ---- for libraries ---- */

int64_t fc_trace_region_begin(void) { return fc_trace_begin(); }

void fc_trace_region_end(const char* name, const TVMFFIAny* args, int32_t num_args, int64_t begin) {
  FcTraceWork work = {.category = "region", .name = name, .track = -1, .args = args, .num_args = num_args};
  fc_trace_end(&work, begin);
}
