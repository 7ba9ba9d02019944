/* Checks the pool of native/runtime/pool.c alone: the runtime's errors are stand-ins. */
#include "runtime/pool.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char* what, int line) {
  printf("line %d: %s\n", line, what);
  exit(1);
}

/* ---- stand-ins: an error is an object whose padding holds a number ---- */

FC_TLS FcThread fc_thread;
FarcallRuntime fc_runtime;

static void forget(void* object, int flags) {
  (void)flags;
  free(object);
}
void fc_decref_slow(TVMFFIObject* object, uint64_t old) {
  (void)old;
  object->deleter(object, 3);
}
TVMFFIObject* fc_error_take(void) {
  TVMFFIObject* error = fc_thread.error;
  fc_thread.error = NULL;
  return error;
}
void fc_error_raise(TVMFFIObject* error) { fc_thread.error = error; }
void fc_error_format(const char* kind, const char* format, ...) {
  (void)kind, (void)format;
  fc_thread.error = calloc(1, sizeof(TVMFFIObject));
  fc_object_init(fc_thread.error, 0, forget);
}

static int raise_number(int64_t number) {
  fc_error_format("ValueError", "%d", 0);
  fc_thread.error->__padding = (uint32_t)number;
  return -1;
}
static int64_t raised(void) {
  TVMFFIObject* error = fc_error_take();
  const int64_t number = error ? (int64_t)error->__padding : -1;
  if (error) fc_decref(error);
  return number;
}

/* ---- loops ---- */

enum { MOST = 5000 };

typedef struct {
  unsigned char times[MOST]; /* not atomic: ThreadSanitizer tells if two threads get one iteration */
  int64_t fails_from; /* iterations from here on fail, if their number is odd */
  int64_t grain;
  _Atomic int bodies;
  int64_t own; /* scratch of the caller */
  pthread_t caller;
} Counted;

static int count_body(void* context, int64_t begin, int64_t end, void* scratch) {
  Counted* counted = context;
  int64_t* sum = scratch ? scratch : &counted->own;
  const int64_t grain = llabs(counted->grain);
  CHECK(begin % (grain > 4 ? grain / 4 : 1) == 0 && begin < end);
  CHECK((scratch == NULL) == pthread_equal(pthread_self(), counted->caller));
  CHECK((uintptr_t)scratch % 64 == 0);
  atomic_fetch_add(&counted->bodies, 1);
  for (*sum = begin; *sum < end; ++*sum) {
    if (*sum >= counted->fails_from && *sum % 2) return raise_number(*sum);
    ++counted->times[*sum];
  }
  return 0;
}

static int count_all(Counted* counted, int64_t count, int64_t grain) {
  const FarcallLoop loop = {count, grain, sizeof(int64_t), counted, count_body};
  memset(counted->times, 0, sizeof counted->times);
  atomic_store(&counted->bodies, 0);
  counted->grain = grain;
  counted->caller = pthread_self();
  return fc_parallel(&loop);
}

static void check_loops(int threads) {
  static const int64_t counts[] = {1, 2, 3, 7, 100, 1001, MOST}, grains[] = {1, 2, 10, 999, -1, -10};
  static Counted counted = {.fails_from = INT64_MAX};
  fc_thread.threads = threads;
  for (int repeat = 0; repeat < 40; ++repeat) {
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
      for (size_t j = 0; j < sizeof grains / sizeof *grains; ++j) {
        CHECK(count_all(&counted, counts[i], grains[j]) == 0);
        for (int64_t k = 0; k < counts[i]; ++k) CHECK(counted.times[k] == 1);
        if (threads == 1) CHECK(atomic_load(&counted.bodies) == 1);
      }
    }
  }
}

/* Begins with both threads, each with its own share. */
static int meet(void* context, int64_t begin, int64_t end, void* scratch) {
  (void)begin, (void)end;
  CHECK(scratch == NULL); /* none is needed, whatever a loop before it needed */
  _Atomic int* bodies = context;
  atomic_fetch_add(bodies, 1);
  while (atomic_load(bodies) < 2) sched_yield();
  return 0;
}

static void check_parts(void) {
  fc_thread.threads = 2;
  for (int repeat = 0; repeat < 40; ++repeat) {
    _Atomic int in_parts = 0, at_once = 0;
    CHECK(fc_parallel(&(FarcallLoop){10, 1, 0, &in_parts, meet}) == 0 && in_parts == 4);
    CHECK(fc_parallel(&(FarcallLoop){10, -1, 0, &at_once, meet}) == 0 && at_once == 2);
  }
}

static int count_tasks(void) {
  DIR* folder = opendir("/proc/self/task");
  CHECK(folder);
  int count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

/* One short loop starts no thread; several do, soon after each other. */
static void check_short_loops(void) {
  static Counted counted = {.fails_from = INT64_MAX};
  const int tasks = count_tasks();
  fc_thread.threads = 2;
  CHECK(count_all(&counted, 40, 40) == 0 && atomic_load(&counted.bodies) == 1 && count_tasks() == tasks);
  for (int i = 0; i < MOST * 100 && count_tasks() == tasks; ++i) {
    for (int k = 0; k < 4; ++k) CHECK(count_all(&counted, 40, 40) == 0);
  }
  CHECK(count_tasks() > tasks);
}

/* The error is the one that a loop in order would have raised. */
static void check_errors(void) {
  static Counted counted;
  static const int64_t places[] = {0, 1, 37, 998, 999, 4000};
  fc_thread.threads = 4;
  for (int repeat = 0; repeat < 40; ++repeat) {
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
      counted.fails_from = places[i];
      CHECK(count_all(&counted, MOST, 1 + repeat % 5) == -1);
      CHECK(raised() == (places[i] | 1));
    }
  }
}

static int nested_body(void* context, int64_t begin, int64_t end, void* scratch) {
  (void)scratch;
  Counted* counted = (Counted*)context + begin;
  for (int64_t i = begin; i < end; ++i, ++counted) {
    counted->fails_from = INT64_MAX;
    CHECK(count_all(counted, 100, 1) == 0);
    CHECK(atomic_load(&counted->bodies) == 1); /* the pool has a loop already: this one is not split */
    CHECK(counted->times[0] == 1 && counted->times[99] == 1);
  }
  return 0;
}

static void check_nested(void) {
  static Counted counted[8];
  const FarcallLoop loop = {8, 1, 0, counted, nested_body};
  fc_thread.threads = 3;
  CHECK(fc_parallel(&loop) == 0);
}

static void* caller(void* context) {
  (void)context;
  Counted* counted = calloc(1, sizeof *counted);
  CHECK(counted);
  counted->fails_from = INT64_MAX;
  fc_thread.threads = 3;
  for (int repeat = 0; repeat < 300; ++repeat) {
    CHECK(count_all(counted, 1000, 3) == 0);
    for (int64_t k = 0; k < 1000; ++k) CHECK(counted->times[k] == 1);
  }
  free(counted);
  return NULL;
}

static void check_callers(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, caller, NULL) == 0);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

/* A child process has none of the threads, and makes its own. */
static void check_fork(void) {
  const pid_t child = fork();
  if (child == 0) {
    check_loops(3);
    _exit(7);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void check_setting(void) {
  setenv("FARCALL_THREADS", "many", 1);
  CHECK(fc_pool_default() == -1 && raised() == 0);
  setenv("FARCALL_THREADS", "0", 1);
  CHECK(fc_pool_default() == -1 && raised() == 0);
  setenv("FARCALL_THREADS", "", 1);
  CHECK(fc_pool_default() == (fc_cpu_count() < FC_MOST_THREADS ? fc_cpu_count() : FC_MOST_THREADS));
}

int main(int argc, char** argv) {
  (void)argv;
  fc_pool_start();
  CHECK(fc_runtime.parallel == fc_parallel);
  check_setting();
  check_short_loops();
  for (int threads = 1; threads <= 7; ++threads) check_loops(threads);
  check_parts();
  check_errors();
  check_nested();
  check_callers();
  if (argc == 1) check_fork(); /* ThreadSanitizer follows no fork of a program with threads */
  check_loops(2);
  puts("done");
  return 0;
}
