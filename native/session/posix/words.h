/*
 * Words of 32 bits in memory that two processes share. In memory they are little endian, so that a guest of an emulator
 * may have another byte order than its host. Every load and store is sequentially consistent.
 */
#ifndef FARCALL_SESSION_POSIX_WORDS_H_
#define FARCALL_SESSION_POSIX_WORDS_H_

#include <stdbool.h>
#include <stdint.h>

/* A word as this machine has it in memory. */
static inline uint32_t fc_word_raw(uint32_t value) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return __builtin_bswap32(value);
#else
  return value;
#endif
}

static inline uint32_t fc_word_load(const uint32_t* word) {
  return fc_word_raw(__atomic_load_n(word, __ATOMIC_SEQ_CST));
}
static inline void fc_word_store(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, fc_word_raw(value), __ATOMIC_SEQ_CST);
}
static inline void fc_word_set_bits(uint32_t* word, uint32_t bits) {
  __atomic_fetch_or(word, fc_word_raw(bits), __ATOMIC_SEQ_CST);
}

/* Sleeps until the word is woken, at most `ns` (below one second), and not at all if it differs from `seen`. False if
 * a signal ended the sleep. */
bool fc_word_sleep(uint32_t* word, uint32_t seen, int64_t ns);
/* Wakes all processes that sleep on it. */
void fc_word_wake(uint32_t* word);

#endif /* FARCALL_SESSION_POSIX_WORDS_H_ */
