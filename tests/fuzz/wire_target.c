/*
 * The codec under a fuzzer. The oracle: any bytes either parse or end in one typed error; whole and in any
 * chunking they give the same events; and what was parsed encodes to what was read.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/wire_target.c && ./a.out CORPUS
 *
 * fuzz_wire.py compiles the same file as a library, for atheris.
 */
#include "../wire/driver.c"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n);

static void check(int holds) {
  if (!holds) abort();
}

/* The bytes are packets of which the last may be broken: those that parsed were encoded again. Empty packets
 * mean nothing, and small text is encoded as text: then the bytes differ, but their events do not. */
static void check_again(const buffer* again) {
  buffer log = {0}, twice = {0};
  run_case((const uint8_t*)again->text, again->size, 0, 0, &log, &twice);
  check(equal(again, &twice));
  check(!log.text || !strstr(log.text, "failed"));
  free(log.text);
  free(twice.text);
}

/* The first byte chooses the chunking. */
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  if (n == 0) return 0;
  uint64_t chunk = 1 + (data[0] & 63);
  buffer whole = {0}, again = {0}, pieces = {0}, pieces_again = {0};
  run_case(data + 1, n - 1, 0, 0, &whole, &again);
  run_case(data + 1, n - 1, chunk, data[0] >> 6 & 1, &pieces, &pieces_again);
  check(equal(&whole, &pieces) && equal(&again, &pieces_again));
  if (again.size != 0) check_again(&again);
  free(whole.text);
  free(again.text);
  free(pieces.text);
  free(pieces_again.text);
  return 0;
}
