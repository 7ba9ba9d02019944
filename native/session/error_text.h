/* The text of exceptions on the wire, "Kind: message", with the prefix that relays put before the message. */
#ifndef FARCALL_SESSION_ERROR_TEXT_H_
#define FARCALL_SESSION_ERROR_TEXT_H_

#include <stdbool.h>

enum { FC_KIND_MAX = 48 };

/* Returns the message of such a text, and copies its kind (RemoteError when it has none). */
const char* fc_error_split_kind(const char* text, char kind[FC_KIND_MAX]);
/* For a message "hop N (URL): ...": returns N, and *rest points to "(URL): "; 0 for any other message. */
int fc_error_read_hop(const char* message, const char** rest);
/* Whether a kException of this kind ends the session. */
bool fc_error_is_last_word(const char* kind);

#endif /* FARCALL_SESSION_ERROR_TEXT_H_ */
