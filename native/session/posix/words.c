/*
 * Sleeping on words that processes share: by futexes, or by looking again and again on systems without them (and with
 * FC_WORDS_POLL, which tests that). The futexes are not private, since the processes map the word at different
 * addresses.
 */
#include "session/posix/words.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && !defined(FC_WORDS_POLL)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#if defined(SYS_futex) && defined(FUTEX_WAIT)
bool fc_word_sleep(uint32_t* word, uint32_t seen, int64_t ns) {
  /* On machines with 32 bits this call takes 32-bit times, whatever the C library's timespec has. */
  long timeout[2] = {0, (long)ns};
  return syscall(SYS_futex, word, FUTEX_WAIT, fc_word_raw(seen), timeout, NULL, 0) == 0 || errno != EINTR;
}

void fc_word_wake(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }
#else
enum { LOOK_NS = 50000 };

bool fc_word_sleep(uint32_t* word, uint32_t seen, int64_t ns) {
  for (; ns > 0 && fc_word_load(word) == seen; ns -= LOOK_NS) {
    if (nanosleep(&(struct timespec){0, LOOK_NS}, NULL) < 0) return false;
  }
  return true;
}

void fc_word_wake(uint32_t* word) { (void)word; }
#endif
