/*
 * A DSP that is emulated: a program that serves sessions behind the interface farcall_dsp, whose calls come through a
 * mailbox instead of the vendor's driver. Clients come one after another; each may have many sessions, which share the
 * memory that --memory gives.
 */
#include <stdio.h>
#include <string.h>

#include "server/dsp/farcall_dsp.h"
#include "server/dsp/front.h"
#include "server/dsp/sessions.h"
#include "server/options.h"
#include "server/posix/host.h"
#include "session/posix/mailbox.h"

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
  bool valid = argc == 2 || (argc == 4 && strcmp(argv[1], "--memory") == 0);
  if (!valid) return fputs("usage: farcall-dsp [--memory SIZE] MAILBOX-FILE\n", stderr), 2;
  const char* file = argv[argc - 1];
  int rc = fc_dsp_prepare(argc - 1, argv);
  if (rc != FC_OPTIONS_GO_ON) return rc;
  FcMailbox* box = fc_mailbox_open(file, true);
  if (!box) return fc_worker_complain();
  printf("farcall-dsp: serving fastrpc:%s\n", file);
  fflush(stdout);
  while (serve_client(box) == 0) continue;
  fc_mailbox_decref(box);
  return fc_worker_complain();
}
