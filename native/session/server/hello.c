/* farcall.rpc.hello: the features that this server offers beyond TVM's protocol, and its limits, as JSON
 * (docs/spec/wire.md). */
#include <stdio.h>
#include <stdlib.h>

#include "session/server/serve.h"

const char* const fc_offer_names[] = {"trace", "debug",   "files",
                                      "spans", "packets", NULL}; /* in the order of the bits of FC_OFFER_* */

/* Lists "promises" and the optional features. */
static void list_features(const FcServer* server, char* out, size_t room) {
  size_t used = (size_t)snprintf(out, room, "\"promises\"");
  for (int i = 0; fc_offer_names[i]; ++i) {
    if (server->offers >> i & 1) used += (size_t)snprintf(out + used, room - used, ", \"%s\"", fc_offer_names[i]);
  }
  if (server->waits) used += (size_t)snprintf(out + used, room - used, ", \"callbacks\"");
  if (server->waits && server->policy->forward) used += (size_t)snprintf(out + used, room - used, ", \"relay\"");
  if (server->watchdog) snprintf(out + used, room - used, ", \"deadlines\"");
}

int fc_server_hello(const FcServer* server, TVMFFIAny* result) {
  char features[128];
  const char* limits = server->limits ? server->limits : "{}";
  size_t room = sizeof features + strlen(limits) + 64;
  char* text = malloc(room);
  if (!text) {
    fc_error_no_memory();
    return -1;
  }
  list_features(server, features, sizeof features);
  int size = snprintf(text, room, "{\"version\": 1, \"features\": [%s], \"limits\": %s}", features, limits);
  int rc = fc_any_from_bytes(kTVMFFIStr, text, (size_t)size, result);
  free(text);
  return rc;
}
