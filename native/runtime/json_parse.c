/*
 * JSON to values (RFC 8259, plus NaN, Infinity and -Infinity, which Python's json module accepts).
 *
 * The text is untrusted: nesting is bounded, and each error states its line and column.
 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/text.h"

typedef struct {
  const char *begin, *at, *end;
  int depth;
} Reader;

static int read_value(Reader* r, TVMFFIAny* out);

static FC_COLD int wrong(const Reader* r, const char* what, const char* at) {
  int line = 1;
  const char* start = r->begin;
  for (const char* c = r->begin; c < at; ++c) {
    if (*c == '\n') {
      ++line;
      start = c + 1;
    }
  }
  fc_error_format("ValueError", "JSON: %s: line %d column %td (char %td)", what, line, at - start + 1, at - r->begin);
  return -1;
}

static void skip_spaces(Reader* r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) ++r->at;
}

static bool take(Reader* r, char c) {
  skip_spaces(r);
  if (r->at == r->end || *r->at != c) return false;
  ++r->at;
  return true;
}

static bool take_word(Reader* r, const char* word) {
  size_t size = strlen(word);
  if ((size_t)(r->end - r->at) < size || memcmp(r->at, word, size) != 0) return false;
  r->at += size;
  return true;
}

/* ---- numbers ---- */

static const char* skip_digits(const char* at, const char* end) {
  while (at < end && *at >= '0' && *at <= '9') ++at;
  return at;
}

/* The end of the number at r->at; NULL when there is none. `whole`: it has neither a fraction nor an exponent. */
static const char* number_end(const Reader* r, bool* whole) {
  const char *at = r->at + (*r->at == '-'), *digits = skip_digits(at, r->end);
  *whole = true;
  if (digits == at || (*at == '0' && digits > at + 1)) return NULL;
  if (digits < r->end && *digits == '.') {
    at = digits + 1;
    digits = skip_digits(at, r->end);
    *whole = false;
    if (digits == at) return NULL;
  }
  if (digits < r->end && (*digits == 'e' || *digits == 'E')) {
    at = digits + 1;
    at += at < r->end && (*at == '+' || *at == '-');
    digits = skip_digits(at, r->end);
    *whole = false;
    if (digits == at) return NULL;
  }
  return digits;
}

static int convert_number(const char* text, bool whole, TVMFFIAny* out) {
  char* end;
  errno = 0;
  long long integer = whole ? strtoll(text, &end, 10) : 0;
  *out =
      whole && !errno ? fc_any_int(integer) : (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = strtod(text, NULL)};
  return 0;
}

static int read_number(Reader* r, TVMFFIAny* out) {
  char buffer[64];
  bool whole;
  const char* end = number_end(r, &whole);
  if (!end) return wrong(r, "expected a value", r->at);
  size_t size = (size_t)(end - r->at);
  char* text = size < sizeof buffer ? buffer : malloc(size + 1);
  if (!text) {
    fc_error_no_memory();
    return -1;
  }
  memcpy(text, r->at, size);
  text[size] = 0;
  r->at = end;
  int rc = convert_number(text, whole, out);
  if (text != buffer) free(text);
  return rc;
}

/* ---- text ---- */

static int32_t read_hex(Reader* r) {
  int32_t value = 0;
  if (r->end - r->at < 4) return -1;
  for (int i = 0; i < 4; ++i) {
    char c = r->at[i];
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  r->at += 4;
  return value;
}

static void add_utf8(FcText* text, int32_t c) {
  char out[4];
  int size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = size - 1; i > 0; --i, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
  out[0] = (char)(lead[size] | c);
  fc_text_add(text, out, (size_t)size);
}

static bool read_unicode(Reader* r, FcText* text) {
  int32_t c = read_hex(r);
  if (c >= 0xD800 && c < 0xDC00 && take_word(r, "\\u")) {
    int32_t low = read_hex(r);
    if (low < 0xDC00 || low > 0xDFFF) return false;
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
  }
  if (c < 0 || (c >= 0xD800 && c < 0xE000)) return false;
  add_utf8(text, c);
  return true;
}

static bool read_escape(Reader* r, FcText* text) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (r->at == r->end) return false;
  char c = *r->at++;
  if (c == 'u') return read_unicode(r, text);
  const char* found = c ? strchr(from, c) : NULL;
  if (found) fc_text_add(text, &to[found - from], 1);
  return found != NULL;
}

/* Reads a string after its opening quote. */
static int read_text(Reader* r, TVMFFIAny* out) {
  FcText text = {0};
  const char *opening = r->at - 1, *problem = NULL, *place = opening;
  while (!problem) {
    const char* run = r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (uint8_t)*r->at >= 0x20) ++r->at;
    fc_text_add(&text, run, (size_t)(r->at - run));
    if (r->at == r->end) {
      problem = "unterminated string";
    } else if (*r->at == '"') {
      ++r->at;
      return fc_text_finish(&text, out);
    } else if (*r->at != '\\') {
      problem = "a control character in a string", place = r->at;
    } else {
      place = r->at++;
      if (!read_escape(r, &text)) problem = "invalid escape";
    }
  }
  free(text.data);
  return wrong(r, problem, place);
}

/* ---- lists and maps ---- */

static int read_items(Reader* r, TVMFFIObject* list) {
  if (take(r, ']')) return 0;
  do {
    TVMFFIAny item = fc_any_none();
    if (read_value(r, &item) != 0) return -1;
    if (fc_list_insert(list, TVMFFISeqGetCellPtr(list)->size, item) != 0) return -1;
  } while (take(r, ','));
  return take(r, ']') ? 0 : wrong(r, "expected `,` or `]`", r->at);
}

static int read_list(Reader* r, TVMFFIAny* out) {
  TVMFFIObjectHandle list = NULL, array = NULL;
  if (fc_list_new(NULL, 0, &list) != 0) return -1;
  int rc = read_items(r, list);
  TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(list);
  if (rc == 0) {
    rc = fc_array_new(cell->data, cell->size, &array);
    cell->size = 0; /* fc_array_new took ownership of the items, even on failure */
  }
  fc_decref(list);
  if (rc == 0) *out = fc_any_object(array);
  return rc;
}

static int read_item(Reader* r, TVMFFIObject* map) {
  TVMFFIAny key = fc_any_none(), value = fc_any_none();
  if (!take(r, '"')) return wrong(r, "expected a key in quotes", r->at);
  if (read_text(r, &key) != 0) return -1;
  int rc = take(r, ':') ? read_value(r, &value) : wrong(r, "expected `:`", r->at);
  if (rc == 0) return fc_map_set(map, key, value);
  fc_any_clear(&key);
  return -1;
}

static int read_items_of_map(Reader* r, TVMFFIObject* map) {
  if (take(r, '}')) return 0;
  do {
    if (read_item(r, map) != 0) return -1;
  } while (take(r, ','));
  return take(r, '}') ? 0 : wrong(r, "expected `,` or `}`", r->at);
}

static int read_map(Reader* r, TVMFFIAny* out) {
  TVMFFIObjectHandle map;
  if (fc_map_new(kTVMFFIMap, &map) != 0) return -1;
  if (read_items_of_map(r, map) != 0) {
    fc_decref(map);
    return -1;
  }
  *out = fc_any_object(map);
  return 0;
}

static int read_nested(Reader* r, int (*read)(Reader*, TVMFFIAny*), TVMFFIAny* out) {
  if (r->depth == FC_DEPTH_LIMIT) return wrong(r, "nested too deeply", r->at - 1);
  ++r->depth;
  int rc = read(r, out);
  --r->depth;
  return rc;
}

static bool read_word(Reader* r, TVMFFIAny* out) {
  static const struct {
    const char* word;
    TVMFFIAny value;
  } words[] = {{"null", {.type_index = kTVMFFINone}},
               {"true", {.type_index = kTVMFFIBool, .v_int64 = 1}},
               {"false", {.type_index = kTVMFFIBool}},
               {"NaN", {.type_index = kTVMFFIFloat, .v_float64 = __builtin_nan("")}},
               {"Infinity", {.type_index = kTVMFFIFloat, .v_float64 = __builtin_inf()}},
               {"-Infinity", {.type_index = kTVMFFIFloat, .v_float64 = -__builtin_inf()}}};
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i) {
    *out = words[i].value;
    if (take_word(r, words[i].word)) return true;
  }
  return false;
}

static int read_value(Reader* r, TVMFFIAny* out) {
  if (take(r, '"')) return read_text(r, out);
  if (take(r, '[')) return read_nested(r, read_list, out);
  if (take(r, '{')) return read_nested(r, read_map, out);
  if (r->at == r->end) return wrong(r, "expected a value", r->at);
  return read_word(r, out) ? 0 : read_number(r, out);
}

int fc_json_parse(const char* data, size_t size, TVMFFIAny* out) {
  Reader r = {data, data, data + size, 0};
  *out = fc_any_none();
  if (read_value(&r, out) != 0) return -1;
  skip_spaces(&r);
  if (r.at == r.end) return 0;
  fc_any_clear(out);
  return wrong(&r, "unexpected text after the value", r.at);
}
