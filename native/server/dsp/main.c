/*
 * A DSP that is emulated: a program that serves sessions behind the interface farcall_dsp, whose calls come through a
 * mailbox instead of the vendor's driver. One argument: the mailbox's file. Clients come one after another; each may
 * have many sessions.
 */
#include <stdio.h>

#include "server/dsp/bridge.h"
#include "server/dsp/farcall_dsp.h"
#include "server/dsp/front.h"
#include "server/posix/host.h"
#include "server/server.h"
#include "server/session.h"
#include "session/posix/mailbox.h"

__attribute__((weak)) int farcall_server_setup(void) { return 0; }

static FcOptions options;

static int serve_session(FcChannel* channel, uint64_t memory) {
  FcOptions own = options;
  if (memory != 0 && memory < own.memory) own.memory = memory;
  FcClient client = {.rights = FC_SCOPE_ALL, .token = "none"};
  FcSession session;
  int rc = fc_session_open(&session, channel, &own, &client, true);
  if (rc != 0) return rc;
  rc = fc_session_run(&session);
  fc_session_close(&session);
  return rc;
}

static int serve_client(FcMailbox* box) {
  int rc = fc_mailbox_meet(box, 0);
  FcChannel* channel = rc == 0 ? fc_mailbox_channel(box) : NULL;
  if (!channel) return -1;
  rc = fc_front_serve(channel, farcall_dsp_skel_handle_invoke);
  if (rc != 0) fprintf(stderr, "farcall-dsp: a client's connection broke: %d\n", -rc);
  fc_channel_close(channel);
  fc_channel_decref(channel);
  return 0;
}

int main(int argc, char** argv) {
  char* none[] = {argv[0], NULL};
  if (argc != 2) return fputs("usage: farcall-dsp MAILBOX-FILE\n", stderr), 2;
  if (fc_options_read(1, none, &options) != FC_OPTIONS_GO_ON || farcall_server_setup() != 0) return 1;
  FcMailbox* box = fc_mailbox_open(argv[1], true);
  if (!box) return fc_worker_complain();
  fc_dsp_serve_by(serve_session);
  printf("farcall-dsp: serving fastrpc:%s\n", argv[1]);
  fflush(stdout);
  while (serve_client(box) == 0) continue;
  fc_mailbox_decref(box);
  return fc_worker_complain();
}
