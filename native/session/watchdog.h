/* What a server needs of a system to end calls that take too long. */
#ifndef FARCALL_SESSION_WATCHDOG_H_
#define FARCALL_SESSION_WATCHDOG_H_

#include <stdint.h>

/* Ends this process at a time, whatever it is doing then. */
typedef struct FcWatchdog {
  void* (*make)(void); /* NULL with an error */
  void (*set)(void* dog, int64_t at); /* as fc_now_ns() tells time; 0: not any more */
  void (*free)(void* dog);
} FcWatchdog;

#endif /* FARCALL_SESSION_WATCHDOG_H_ */
