/* The checksum of artifacts. Lanes are independent, so that a processor multiplies for several of them at once. */
#include "runtime/checksum.h"

#include <string.h>

static const uint64_t multiplier = 0x9E3779B97F4A7C15u;

/* Little endian. */
static uint64_t read_word(const unsigned char* data) {
  uint64_t word;
  memcpy(&word, data, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

/* One to one in either argument, so that a change of one word always changes the sum. The shift brings high bits down:
   products alone would only carry them up, and two changed signs would cancel. */
static uint64_t mix(uint64_t lane, uint64_t word) {
  lane = (lane ^ word) * multiplier;
  return lane ^ lane >> 32;
}

static void add_blocks(FcChecksum* sum, const unsigned char* data, size_t count) {
  uint64_t lanes[FC_CHECKSUM_LANES];
  memcpy(lanes, sum->lanes, sizeof lanes);
  for (; count > 0; --count, data += FC_CHECKSUM_BLOCK) {
    for (size_t i = 0; i < FC_CHECKSUM_LANES; ++i) lanes[i] = mix(lanes[i], read_word(data + 8 * i));
  }
  memcpy(sum->lanes, lanes, sizeof lanes);
}

void fc_checksum_begin(FcChecksum* sum) {
  for (uint64_t i = 0; i < FC_CHECKSUM_LANES; ++i) sum->lanes[i] = (i + 1) * multiplier;
  sum->size = 0;
}

void fc_checksum_add(FcChecksum* sum, const unsigned char* data, size_t size) {
  if (size == 0) return; /* `data` may be NULL */
  const size_t held = sum->size % FC_CHECKSUM_BLOCK;
  sum->size += size;
  if (held) {
    const size_t part = size < FC_CHECKSUM_BLOCK - held ? size : FC_CHECKSUM_BLOCK - held;
    memcpy(sum->rest + held, data, part);
    if (held + part < FC_CHECKSUM_BLOCK) return;
    add_blocks(sum, sum->rest, 1);
    data += part, size -= part;
  }
  const size_t blocks = size / FC_CHECKSUM_BLOCK;
  add_blocks(sum, data, blocks);
  memcpy(sum->rest, data + blocks * FC_CHECKSUM_BLOCK, size % FC_CHECKSUM_BLOCK);
}

void fc_checksum_end(FcChecksum* sum, unsigned char out[FC_CHECKSUM_SIZE]) {
  const size_t held = sum->size % FC_CHECKSUM_BLOCK;
  if (held) {
    memset(sum->rest + held, 0, FC_CHECKSUM_BLOCK - held);
    add_blocks(sum, sum->rest, 1);
  }
  for (int half = 0; half < 2; ++half) {
    uint64_t all = mix((uint64_t)half, sum->size);
    for (int i = 0; i < FC_CHECKSUM_LANES; ++i) all = mix(all, sum->lanes[i]);
    for (int i = 0; i < 8; ++i) out[8 * half + i] = (unsigned char)(all >> 8 * i);
  }
}
