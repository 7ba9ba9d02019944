/* The hash of bytes. Libraries have copies of it compiled in, so every number here is part of the ABI. */
#include "runtime/runtime.h"

/* Little endian; missing bytes are zero. */
static uint64_t read_word(const char* data, size_t size) {
  uint64_t word = 0;
  memcpy(&word, data, size);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

/* Products wrap around intentionally. */
uint64_t fc_hash_bytes(const char* data, size_t size) {
  const uint64_t multiplier = 1099511628211ULL, modulus = 2147483647ULL;
  uint64_t hash = 0;
  for (; size >= 8; data += 8, size -= 8) hash = (hash * multiplier + read_word(data, 8)) % modulus;
  return size ? (hash * multiplier + read_word(data, size)) % modulus : hash;
}
