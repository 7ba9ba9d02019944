/* Converts payloads on this machine: stores numbers in wire format, and loads numbers from it. Input: types of 4
 * bytes each, as on the wire. Output for each: 64 bytes of payload, and the numbers, lowest byte first. */
#ifdef WIRE_BARE
#include "bare.h"
#else
#include <unistd.h>
#endif
#include <farcall/wire.h>

enum { SIZE = 64 };

/* The size of the unit that a machine loads at once, which wire.h must compute. */
static unsigned width(DLDataType type) {
  unsigned bits = type.code == kDLComplex ? type.bits / 2u : type.bits;
  return bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 1;
}

typedef union Memory {
  uint8_t one[SIZE];
  uint16_t two[SIZE / 2];
  uint32_t four[SIZE / 4];
  uint64_t eight[SIZE / 8];
} Memory;

static void store(Memory* m, unsigned width) {
  for (unsigned i = 0; i < SIZE / width; ++i) {
    uint64_t number = (i + 1) * UINT64_C(0x0102030405060708);
    if (width == 8) m->eight[i] = number;
    else if (width == 4) m->four[i] = (uint32_t)number;
    else if (width == 2) m->two[i] = (uint16_t)number;
    else m->one[i] = (uint8_t)number;
  }
}

static void load(const Memory* m, unsigned width, uint8_t* out) {
  for (unsigned i = 0; i < SIZE / width; ++i) {
    uint64_t number = width == 8 ? m->eight[i] : width == 4 ? m->four[i] : width == 2 ? m->two[i] : m->one[i];
    for (unsigned k = 0; k < width; ++k) *out++ = (uint8_t)(number >> (8 * k));
  }
}

static int write_all(const uint8_t* from) { return write(1, from, SIZE) == SIZE; }

int main(void) {
  Memory memory;
  uint8_t type[4], numbers[SIZE];
  while (read(0, type, sizeof type) == sizeof type) {
    DLDataType dtype = {type[0], type[1], (uint16_t)(type[2] | type[3] << 8)};
    store(&memory, width(dtype));
    fc_wire_turn(memory.one, SIZE, dtype);
    if (!write_all(memory.one)) return 1;
    fc_wire_turn(memory.one, SIZE, dtype);
    load(&memory, width(dtype), numbers);
    if (!write_all(numbers)) return 1;
  }
  return 0;
}
