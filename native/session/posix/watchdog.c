#include "session/posix/watchdog.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/runtime.h"

static void* make(void) {
  struct sigevent kill = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
  timer_t* timer = malloc(sizeof *timer);
  if (!timer) {
    fc_error_no_memory();
    return NULL;
  }
  if (timer_create(CLOCK_MONOTONIC, &kill, timer) == 0) return timer;
  fc_error_format("RuntimeError", "no timer for the deadlines of calls: %s", strerror(errno));
  free(timer);
  return NULL;
}

static void set(void* timer, int64_t at) {
  struct itimerspec when = {.it_value = {(time_t)(at / 1000000000), (long)(at % 1000000000)}};
  timer_settime(*(timer_t*)timer, TIMER_ABSTIME, &when, NULL);
}

static void end(void* timer) {
  timer_delete(*(timer_t*)timer);
  free(timer);
}

const FcWatchdog fc_timer_watchdog = {make, set, end};
