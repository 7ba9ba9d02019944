/* The interface to a timer of the system, by which a server ends calls that take too long. */
#ifndef FARCALL_SESSION_WATCHDOG_H_
#define FARCALL_SESSION_WATCHDOG_H_

#include <stdint.h>

/* Ends this process at a given time, whatever it is doing then. */
typedef struct FcWatchdog {
  void* (*make)(void); /* NULL with an error */
  void (*set)(void* dog, int64_t at); /* a time of fc_now_ns(); 0: stop */
  void (*free)(void* dog);
} FcWatchdog;

#endif /* FARCALL_SESSION_WATCHDOG_H_ */
