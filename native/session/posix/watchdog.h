/* The watchdog for POSIX systems: a kernel timer that sends SIGKILL to this process. */
#ifndef FARCALL_SESSION_POSIX_WATCHDOG_H_
#define FARCALL_SESSION_POSIX_WATCHDOG_H_

#include "session/watchdog.h"

extern const FcWatchdog fc_timer_watchdog;

#endif /* FARCALL_SESSION_POSIX_WATCHDOG_H_ */
