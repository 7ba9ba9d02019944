/* The CPUs of a process, and threads that nobody joins, for programs that compute on several threads. */
#include "platform/port.h"

#if defined(FARCALL_BARE)
void fc_task_forget(FcTask task) { (void)task; }
void fc_block_signals(void) {}
int fc_cpu_count(void) { return 1; }
#else
#include <sched.h>
#include <signal.h>
#include <unistd.h>

void fc_task_forget(FcTask task) { pthread_detach(task); }

void fc_block_signals(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
}

int fc_cpu_count(void) {
#ifdef CPU_COUNT
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int)count : 1;
}
#endif
