/* Handshakes: the first bytes of a connection, which decide whether a session begins. */
#include <errno.h>
#include <farcall/handshake.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/posix/host.h"

enum { LINGER_NS = 1000000000 };

static void store(uint8_t* to, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) to[i] = (uint8_t)(value >> (8 * i));
}

/* What does not fit into the connection's buffer is lost: a peer that takes nothing is not waited for. */
static void tell(const FcPeer* peer, const void* data, size_t size) {
  FcPart part = {(void*)data, size};
  if (peer->channel) fc_channel_send(peer->channel, &part, 1, FC_AT_ONCE);
  else if (send(peer->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
}

/* ---- leaving ---- */

/* A kException with the text. */
static void tell_exception(const FcPeer* peer, const char* words) {
  uint8_t packet[28 + FC_WORDS];
  size_t size = strlen(words);
  if (size > FC_WORDS) size = FC_WORDS;
  store(packet, 20 + size, 8);
  store(packet + 8, FC_WIRE_EXCEPTION, 4);
  store(packet + 12, 1, 4);
  store(packet + 16, kTVMFFIRawStr, 4);
  store(packet + 20, size, 8);
  memcpy(packet + 28, words, size);
  tell(peer, packet, 28 + size);
}

void fc_peer_drop(FcPeer* peer) {
  if (peer->channel) fc_channel_decref(peer->channel);
  else close(peer->fd);
  peer->channel = NULL;
  peer->state = FC_PEER_NONE;
}

void fc_peer_cut(FcPeer* peer) {
  setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
  fc_peer_drop(peer);
}

void fc_peer_leave(FcPeer* peer, const char* words, int64_t now) {
  if (words) tell_exception(peer, words);
  if (peer->channel) fc_channel_finish(peer->channel);
  else shutdown(peer->fd, SHUT_WR);
  peer->state = FC_PEER_LEAVES;
  peer->until = now + LINGER_NS;
}

/* ---- the handshake ---- */

static void refuse(FcPeer* peer, const char* why, const char* words, int64_t now) {
  fprintf(stderr, "farcall-server: refused a client: %s\n", why);
  fc_peer_leave(peer, words, now);
}

/* Takes the error of the thread's slot as words for the client. */
static void refuse_with_error(FcPeer* peer, int64_t now) {
  TVMFFIObject* error = fc_error_take();
  const TVMFFIErrorCell* cell = error ? TVMFFIErrorGetCellPtr(error) : NULL;
  char words[FC_WORDS] = "ConnectionLostError: the server has no memory left";
  if (cell) {
    snprintf(words, sizeof words, "%.*s: %.*s", (int)cell->kind.size, cell->kind.data, (int)cell->message.size,
             cell->message.data);
    fc_decref(error);
  }
  refuse(peer, words, words, now);
}

/* Compares all bytes, so that the time does not tell how many were right. */
static bool is_key(fc_handshake_text named, const char* key) {
  size_t size = strlen(key);
  uint8_t differ = named.size != size;
  for (size_t i = 0; i < named.size && i < size; ++i) differ |= (uint8_t)(named.data[i] ^ key[i]);
  return differ == 0;
}

static void welcome(const FcPeer* peer, const char* key) {
  uint8_t answer[8 + FC_HANDSHAKE_PREFIX_SIZE + FC_KEY_BYTES];
  size_t size = strlen(key) < FC_KEY_BYTES ? strlen(key) : FC_KEY_BYTES;
  tell(peer, answer, fc_welcome_write(answer, sizeof answer, (fc_handshake_text){key, size}));
}

static int admit(FcHost* host, FcPeer* peer, fc_handshake_text token) {
  peer->rights = FC_SCOPE_ALL;
  peer->token[0] = 0;
  if (token.data && !host->local && !host->options->insecure) {
    fc_error_set("AccessDeniedError",
                 "a token over tcp:// can be read on the way, and is not accepted; revoke it, and come by ssh -L");
    return -1;
  }
  return host->tokens.path ? fc_tokens_admit(&host->tokens, token.data, token.size, peer) : 0;
}

/* A limit of sessions, and which of them count for the one of `comer`. */
typedef struct Share {
  const char* who;
  uint32_t most; /* 0: there is no such limit */
  bool (*counts)(const FcPeer* one, const FcPeer* comer);
} Share;

static bool has_same_source(const FcPeer* one, const FcPeer* comer) { return strcmp(one->source, comer->source) == 0; }
static bool has_same_token(const FcPeer* one, const FcPeer* comer) { return strcmp(one->token, comer->token) == 0; }
static bool is_any(const FcPeer* one, const FcPeer* comer) { return one != comer; }

/* Whether one session more may begin. One whose client says nothing ends to make room. */
static bool has_room(const FcHost* host, const Share* share, const FcPeer* comer) {
  uint32_t served = 0;
  FcPeer* silent = NULL;
  for (uint32_t i = 0; i < host->room; ++i) {
    FcPeer* peer = &host->peers[i];
    if (peer->state != FC_PEER_SERVED || peer->words[0] || !share->counts(peer, comer)) continue;
    ++served;
    if (fc_worker_is_silent(peer)) silent = peer;
  }
  if (served < share->most) return true;
  if (silent) fc_worker_end(silent, "ProtocolError: the session was not begun, and another client wants its place");
  return silent != NULL;
}

/* Whether all limits allow one session more; else why not. */
static bool may_begin(const FcHost* host, const FcPeer* comer, char words[FC_WORDS]) {
  char token[FC_TOKEN_NAME + 16];
  snprintf(token, sizeof token, "the token '%s'", comer->token);
  const Share shares[] = {{comer->source, host->options->sessions_per_peer, has_same_source},
                          {token, comer->token[0] ? host->options->sessions_per_token : 0, has_same_token},
                          {"the server", host->options->sessions, is_any}};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; ++i) {
    const Share* share = &shares[i];
    if (share->most == 0 || has_room(host, share, comer)) continue;
    snprintf(words, FC_WORDS, "ServerBusyError: %s has %u session%s open, which is its limit; retry later", share->who,
             (unsigned)share->most, share->most == 1 ? "" : "s");
    return false;
  }
  return true;
}

static void begin(FcHost* host, FcPeer* peer, const fc_hello* hello, int64_t now) {
  char full[FC_WORDS];
  if (!is_key(hello->key, host->options->key)) {
    uint8_t mismatch[4];
    store(mismatch, (uint32_t)FC_HANDSHAKE_MISMATCH, 4);
    tell(peer, mismatch, sizeof mismatch);
    refuse(peer, "wrong key", NULL, now);
    return;
  }
  welcome(peer, host->options->key);
  if (admit(host, peer, hello->token) != 0) {
    refuse_with_error(peer, now);
    return;
  }
  if (!may_begin(host, peer, full)) {
    refuse(peer, full, full, now);
    return;
  }
  peer->until = hello->timeout_ns ? now + hello->timeout_ns : 0;
  if (peer->box) peer->state = FC_PEER_SERVED; /* this is its worker */
  else if (fc_worker_start(host, peer, now) != 0) refuse_with_error(peer, now);
}

static const char* complaint(fc_handshake_status status) {
  switch (status) {
    case FC_HANDSHAKE_E_MAGIC: return "its first four bytes are of no RPC client";
    case FC_HANDSHAKE_E_SIZE: return "its key field is too long or too short";
    case FC_HANDSHAKE_E_PREFIX: return "its key field does not begin with 'client:'";
    default: return "its -timeout is no number of seconds";
  }
}

void fc_peer_hear(FcHost* host, FcPeer* peer, int64_t now) {
  fc_hello hello;
  uint8_t* to = peer->hello + peer->heard;
  size_t more = peer->need - peer->heard;
  ptrdiff_t got =
      peer->channel ? fc_channel_receive(peer->channel, to, more, peer->until) : recv(peer->fd, to, more, MSG_DONTWAIT);
  if (got < 0 && !peer->channel && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    fc_peer_drop(peer);
    return;
  }
  peer->heard += (size_t)got;
  fc_handshake_status status = fc_hello_read(peer->hello, peer->heard, FC_KEY_BYTES, &peer->need, &hello);
  if (status == FC_HANDSHAKE_MORE) return;
  if (status == FC_HANDSHAKE_DONE) {
    begin(host, peer, &hello, now);
    return;
  }
  fprintf(stderr, "farcall-server: refused a client: %s\n", complaint(status));
  fc_peer_drop(peer);
}
