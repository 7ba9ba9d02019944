/*
 * The limits of shared memory between two processes: `shm_limits sleep|spin COUNT A B CORE`, `shm_limits copy COUNT A`.
 * For every line on stdin it measures once, and prints the seconds.
 *
 *   sleep   a request of A bytes, an answer of B bytes, COUNT times: the median round trip, when a waiting process
 *           sleeps on a futex
 *   spin    the same when it spins and yields for a while before it sleeps
 *   copy    memcpy of A bytes, COUNT times: the median time
 *
 * The peer runs on CORE. The bytes are copied into the shared memory and out of it. Processes spin as our channel does
 * (native/session/posix/channel_shm.c): they learn whether spinning helps, or the peer needs this very processor.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

static int spins;
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

static Slot* slots;
static char *from, *to;
static size_t in, out;
static uint32_t turn;

static void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) < 0) exit(1);
}

static void start_peer(int core) {
  slots = mmap(NULL, 2 * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (slots == MAP_FAILED || in > SLOT || out > SLOT) exit(1);
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  stay_on(core);
  for (;; ++turn) {
    take(&slots[0], turn, to, in);
    put(&slots[1], turn + 1, from, out);
  }
}

static void pingpong(void) {
  put(&slots[0], turn + 1, from, in);
  take(&slots[1], turn, to, out);
  ++turn;
}

static void copy(void) {
  memcpy(to, from, in);
  __asm__ volatile("" : : "r"(to) : "memory");
}

int main(int argc, char** argv) {
  bool copies = argc == 4 && strcmp(argv[1], "copy") == 0;
  if (!copies && argc != 6) return 2;
  uint32_t count = (uint32_t)strtoul(argv[2], NULL, 10);
  in = strtoull(argv[3], NULL, 10);
  out = copies ? 0 : strtoull(argv[4], NULL, 10);
  int64_t* times = calloc(count, sizeof *times);
  from = malloc(in + out);
  to = malloc(in + out);
  if (!times || !from || !to || count == 0) return 2;
  memset(from, 1, in + out);
  memset(to, 2, in + out);
  spins = strcmp(argv[1], "spin") == 0;
  if (!copies) start_peer(atoi(argv[5]));
  while (getchar() != EOF) {
    for (uint32_t i = 0; i < count; ++i) {
      int64_t start = now();
      if (copies) copy();
      else pingpong();
      times[i] = now() - start;
    }
    qsort(times, count, sizeof *times, ascending);
    printf("%.9f\n", (double)times[count / 2] / 1e9);
    fflush(stdout);
  }
  return 0;
}
