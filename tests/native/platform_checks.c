/* Checks the contract of native/platform on the port that this program is compiled with. */
#include "platform/port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char* what, int line) {
  printf("line %d: %s\n", line, what);
  exit(1);
}

static FcMutex mutex = FC_MUTEX_INIT;
static FcOnce once = FC_ONCE_INIT;
static int made;

static void make(void) { ++made; }

static void check_locks(void) {
  FcMutex again;
  fc_mutex_lock(&mutex);
  fc_mutex_unlock(&mutex);
  CHECK(fc_mutex_trylock(&mutex));
  fc_mutex_unlock(&mutex);
  CHECK(fc_mutex_lock_until(&mutex, 1)); /* the mutex is free: an expired deadline does not matter */
  fc_mutex_unlock(&mutex);
  fc_mutex_init_recursive(&again);
  fc_mutex_lock(&again);
  CHECK(fc_mutex_trylock(&again));
  fc_mutex_unlock(&again);
  fc_mutex_unlock(&again);
  fc_mutex_destroy(&again);
  fc_once(&once, make);
  fc_once(&once, make);
  CHECK(made == 1);
}

static void check_conditions(void) {
  FcCondition condition;
  fc_condition_init(&condition);
  fc_mutex_lock(&mutex);
  CHECK(!fc_condition_wait_until(&condition, &mutex, fc_now_ns())); /* the deadline has passed */
  fc_mutex_unlock(&mutex);
  fc_condition_destroy(&condition);
}

#if defined(FARCALL_BARE)

static int64_t clock_of_program(void) { return 42; }
static bool dice_of_program(void* out, size_t size) { return memset(out, 7, size) != NULL; }

static void check_machine(void) {
  char bytes[4] = "";
  FcTask task;
  CHECK(fc_now_ns() == 1 && !fc_entropy(bytes, sizeof bytes));
  fc_bare_clock = clock_of_program;
  fc_bare_entropy = dice_of_program;
  CHECK(fc_now_ns() == 42 && fc_entropy(bytes, sizeof bytes) && bytes[3] == 7);
  CHECK(fc_task_start(&task, NULL, NULL) != 0);
  CHECK(fc_memory_bytes(false) == -1);
}

#else
#include <sys/wait.h>
#include <unistd.h>

static FC_TLS int own_number;

typedef struct {
  FcMutex gate;
  FcCondition arrived, turn;
  bool ready; /* guarded by the gate */
} Meeting;

/* The other thread holds the mutex, releases it, and signals the condition. */
static void* meet(void* context) {
  Meeting* meeting = context;
  own_number = 2;
  fc_free_at_thread_end(malloc(1));
  CHECK(!fc_mutex_trylock(&mutex));
  CHECK(!fc_mutex_lock_until(&mutex, fc_now_ns() - 1));
  CHECK(!fc_mutex_lock_until(&mutex, fc_now_ns() + 1000000));
  fc_mutex_lock(&meeting->gate);
  meeting->ready = true;
  fc_condition_broadcast(&meeting->arrived);
  fc_mutex_unlock(&meeting->gate);
  CHECK(fc_mutex_lock_until(&mutex, INT64_MAX));
  fc_condition_signal(&meeting->turn);
  fc_mutex_unlock(&mutex);
  return NULL;
}

static void check_threads(void) {
  Meeting meeting = {.ready = false};
  FcTask task;
  own_number = 1;
  fc_mutex_init(&meeting.gate);
  fc_condition_init(&meeting.arrived);
  fc_condition_init(&meeting.turn);
  fc_mutex_lock(&mutex);
  fc_mutex_lock(&meeting.gate);
  CHECK(fc_task_start(&task, meet, &meeting) == 0);
  while (!meeting.ready) fc_condition_wait(&meeting.arrived, &meeting.gate);
  fc_mutex_unlock(&meeting.gate);
  CHECK(fc_condition_wait_until(&meeting.turn, &mutex, fc_now_ns() + INT64_C(60000000000)));
  fc_mutex_unlock(&mutex);
  fc_task_join(task);
  fc_condition_destroy(&meeting.turn);
  fc_condition_destroy(&meeting.arrived);
  fc_mutex_destroy(&meeting.gate);
  CHECK(own_number == 1);
}

static void check_forks(void) {
  int status = 1;
  fc_watch_forks();
  fc_watch_forks();
  uint32_t before = fc_forks;
  pid_t child = fork();
  if (child == 0) _exit(fc_forks == before + 1 ? 0 : 1);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(fc_forks == before);
}

static void check_machine(void) {
  static char bytes[1000], others[1000];
  int64_t before = fc_now_ns();
  CHECK(before > 0 && fc_now_ns() >= before);
  CHECK(fc_entropy(bytes, sizeof bytes) && fc_entropy(others, sizeof others)); /* more than getentropy() gives */
  CHECK(memcmp(bytes, others, sizeof bytes) != 0 && memcmp(bytes + 900, others + 900, 100) != 0);
  CHECK(fc_memory_bytes(false) >= fc_memory_bytes(true));
  check_threads();
  check_forks();
}
#endif

int main(void) {
  check_locks();
  check_conditions();
  check_machine();
  puts("done");
  return 0;
}
