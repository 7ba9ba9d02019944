/* The options of the program. */
#ifndef FARCALL_SERVER_OPTIONS_H_
#define FARCALL_SERVER_OPTIONS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FC_DEVICES_MAX = 16, FC_DEVICE_NAME_MAX = 64 };

/* A device behind this server, by the name that its owner gave it. */
typedef struct FcFarDevice {
  const char* name; /* ends before the '=' of the option */
  size_t name_size;
  const char* url;
} FcFarDevice;

typedef struct FcOptions {
  const char* listen;     /* tcp://HOST:PORT or unix:PATH */
  const char* mailbox;    /* the file of a mailbox to serve, instead; NULL: none */
  bool stdio;             /* one session on standard input and output, instead */
  const char* key;        /* that clients must name */
  const char* token_file; /* NULL: every client may do everything */
  const char* workpath;   /* the folder of the sessions' folders; NULL: no files */
  bool insecure;          /* a public address may be served */
  uint32_t sessions; /* at a time; of one token, and of one address, or user of this machine (0: no such limit) */
  uint32_t sessions_per_token;
  uint32_t sessions_per_peer;
  uint64_t memory; /* bytes of one session */
  uint64_t packet; /* largest packet, with all copies in pieces of it; 0: no such limit */
  int64_t lease_ns; /* silence between calls after which a session ends; 0: none */
  int64_t drain_ns; /* that running calls have to finish after SIGTERM or SIGHUP */
  FcFarDevice devices[FC_DEVICES_MAX]; /* to which sessions may go on; the first is hexagon:0 */
  uint32_t device_count;
} FcOptions;

/* What to do after the options were read. */
enum { FC_OPTIONS_GO_ON = -1 };

/* Reads them. FC_OPTIONS_GO_ON, or the exit status of the program, which has said why. */
int fc_options_read(int argc, char** argv, FcOptions* out);

#endif /* FARCALL_SERVER_OPTIONS_H_ */
