/* Numbers in memory, as this machine loads and stores them. */
#ifndef FARCALL_TESTS_NUMBERS_H_
#define FARCALL_TESTS_NUMBERS_H_

#include "runtime/runtime.h"

static inline size_t width(DLDataType type) {
  size_t bits = type.code == kDLComplex ? type.bits / 2u : type.bits;
  return bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 1;
}

static inline uint64_t load(const uint8_t* p, size_t width) {
  uint16_t two;
  uint32_t four;
  uint64_t eight;
  switch (width) {
    case 2: return memcpy(&two, p, 2), two;
    case 4: return memcpy(&four, p, 4), four;
    case 8: return memcpy(&eight, p, 8), eight;
    default: return *p;
  }
}

static inline void store(uint8_t* p, size_t width, uint64_t value) {
  uint16_t two = (uint16_t)value;
  uint32_t four = (uint32_t)value;
  switch (width) {
    case 2: memcpy(p, &two, 2); break;
    case 4: memcpy(p, &four, 4); break;
    case 8: memcpy(p, &value, 8); break;
    default: *p = (uint8_t)value;
  }
}

static inline uint64_t number(uint64_t i) { return (i + 1) * UINT64_C(0x0102030405060708); }

static inline void fill(const DLTensor* t) {
  uint8_t* data = (uint8_t*)t->data + t->byte_offset;
  size_t size = (size_t)fc_nbytes(t), step = width(t->dtype);
  for (size_t i = 0; i < size / step; ++i) store(data + i * step, step, number(i));
}

#endif /* FARCALL_TESTS_NUMBERS_H_ */
