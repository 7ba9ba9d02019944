/* One session of the small server: over any channel, with a policy that the program's options decide. */
#ifndef FARCALL_SERVER_SESSION_H_
#define FARCALL_SERVER_SESSION_H_

#include "server/options.h"
#include "session/server/serve.h"

/* A function that the server itself offers to clients. Its `self` is the FcSession. */
typedef struct FcServed {
  const char* name;
  TVMFFISafeCallType call;
  int8_t naming; /* index of the argument that names the function that it returns; -1: it returns none */
} FcServed;

typedef struct FcSession FcSession;

/* How a session goes on to another server. */
typedef struct FcOnward {
  /* Serves a kInitServer with arguments: sets next_hop and next_args of the session's server. -1 with an error. */
  int (*begin)(FcSession* session, const fc_wire_packet* init);
  int (*forward)(FcServer* server, FcEndpoint* far, const fc_wire_packet* init, int32_t skip); /* as FcPolicy's */
} FcOnward;

/* To the devices of the options; server/hops.c. */
extern const FcOnward fc_session_onward;

/* What a session is served with; the program decides it before the session begins. */
typedef struct FcClient {
  uint32_t rights;             /* FC_SCOPE_* */
  const char* token;           /* the name of the client's token; "none" */
  volatile uint8_t* page;      /* the status page; NULL: nobody reads one */
  const FcWatchdog* watchdog;  /* for deadlines; NULL: none are offered */
  const FcServed* files;       /* the functions of files; NULL: the session has no folder */
  void* folder;                /* their state */
  const FcServed* devices;     /* the functions about devices behind this server; NULL: there are none */
  const FcOnward* onward;      /* NULL: sessions end here, since there are no threads for a relay */
} FcClient;

struct FcSession {
  const FcOptions* options;
  const FcClient* client;
  fc_wire_limits wire;
  FcPolicy policy;
  FcServer server;
  char limits[384]; /* as hello tells them */
};

/* Tables of such functions, one for each file that defines some; each ends with an entry without a name. */
extern const FcServed fc_served_timing[];  /* server/timing.c */
extern const FcServed fc_served_modules[]; /* server/modules.c */
extern const FcServed fc_served_containers[]; /* server/containers.c */

/* What decides about a session; its context is the FcSession. */
extern const FcPolicy fc_session_policy;

/* A registered function that clients may call; new reference, NULL: there is none. */
TVMFFIObject* fc_session_export(TVMFFIByteArray name);

/* Prepares a session. `waits`: the channel can wait for the client. -1 with an error. */
int fc_session_open(FcSession* session, FcChannel* channel, const FcOptions* options, const FcClient* client,
                    bool waits);
/* Serves what has come: 0: the client ended it in good order; 1: a channel that never waits has no more bytes; -1 with
 * an error. */
int fc_session_run(FcSession* session);
void fc_session_close(FcSession* session);

#endif /* FARCALL_SERVER_SESSION_H_ */
