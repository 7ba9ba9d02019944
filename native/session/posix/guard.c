/* Maps of files that another process may shorten; see guard.h. */
#include "session/posix/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A node of the list that the handler reads, at any time and in any thread: so nodes are never freed, but used again. */
struct FcGuard {
  FcGuard* next;
  char* memory; /* NULL: the node is free */
  size_t size;
  bool taken, broken;
};

static FcGuard* guards;
static struct sigaction before; /* the handler that was there before */

/* ---- the handler ---- */

static FcGuard* guard_of(const char* address) {
  for (FcGuard* guard = __atomic_load_n(&guards, __ATOMIC_ACQUIRE); guard; guard = guard->next) {
    const char* memory = __atomic_load_n(&guard->memory, __ATOMIC_ACQUIRE);
    if (memory && address >= memory && address < memory + guard->size) return guard;
  }
  return NULL;
}

static bool replace(FcGuard* guard) {
  int error = errno, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  bool done = mmap(guard->memory, guard->size, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
  if (done) __atomic_store_n(&guard->broken, true, __ATOMIC_RELEASE);
  errno = error;
  return done;
}

static void on_bus_error(int number, siginfo_t* about, void* context) {
  FcGuard* guard = guard_of(about->si_addr);
  if (guard && replace(guard)) return;
  if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, about, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
  else signal(number, SIG_DFL); /* the access fails again, and ends the process */
}

void fc_guard_arm(void) {
  struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK}, now;
  if (sigaction(SIGBUS, NULL, &now) != 0) return;
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error) return;
  before = now;
  sigemptyset(&action.sa_mask);
  action.sa_sigaction = on_bus_error;
  sigaction(SIGBUS, &action, NULL);
}

/* ---- the list ---- */

static FcGuard* take_node(void) {
  for (FcGuard* guard = __atomic_load_n(&guards, __ATOMIC_ACQUIRE); guard; guard = guard->next) {
    bool taken = false;
    if (__atomic_compare_exchange_n(&guard->taken, &taken, true, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      return guard;
    }
  }
  FcGuard* guard = calloc(1, sizeof *guard);
  if (!guard) return NULL;
  guard->taken = true;
  guard->next = __atomic_load_n(&guards, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&guards, &guard->next, guard, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
  return guard;
}

static void give_node(FcGuard* guard) {
  __atomic_store_n(&guard->memory, NULL, __ATOMIC_RELEASE);
  __atomic_store_n(&guard->taken, false, __ATOMIC_RELEASE);
}

FcGuard* fc_guard_map(int fd, size_t size) {
  FcGuard* guard = take_node();
  if (!guard) return NULL;
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    int error = errno;
    give_node(guard);
    errno = error;
    return NULL;
  }
  guard->size = size;
  guard->broken = false;
  __atomic_store_n(&guard->memory, memory, __ATOMIC_RELEASE);
  fc_guard_arm();
  return guard;
}

void fc_guard_unmap(FcGuard* guard) {
  munmap(guard->memory, guard->size);
  give_node(guard);
}

void* fc_guard_memory(const FcGuard* guard) { return guard->memory; }

bool fc_guard_is_broken(const FcGuard* guard) { return __atomic_load_n(&guard->broken, __ATOMIC_ACQUIRE); }

int fc_guard_restore(FcGuard* guard, int fd) {
  int rights = PROT_READ | PROT_WRITE;
  void* memory = mmap(guard->memory, guard->size, rights, MAP_SHARED | MAP_FIXED, fd, 0);
  if (memory == MAP_FAILED) { /* QEMU cannot do that for a guest with larger pages than its own */
    memory = mmap(NULL, guard->size, rights, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return -1;
    munmap(guard->memory, guard->size);
    __atomic_store_n(&guard->memory, memory, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&guard->broken, false, __ATOMIC_RELEASE);
  return 0;
}
