/* Values to JSON. */
#include <stdlib.h>

#include "runtime/text.h"

typedef struct {
  FcText text;
  int64_t indent; /* -1: one line */
  int depth;
} Printer;

static int print(Printer* p, const TVMFFIAny* value);

static void new_line(Printer* p) {
  if (p->indent < 0) return;
  fc_text_put(&p->text, "\n");
  for (int64_t i = 0; i < p->indent * p->depth; ++i) fc_text_put(&p->text, " ");
}

static void print_char(FcText* text, char c) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char* found = c ? strchr(from, c) : NULL;
  if (found) {
    fc_text_format(text, "\\%c", to[found - from]);
  } else if ((uint8_t)c < 0x20) {
    fc_text_format(text, "\\u%04x", (unsigned)c);
  } else {
    fc_text_add(text, &c, 1);
  }
}

static int print_text(Printer* p, TVMFFIByteArray text) {
  fc_text_put(&p->text, "\"");
  for (size_t i = 0; i < text.size; ++i) print_char(&p->text, text.data[i]);
  fc_text_put(&p->text, "\"");
  return 0;
}

static int print_items(Printer* p, const TVMFFISeqCell* cell) {
  fc_text_put(&p->text, "[");
  ++p->depth;
  for (int64_t i = 0; i < cell->size; ++i) {
    if (i) fc_text_put(&p->text, ",");
    new_line(p);
    if (print(p, (const TVMFFIAny*)cell->data + i) != 0) return -1;
  }
  --p->depth;
  if (cell->size) new_line(p);
  fc_text_put(&p->text, "]");
  return 0;
}

static int print_pair(Printer* p, const FcMapCursor* cursor) {
  TVMFFIByteArray key;
  if (!fc_any_text(cursor->key, &key)) {
    fc_error_format("ValueError", "JSON: a key must be a string, got `%s`", fc_type_name(cursor->key->type_index));
    return -1;
  }
  print_text(p, key);
  fc_text_put(&p->text, p->indent < 0 ? ":" : ": ");
  return print(p, cursor->value);
}

static int print_map(Printer* p, const TVMFFIObject* map) {
  FcMapCursor cursor = {.begun = false};
  bool first = true;
  fc_text_put(&p->text, "{");
  ++p->depth;
  for (; fc_map_next(map, &cursor); first = false) {
    if (!first) fc_text_put(&p->text, ",");
    new_line(p);
    if (print_pair(p, &cursor) != 0) return -1;
  }
  --p->depth;
  if (!first) new_line(p);
  fc_text_put(&p->text, "}");
  return 0;
}

static int print_object(Printer* p, const TVMFFIAny* value) {
  int32_t t = value->type_index;
  if (p->depth == FC_DEPTH_LIMIT) {
    fc_error_set("ValueError", "JSON: nested too deeply, or a container that contains itself");
    return -1;
  }
  if (t == kTVMFFIArray || t == kTVMFFIList) return print_items(p, TVMFFISeqGetCellPtr(value->v_obj));
  if (t == kTVMFFIMap || t == kTVMFFIDict) return print_map(p, value->v_obj);
  fc_error_format("ValueError", "JSON cannot represent a value of type `%s`", fc_type_name(t));
  return -1;
}

static int print(Printer* p, const TVMFFIAny* value) {
  TVMFFIByteArray text;
  if (fc_any_text(value, &text)) return print_text(p, text);
  switch (value->type_index) {
    case kTVMFFINone: fc_text_put(&p->text, "null"); return 0;
    case kTVMFFIBool: fc_text_put(&p->text, value->v_int64 ? "true" : "false"); return 0;
    case kTVMFFIInt: fc_text_format(&p->text, "%lld", (long long)value->v_int64); return 0;
    case kTVMFFIFloat: fc_text_float(&p->text, value->v_float64, "Infinity", "NaN"); return 0;
    default: return print_object(p, value);
  }
}

int fc_json_print(const TVMFFIAny* value, int64_t indent, TVMFFIAny* out) {
  Printer p = {.indent = indent > 16 ? 16 : indent};
  *out = fc_any_none();
  if (print(&p, value) == 0) return fc_text_finish(&p.text, out);
  free(p.text.data);
  return -1;
}
