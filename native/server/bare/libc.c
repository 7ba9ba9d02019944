/*
 * What the server needs of a C library, for machines that have none. The rules are those of C11, 7.21 to 7.24. All are
 * weak: those of a real library have precedence.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEAK __attribute__((weak, used))

/* ---- memory and text; `volatile` keeps the compiler from making calls of these functions from their loops ---- */

WEAK void* memcpy(void* restrict to, const void* restrict from, size_t n) {
  volatile uint8_t* out = to;
  for (size_t i = 0; i < n; ++i) out[i] = ((const uint8_t*)from)[i];
  return to;
}

WEAK void* memmove(void* to, const void* from, size_t n) {
  volatile uint8_t* out = to;
  const uint8_t* in = from;
  if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, n);
  while (n-- != 0) out[n] = in[n];
  return to;
}

WEAK void* memset(void* to, int value, size_t n) {
  volatile uint8_t* out = to;
  for (size_t i = 0; i < n; ++i) out[i] = (uint8_t)value;
  return to;
}

WEAK int memcmp(const void* a, const void* b, size_t n) {
  const uint8_t *left = a, *right = b;
  for (size_t i = 0; i < n; ++i) {
    if (left[i] != right[i]) return left[i] - right[i];
  }
  return 0;
}

WEAK void* memchr(const void* in, int value, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (((const uint8_t*)in)[i] == (uint8_t)value) return (uint8_t*)in + i;
  }
  return NULL;
}

WEAK size_t strlen(const char* text) {
  size_t n = 0;
  while (*(const volatile char*)(text + n)) ++n;
  return n;
}

WEAK int strncmp(const char* a, const char* b, size_t n) {
  size_t i = 0;
  while (i < n && a[i] && a[i] == b[i]) ++i;
  return i == n ? 0 : (uint8_t)a[i] - (uint8_t)b[i];
}

WEAK int strcmp(const char* a, const char* b) { return strncmp(a, b, SIZE_MAX); }
WEAK char* strcpy(char* restrict to, const char* restrict from) { return memcpy(to, from, strlen(from) + 1); }

WEAK char* strchr(const char* text, int c) {
  for (;; ++text) {
    if (*text == (char)c) return (char*)text;
    if (!*text) return NULL;
  }
}

WEAK char* strpbrk(const char* text, const char* of) {
  for (; *text; ++text) {
    if (strchr(of, *text)) return (char*)text;
  }
  return NULL;
}

WEAK char* strndup(const char* text, size_t most) {
  const char* end = memchr(text, 0, most);
  size_t n = end ? (size_t)(end - text) : most;
  char* copy = malloc(n + 1);
  if (!copy) return NULL;
  copy[n] = 0;
  return memcpy(copy, text, n);
}

WEAK char* strdup(const char* text) { return strndup(text, strlen(text)); }

WEAK char* strerror(int number) {
  static char text[24];
  snprintf(text, sizeof text, "error %d", number);
  return text;
}

WEAK int* __errno_location(void) {
  static int number;
  return &number;
}

/* ---- numbers from text ---- */

WEAK long long strtoll(const char* restrict text, char** restrict end, int base) {
  const char* at = text;
  bool minus = *at == '-';
  unsigned long long value = 0;
  if (*at == '-' || *at == '+') ++at;
  if (base == 0) base = 10;
  for (; (*at >= '0' && *at <= '9') && *at - '0' < base; ++at) value = value * (unsigned)base + (unsigned)(*at - '0');
  if (end) *end = (char*)at;
  return minus ? -(long long)value : (long long)value;
}

WEAK long strtol(const char* restrict text, char** restrict end, int base) { return (long)strtoll(text, end, base); }

/* Right to about 15 digits, which is enough for limits and messages. */
WEAK double strtod(const char* restrict text, char** restrict end) {
  const char* at = text;
  bool minus = *at == '-', point = false;
  double value = 0, scale = 1;
  if (*at == '-' || *at == '+') ++at;
  for (; (*at >= '0' && *at <= '9') || (*at == '.' && !point); ++at) {
    if (*at == '.') {
      point = true;
      continue;
    }
    value = value * 10 + (*at - '0');
    if (point) scale *= 10;
  }
  value /= scale;
  if (*at == 'e' || *at == 'E') {
    char* behind;
    long power = strtol(at + 1, &behind, 10);
    for (; power > 0; --power) value *= 10;
    for (; power < 0; ++power) value /= 10;
    at = behind;
  }
  if (end) *end = (char*)at;
  return minus ? -value : value;
}

/* ---- text from numbers ---- */

typedef struct Out {
  char* to;
  size_t room, size; /* size: of the whole text, also where there is no room */
} Out;

static void put(Out* out, char c) {
  if (out->size + 1 < out->room) out->to[out->size] = c;
  ++out->size;
}

static void put_padded(Out* out, const char* text, size_t n, int width, bool left, char fill) {
  int pad = width > (int)n ? width - (int)n : 0;
  for (int i = 0; !left && i < pad; ++i) put(out, fill);
  for (size_t i = 0; i < n; ++i) put(out, text[i]);
  for (int i = 0; left && i < pad; ++i) put(out, ' ');
}

/* The digits at the end of `room`; their beginning. */
static char* digits(unsigned long long value, unsigned base, char* end) {
  do {
    *--end = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  return end;
}

/* As %g does, with a plain or a scientific form. */
static size_t print_double(double value, int precision, char out[40]) {
  char number[24], *at = out;
  int power = 0, wanted = precision <= 0 ? 1 : precision > 17 ? 17 : precision;
  if (value != value) return memcpy(out, "nan", 3), 3;
  if (value < 0) *at++ = '-', value = -value;
  if (value > 1.7976931348623157e308) return memcpy(at, "inf", 3), (size_t)(at - out) + 3;
  for (; value >= 10; value /= 10) ++power;
  for (; value != 0 && value < 1; value *= 10) --power;
  double scaled = value;
  for (int i = 1; i < wanted; ++i) scaled *= 10;
  char* first = digits((unsigned long long)(scaled + 0.5), 10, number + sizeof number);
  int n = (int)(number + sizeof number - first);
  if (n > wanted) ++power, --n;
  while (n > 1 && first[n - 1] == '0') --n;
  bool plain = power >= -5 && power < wanted;
  if (plain && power < 0) {
    *at++ = '0', *at++ = '.';
    for (int i = -1; i > power; --i) *at++ = '0';
  }
  for (int i = 0; i < n || (plain && i <= power); ++i) {
    *at++ = i < n ? first[i] : '0';
    if (i + 1 < n && i == (plain ? power : 0) && (plain ? power >= 0 : true)) *at++ = '.';
  }
  if (!plain) {
    char exponent[8], *e = digits((unsigned)(power < 0 ? -power : power), 10, exponent + sizeof exponent);
    *at++ = 'e', *at++ = power < 0 ? '-' : '+';
    if (e == exponent + sizeof exponent - 1) *at++ = '0';
    while (e < exponent + sizeof exponent) *at++ = *e++;
  }
  return (size_t)(at - out);
}

static unsigned long long take_integer(va_list* list, int longs, bool is_signed) {
  if (longs >= 2) return va_arg(*list, unsigned long long);
  if (longs == 1) return is_signed ? (unsigned long long)va_arg(*list, long) : va_arg(*list, unsigned long);
  return is_signed ? (unsigned long long)va_arg(*list, int) : va_arg(*list, unsigned);
}

static void put_integer(Out* out, unsigned long long value, char kind, int width, bool left, char fill) {
  char text[24];
  bool minus = (kind == 'd' || kind == 'i') && (long long)value < 0;
  char* at = digits(minus ? 0 - value : value, kind == 'x' || kind == 'p' ? 16 : 10, text + sizeof text);
  if (minus) *--at = '-';
  put_padded(out, at, (size_t)(text + sizeof text - at), width, left, fill);
}

/* Conversions d i u x p s c g f %, with width, precision, `-`, `0`, and sizes up to 64 bits. */
WEAK int vsnprintf(char* restrict to, size_t room, const char* restrict format, va_list given) {
  Out out = {to, room, 0};
  va_list list;
  va_copy(list, given);
  for (const char* at = format; *at; ++at) {
    if (*at != '%') {
      put(&out, *at);
      continue;
    }
    bool left = false;
    char fill = ' ', number[40];
    int width = 0, precision = -1, longs = 0;
    for (++at; *at == '-' || *at == '0'; ++at) *at == '-' ? (left = true) : (fill = '0');
    if (*at == '*') width = va_arg(list, int), ++at;
    else width = (int)strtol(at, (char**)&at, 10);
    if (*at == '.' && at[1] == '*') precision = va_arg(list, int), at += 2;
    else if (*at == '.') precision = (int)strtol(at + 1, (char**)&at, 10);
    for (; *at == 'l' || *at == 'z' || *at == 'j' || *at == 't'; ++at) {
      longs += *at == 'j' ? 2 : 1;
      if (*at == 'z' || *at == 't') longs = sizeof(size_t) == sizeof(long) ? 1 : 0;
    }
    if (*at == 's') {
      const char* text = va_arg(list, const char*);
      const char* end = precision >= 0 ? memchr(text, 0, (size_t)precision) : text + strlen(text);
      put_padded(&out, text, end ? (size_t)(end - text) : (size_t)precision, width, left, ' ');
    } else if (*at == 'c') {
      number[0] = (char)va_arg(list, int);
      put_padded(&out, number, 1, width, left, ' ');
    } else if (*at == 'g' || *at == 'f') {
      size_t n = print_double(va_arg(list, double), precision < 0 ? 6 : precision, number);
      put_padded(&out, number, n, width, left, ' ');
    } else if (*at == 'p') {
      put_integer(&out, (uintptr_t)va_arg(list, void*), 'p', width, left, fill);
    } else if (*at == '%' || !*at) {
      put(&out, '%');
      if (!*at) break;
    } else {
      put_integer(&out, take_integer(&list, longs, *at == 'd' || *at == 'i'), *at, width, left, fill);
    }
  }
  va_end(list);
  if (room != 0) to[out.size < room ? out.size : room - 1] = 0;
  return (int)out.size;
}

WEAK int snprintf(char* restrict to, size_t room, const char* restrict format, ...) {
  va_list list;
  va_start(list, format);
  int n = vsnprintf(to, room, format, list);
  va_end(list);
  return n;
}

/* ---- 64-bit counters of one thread, where the instruction set has no atomic ones ---- */

uint64_t counter_load(const volatile uint64_t* at, int order) __asm__("__atomic_load_8") WEAK;
uint64_t counter_add(volatile uint64_t* at, uint64_t value, int order) __asm__("__atomic_fetch_add_8") WEAK;
uint64_t counter_subtract(volatile uint64_t* at, uint64_t value, int order) __asm__("__atomic_fetch_sub_8") WEAK;
bool counter_exchange(volatile uint64_t* at, uint64_t* expected, uint64_t value, int success,
                      int failure) __asm__("__atomic_compare_exchange_8") WEAK;

uint64_t counter_load(const volatile uint64_t* at, int order) { return (void)order, *at; }

uint64_t counter_add(volatile uint64_t* at, uint64_t value, int order) {
  uint64_t before = *at;
  (void)order;
  *at = before + value;
  return before;
}

uint64_t counter_subtract(volatile uint64_t* at, uint64_t value, int order) {
  return counter_add(at, 0 - value, order);
}

bool counter_exchange(volatile uint64_t* at, uint64_t* expected, uint64_t value, int success, int failure) {
  uint64_t before = *at;
  (void)success, (void)failure;
  if (before == *expected) *at = value;
  else *expected = before;
  return *at == value && before == *expected;
}
