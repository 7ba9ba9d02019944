/* One session over memory. */
#include "server/bare/bare.h"

#include <stdlib.h>

#include "server/server.h"
#include "server/session.h"

__attribute__((weak)) int farcall_server_setup(void) { return 0; }

static struct {
  FcOptions options;
  FcSession session;
  FcChannel* channel;
  uint8_t* sent; /* bytes for the client that fc_bare_send has not given out yet */
  size_t sent_at, sent_end;
} here;

static const FcClient anybody = {.rights = FC_SCOPE_ALL, .token = "none"};

int fc_bare_start(void* memory, size_t bytes) {
  if (!here.options.memory) {
    fc_heap_give(memory, bytes);
    here.options = (FcOptions){.memory = bytes, .packet = bytes / 4};
    if (farcall_server_setup() != 0) return -1;
  }
  here.channel = fc_memory_channel_new();
  if (here.channel && fc_session_open(&here.session, here.channel, &here.options, &anybody, false) == 0) return 0;
  fc_bare_stop();
  return -1;
}

int fc_bare_receive(const void* bytes, size_t n) {
  if (!here.channel || fc_memory_channel_feed(here.channel, bytes, n) != 0) return -1;
  int rc = fc_session_run(&here.session);
  if (rc < 0) fc_error_drop();
  return rc < 0 ? -1 : !rc;
}

size_t fc_bare_send(void* out, size_t room) {
  if (here.sent_at == here.sent_end && here.channel) {
    free(here.sent);
    here.sent_at = here.sent_end = 0;
    here.sent = fc_memory_channel_take(here.channel, &here.sent_end);
  }
  size_t left = here.sent_end - here.sent_at, n = left < room ? left : room;
  if (n != 0) memcpy(out, here.sent + here.sent_at, n);
  here.sent_at += n;
  return n;
}

void fc_bare_stop(void) {
  if (here.session.server.ep) fc_session_close(&here.session);
  if (here.channel) fc_channel_decref(here.channel);
  free(here.sent);
  here.session.server.ep = NULL;
  here.channel = NULL;
  here.sent = NULL;
  here.sent_at = here.sent_end = 0;
}
