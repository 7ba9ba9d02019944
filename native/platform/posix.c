/* The port to POSIX systems. */
#if !defined(FARCALL_BARE)
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "platform/port.h"

enum { SECOND = 1000000000 };

/* ---- locks ---- */

void fc_mutex_init(FcMutex* mutex) { pthread_mutex_init(mutex, NULL); }

/* POSIX has no static initialiser for a mutex that its owner may lock again. */
void fc_mutex_init_recursive(FcMutex* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void fc_mutex_destroy(FcMutex* mutex) { pthread_mutex_destroy(mutex); }
void fc_mutex_lock(FcMutex* mutex) { pthread_mutex_lock(mutex); }
bool fc_mutex_trylock(FcMutex* mutex) { return pthread_mutex_trylock(mutex) == 0; }
void fc_mutex_unlock(FcMutex* mutex) { pthread_mutex_unlock(mutex); }

/* pthread_mutex_timedlock() uses the wall clock; its variant for other clocks is newer than the C libraries that wheels
 * support. The longest waits overflow a 32-bit time_t, so waits are limited to three years. */
bool fc_mutex_lock_until(FcMutex* mutex, int64_t deadline) {
  const int64_t longest = SECOND * INT64_C(100000000);
  struct timespec until;
  if (fc_mutex_trylock(mutex)) return true;
  int64_t left = deadline - fc_now_ns();
  if (left <= 0) return false;
  clock_gettime(CLOCK_REALTIME, &until);
  left = (left < longest ? left : longest) + until.tv_nsec;
  until.tv_sec += (time_t)(left / SECOND);
  until.tv_nsec = (long)(left % SECOND);
  return pthread_mutex_timedlock(mutex, &until) == 0;
}

void fc_condition_init(FcCondition* condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

void fc_condition_destroy(FcCondition* condition) { pthread_cond_destroy(condition); }
void fc_condition_wait(FcCondition* condition, FcMutex* mutex) { pthread_cond_wait(condition, mutex); }

bool fc_condition_wait_until(FcCondition* condition, FcMutex* mutex, int64_t deadline) {
  struct timespec until = {(time_t)(deadline / SECOND), (long)(deadline % SECOND)};
  return pthread_cond_timedwait(condition, mutex, &until) != ETIMEDOUT;
}

void fc_condition_signal(FcCondition* condition) { pthread_cond_signal(condition); }
void fc_condition_broadcast(FcCondition* condition) { pthread_cond_broadcast(condition); }

void fc_once(FcOnce* once, void (*make)(void)) { pthread_once(once, make); }

/* ---- threads and processes ---- */

static pthread_key_t end_key;
static pthread_once_t end_key_made = PTHREAD_ONCE_INIT;

static void make_end_key(void) { pthread_key_create(&end_key, free); }

void fc_free_at_thread_end(void* memory) {
  pthread_once(&end_key_made, make_end_key);
  pthread_setspecific(end_key, memory);
}

int fc_task_start(FcTask* task, void* (*run)(void*), void* context) { return pthread_create(task, NULL, run, context); }
void fc_task_join(FcTask task) { pthread_join(task, NULL); }

uint32_t fc_forks;
static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;

static void count_fork(void) { ++fc_forks; }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }
void fc_watch_forks(void) { pthread_once(&forks_watched, watch_forks); }

/* ---- the machine ---- */

int64_t fc_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

void fc_sleep_ns(int64_t ns) {
  struct timespec left = {(time_t)(ns / SECOND), (long)(ns % SECOND)};
  nanosleep(&left, NULL);
}

/* getentropy() gives at most 256 bytes per call. */
bool fc_entropy(void* out, size_t size) {
  enum { AT_ONCE = 256 };
  for (size_t at = 0; at < size; at += AT_ONCE) {
    size_t part = size - at < AT_ONCE ? size - at : AT_ONCE;
    if (getentropy((char*)out + at, part) != 0) return false;
  }
  return true;
}

int64_t fc_memory_bytes(bool available) {
  long pages = sysconf(available ? _SC_AVPHYS_PAGES : _SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages < 0 || size < 0 ? -1 : (int64_t)pages * size;
}

/*
 * The first use of new memory costs one page fault per page, four times the cost of arithmetic on it. Large pages make
 * this cheap; numpy asks for them, too.
 */
void fc_advise_large_pages(void* data, size_t size) {
#ifdef MADV_HUGEPAGE
  const uintptr_t page = 4096;
  uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
  uintptr_t end = ((uintptr_t)data + size) & ~(page - 1);
  if (end > begin) madvise((void*)begin, end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)size;
#endif
}
#endif /* !FARCALL_BARE */
