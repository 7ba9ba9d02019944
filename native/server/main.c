/*
 * The small server, a program without Python, without a dynamic loader and without threads of its own. Its exit status
 * is 0 after a session that the client ended in good order (--stdio), 2 for wrong options, and 1 for other failures.
 */
#include "server/posix/dial.h"
#include "server/posix/host.h"
#include "server/server.h"
#include "server/session.h"
#include "session/posix/channels.h"

__attribute__((weak)) int farcall_server_setup(void) { return 0; }

static int serve_standard_streams(const FcOptions* options) {
  FcChannel* channel = fc_channel_from_fds(0, 1);
  if (!channel) return -1;
  int rc = fc_worker_serve(channel, options, &(FcClient){.rights = FC_SCOPE_ALL, .token = "none"});
  fc_channel_decref(channel);
  return rc;
}

int main(int argc, char** argv) {
  FcOptions options;
  int status = fc_options_read(argc, argv, &options);
  if (status != FC_OPTIONS_GO_ON) return status;
  for (uint32_t i = 0; i < options.device_count; ++i) {
    if (fc_dial_check(options.devices[i].url, options.insecure) != 0) return fc_worker_complain();
  }
  if (farcall_server_setup() != 0) return fc_worker_complain();
  int rc = options.stdio ? serve_standard_streams(&options) : fc_host_run(&options);
  return rc == 0 ? 0 : fc_worker_complain();
}
