/*
 * What memory that two processes share allows: `shm_limits sleep|spin COUNT A B`, `shm_limits copy COUNT A`.
 *
 *   sleep   a request of A bytes, an answer of B bytes, COUNT times: the median round trip, when a side that waits
 *           sleeps on a futex
 *   spin    the same when it spins and lets others run for a while before it sleeps
 *   copy    memcpy of A bytes, COUNT times: the median time
 *
 * The answer is nanoseconds, on stdout. The bytes are copied into the shared memory, and out of it.
 */
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 64, SPIN_NS = 30000, SLOT = 4096 };

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

static int changed(Slot* slot, uint32_t seen) { return __atomic_load_n(&slot->count, __ATOMIC_SEQ_CST) != seen; }

static int spins;

static int changes_soon(Slot* slot, uint32_t seen) {
  for (int i = 0; i < SPINS; ++i) {
    if (changed(slot, seen)) return 1;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (int64_t until = now() + SPIN_NS; now() < until;) {
    sched_yield();
    if (changed(slot, seen)) return 1;
  }
  return 0;
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

static void pingpong(int64_t* times, uint32_t count, size_t in, size_t out) {
  static char data[SLOT];
  Slot* slots = mmap(NULL, 2 * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (slots == MAP_FAILED || in > SLOT || out > SLOT) exit(1);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0; i < count; ++i) {
      take(&slots[0], i, data, in);
      put(&slots[1], i + 1, data, out);
    }
    _exit(0);
  }
  for (uint32_t i = 0; i < count; ++i) {
    int64_t start = now();
    put(&slots[0], i + 1, data, in);
    take(&slots[1], i, data, out);
    times[i] = now() - start;
  }
}

static void copy(int64_t* times, uint32_t count, size_t n) {
  char *from = malloc(n), *to = malloc(n);
  if (!from || !to) exit(1);
  memset(from, 1, n);
  memset(to, 2, n);
  for (uint32_t i = 0; i < count; ++i) {
    int64_t start = now();
    memcpy(to, from, n);
    __asm__ volatile("" : : "r"(to) : "memory");
    times[i] = now() - start;
  }
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  uint32_t count = (uint32_t)strtoul(argv[2], NULL, 10);
  size_t a = strtoull(argv[3], NULL, 10), b = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
  int64_t* times = calloc(count, sizeof *times);
  if (!times || count == 0) return 2;
  spins = strcmp(argv[1], "spin") == 0;
  if (strcmp(argv[1], "copy") == 0) copy(times, count, a);
  else pingpong(times, count, a, b);
  qsort(times, count, sizeof *times, ascending);
  printf("%lld\n", (long long)times[count / 2]);
  return 0;
}
