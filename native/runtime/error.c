/* Errors: the object, and each thread's slot for the raised error. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/runtime.h"

typedef struct {
  TVMFFIObject header;
  TVMFFIErrorCell cell;
  char* grown_backtrace; /* owned; replaces the backtrace that follows the object, once update_backtrace has run */
} ErrorObj;

static void error_delete(void* self, int flags) {
  ErrorObj* error = self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    if (error->cell.cause_chain) fc_decref(error->cell.cause_chain);
    if (error->cell.extra_context) fc_decref(error->cell.extra_context);
    free(error->grown_backtrace);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

static void update_backtrace(TVMFFIObjectHandle self, const TVMFFIByteArray* text, int32_t mode) {
  ErrorObj* error = self;
  size_t keep = mode == kTVMFFIBacktraceUpdateModeAppend ? error->cell.backtrace.size : 0;
  char* grown = malloc(keep + text->size + 1);
  if (!grown) return; /* a shorter backtrace is better than another error */
  if (keep) memcpy(grown, error->cell.backtrace.data, keep);
  if (text->size) memcpy(grown + keep, text->data, text->size);
  grown[keep + text->size] = 0;
  free(error->grown_backtrace);
  error->grown_backtrace = grown;
  error->cell.backtrace = (TVMFFIByteArray){grown, keep + text->size};
}

static TVMFFIByteArray put(char** at, TVMFFIByteArray text) {
  TVMFFIByteArray copy = {*at, text.size};
  if (text.size) memcpy(*at, text.data, text.size);
  (*at)[text.size] = 0;
  *at += text.size + 1;
  return copy;
}

TVMFFIObject* fc_error_new(TVMFFIByteArray kind, TVMFFIByteArray message, TVMFFIByteArray backtrace,
                           TVMFFIObject* cause, TVMFFIObject* extra_context) {
  ErrorObj* error = malloc(sizeof *error + kind.size + message.size + backtrace.size + 3);
  if (!error) {
    if (cause) fc_decref(cause);
    if (extra_context) fc_decref(extra_context);
    return NULL;
  }
  fc_object_init(&error->header, kTVMFFIError, error_delete);
  char* at = (char*)(error + 1);
  error->cell.kind = put(&at, kind);
  error->cell.message = put(&at, message);
  error->cell.backtrace = put(&at, backtrace);
  error->cell.update_backtrace = update_backtrace;
  error->cell.cause_chain = cause;
  error->cell.extra_context = extra_context;
  error->grown_backtrace = NULL;
  return &error->header;
}

void fc_error_raise(TVMFFIObject* error) {
  TVMFFIObject* old = fc_thread.error;
  fc_thread.error = error;
  fc_thread.error_mirrored = false;
  if (old) fc_decref(old);
}

/* Never freed: its reference count starts at 1. */
static ErrorObj no_memory = {
    .header = {.combined_ref_count = 0x100000001ULL, .type_index = kTVMFFIError},
    .cell = {.kind = {"MemoryError", 11}, .message = {"out of memory", 13}, .backtrace = {"", 0}},
};

void fc_error_no_memory(void) {
  fc_incref(&no_memory);
  no_memory.cell.update_backtrace = update_backtrace;
  fc_error_raise(&no_memory.header);
}

bool fc_error_says_already_set(TVMFFIByteArray kind) {
  static const char name[] = "EnvErrorAlreadySet";
  return kind.size == sizeof name - 1 && memcmp(kind.data, name, kind.size) == 0;
}

/* EnvErrorAlreadySet refers to the exception in the slot (see TVMFFIEnvCheckSignals), so it does not replace that. */
static bool points_at_slot(TVMFFIByteArray kind) { return fc_thread.error && fc_error_says_already_set(kind); }

static void raise_text(const char* kind, TVMFFIByteArray message) {
  TVMFFIByteArray none = {"", 0};
  if (points_at_slot((TVMFFIByteArray){kind, strlen(kind)})) return;
  TVMFFIObject* error = fc_error_new((TVMFFIByteArray){kind, strlen(kind)}, message, none, NULL, NULL);
  error ? fc_error_raise(error) : fc_error_no_memory();
}

void fc_error_set(const char* kind, const char* message) {
  raise_text(kind ? kind : "RuntimeError", (TVMFFIByteArray){message, message ? strlen(message) : 0});
}

void fc_error_format(const char* kind, const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fc_error_set(kind, text);
}

void fc_error_set_by_library(const char* kind, const char* message) {
  fc_error_set(kind, message);
  fc_foreign_error_mirror();
}

int fc_registration_failed(void) {
  if (!fc_thread.loading) {
    fc_foreign_error_mirror();
    return -1;
  }
  TVMFFIObject* error = fc_thread.error;
  fc_thread.error = NULL;
  if (fc_thread.load_error && error) fc_decref(error);
  if (!fc_thread.load_error) fc_thread.load_error = error;
  return 0;
}

/* Errors that libraries may see are set in both runtimes. So an unmirrored error of this runtime is the newest, and an
 * error in the other's slot is stale. A mirrored error is also in the other's slot, unless it was handled there. */
TVMFFIObject* fc_error_take(void) {
  TVMFFIObject* error = fc_thread.error;
  TVMFFIObject* other = fc_foreign_error_take();
  bool newest = !other || (error && !fc_thread.error_mirrored);
  TVMFFIObject* stale = newest ? other : error;
  fc_thread.error = NULL;
  if (stale) fc_decref(stale);
  return newest ? error : other;
}

void fc_error_drop(void) {
  TVMFFIObject* error = fc_error_take();
  if (error) fc_decref(error);
}

/* The same error with its place before the message; NULL: there is no memory. */
static TVMFFIObject* placed(const TVMFFIErrorCell* cell, const char* place) {
  char text[1024];
  snprintf(text, sizeof text, "%s: %.*s", place, (int)cell->message.size, cell->message.data);
  if (cell->cause_chain) fc_incref(cell->cause_chain);
  if (cell->extra_context) fc_incref(cell->extra_context);
  return fc_error_new(cell->kind, (TVMFFIByteArray){text, strlen(text)}, cell->backtrace, cell->cause_chain,
                      cell->extra_context);
}

/* A host raises its own exception again, without the message: its place goes to its backtrace, too, as a line. */
static void trace_place(TVMFFIObject* error, const char* place) {
  char line[256];
  int size = snprintf(line, sizeof line, "  File \"<%s>\", line 1, in call\n", place);
  TVMFFIByteArray text = {line, size < (int)sizeof line ? (size_t)size : sizeof line - 1};
  TVMFFIErrorGetCellPtr(error)->update_backtrace(error, &text, kTVMFFIBacktraceUpdateModeAppend);
}

void fc_error_add_place(const char* place) {
  TVMFFIObject* error = fc_error_take();
  const TVMFFIErrorCell* cell = error ? TVMFFIErrorGetCellPtr(error) : NULL;
  if (!error) {
    fc_error_format("RuntimeError", "%s: it failed without an error; let it set one", place);
  } else if (fc_error_says_already_set(cell->kind) || error == &no_memory.header) {
    fc_error_raise(error);
  } else {
    TVMFFIObject* named = placed(cell, place);
    if (cell->extra_context) trace_place(named ? named : error, place);
    fc_error_raise(named ? named : error);
    if (named) fc_decref(error);
  }
  fc_foreign_error_mirror();
}

/* ---- the exported names ---- */

void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* result) { *result = fc_error_take(); }

void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) {
  if (!points_at_slot(TVMFFIErrorGetCellPtr(error)->kind)) {
    fc_incref(error);
    fc_error_raise(error);
  }
  fc_foreign_error_mirror();
}

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) { fc_error_set_by_library(kind, message); }

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** message_parts, int32_t num_parts) {
  size_t size = 0;
  for (int32_t i = 0; i < num_parts; ++i) size += message_parts[i] ? strlen(message_parts[i]) : 0;
  char* text = malloc(size + 1);
  if (!text) {
    fc_error_no_memory();
    return;
  }
  char* at = text;
  for (int32_t i = 0; i < num_parts; ++i) {
    size_t part = message_parts[i] ? strlen(message_parts[i]) : 0;
    if (part) memcpy(at, message_parts[i], part);
    at += part;
  }
  raise_text(kind ? kind : "RuntimeError", (TVMFFIByteArray){text, size});
  fc_foreign_error_mirror();
  free(text);
}

int TVMFFIErrorCreateWithCauseAndExtraContext(const TVMFFIByteArray* kind, const TVMFFIByteArray* message,
                                              const TVMFFIByteArray* backtrace, TVMFFIObjectHandle cause_chain,
                                              TVMFFIObjectHandle extra_context, TVMFFIObjectHandle* out) {
  if (cause_chain) fc_incref(cause_chain);
  if (extra_context) fc_incref(extra_context);
  *out = fc_error_new(*kind, *message, *backtrace, cause_chain, extra_context);
  if (*out) return 0;
  fc_error_no_memory();
  return -1;
}

int TVMFFIErrorCreate(const TVMFFIByteArray* kind, const TVMFFIByteArray* message, const TVMFFIByteArray* backtrace,
                      TVMFFIObjectHandle* out) {
  return TVMFFIErrorCreateWithCauseAndExtraContext(kind, message, backtrace, NULL, NULL, out);
}

/* ---- errors of signal handlers ---- */

static int no_host(void) { return 0; }
int (*fc_check_signals)(void) = no_host;
