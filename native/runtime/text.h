/* A growing text buffer, and values as text. */
#ifndef FARCALL_RUNTIME_TEXT_H_
#define FARCALL_RUNTIME_TEXT_H_

#include "runtime/runtime.h"

typedef struct {
  char* data;
  size_t size, room;
  bool failed; /* out of memory: further additions are dropped */
} FcText;

void fc_text_add(FcText* text, const char* data, size_t size);
void fc_text_put(FcText* text, const char* word);
void fc_text_format(FcText* text, const char* format, ...) FC_PRINTF(2, 3);
/* Adds the fewest digits that read back as the same value; ".0" for whole numbers. `infinity`, `nan`: their names. */
void fc_text_float(FcText* text, double value, const char* infinity, const char* nan);
/* Offset of the first invalid UTF-8 byte (RFC 3629: no surrogates, no overlong forms); `size` when all are valid. */
size_t fc_text_valid(const char* text, size_t size);
/* Makes a String, and frees the buffer. -1 with an error when out of memory. */
int fc_text_finish(FcText* text, TVMFFIAny* out);
/* Raises an error with the text as its message, and frees the buffer. */
void fc_text_raise(FcText* text, const char* kind);
/* Adds a type: "float32[2, 3]". */
void fc_text_type(FcText* text, DLDataType dtype, int32_t ndim, const int64_t* shape);

/* JSON to values: None, bool, int (float when it needs more than 64 bits), float, String, Array, Map. ValueError. */
int fc_json_parse(const char* data, size_t size, TVMFFIAny* out);
/* Values to JSON; `indent` spaces per level, or -1 for one line. ValueError for values that JSON cannot represent. */
int fc_json_print(const TVMFFIAny* value, int64_t indent, TVMFFIAny* out);

/* Maximum nesting of values; deeper ones are an error. */
enum { FC_DEPTH_LIMIT = 500 };

#endif /* FARCALL_RUNTIME_TEXT_H_ */
