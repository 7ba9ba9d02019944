/* A text that grows, and values as text. No Python here. */
#ifndef FARCALL_RUNTIME_TEXT_H_
#define FARCALL_RUNTIME_TEXT_H_

#include "runtime/runtime.h"

typedef struct {
  char* data;
  size_t size, room;
  bool failed; /* without memory; what is added from then on is dropped */
} FcText;

void fc_text_add(FcText* text, const char* data, size_t size);
void fc_text_put(FcText* text, const char* word);
void fc_text_format(FcText* text, const char* format, ...) FC_PRINTF(2, 3);
/* The fewest digits that read back the same; ".0" behind a whole number. `infinity` and `nan` are the words for these. */
void fc_text_float(FcText* text, double value, const char* infinity, const char* nan);
/* Where the first byte is that is not UTF-8 (RFC 3629: no surrogates, no longer forms); `size` when all are. */
size_t fc_text_valid(const char* text, size_t size);
/* As a String; frees what was made. -1 with an error without memory. */
int fc_text_finish(FcText* text, TVMFFIAny* out);

/* JSON to values: None, bool, int (float when it needs more than 64 bits), float, String, Array, Map. ValueError. */
int fc_json_parse(const char* data, size_t size, TVMFFIAny* out);
/* Values to JSON; `indent` spaces a level, or -1 for one line. ValueError for what JSON has no form for. */
int fc_json_print(const TVMFFIAny* value, int64_t indent, TVMFFIAny* out);

/* Nesting that is followed; deeper values are an error, whoever made them. */
enum { FC_DEPTH_LIMIT = 500 };

#endif /* FARCALL_RUNTIME_TEXT_H_ */
