/* The numbers of sessions that Python code uses. */
#include <farcall/handshake.h>

#include "python/constants.h"
#include "python/rpc/remote.h"
#include "session/server/serve.h"

static const FcNumber packets[] = {{"init_server", FC_WIRE_INIT_SERVER},
                                   {"exception", FC_WIRE_EXCEPTION},
                                   {"get_global_func", FC_WIRE_GET_GLOBAL_FUNC},
                                   {"set_device", FC_WIRE_DEV_SET_DEVICE},
                                   {"get_attr", FC_WIRE_DEV_GET_ATTR},
                                   {"stream_sync", FC_WIRE_DEV_STREAM_SYNC},
                                   {"create_stream", FC_WIRE_DEV_CREATE_STREAM},
                                   {"free_stream", FC_WIRE_DEV_FREE_STREAM},
                                   {"set_stream", FC_WIRE_DEV_SET_STREAM},
                                   {"get_current_stream", FC_WIRE_DEV_GET_CURRENT_STREAM},
                                   {NULL, 0}};

static const FcNumber peer[] = {{"farcall", FC_PEER_FARCALL},
                                {"callbacks", FC_PEER_CALLBACKS},
                                {"promises", FC_PEER_PROMISES},
                                {"deadlines", FC_PEER_DEADLINES},
                                {"behind_tvm", FC_PEER_BEHIND_TVM},
                                {"packets", FC_PEER_PACKETS},
                                {NULL, 0}};

static const FcNumber handshake[] = {{"magic", FC_HANDSHAKE_MAGIC},
                                     {"duplicate", FC_HANDSHAKE_DUPLICATE},
                                     {"mismatch", FC_HANDSHAKE_MISMATCH},
                                     {NULL, 0}};

static const FcNumber page[] = {{"sending", FC_PAGE_SENDING},
                                {"calling", FC_PAGE_CALLING},
                                {"name_size", FC_PAGE_NAME_SIZE},
                                {"name", FC_PAGE_NAME},
                                {"name_max", FC_PAGE_NAME_MAX},
                                {"received", FC_PAGE_RECEIVED},
                                {"sent", FC_PAGE_SENT},
                                {"calls", FC_PAGE_CALLS},
                                {"due", FC_PAGE_DUE},
                                {"given", FC_PAGE_GIVEN},
                                {"listens", FC_PAGE_LISTENS},
                                {"begun", FC_PAGE_BEGUN},
                                {"working", FC_PAGE_WORKING},
                                {"words_size", FC_PAGE_WORDS_SIZE},
                                {"words", FC_PAGE_WORDS},
                                {"words_max", FC_PAGE_WORDS_MAX},
                                {"size", FC_PAGE_SIZE},
                                {NULL, 0}};

/* Adds the bits of a mask under names in order; NULL ends the names. */
static int add_bits(PyObject* module, const char* name, const char* const* names) {
  FcNumber bits[33] = {{NULL, 0}};
  for (int i = 0; i < 32 && names[i]; ++i) bits[i] = (FcNumber){names[i], 1LL << i};
  return fc_add_numbers(module, name, bits);
}

int fc_session_constants(PyObject* module) {
  if (fc_add_numbers(module, "PACKETS", packets) != 0 || fc_add_numbers(module, "PEER", peer) != 0) return -1;
  if (fc_add_numbers(module, "PAGE", page) != 0 || fc_add_numbers(module, "HANDSHAKE", handshake) != 0) return -1;
  if (add_bits(module, "SCOPES", fc_scope_names) != 0 || add_bits(module, "OFFERS", fc_offer_names) != 0) return -1;
  return PyModule_AddStringConstant(module, "PROTOCOL_VERSION", FC_WIRE_VERSION);
}
