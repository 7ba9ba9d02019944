/* The port to machines without an operating system, for programs with one thread: no other thread can hold a lock. */
#if defined(FARCALL_BARE)
#include "platform/port.h"

#include <errno.h>

void fc_mutex_init(FcMutex* mutex) { (void)mutex; }
void fc_mutex_init_recursive(FcMutex* mutex) { (void)mutex; }
void fc_mutex_destroy(FcMutex* mutex) { (void)mutex; }
void fc_mutex_lock(FcMutex* mutex) { (void)mutex; }
void fc_mutex_unlock(FcMutex* mutex) { (void)mutex; }

bool fc_mutex_trylock(FcMutex* mutex) {
  (void)mutex;
  return true;
}

bool fc_mutex_lock_until(FcMutex* mutex, int64_t deadline) {
  (void)mutex, (void)deadline;
  return true;
}

/* No other thread could change the condition, so waits return at once; callers check it after each wait. */
void fc_condition_init(FcCondition* condition) { (void)condition; }
void fc_condition_destroy(FcCondition* condition) { (void)condition; }
void fc_condition_wait(FcCondition* condition, FcMutex* mutex) { (void)condition, (void)mutex; }
void fc_condition_signal(FcCondition* condition) { (void)condition; }
void fc_condition_broadcast(FcCondition* condition) { (void)condition; }

bool fc_condition_wait_until(FcCondition* condition, FcMutex* mutex, int64_t deadline) {
  (void)condition, (void)mutex, (void)deadline;
  return false;
}

/* Set before `make` runs, since `make` may call this function again. */
void fc_once(FcOnce* once, void (*make)(void)) {
  if (*once) return;
  *once = true;
  make();
}

void fc_free_at_thread_end(void* memory) { (void)memory; }

int fc_task_start(FcTask* task, void* (*run)(void*), void* context) {
  (void)task, (void)run, (void)context;
  return ENOSYS;
}

void fc_task_join(FcTask task) { (void)task; }

uint32_t fc_forks;
void fc_watch_forks(void) {}

int64_t (*fc_bare_clock)(void);
bool (*fc_bare_entropy)(void* out, size_t size);

int64_t fc_now_ns(void) { return fc_bare_clock ? fc_bare_clock() : 1; }

void fc_sleep_ns(int64_t ns) {
  for (int64_t end = fc_now_ns() + ns; fc_bare_clock && fc_now_ns() < end;) continue;
}

bool fc_entropy(void* out, size_t size) { return fc_bare_entropy && fc_bare_entropy(out, size); }

int64_t fc_memory_bytes(bool available) { return (void)available, -1; }

void fc_advise_large_pages(void* data, size_t size) { (void)data, (void)size; }
#endif /* FARCALL_BARE */
