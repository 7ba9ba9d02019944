/*
 * Slots in shared memory, and how the programs that show its limits wait for them: as our channels do
 * (native/session/posix/rings.c). They learn whether spinning helps, or the peer needs this very processor.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 64, SPIN_NS = 30000, SWITCH_NS = 1200, SLOT = 4096 };

typedef struct Slot {
  uint32_t count;
  uint32_t sleeps;
  char data[SLOT];
} Slot;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int changed(const Slot* slot, uint32_t seen) { return __atomic_load_n(&slot->count, __ATOMIC_SEQ_CST) != seen; }

static int spins = 1; /* whether to spin before sleeping */
static int looks = SPINS;

static int changes_soon(Slot* slot, uint32_t seen) {
  for (int i = 0; i < looks; ++i) {
    if (changed(slot, seen)) return 1;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  int64_t start = now(), took = 0;
  int done = 0;
  while (!done && took < SPIN_NS) {
    sched_yield();
    done = changed(slot, seen);
    took = now() - start;
  }
  looks = done && took < SWITCH_NS ? SPINS : looks / 2;
  return done;
}

static void await(Slot* slot, uint32_t seen) {
  if (spins && changes_soon(slot, seen)) return;
  __atomic_store_n(&slot->sleeps, 1, __ATOMIC_SEQ_CST);
  while (!changed(slot, seen)) syscall(SYS_futex, &slot->count, FUTEX_WAIT, seen, NULL, NULL, 0);
  __atomic_store_n(&slot->sleeps, 0, __ATOMIC_SEQ_CST);
}

static void put(Slot* slot, uint32_t count, const char* data, size_t n) {
  memcpy(slot->data, data, n);
  __atomic_store_n(&slot->count, count, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&slot->sleeps, __ATOMIC_SEQ_CST)) syscall(SYS_futex, &slot->count, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void take(Slot* slot, uint32_t seen, char* data, size_t n) {
  await(slot, seen);
  memcpy(data, slot->data, n);
}

static int ascending(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

/* Calls `work` COUNT times for every line on stdin, and prints the median of its seconds. */
static void measure(uint32_t count, void (*work)(void)) {
  int64_t* times = calloc(count, sizeof *times);
  if (!times || count == 0) exit(2);
  while (getchar() != EOF) {
    for (uint32_t i = 0; i < count; ++i) {
      int64_t start = now();
      work();
      times[i] = now() - start;
    }
    qsort(times, count, sizeof *times, ascending);
    printf("%.9f\n", (double)times[count / 2] / 1e9);
    fflush(stdout);
  }
}
