/* One session of the small server: over any channel, with a policy that the program's options decide. */
#ifndef FARCALL_SERVER_SESSION_H_
#define FARCALL_SERVER_SESSION_H_

#include "server/options.h"
#include "session/server/serve.h"

typedef struct FcSession {
  const FcOptions* options;
  FcServer server;
} FcSession;

/* A function that the server itself offers to clients. Its `self` is the FcSession. */
typedef struct FcServed {
  const char* name;
  TVMFFISafeCallType call;
  int8_t naming; /* index of the argument that names the function that it returns; -1: it returns none */
} FcServed;

/* Tables of them, one for each file that defines some; each ends with an entry without a name. */
extern const FcServed fc_served_registry[]; /* server/policy.c */

/* The limits of every session. */
extern const fc_wire_limits fc_session_limits;
/* What decides about a session; its context is the FcSession. */
extern const FcPolicy fc_session_policy;

/*
 * Serves one session to its end. `rights` are FC_SCOPE_*, `token` is the name of the client's token, and `page` the
 * status page (NULL: nobody reads one). 0: the client ended it in good order; -1 with an error.
 */
int fc_session_serve(FcChannel* channel, const FcOptions* options, uint32_t rights, const char* token,
                     volatile uint8_t* page);

/* Writes the error of the thread's slot to stderr. Returns the exit status of the program, 1. */
int fc_session_complain(void);

#endif /* FARCALL_SERVER_SESSION_H_ */
