/*
 * Times a function: the loop of TVM's time evaluator (facts A.9), in C, so that its overhead is that of the loop. A
 * measurement is the mean over its calls, in seconds; a call of the evaluator returns all measurements, as bytes of
 * little-endian doubles.
 */
#include <stdlib.h>
#include <time.h>

#include "python/convert.h"
#include "python/errors.h"
#include "python/init.h"

typedef struct Evaluator {
  TVMFFIObject* function;
  TVMFFIObject* before; /* called with the arguments before each measurement; may be NULL */
  TVMFFISafeCallType call;
  void* self;
  int64_t number, repeat, min_repeat_ms, zero_limit, cooldown_ms, repeats_to_cooldown, flush_bytes;
} Evaluator;

enum { MAX_REPEAT = 1 << 20 };

static int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int measured_call(const Evaluator* e, const TVMFFIAny* args, int32_t n) {
  TVMFFIAny result = fc_any_none();
  int rc = e->call(e->self, args, n, &result);
  if (fc_any_is_object(&result)) fc_any_clear(&result);
  return rc;
}

/* Nanoseconds of `number` calls; -1 if one failed. */
static int64_t measure(const Evaluator* e, int64_t number, const TVMFFIAny* args, int32_t n) {
  int64_t begin = clock_ns();
  for (int64_t i = 0; i < number; ++i) {
    if (FC_UNLIKELY(measured_call(e, args, n) != 0)) return -1;
  }
  return clock_ns() - begin;
}

static int prepare(const Evaluator* e, volatile uint8_t* scratch, const TVMFFIAny* args, int32_t n) {
  for (int64_t i = 0; i < e->flush_bytes; i += 64) scratch[i] += 1; /* one write per cache line */
  if (!e->before) return 0;
  TVMFFIAny result = fc_any_none();
  int rc = TVMFFIFunctionGetCellPtr(e->before)->safe_call(e->before, args, n, &result);
  fc_any_clear(&result);
  return rc;
}

/* The number of calls that should take min_repeat_ms; grows at least by the golden ratio. */
static int64_t more(const Evaluator* e, int64_t number, int64_t took) {
  double wanted = (double)e->min_repeat_ms * 1e6 / ((double)took / (double)number) + 1, golden = (double)number * 1.618;
  double next = took > 0 && wanted > golden ? wanted : golden + 1;
  return next < 1e15 ? (int64_t)next : (int64_t)1e15;
}

static int repeat_once(const Evaluator* e, int64_t* number, void* scratch, const TVMFFIAny* args, int32_t n,
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

static void pause_ms(int64_t ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&left, NULL);
}

static void store_double(double value, uint8_t* to) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  for (int i = 0; i < 8; ++i) to[i] = (uint8_t)(bits >> (8 * i));
}

static int repeat_all(const Evaluator* e, void* scratch, const TVMFFIAny* args, int32_t n, uint8_t* out) {
  int64_t number = e->number;
  if (measured_call(e, args, n) != 0) return -1; /* warms up */
  for (int64_t i = 0; i < e->repeat; ++i) {
    double seconds;
    if (repeat_once(e, &number, scratch, args, n, &seconds) != 0) return -1;
    store_double(seconds, out + 8 * i);
    bool last = i + 1 == e->repeat;
    if (e->cooldown_ms > 0 && !last && (i + 1) % e->repeats_to_cooldown == 0) pause_ms(e->cooldown_ms);
  }
  return 0;
}

static int evaluate(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const Evaluator* e = self;
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
  Evaluator* e = self;
  fc_decref(e->function);
  if (e->before) fc_decref(e->before);
  free(e);
}

/* ---- for Python ---- */

static bool in_range(const Evaluator* e) {
  return e->number >= 1 && e->repeat >= 1 && e->repeat <= MAX_REPEAT && e->min_repeat_ms >= 0 &&
         e->min_repeat_ms <= INT32_MAX && e->zero_limit >= 0 && e->cooldown_ms >= 0 && e->repeats_to_cooldown >= 1 &&
         e->flush_bytes >= 0;
}

static TVMFFIObject* function_of(PyObject* object) {
  if (Py_IS_TYPE(object, &FcFunction_Type) && ((FcFunction*)object)->object) return ((FcFunction*)object)->object;
  PyErr_Format(PyExc_TypeError, "time_evaluator: expected a Function, got `%s`", Py_TYPE(object)->tp_name);
  return NULL;
}

static PyObject* time_evaluator(PyObject* module, PyObject* args) {
  PyObject *function, *before;
  Evaluator wanted = {0};
  (void)module;
  if (!PyArg_ParseTuple(args, "OOLLLLLLL:time_evaluator", &function, &before, &wanted.number, &wanted.repeat,
                        &wanted.min_repeat_ms, &wanted.zero_limit, &wanted.cooldown_ms, &wanted.repeats_to_cooldown,
                        &wanted.flush_bytes)) {
    return NULL;
  }
  if (!in_range(&wanted)) {
    return PyErr_Format(PyExc_ValueError,
                        "time_evaluator: number and repeat (up to %d) must be at least 1, the other "
                        "numbers not negative",
                        MAX_REPEAT);
  }
  wanted.function = function_of(function);
  if (wanted.function && before != Py_None) wanted.before = function_of(before);
  if (!wanted.function || (before != Py_None && !wanted.before)) return NULL;
  Evaluator* e = malloc(sizeof *e);
  TVMFFIObjectHandle made = NULL;
  if (!e) return PyErr_NoMemory();
  *e = wanted;
  /* Calls an exported symbol directly, as the Function does. */
  e->call = ((FcFunction*)function)->call;
  e->self = ((FcFunction*)function)->self;
  fc_incref(e->function);
  if (e->before) fc_incref(e->before);
  if (fc_function_new(e, evaluate, delete_evaluator, &made) != 0) {
    delete_evaluator(e);
    return fc_raise_slot();
  }
  PyObject* name = PyUnicode_FromFormat("time of %U", ((FcFunction*)function)->name);
  PyObject* wrapped = name ? fc_function_wrap(made, name) : NULL;
  Py_XDECREF(name);
  return wrapped;
}

PyMethodDef fc_timing_functions[] = {
    {"time_evaluator", time_evaluator, METH_VARARGS,
     "time_evaluator(function, before, number, repeat, min_repeat_ms, limit_zero_time_iterations, "
     "cooldown_interval_ms,\n               repeats_to_cooldown, cache_flush_bytes, /)\n--\n\n"
     "A Function that times `function` with its arguments, and returns seconds per call as bytes of doubles."},
    {NULL, NULL, 0, NULL}};
