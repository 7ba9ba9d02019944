/*
 * The threads that all libraries of a process share: a loop whose iterations are independent of each other is split
 * over them. A program without this file (the small server) runs such loops in the thread that called.
 */
#ifndef FARCALL_RUNTIME_POOL_H_
#define FARCALL_RUNTIME_POOL_H_

#include "runtime/runtime.h"

enum { FC_MOST_THREADS = 256 };

/* Lets FarcallRuntime.parallel run loops on the pool. No thread starts before the first loop that is split. */
void fc_pool_start(void);
/* How many threads a call uses that does not say: FARCALL_THREADS, or the number of CPUs that this process may run on.
 * -1 with a ValueError when the variable is not a number of threads. */
int fc_pool_default(void);
/* FarcallRuntime.parallel. */
int fc_parallel(const FarcallLoop* loop);

#endif /* FARCALL_RUNTIME_POOL_H_ */
