/*
 * What the runtime and a session need from the machine: locks, time, random numbers, and a few facts about threads and
 * processes. posix.c serves every POSIX system. bare.c (FARCALL_BARE) serves programs with one thread and no operating
 * system: their locks do nothing, and the program itself supplies the clock and the random numbers.
 */
#ifndef FARCALL_PLATFORM_PORT_H_
#define FARCALL_PLATFORM_PORT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(FARCALL_BARE)
typedef struct {
  char unused;
} FcMutex;
typedef FcMutex FcCondition;
typedef FcMutex FcTask;
typedef bool FcOnce;
#define FC_MUTEX_INIT {0}
#define FC_ONCE_INIT false
#else
#include <pthread.h> /* for the types alone */
typedef pthread_mutex_t FcMutex;
typedef pthread_cond_t FcCondition;
typedef pthread_t FcTask;
typedef pthread_once_t FcOnce;
#define FC_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define FC_ONCE_INIT PTHREAD_ONCE_INIT
#endif

/*
 * A thread-local variable. With glibc it is addressed directly instead of through a call, which saves 4 ns per access;
 * other C libraries refuse that in a library that is loaded late. The space for such variables is small (1.6 KB for all
 * libraries of a process, torch's included), so allocate state that is rare or large.
 */
#if defined(FARCALL_BARE)
#define FC_TLS
#elif defined(__GLIBC__)
#define FC_TLS _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define FC_TLS _Thread_local
#endif

/* ---- locks ---- */

void fc_mutex_init(FcMutex* mutex);
/* A mutex that its owner may lock again. */
void fc_mutex_init_recursive(FcMutex* mutex);
void fc_mutex_destroy(FcMutex* mutex);
void fc_mutex_lock(FcMutex* mutex);
bool fc_mutex_trylock(FcMutex* mutex);
/* False when the deadline (a time of fc_now_ns) passes first; then the mutex is not locked. */
bool fc_mutex_lock_until(FcMutex* mutex, int64_t deadline);
void fc_mutex_unlock(FcMutex* mutex);

void fc_condition_init(FcCondition* condition);
void fc_condition_destroy(FcCondition* condition);
void fc_condition_wait(FcCondition* condition, FcMutex* mutex);
/* False when the deadline passes first. The mutex is locked again in either case. */
bool fc_condition_wait_until(FcCondition* condition, FcMutex* mutex, int64_t deadline);
void fc_condition_signal(FcCondition* condition);
void fc_condition_broadcast(FcCondition* condition);

/* Runs `make` in the first thread that calls this; other threads wait until it has returned. */
void fc_once(FcOnce* once, void (*make)(void));

/* ---- threads and processes ---- */

/* Calls free(memory) when this thread ends. Each thread may give one block. */
void fc_free_at_thread_end(void* memory);
/* Starts a thread, which must be joined or forgotten. 0, or an errno value. */
int fc_task_start(FcTask* task, void* (*run)(void*), void* context);
void fc_task_join(FcTask task);
/* Instead of joining it: the thread may outlive its owner. */
void fc_task_forget(FcTask task);
/* Lets the system deliver signals to other threads than this one. */
void fc_block_signals(void);
/* The number of CPUs that this process may run on, at least 1. */
int fc_cpu_count(void);

/*
 * The number of forks between this process and the one that first called fc_watch_forks(). An object belongs to a
 * parent process if this number has changed since the object was made. Read only.
 */
extern uint32_t fc_forks;
void fc_watch_forks(void);

/* ---- the machine ---- */

/* Nanoseconds of a monotonic clock with an arbitrary start; never 0. */
int64_t fc_now_ns(void);
/* Waits; does nothing where time stands still. */
void fc_sleep_ns(int64_t ns);
/* Fills `out` with unpredictable random bytes. False when the system has none. */
bool fc_entropy(void* out, size_t size);
/* Bytes of memory of this machine, total or available; -1 when the system does not tell. */
int64_t fc_memory_bytes(bool available);
/* Advises the system to use large pages for this memory, which its owner is about to fill. */
void fc_advise_large_pages(void* data, size_t size);

#if defined(FARCALL_BARE)
/* The program sets both before it uses anything else. Without a clock, time stands still and no deadline passes;
 * without random numbers, a server refuses to give out handles. */
extern int64_t (*fc_bare_clock)(void);
extern bool (*fc_bare_entropy)(void* out, size_t size);
#endif

#endif /* FARCALL_PLATFORM_PORT_H_ */
