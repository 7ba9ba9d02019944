/*
 * memcpy, memmove and memset for the small server and for the code that it loads, which gets them from here. Zig's own,
 * for programs that are optimised for size, move one byte at a time.
 *
 * The copies go by blocks of 32 bytes where the processor loads words from any address. Elsewhere (Hexagon) they go by
 * aligned words, each put together from two where the addresses differ by less than a word.
 */
#include <stddef.h>
#include <stdint.h>

/* The tests compile this file under other names. */
#ifndef FC_COPY_NAME
#define FC_COPY_NAME(name) name
#endif

#if defined __x86_64__ || defined __aarch64__ || defined __s390x__ || defined __ARM_FEATURE_UNALIGNED
#define FC_COPY_ANYWHERE 1
#endif
#ifdef FC_COPY_ALIGNED /* the tests' way to the code for other machines */
#undef FC_COPY_ANYWHERE
#endif

/* Without it the compiler would replace the loops by calls of the functions that they define. */
#ifdef __clang__
#define FC_LOOP static inline __attribute__((no_builtin))
#define FC_FUNCTION __attribute__((no_builtin))
#else
#define FC_LOOP static inline __attribute__((optimize("no-tree-loop-distribute-patterns")))
#define FC_FUNCTION __attribute__((optimize("no-tree-loop-distribute-patterns")))
#endif

void* FC_COPY_NAME(memcpy)(void* restrict to, const void* restrict from, size_t n);
void* FC_COPY_NAME(memmove)(void* to, const void* from, size_t n);
void* FC_COPY_NAME(memset)(void* to, int value, size_t n);

typedef uintptr_t __attribute__((may_alias)) word;
enum { WORD = sizeof(word), BLOCK = 32 };

FC_LOOP void bytes_up(unsigned char* to, const unsigned char* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = from[i];
}

FC_LOOP void bytes_down(unsigned char* to, const unsigned char* from, size_t n) {
  while (n--) to[n] = from[n];
}

#ifdef FC_COPY_ANYWHERE

/* Four words at any address. */
typedef struct __attribute__((packed, may_alias)) block {
  uint64_t words[BLOCK / 8];
} block;

/* A block is loaded whole before it is stored, so that blocks may overlap with those that follow. */
FC_LOOP size_t blocks_up(unsigned char* to, const unsigned char* from, size_t n) {
  size_t done = 0;
  for (; n - done >= BLOCK; done += BLOCK) {
    const block* source = (const block*)(from + done);
    block* target = (block*)(to + done);
    uint64_t a = source->words[0], b = source->words[1], c = source->words[2], d = source->words[3];
    target->words[0] = a, target->words[1] = b, target->words[2] = c, target->words[3] = d;
  }
  for (; n - done >= 8; done += 8) ((block*)(to + done))->words[0] = ((const block*)(from + done))->words[0];
  return done;
}

#else

/* Copies whole aligned words; `from` lies `shift` bytes behind an aligned address, and shift is not 0. */
FC_LOOP size_t shifted_up(unsigned char* to, const unsigned char* from, size_t n, size_t shift) {
  const word* source = (const word*)(from - shift);
  word low = *source++;
  size_t done = 0;
  /* The next source word is loaded only if the copy needs a byte of it. */
  for (; n - done >= WORD; done += WORD) {
    word high = *source++;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    *(word*)(to + done) = low >> (8 * shift) | high << (8 * (WORD - shift));
#else
    *(word*)(to + done) = low << (8 * shift) | high >> (8 * (WORD - shift));
#endif
    low = high;
  }
  return done;
}

FC_LOOP size_t aligned_up(unsigned char* to, const unsigned char* from, size_t n) {
  size_t done = 0;
  for (; n - done >= 4 * WORD; done += 4 * WORD) {
    const word* source = (const word*)(from + done);
    word* target = (word*)(to + done);
    word a = source[0], b = source[1], c = source[2], d = source[3];
    target[0] = a, target[1] = b, target[2] = c, target[3] = d;
  }
  for (; n - done >= WORD; done += WORD) *(word*)(to + done) = *(const word*)(from + done);
  return done;
}

FC_LOOP size_t blocks_up(unsigned char* to, const unsigned char* from, size_t n) {
  if (n < 2 * WORD) return 0;
  size_t head = -(uintptr_t)to % WORD;
  bytes_up(to, from, head);
  to += head, from += head, n -= head;
  size_t shift = (uintptr_t)from % WORD;
  return head + (shift ? shifted_up(to, from, n, shift) : aligned_up(to, from, n));
}

#endif

FC_FUNCTION void* FC_COPY_NAME(memcpy)(void* restrict to, const void* restrict from, size_t n) {
  size_t done = blocks_up(to, from, n);
  bytes_up((unsigned char*)to + done, (const unsigned char*)from + done, n - done);
  return to;
}

FC_FUNCTION void* FC_COPY_NAME(memmove)(void* to, const void* from, size_t n) {
  uintptr_t behind = (uintptr_t)to - (uintptr_t)from;
  /* Upwards a block must not overwrite bytes that have yet to be read: those behind its own end. */
  if (behind >= n) return FC_COPY_NAME(memcpy)(to, from, n);
  bytes_down(to, from, n);
  return to;
}

FC_FUNCTION void* FC_COPY_NAME(memset)(void* to, int value, size_t n) {
  unsigned char* bytes = to;
  unsigned char byte = (unsigned char)value;
  size_t done = 0;
  for (; done < n && (uintptr_t)(bytes + done) % WORD; ++done) bytes[done] = byte;
  word pattern = (word)-1 / 255 * byte;
  for (; n - done >= 4 * WORD; done += 4 * WORD) {
    word* target = (word*)(bytes + done);
    target[0] = target[1] = target[2] = target[3] = pattern;
  }
  for (; n - done >= WORD; done += WORD) *(word*)(bytes + done) = pattern;
  for (; done < n; ++done) bytes[done] = byte;
  return to;
}
