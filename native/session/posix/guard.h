/*
 * Maps of files that another process may shorten. The system answers an access to the missing part with SIGBUS, which
 * would end this process. A handler of this signal puts private memory in the place of the whole map instead, and notes
 * that the map is broken: the access goes on, and what it reads is as little to be trusted as before. Other causes of
 * SIGBUS reach the handler that was there before.
 */
#ifndef FARCALL_SESSION_POSIX_GUARD_H_
#define FARCALL_SESSION_POSIX_GUARD_H_

#include <stdbool.h>
#include <stddef.h>

typedef struct FcGuard FcGuard;

/* Maps the file's first `size` bytes. NULL with errno. */
FcGuard* fc_guard_map(int fd, size_t size);
void fc_guard_unmap(FcGuard* guard);
void* fc_guard_memory(const FcGuard* guard);
/* Whether private memory has taken the place of the file, in this process. */
bool fc_guard_is_broken(const FcGuard* guard);
/* Maps the file again, perhaps elsewhere. Nobody else may use the memory meanwhile. 0, or -1 with errno. */
int fc_guard_restore(FcGuard* guard, int fd);
/* Installs the handler again if it is gone: after a process was forked that has reset its signals. */
void fc_guard_arm(void);

#endif /* FARCALL_SESSION_POSIX_GUARD_H_ */
