/*
 * Times a function: the loop of TVM's time evaluator (facts A.9), so that its overhead is that of a loop in C.
 */
#include "runtime/evaluator.h"

#include <stdlib.h>

static int measured_call(const FcEvaluator* e, const TVMFFIAny* args, int32_t n) {
  TVMFFIAny result = fc_any_none();
  int rc = e->call(e->self, args, n, &result);
  if (fc_any_is_object(&result)) fc_any_clear(&result);
  return rc;
}

/* Nanoseconds of `number` calls; -1 if one failed. */
static int64_t measure(const FcEvaluator* e, int64_t number, const TVMFFIAny* args, int32_t n) {
  int64_t begin = fc_now_ns();
  for (int64_t i = 0; i < number; ++i) {
    if (FC_UNLIKELY(measured_call(e, args, n) != 0)) return -1;
  }
  return fc_now_ns() - begin;
}

static int prepare(const FcEvaluator* e, volatile uint8_t* scratch, const TVMFFIAny* args, int32_t n) {
  for (int64_t i = 0; i < e->flush_bytes; i += 64) scratch[i] += 1; /* one write per cache line */
  if (!e->before) return 0;
  TVMFFIAny result = fc_any_none();
  int rc = TVMFFIFunctionGetCellPtr(e->before)->safe_call(e->before, args, n, &result);
  fc_any_clear(&result);
  return rc;
}

/* The number of calls that should take min_repeat_ms; grows at least by the golden ratio. */
static int64_t more(const FcEvaluator* e, int64_t number, int64_t took) {
  double wanted = (double)e->min_repeat_ms * 1e6 / ((double)took / (double)number) + 1, golden = (double)number * 1.618;
  double next = took > 0 && wanted > golden ? wanted : golden + 1;
  return next < 1e15 ? (int64_t)next : (int64_t)1e15;
}

static int repeat_once(const FcEvaluator* e, int64_t* number, void* scratch, const TVMFFIAny* args, int32_t n,
                       double* seconds) {
  int64_t took = 0, zeros = 0;
  for (;;) {
    if (prepare(e, scratch, args, n) != 0) return -1;
    took = measure(e, *number, args, n);
    if (took < 0) return -1;
    zeros += took == 0;
    if (took >= e->min_repeat_ms * 1000000 || zeros >= e->zero_limit) break;
    *number = more(e, *number, took);
    if (fc_check_signals && fc_check_signals() != 0) return -1;
  }
  *seconds = (double)took / 1e9 / (double)*number;
  return 0;
}

static void store_double(double value, uint8_t* to) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  for (int i = 0; i < 8; ++i) to[i] = (uint8_t)(bits >> (8 * i));
}

static int repeat_all(const FcEvaluator* e, void* scratch, const TVMFFIAny* args, int32_t n, uint8_t* out) {
  int64_t number = e->number;
  if (measured_call(e, args, n) != 0) return -1; /* warms up */
  for (int64_t i = 0; i < e->repeat; ++i) {
    double seconds;
    if (repeat_once(e, &number, scratch, args, n, &seconds) != 0) return -1;
    store_double(seconds, out + 8 * i);
    bool last = i + 1 == e->repeat;
    if (e->cooldown_ms > 0 && !last && (i + 1) % e->repeats_to_cooldown == 0) fc_sleep_ns(e->cooldown_ms * 1000000);
  }
  return 0;
}

static int evaluate(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcEvaluator* e = self;
  uint8_t* out = malloc((size_t)e->repeat * 8);
  void* scratch = e->flush_bytes > 0 ? calloc(1, (size_t)e->flush_bytes) : NULL;
  int rc = -1;
  if (!out || (e->flush_bytes > 0 && !scratch)) fc_error_no_memory();
  else rc = repeat_all(e, scratch, args, n, out);
  if (rc == 0) rc = fc_any_from_bytes(kTVMFFIBytes, (const char*)out, (size_t)e->repeat * 8, result);
  free(out);
  free(scratch);
  return rc;
}

static void delete_evaluator(void* self) {
  FcEvaluator* e = self;
  fc_decref(e->function);
  if (e->before) fc_decref(e->before);
  free(e);
}

/* ---- making one ---- */

static bool in_range(const FcEvaluator* e) {
  return e->number >= 1 && e->repeat >= 1 && e->repeat <= FC_EVALUATOR_REPEATS && e->min_repeat_ms >= 0 &&
         e->min_repeat_ms <= INT32_MAX && e->zero_limit >= 0 && e->cooldown_ms >= 0 && e->cooldown_ms <= INT32_MAX &&
         e->repeats_to_cooldown >= 1 && e->flush_bytes >= 0 && (uint64_t)e->flush_bytes < SIZE_MAX;
}

int fc_evaluator_new(const FcEvaluator* wanted, TVMFFIObjectHandle* out) {
  if (!in_range(wanted)) {
    fc_error_format("ValueError",
                    "time_evaluator: number and repeat (up to %d) must be at least 1, the other numbers not negative",
                    FC_EVALUATOR_REPEATS);
    return -1;
  }
  FcEvaluator* e = malloc(sizeof *e);
  if (!e) {
    fc_error_no_memory();
    return -1;
  }
  *e = *wanted;
  fc_function_target(e->function, &e->call, &e->self);
  fc_incref(e->function);
  if (e->before) fc_incref(e->before);
  if (fc_function_new(e, evaluate, delete_evaluator, out) == 0) return 0;
  delete_evaluator(e);
  return -1;
}
