/* "Kind: message", the form in which exceptions travel, and what servers on the way put in front of the message. */
#ifndef FARCALL_SESSION_ERROR_TEXT_H_
#define FARCALL_SESSION_ERROR_TEXT_H_

#include <stdbool.h>

enum { FC_KIND_MAX = 48 };

/* The message of such a text, and its kind (RemoteError when it has none). */
const char* fc_error_split_kind(const char* text, char kind[FC_KIND_MAX]);
/* Of a message "hop N (URL): ...": N, and in *rest where "(URL): " begins; 0 when it does not begin so. */
int fc_error_read_hop(const char* message, const char** rest);
/* Whether a kException of this kind ends the session. */
bool fc_error_is_last_word(const char* kind);

#endif /* FARCALL_SESSION_ERROR_TEXT_H_ */
