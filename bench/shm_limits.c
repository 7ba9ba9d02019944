/*
 * The limits of shared memory between two processes: `shm_limits sleep|spin COUNT A B CORE`, `shm_limits copy COUNT A`.
 * For every line on stdin it measures once, and prints the seconds.
 *
 *   sleep   a request of A bytes, an answer of B bytes, COUNT times: the median round trip, when a waiting process
 *           sleeps on a futex
 *   spin    the same when it spins and yields for a while before it sleeps
 *   copy    memcpy of A bytes, COUNT times: the median time
 *
 * The peer runs on CORE. The bytes are copied into the shared memory and out of it.
 */
#include "slots.h"

#include <signal.h>
#include <sys/prctl.h>

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
  from = malloc(in + out);
  to = malloc(in + out);
  if (!from || !to) return 2;
  memset(from, 1, in + out);
  memset(to, 2, in + out);
  spins = strcmp(argv[1], "spin") == 0;
  if (!copies) start_peer(atoi(argv[5]));
  measure(count, copies ? copy : pingpong);
  return 0;
}
