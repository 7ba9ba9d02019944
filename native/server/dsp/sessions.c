#include "server/dsp/sessions.h"

#include "server/budget.h"
#include "server/dsp/bridge.h"
#include "server/server.h"
#include "server/session.h"

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

int fc_dsp_prepare(int argc, char** argv) {
  int rc = fc_options_read(argc, argv, &options);
  if (rc != FC_OPTIONS_GO_ON) return rc;
  fc_dsp_serve_by(serve_session);
  if (farcall_server_setup() != 0) return 1;
  fc_budget_limit(fc_budget_used() + options.memory);
  return FC_OPTIONS_GO_ON;
}
