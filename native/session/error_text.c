/* The text of a kException: its kind, the hop that it comes from, and whether the session goes on. */
#include "session/error_text.h"

#include <stdlib.h>
#include <string.h>

/* A kind has the form of a class name. */
const char* fc_error_split_kind(const char* text, char kind[FC_KIND_MAX]) {
  size_t n = 0;
  while (n < FC_KIND_MAX - 1 && (text[n] == '_' || (text[n] >= '0' && text[n] <= '9') ||
                                 (text[n] >= 'A' && text[n] <= 'Z') || (text[n] >= 'a' && text[n] <= 'z'))) {
    ++n;
  }
  bool named = n > 0 && text[0] >= 'A' && text[0] <= 'Z' && text[n] == ':' && text[n + 1] == ' ';
  if (!named) {
    strcpy(kind, "RemoteError");
    return text;
  }
  memcpy(kind, text, n);
  kind[n] = 0;
  return text + n + 2;
}

bool fc_error_is_last_word(const char* kind) {
  static const char* const kinds[] = {"RPCSessionTimeoutError", "WorkerCrashedError", "ConnectionLostError"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (strcmp(kind, kinds[i]) == 0) return true;
  }
  return false;
}

int fc_error_read_hop(const char* message, const char** rest) {
  if (strncmp(message, "hop ", 4) != 0) return 0;
  char* end;
  long number = strtol(message + 4, &end, 10);
  while (*end == ' ') ++end;
  if (number < 1 || number >= 1000 || *end != '(') return 0;
  *rest = end;
  return (int)number;
}
