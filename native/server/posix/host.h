/*
 * The host: it listens, reads the handshakes of all peers at once, and forks a worker for each session. It runs no code
 * of a client, so nothing that happens in a session ends it.
 */
#ifndef FARCALL_SERVER_POSIX_HOST_H_
#define FARCALL_SERVER_POSIX_HOST_H_

#include <stddef.h>
#include <sys/types.h>

#include "server/session.h"
#include "session/posix/mailbox.h"

enum { FC_KEY_BYTES = 1024, FC_TOKEN_NAME = 64, FC_WORDS = 512, FC_SOURCE = 64, FC_HANDSHAKE_SECONDS = 5 };
/* Of a worker's status page: when its client wants the session to end, as `until` below. The worker of a mailbox writes
 * it, because it reads the handshake itself. */
enum { FC_PAGE_UNTIL = 3072 };

typedef enum FcPeerState {
  FC_PEER_NONE,   /* the slot is free */
  FC_PEER_SHAKES, /* its handshake is being read */
  FC_PEER_SERVED, /* a worker serves it */
  FC_PEER_LEAVES  /* it was told why it must leave, and gets a moment to read that */
} FcPeerState;

/* One connection. The host keeps its descriptor during a session, too, since a worker that dies can tell nothing. */
typedef struct FcPeer {
  FcPeerState state;
  int fd;
  FcMailbox* box;     /* NULL: the connection is the descriptor */
  FcChannel* channel; /* of the mailbox: in the worker, and in the host once the worker has ended */
  uint32_t listed;    /* its place in the list that the host polls; 0: none */
  int64_t until; /* when the state must have ended; 0: whenever. Of a session, as its client asked for */
  /* the handshake */
  size_t heard, need;
  uint8_t hello[8 + FC_KEY_BYTES];
  /* the session */
  pid_t pid;
  volatile uint8_t* page;
  char source[FC_SOURCE];       /* the address, or the user of this machine, that its sessions count for */
  uint32_t rights;              /* FC_SCOPE_* */
  char token[FC_TOKEN_NAME + 1]; /* "": none */
  int64_t given;                /* when the worker got the connection */
  bool deaf;                    /* its bytes cannot be read any more, though it sends */
  int64_t left;                 /* when the client hung up; 0: it is there */
  int64_t changed;              /* when the next two last changed */
  uint64_t received, calls;
  bool looked;      /* whether the next line is of this session */
  uint64_t seen[3]; /* what fc_worker_end_idle() read last */
  char words[FC_WORDS]; /* why the host ended the session, for the client; "": it did not */
} FcPeer;

/* A token file, as it was last read. */
typedef struct FcTokens {
  const char* path;
  int64_t stamp[4];
  TVMFFIAny content;
} FcTokens;

typedef struct FcHost {
  const FcOptions* options;
  FcTokens tokens;
  FcMailbox* box; /* that is served in place of a listening socket; NULL: none */
  int listener;
  const char* socket; /* the file of a Unix socket; else NULL */
  bool local;         /* only this machine reaches it */
  FcPeer* peers;
  uint32_t room;
} FcHost;

/* Listens, and serves until a signal ends the program. 0; -1 with an error: it cannot listen. */
int fc_host_run(const FcOptions* options);

/* ---- server/posix/listen.c ---- */

/* Opens the listening socket and prints its URL. -1 with an error. */
int fc_host_listen(FcHost* host);
/* The other end of a connection: its address; of a Unix socket, the user. */
void fc_host_source(int fd, char out[FC_SOURCE]);

/* ---- server/posix/accept.c ---- */

/* Reads what has come of a peer's handshake. When it is complete, begins a session or says why there is none. */
void fc_peer_hear(FcHost* host, FcPeer* peer, int64_t now);
/* Tells the peer why it must leave (NULL: it knows) as the reply to its request, and gives it time to read that. */
void fc_peer_leave(FcPeer* peer, const char* words, int64_t now);
void fc_peer_drop(FcPeer* peer);
/* Drops a peer whose time is over, with a reset. One that still sends, and waits for room, might not notice a plain end
 * for minutes: the system's pauses between looks for room grow. */
void fc_peer_cut(FcPeer* peer);

/* ---- server/posix/worker.c ---- */

/* Writes the error of the thread's slot to stderr. Returns the exit status of the program, 1. */
int fc_worker_complain(void);
/* Serves one session in this process, within the budget of the options, and with a folder for its files. */
int fc_worker_serve(FcChannel* channel, const FcOptions* options, FcClient* client);
/* Forks the worker of a session. -1 with an error. */
int fc_worker_start(FcHost* host, FcPeer* peer, int64_t now);
/* Ends the session if it is idle: no request is carried out or on its way, and nothing has changed since the last call
 * of this function. So no client need wonder whether its call ran. */
void fc_worker_end_idle(FcPeer* peer, const char* words);
/* Ends a session; the first reason stays. */
void fc_worker_end(FcPeer* peer, const char* format, ...) FC_PRINTF(2, 3);
/* After the worker has ended: tells the client why. */
void fc_worker_bury(const FcHost* host, FcPeer* peer, int status, int64_t now);
/* Ends the session if its time is over. */
void fc_worker_check(const FcHost* host, FcPeer* peer, int64_t now);
/* The first bytes of a session have not come for so long that it may be ended for another one. */
bool fc_worker_is_silent(const FcPeer* peer);

/* ---- server/posix/tokens.c ---- */

/* At the start: says on stderr why the file is of no use. The server listens, since the file is read again later. */
void fc_tokens_look(FcTokens* tokens);
/* What the token allows that a client presents (NULL: it has none). -1 with an error, the words for the client. */
int fc_tokens_admit(FcTokens* tokens, const char* presented, size_t size, FcPeer* peer);
/* Why a session that was admitted must end: "was revoked", "has expired"; NULL: it may go on. */
const char* fc_tokens_objection(FcTokens* tokens, const FcPeer* peer);

#endif /* FARCALL_SERVER_POSIX_HOST_H_ */
