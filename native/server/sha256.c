#include "server/sha256.h"

#include <string.h>

/* The first 32 bits of the fractions of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2). */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void mix(uint32_t state[8], const uint8_t* block) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; ++i) {
    const uint8_t* b = block + 4 * i;
    w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
  }
  for (int i = 16; i < 64; ++i) {
    uint32_t low = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t high = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; ++i) {
    uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    uint32_t first = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + choice + constants[i] + w[i];
    uint32_t second = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) + majority;
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += first;
    s[0] = first + second;
  }
  for (int i = 0; i < 8; ++i) state[i] += s[i];
}

/* The first 32 bits of the fractions of the square roots of the first 8 primes (5.3.3). */
void fc_sha256_begin(FcSha256* hash) {
  *hash = (FcSha256){
      .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void fc_sha256_add(FcSha256* hash, const void* data, size_t size) {
  const uint8_t* bytes = data;
  size_t held = (size_t)(hash->size % 64);
  hash->size += size;
  if (held != 0 && held + size >= 64) {
    memcpy(hash->block + held, bytes, 64 - held);
    mix(hash->state, hash->block);
    bytes += 64 - held;
    size -= 64 - held;
    held = 0;
  }
  for (; held == 0 && size >= 64; bytes += 64, size -= 64) mix(hash->state, bytes);
  if (size != 0) memcpy(hash->block + held, bytes, size);
}

void fc_sha256_end(FcSha256* hash, char out[65]) {
  static const char digits[] = "0123456789abcdef";
  uint8_t end[72] = {0x80};
  uint64_t bits = hash->size * 8;
  size_t fill = (size_t)(hash->size % 64 < 56 ? 56 - hash->size % 64 : 120 - hash->size % 64);
  for (int i = 0; i < 8; ++i) end[fill + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
  fc_sha256_add(hash, end, fill + 8);
  for (int i = 0; i < 64; ++i) out[i] = digits[hash->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
  out[64] = 0;
}
