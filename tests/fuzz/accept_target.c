/*
 * The handshakes of the small server (server/posix/accept.c, and what its dialer reads), on any bytes that arrive in any
 * pieces. The host's other parts are stubs.
 *
 * An input: a byte (bits 0 and 1: what the host is like; the others: the size of the pieces), then what the peer sends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/posix/host.h"

static int quiet(FILE* file, const char* format, ...) { return (void)format, file == NULL; }
#define fprintf quiet
#include "server/posix/accept.c"
#undef fprintf

/* ---- the rest of the host ---- */

int fc_worker_start(FcHost* host, FcPeer* peer, int64_t now) {
  (void)host, (void)now;
  peer->state = FC_PEER_SERVED;
  return 0;
}
void fc_worker_end(FcPeer* peer, const char* format, ...) { (void)peer, (void)format; }
bool fc_worker_is_silent(const FcPeer* peer) { return peer == NULL; }
int fc_tokens_admit(FcTokens* tokens, const char* presented, size_t size, FcPeer* peer) {
  (void)tokens, (void)peer;
  return presented && size == 1 && *presented == 't' ? 0 : -1;
}
void fc_error_set(const char* kind, const char* message) { (void)kind, (void)message; }
TVMFFIObject* fc_error_take(void) { return NULL; }
void fc_decref_slow(TVMFFIObject* object, uint64_t before) { (void)object, (void)before; }
int fc_channel_send(FcChannel* c, FcPart* p, size_t n, int64_t d) { return (void)c, (void)p, (void)n, (void)d, -1; }
ptrdiff_t fc_channel_receive(FcChannel* c, void* to, size_t n, int64_t d) {
  return (void)c, (void)to, (void)n, (void)d, -1;
}
int fc_channel_finish(FcChannel* c) { return c == NULL; }
void fc_channel_decref(FcChannel* c) { (void)c; }

/* ---- the oracle ---- */

static void require(int good, const char* what) {
  if (good) return;
  fputs(what, stderr);
  abort();
}

typedef struct Outcome {
  FcPeerState state;
  uint8_t answer[64];
  ssize_t size;
} Outcome;

static Outcome shake(int mode, size_t piece, const uint8_t* data, size_t size) {
  FcOptions options = {.key = mode & 1 ? "k" : "", .sessions = 1, .insecure = true};
  FcPeer peer = {.state = FC_PEER_SHAKES, .need = 4};
  FcHost host = {.options = &options, .tokens = {.path = mode & 2 ? "t" : NULL}, .peers = &peer, .room = 1};
  Outcome outcome = {.size = 0};
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets");
  peer.fd = ends[0];
  for (size_t at = 0; at < size && peer.state == FC_PEER_SHAKES;) {
    size_t n = piece < size - at ? piece : size - at, heard;
    require(send(ends[1], data + at, n, MSG_NOSIGNAL) == (ssize_t)n, "the peer cannot send");
    do {
      heard = peer.heard;
      fc_peer_hear(&host, &peer, 0);
      require(peer.need <= sizeof peer.hello && peer.heard <= peer.need, "a claim of length was believed");
    } while (peer.state == FC_PEER_SHAKES && peer.heard != heard);
    at += n;
  }
  outcome.state = peer.state;
  outcome.size = recv(ends[1], outcome.answer, sizeof outcome.answer, MSG_DONTWAIT);
  if (outcome.size < 0) outcome.size = 0; /* nothing, or a reset: the host had not read all */
  if (peer.state != FC_PEER_NONE) fc_peer_drop(&peer);
  close(ends[1]);
  return outcome;
}

static void dial(const uint8_t* data, size_t size) {
  fc_handshake_text key;
  size_t need = 4, before = 0;
  fc_handshake_status status = FC_HANDSHAKE_MORE;
  while (status == FC_HANDSHAKE_MORE && need <= size && need > before) {
    before = need;
    status = fc_welcome_read(data, before, FC_KEY_BYTES, &need, &key);
    require(need <= 8 + FC_KEY_BYTES, "the dialer believed a claim of length");
  }
  if (status == FC_HANDSHAKE_DONE) require(key.data + key.size <= (const char*)data + size, "a key beyond the bytes");
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const uint8_t welcome[] = {0x71, 0xf2, 0x0f, 0x00};
  if (size == 0) return 0;
  Outcome whole = shake(data[0], size, data + 1, size - 1);
  Outcome pieces = shake(data[0], 1 + (data[0] >> 2), data + 1, size - 1);
  require(whole.state == pieces.state && whole.size == pieces.size, "the pieces decide");
  require(memcmp(whole.answer, pieces.answer, (size_t)whole.size) == 0, "the pieces decide");
  if (whole.state == FC_PEER_SERVED) {
    require(whole.size >= 15 && memcmp(whole.answer, welcome, 4) == 0, "a session without a welcome");
    require(memcmp(data + 1, welcome, 4) == 0, "a session without a handshake");
  }
  if (whole.state == FC_PEER_SHAKES) require(whole.size == 0, "an answer before the end");
  dial(data + 1, size - 1);
  return 0;
}
