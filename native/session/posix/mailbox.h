/*
 * A mailbox: one file through which a server and its clients, one after another, exchange the bytes of sessions. Both
 * sides map the file; no descriptor has to pass between them, so that one of them may run in an emulator, with another
 * byte order and other pointers. docs/spec/mailbox.md specifies the file.
 */
#ifndef FARCALL_SESSION_POSIX_MAILBOX_H_
#define FARCALL_SESSION_POSIX_MAILBOX_H_

#include "session/channel.h"

typedef struct FcMailbox FcMailbox;

/* Opens the mailbox at `path`, with one reference. Serving: makes the file if there is none, and is its only server.
 * NULL with an error. */
FcMailbox* fc_mailbox_open(const char* path, bool serving);
void fc_mailbox_decref(FcMailbox* box);
/* Removes the file, which this side serves. */
void fc_mailbox_remove(FcMailbox* box, const char* path);

/*
 * Begins the next session: the server waits for a client, a client for the server. The session before must have ended.
 * 0, or failed as a channel (session/channel.h), and for a client:
 *   -ECONNREFUSED  no server has the mailbox open
 *   -EBUSY         the deadline has passed while another client used it
 */
int fc_mailbox_meet(FcMailbox* box, int64_t deadline);
/* Whether the other side is in the session, too: it has not left it, and lives. */
bool fc_mailbox_is_shared(const FcMailbox* box);
/* Ends a wait of fc_mailbox_meet in another thread; further ones fail with -ECANCELED. */
void fc_mailbox_interrupt(FcMailbox* box);
/*
 * The channel of the session that has begun. It adds a reference. A server may fork first and let its child make the
 * channel; once the child has died, the parent can make another one, which goes on where the child's stopped. NULL with
 * an error.
 */
FcChannel* fc_mailbox_channel(FcMailbox* box);

#endif /* FARCALL_SESSION_POSIX_MAILBOX_H_ */
