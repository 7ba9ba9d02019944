/* A growing text buffer. */
#include "runtime/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool reserve(FcText* text, size_t more) {
  if (text->failed) return false;
  if (text->room - text->size >= more) return true;
  size_t room = (text->size + more) * 2 + 64;
  char* data = realloc(text->data, room);
  text->failed = !data;
  if (!data) return false;
  text->data = data;
  text->room = room;
  return true;
}

void fc_text_add(FcText* text, const char* data, size_t size) {
  if (!size || !reserve(text, size)) return;
  memcpy(text->data + text->size, data, size);
  text->size += size;
}

void fc_text_put(FcText* text, const char* word) { fc_text_add(text, word, strlen(word)); }

void fc_text_format(FcText* text, const char* format, ...) {
  char buffer[256];
  va_list args;
  va_start(args, format);
  int size = vsnprintf(buffer, sizeof buffer, format, args);
  va_end(args);
  fc_text_add(text, buffer, size < (int)sizeof buffer ? (size_t)size : sizeof buffer - 1);
}

void fc_text_float(FcText* text, double value, const char* infinity, const char* nan) {
  char buffer[40];
  if (isnan(value)) {
    fc_text_put(text, nan);
    return;
  }
  if (isinf(value)) {
    fc_text_format(text, "%s%s", value < 0 ? "-" : "", infinity);
    return;
  }
  for (int digits = 15; digits <= 17; ++digits) {
    snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    if (strtod(buffer, NULL) == value) break;
  }
  fc_text_put(text, buffer);
  if (!strpbrk(buffer, ".e")) fc_text_put(text, ".0");
}

int fc_text_finish(FcText* text, TVMFFIAny* out) {
  int rc = text->failed ? -1 : fc_any_from_bytes(kTVMFFIStr, text->data ? text->data : "", text->size, out);
  if (text->failed) fc_error_no_memory();
  free(text->data);
  *text = (FcText){0};
  return rc;
}

void fc_text_raise(FcText* text, const char* kind) {
  text->failed ? fc_error_no_memory() : fc_error_format(kind, "%.*s", (int)text->size, text->data);
  free(text->data);
  *text = (FcText){0};
}

void fc_text_type(FcText* text, DLDataType dtype, int32_t ndim, const int64_t* shape) {
  char name[FC_NAME_MAX];
  fc_dtype_print(dtype, name);
  fc_text_format(text, "%s[", name);
  for (int32_t i = 0; i < ndim; ++i) fc_text_format(text, i ? ", %lld" : "%lld", (long long)shape[i]);
  fc_text_put(text, "]");
}

/* ---- UTF-8 ---- */

/* Size of the non-ASCII character at `p`; 0 when it is not valid. The second byte tells overlong forms, surrogates and
 * characters beyond U+10FFFF. */
static size_t character(const uint8_t* p, size_t left) {
  size_t n = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
  uint8_t least = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
  uint8_t most = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
  if (n == 0 || n > left || p[1] < least || p[1] > most) return 0;
  for (size_t i = 2; i < n; ++i) {
    if ((p[i] & 0xC0) != 0x80) return 0;
  }
  return n;
}

static bool is_ascii(const uint8_t* p) {
  uint64_t eight;
  memcpy(&eight, p, 8);
  return (eight & UINT64_C(0x8080808080808080)) == 0;
}

size_t fc_text_valid(const char* text, size_t size) {
  const uint8_t* p = (const uint8_t*)text;
  size_t at = 0;
  while (at < size) {
    if (size - at >= 8 && is_ascii(p + at)) {
      at += 8;
      continue;
    }
    size_t n = p[at] < 0x80 ? 1 : character(p + at, size - at);
    if (n == 0) return at;
    at += n;
  }
  return size;
}
