/*
 * Backtraces: formats the source location that a library passes. Without printf, because raising must be fast.
 *
 */
#include "runtime/runtime.h"

void (*fc_note_callers)(FcThreadMore* more, const char* caller);

typedef struct {
  char* at;
  const char* end;
} Writer;

static void put(Writer* writer, const char* text) {
  size_t size = strlen(text), room = (size_t)(writer->end - writer->at);
  if (size > room) size = room;
  memcpy(writer->at, text, size);
  writer->at += size;
}

static void put_number(Writer* writer, unsigned value) {
  char digits[16];
  char* at = digits + sizeof digits;
  *--at = 0;
  do {
    *--at = (char)('0' + value % 10);
    value /= 10;
  } while (value);
  put(writer, at);
}

const TVMFFIByteArray* TVMFFIBacktrace(const char* filename, int lineno, const char* func, int cross_ffi_boundary) {
  static const TVMFFIByteArray none = {"", 0};
  FcThreadMore* more = filename ? fc_thread_more() : NULL;
  (void)cross_ffi_boundary;
  if (!more) return &none;
  Writer writer = {more->backtrace, more->backtrace + sizeof more->backtrace - 1};
  put(&writer, "  File \"");
  put(&writer, filename);
  put(&writer, "\", line ");
  put_number(&writer, lineno < 0 ? 0 : (unsigned)lineno);
  put(&writer, ", in ");
  put(&writer, func ? func : "?");
  put(&writer, "\n");
  *writer.at = 0;
  more->backtrace_bytes = (TVMFFIByteArray){more->backtrace, (size_t)(writer.at - more->backtrace)};
  if (fc_note_callers) fc_note_callers(more, __builtin_return_address(0));
  return &more->backtrace_bytes;
}
