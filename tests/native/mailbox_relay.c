/*
 * A relay between a mailbox and standard input and output, so that a test drives the far end of a mailbox's channel,
 * perhaps in an emulator. FARCALL_TEST_RELAY is `serve:PATH` or `connect:PATH`; or `sessions`, for the session of an
 * emulated DSP.
 */
#include <stdlib.h>

#include "mailbox_relay.h"
#include "runtime/runtime.h"
#include "server/dsp/bridge.h"
#include "session/posix/channels.h"
#include "session/posix/mailbox.h"

/* Only an emulated DSP has it. */
__attribute__((weak)) void fc_dsp_serve_by(FcDspServe* serve);

typedef struct Way {
  FcChannel *from, *to;
} Way;

/* Until `from` has finished; when one side breaks, both end. */
static void* move(void* context) {
  static const size_t piece = 1 << 16;
  const Way* way = context;
  uint8_t* data = malloc(piece);
  ptrdiff_t got = 1;
  while (got > 0) {
    got = fc_channel_receive(way->from, data, piece, 0);
    FcPart part = {data, got > 0 ? (size_t)got : 0};
    int rc = got > 0 ? fc_channel_send(way->to, &part, 1, 0) : got == 0 ? fc_channel_finish(way->to) : (int)got;
    if (rc < 0) {
      fc_channel_close(way->from);
      fc_channel_close(way->to);
      break;
    }
  }
  free(data);
  return NULL;
}

/* Relays the far end of a channel, which it does not keep. */
static int relay(FcChannel* far) {
  FcChannel* here = fc_channel_from_fds(0, 1);
  Way up = {far, here}, down = {here, far};
  FcTask task;
  if (!here || fc_task_start(&task, move, &down) != 0) return 1;
  move(&up);
  fc_task_join(task);
  fc_channel_decref(here);
  return 0;
}

static int relay_session(FcChannel* far, uint64_t memory) { return (void)memory, relay(far); }

void relay_sessions(void) { fc_dsp_serve_by(relay_session); }

int relay_mailbox(const char* place) {
  bool serving = strncmp(place, "serve:", 6) == 0;
  FcMailbox* box = fc_mailbox_open(strchr(place, ':') + 1, serving);
  if (!box || fc_mailbox_meet(box, 0) != 0) return 1;
  FcChannel* far = fc_mailbox_channel(box);
  if (!far || relay(far) != 0) return 1;
  fc_channel_decref(far);
  fc_mailbox_decref(box);
  return 0;
}
