/* Connections to the devices behind this server. */
#ifndef FARCALL_SERVER_POSIX_DIAL_H_
#define FARCALL_SERVER_POSIX_DIAL_H_

#include "session/channel.h"

/* Whether this server can reach the URL of a device, and may: -1 with an error. `insecure` allows plain text to other
 * machines. */
int fc_dial_check(const char* url, bool insecure);
/* Connects to such a URL, and shakes hands. The packets of a session may follow. NULL with an error. */
FcChannel* fc_dial(const char* url, int64_t deadline);

#endif /* FARCALL_SERVER_POSIX_DIAL_H_ */
