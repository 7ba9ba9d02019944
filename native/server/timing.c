/* runtime.RPCTimeEvaluator and the traces of a session: measurements by this machine's own clock. */
#include <stdlib.h>

#include "runtime/evaluator.h"
#include "runtime/module.h"
#include "runtime/text.h"
#include "runtime/trace.h"
#include "server/session.h"

/* ---- the time evaluator ---- */

/* A function of the module, or one that the server exports. A new reference; NULL with an error. */
static TVMFFIObject* function_of(const TVMFFIAny* module, TVMFFIByteArray name) {
  TVMFFIObject* function = NULL;
  if (module && module->type_index == kTVMFFIModule) {
    if (fc_module_get(module->v_obj, name.data, name.size, true, &function) != 0) return NULL;
  } else {
    function = fc_session_export(name);
  }
  if (!function) fc_error_format("ValueError", "there is no function `%.*s`", (int)name.size, name.data);
  return function;
}

/* The arguments: module or None, name, device type and index, seven numbers, and the function to call before. */
enum { NUMBERS = 4, BEFORE = 11, ARGUMENTS = 12 };

static int read_numbers(const TVMFFIAny* args, int32_t n, FcEvaluator* out) {
  int64_t* const places[] = {&out->number,     &out->repeat,      &out->min_repeat_ms,
                             &out->zero_limit, &out->cooldown_ms, &out->repeats_to_cooldown,
                             &out->flush_bytes};
  *out = (FcEvaluator){.zero_limit = 100, .repeats_to_cooldown = 1};
  for (int32_t i = 0; i < BEFORE - NUMBERS && NUMBERS + i < n; ++i) {
    if (args[NUMBERS + i].type_index != kTVMFFIInt) return -1;
    *places[i] = args[NUMBERS + i].v_int64;
  }
  return 0;
}

static int time_evaluator(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcEvaluator wanted;
  TVMFFIByteArray name, before = {"", 0};
  TVMFFIObjectHandle made = NULL;
  (void)self;
  if (n < NUMBERS + 3 || n > ARGUMENTS || !fc_any_text(&args[1], &name) || read_numbers(args, n, &wanted) != 0 ||
      args[2].type_index != kTVMFFIInt || args[3].type_index != kTVMFFIInt) {
    fc_error_set("TypeError", "a time evaluator takes a module or None, a name, and numbers");
    return -1;
  }
  if (fc_device_check((DLDevice){(DLDeviceType)args[2].v_int64, (int32_t)args[3].v_int64}) != 0) return -1;
  if (n > BEFORE) fc_any_text(&args[BEFORE], &before);
  wanted.function = function_of(&args[0], name);
  wanted.before = wanted.function && before.size ? function_of(NULL, before) : NULL;
  int rc = !wanted.function || (before.size && !wanted.before) ? -1 : fc_evaluator_new(&wanted, &made);
  if (wanted.function) fc_decref(wanted.function);
  if (wanted.before) fc_decref(wanted.before);
  if (rc == 0) *result = fc_any_object(made);
  return rc;
}

/* ---- clocks and traces ---- */

static int read_clock(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n;
  *result = fc_any_int(fc_now_ns());
  return 0;
}

static int trace_begin(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  fc_trace_start();
  return 0;
}

static int print_text(FcText* text, const char* word) {
  TVMFFIAny any = {.type_index = kTVMFFIRawStr, .v_c_str = word}, printed = fc_any_none();
  TVMFFIByteArray json;
  if (fc_json_print(&any, -1, &printed) != 0) return -1;
  if (fc_any_text(&printed, &json)) fc_text_add(text, json.data, json.size);
  fc_any_clear(&printed);
  return 0;
}

/* [hop, category, name, start, duration, bytes, arguments] */
static int print_span(FcText* text, const FcTraceSpan* span) {
  static const char own[] = "farcall.rpc.";
  if (strncmp(span->name, own, sizeof own - 1) == 0) return 0;
  fc_text_put(text, text->size > 1 ? ", [1, \"" : "[1, \"");
  fc_text_put(text, span->category);
  fc_text_put(text, "\", ");
  if (print_text(text, span->name) != 0) return -1;
  fc_text_format(text, ", %lld, %lld, %llu, ", (long long)span->start, (long long)(span->end - span->start),
                 (unsigned long long)span->bytes);
  if (print_text(text, span->args) != 0) return -1;
  fc_text_put(text, "]");
  return 0;
}

static int trace_take(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  size_t count, dropped;
  FcTraceSpan* spans = fc_trace_stop(&count, &dropped);
  FcText text = {0};
  int rc = 0;
  (void)self, (void)args, (void)n;
  fc_text_put(&text, "[");
  for (size_t i = 0; i < count && rc == 0; ++i) rc = print_span(&text, &spans[i]);
  fc_text_put(&text, "]");
  free(spans);
  if (rc == 0 && !text.failed) rc = fc_any_from_bytes(kTVMFFIBytes, text.data, text.size, result);
  else if (rc == 0) rc = (fc_error_no_memory(), -1);
  free(text.data);
  return rc;
}

const FcServed fc_served_timing[] = {{"runtime.RPCTimeEvaluator", time_evaluator, -1},
                                     {"farcall.rpc.clock", read_clock, -1},
                                     {"farcall.rpc.trace_begin", trace_begin, -1},
                                     {"farcall.rpc.trace_take", trace_take, -1},
                                     {NULL, NULL, 0}};
