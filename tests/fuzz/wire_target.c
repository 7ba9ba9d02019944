/*
 * The codec under a fuzzer. The oracle: any bytes either parse or end in one typed error; whole and in any
 * chunking they give the same events; and parsed packets encode to the bytes that were read. For the handshake:
 * a decision is final, and the reader asks for no more bytes than the limit allows.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/wire_target.c && ./a.out CORPUS
 *
 * fuzz_wire.py compiles the same file as a library, for atheris.
 */
#include <farcall/handshake.h>

#include "../wire/driver.c"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n);

static void check(int holds) {
  if (!holds) abort();
}

/* The bytes are packets, of which the last may be broken; those that parsed were encoded again. Empty packets are
 * dropped, and small text is always encoded as text: then the bytes differ, but the events are equal. */
static void check_again(const buffer* again) {
  buffer log = {0}, twice = {0};
  run_case((const uint8_t*)again->text, again->size, 0, 0, &log, &twice);
  check(equal(again, &twice));
  check(!log.text || !strstr(log.text, "failed"));
  free(log.text);
  free(twice.text);
}

/* A decision of the handshake's reader is final, whatever bytes follow. Before it, the reader asks for more bytes. */
static void check_prefixes(const uint8_t* data, size_t n) {
  fc_handshake_status decided[2] = {FC_HANDSHAKE_MORE, FC_HANDSHAKE_MORE};
  for (size_t have = 0; have <= n; ++have) {
    size_t need[2];
    fc_hello hello = {.timeout_ns = 0};
    fc_handshake_text key = {NULL, 0};
    fc_handshake_status now[2] = {fc_hello_read(data, have, 64, &need[0], &hello),
                                  fc_welcome_read(data, have, 64, &need[1], &key)};
    for (int i = 0; i < 2; ++i) {
      check(now[i] == FC_HANDSHAKE_MORE ? need[i] > have && need[i] <= 8 + 64 : need[i] <= have);
      check(decided[i] == FC_HANDSHAKE_MORE || decided[i] == now[i]);
      decided[i] = now[i];
    }
    check(hello.timeout_ns >= 0 && hello.timeout_ns < 1000000000000000000);
    check(!hello.key.data || (const uint8_t*)hello.key.data + hello.key.size <= data + have);
    check(!key.data || (const uint8_t*)key.data + key.size <= data + have);
  }
}

/* Any bytes, and the same after a valid magic number and size, which random bytes would not contain. */
static void check_handshake(const uint8_t* data, size_t n) {
  uint8_t opening[8 + 64] = {0x71, 0xf2, 0x0f, 0x00};
  size_t size = n < 64 ? n : 64;
  opening[4] = (uint8_t)size;
  memcpy(opening + 8, data, size);
  check_prefixes(data, n < 128 ? n : 128);
  check_prefixes(opening, 8 + size);
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
  check_handshake(data + 1, n - 1);
  free(whole.text);
  free(again.text);
  free(pieces.text);
  free(pieces_again.text);
  return 0;
}
