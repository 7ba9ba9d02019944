/* The loop of the host: it waits for clients, handshakes, workers and signals, and never for one of them alone. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/posix/host.h"

static const int64_t second = 1000000000;
enum { PENDING = 32, LOOK_NS = 250000000, PAUSE_NS = 50000000, IDLE_NS = 50000000 };
static const char shutting_down[] = "ConnectionLostError: the server is shutting down";

static volatile sig_atomic_t asked_to_end, asked_at_once;
static void ask_to_end(int number) {
  if (number == SIGINT || (number == SIGTERM && asked_to_end)) asked_at_once = 1;
  asked_to_end = 1;
}
static void wake(int number) { (void)number; }

/* ---- signals ---- */

/* They arrive only while the host waits; `waiting` is the mask for that time. */
static void take_signals(sigset_t* waiting) {
  static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGCHLD);
  struct sigaction end = {.sa_handler = ask_to_end}, child = {.sa_handler = wake};
  sigaction(SIGCHLD, &child, NULL);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; ++i) {
    struct sigaction before;
    sigaddset(&held, ends[i]);
    sigaction(ends[i], &end, &before);
    if (ends[i] == SIGHUP && before.sa_handler == SIG_IGN) sigaction(SIGHUP, &before, NULL); /* started by nohup */
  }
  signal(SIGPIPE, SIG_IGN);
  sigprocmask(SIG_BLOCK, &held, waiting);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; ++i) sigdelset(waiting, ends[i]);
  sigdelset(waiting, SIGCHLD);
}

/* ---- peers ---- */

static FcPeer* free_slot(const FcHost* host) {
  for (uint32_t i = 0; i < host->room; ++i) {
    if (host->peers[i].state == FC_PEER_NONE) return &host->peers[i];
  }
  return NULL;
}

/* The peer that has waited longest in a handshake or in leaving; NULL: none. */
static FcPeer* oldest_pending(const FcHost* host) {
  FcPeer* oldest = NULL;
  for (uint32_t i = 0; i < host->room; ++i) {
    FcPeer* peer = &host->peers[i];
    bool pending = peer->state == FC_PEER_SHAKES || peer->state == FC_PEER_LEAVES;
    if (pending && (!oldest || peer->until < oldest->until)) oldest = peer;
  }
  return oldest;
}

static void tune(int fd) {
  int on = 1; /* other sockets than TCP refuse these, and need none */
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* Accepts one peer. False when nobody waits. An honest peer needs milliseconds for its handshake, so the oldest ones go
 * when there are too many. */
static bool accept_one(FcHost* host, int64_t now, int64_t* pause) {
  int fd = accept4(host->listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) {
    bool out = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    FcPeer* oldest = out ? oldest_pending(host) : NULL;
    if (oldest) fc_peer_drop(oldest);
    else if (out) *pause = now + PAUSE_NS;
    return oldest != NULL || errno == ECONNABORTED || errno == EINTR;
  }
  FcPeer* peer = free_slot(host);
  if (!peer && (peer = oldest_pending(host))) fc_peer_drop(peer);
  if (!peer) return close(fd) == 0; /* sessions that are ending have all slots: the peer may come again */
  tune(fd);
  peer->state = FC_PEER_SHAKES;
  peer->deaf = false;
  peer->fd = fd;
  peer->heard = 0;
  peer->need = 4;
  peer->until = now + FC_HANDSHAKE_SECONDS * second;
  fc_host_source(fd, peer->source);
  return true;
}

static void accept_some(FcHost* host, int64_t now, int64_t* pause) {
  for (int i = 0; i < PENDING && accept_one(host, now, pause); ++i) continue;
}

/* Whether the client has ended its half of the connection: a session that lost its client has shut down the socket, which
 * then reads as ended though the client still sends. Unix sockets end as a whole. */
static bool has_finished(int fd) {
  struct tcp_info info;
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_FIN_WAIT1 && info.tcpi_state != TCP_FIN_WAIT2;
}

/* Drops what the client still sends. One that cannot be read any more is cut when its time is up: a plain close would
 * leave it waiting for room in a window that nobody opens. */
static void drain(FcPeer* peer) {
  static char dropped[1 << 16];
  ssize_t got = recv(peer->fd, dropped, sizeof dropped, MSG_DONTWAIT);
  peer->deaf = got == 0 && !has_finished(peer->fd);
  if (peer->deaf) return;
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) fc_peer_drop(peer);
}

/* ---- the loop ---- */

static short wanted(const FcPeer* peer) {
  if (peer->state == FC_PEER_SERVED) return peer->left ? 0 : POLLRDHUP;
  return peer->deaf ? 0 : POLLIN;
}

/* poll() reports an end of a connection even if nobody asks: a peer that has left is not in its list. Nor are free
 * slots: it refuses a list that is longer than the process may have descriptors. */
static nfds_t list(const FcHost* host, struct pollfd* out, bool accepts) {
  nfds_t count = 1;
  out[0] = (struct pollfd){accepts ? host->listener : -1, POLLIN, 0};
  for (uint32_t i = 0; i < host->room; ++i) {
    FcPeer* peer = &host->peers[i];
    peer->listed = 0;
    if (peer->state == FC_PEER_NONE || wanted(peer) == 0) continue;
    out[count] = (struct pollfd){peer->fd, wanted(peer), 0};
    peer->listed = (uint32_t)count++;
  }
  return count;
}

/* Nanoseconds until something must be looked at; -1: nothing. */
static int64_t time_left(const FcHost* host, int64_t now, int64_t pause) {
  int64_t least = pause ? (pause > now ? pause - now : 0) : -1;
  for (uint32_t i = 0; i < host->room; ++i) {
    const FcPeer* peer = &host->peers[i];
    if (peer->state == FC_PEER_NONE) continue;
    int64_t left = peer->until > now ? peer->until - now : 0;
    if (peer->state == FC_PEER_SERVED) left = LOOK_NS;
    if (least < 0 || left < least) least = left;
  }
  return least;
}

static void hear(FcHost* host, const struct pollfd* polls, int64_t now) {
  for (uint32_t i = 0; i < host->room; ++i) {
    FcPeer* peer = &host->peers[i];
    if (!peer->listed || !polls[peer->listed].revents) continue;
    if (peer->state == FC_PEER_SHAKES) fc_peer_hear(host, peer, now);
    else if (peer->state == FC_PEER_LEAVES) drain(peer);
    else if (peer->state == FC_PEER_SERVED) peer->left = now;
  }
}

static void reap(FcHost* host, int64_t now) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    for (uint32_t i = 0; i < host->room; ++i) {
      FcPeer* peer = &host->peers[i];
      if (peer->state == FC_PEER_SERVED && peer->pid == pid) fc_worker_bury(host, peer, status, now);
    }
  }
}

static void check(FcHost* host, int64_t now) {
  for (uint32_t i = 0; i < host->room; ++i) {
    FcPeer* peer = &host->peers[i];
    if (peer->state == FC_PEER_SERVED) {
      fc_worker_check(host, peer, now);
      const char* objection = peer->token[0] ? fc_tokens_objection(&host->tokens, peer) : NULL;
      if (objection) fc_worker_end(peer, "AccessDeniedError: the token '%s' %s", peer->token, objection);
    } else if (peer->state != FC_PEER_NONE && now >= peer->until) {
      fc_peer_cut(peer);
    }
  }
}

/* Waits, at most `ns` (-1: for as long as nothing happens), and deals with what has come. Until *pause, nobody is
 * accepted: no descriptor is left. */
static void turn(FcHost* host, struct pollfd* polls, const sigset_t* waiting, int64_t ns, int64_t* pause) {
  struct timespec timeout = {(time_t)(ns / second), (long)(ns % second)};
  nfds_t count = list(host, polls, *pause == 0);
  int ready = ppoll(polls, count, ns < 0 ? NULL : &timeout, waiting);
  int64_t now = fc_now_ns();
  reap(host, now);
  if (ready > 0) hear(host, polls, now);
  if (ready > 0 && polls[0].revents) accept_some(host, now, pause);
  check(host, now);
}

static void serve(FcHost* host, struct pollfd* polls, const sigset_t* waiting) {
  int64_t pause = 0;
  while (!asked_to_end) {
    int64_t now = fc_now_ns(), left = time_left(host, now, pause);
    if (pause && now >= pause) pause = 0;
    turn(host, polls, waiting, left, &pause);
  }
}

/* Waits for a signal, at most `ns`. False: it asked the program to end. */
static bool pause_for(int64_t ns, const sigset_t* waiting) {
  ppoll(NULL, 0, &(struct timespec){(time_t)(ns / second), (long)(ns % second)}, waiting);
  return !asked_to_end;
}

/* One client after another. Each gets a worker at once, which reads the handshake. */
static void serve_mailbox(FcHost* host, const sigset_t* waiting) {
  FcPeer* peer = host->peers;
  while (pause_for(0, waiting)) {
    if (fc_mailbox_meet(host->box, fc_now_ns() + LOOK_NS) != 0) continue;
    *peer = (FcPeer){.state = FC_PEER_SHAKES, .fd = -1, .box = host->box, .need = 4};
    if (fc_worker_start(host, peer, fc_now_ns()) != 0) fc_worker_complain();
    while (peer->state == FC_PEER_SERVED && pause_for(LOOK_NS, waiting)) {
      reap(host, fc_now_ns());
      check(host, fc_now_ns());
    }
    if (peer->state != FC_PEER_SERVED) fc_peer_drop(peer);
  }
}

static int open_mailbox(FcHost* host) {
  host->local = true;
  host->listener = -1;
  host->box = fc_mailbox_open(host->options->mailbox, true);
  if (!host->box) return -1;
  printf("farcall-server: listening on mailbox:%s\n", host->options->mailbox);
  fflush(stdout);
  return 0;
}

/* ---- the end ---- */

static void stop_listening(FcHost* host) {
  if (host->listener >= 0) close(host->listener);
  host->listener = -1;
  if (host->socket) unlink(host->socket);
  for (uint32_t i = 0; i < host->room; ++i) {
    if (host->peers[i].state == FC_PEER_SHAKES) fc_peer_drop(&host->peers[i]);
  }
}

/* Ends the sessions that are idle. Whether others are left. */
static bool end_idle(FcHost* host) {
  bool left = false;
  for (uint32_t i = 0; i < host->room; ++i) {
    if (host->peers[i].state != FC_PEER_SERVED) continue;
    left = true;
    fc_worker_end_idle(&host->peers[i], shutting_down);
  }
  return left;
}

/* After SIGTERM: idle sessions end at once, and running calls have some time to finish. */
static void drain_sessions(FcHost* host, struct pollfd* polls, const sigset_t* waiting) {
  int64_t until = fc_now_ns() + host->options->drain_ns, pause = 0;
  while (!asked_at_once && fc_now_ns() < until && end_idle(host)) turn(host, polls, waiting, IDLE_NS, &pause);
}

/* Ends all sessions, and tells their clients why. */
static void end(FcHost* host) {
  for (uint32_t i = 0; i < host->room; ++i) {
    FcPeer* peer = &host->peers[i];
    int status;
    if (peer->state == FC_PEER_SERVED) {
      fc_worker_end(peer, shutting_down);
      if (waitpid(peer->pid, &status, 0) == peer->pid) fc_worker_bury(host, peer, status, fc_now_ns());
    }
    if (peer->state != FC_PEER_NONE) fc_peer_drop(peer);
  }
}

static void refuse_workpath(const char* path) {
  fc_error_format("UsageError", "--workpath %s: %s; name a folder that exists, and that the server may write to", path,
                  strerror(errno));
}

int fc_host_run(const FcOptions* options) {
  FcHost host = {.options = options, .tokens = {.path = options->token_file}, .room = options->sessions + PENDING};
  sigset_t waiting;
  host.peers = calloc(host.room, sizeof *host.peers);
  struct pollfd* polls = calloc(host.room + 1, sizeof *polls);
  int rc = -1;
  take_signals(&waiting); /* first: who sees the URL may send one */
  if (!host.peers || !polls) fc_error_no_memory();
  else if (options->workpath && access(options->workpath, W_OK | X_OK) != 0) refuse_workpath(options->workpath);
  else rc = options->mailbox ? open_mailbox(&host) : fc_host_listen(&host);
  if (rc == 0) {
    if (options->token_file) fc_tokens_look(&host.tokens);
    if (host.box) serve_mailbox(&host, &waiting);
    else serve(&host, polls, &waiting);
    stop_listening(&host);
    drain_sessions(&host, polls, &waiting);
    end(&host);
    if (host.box) fc_mailbox_remove(host.box, options->mailbox);
  }
  if (host.box) fc_mailbox_decref(host.box);
  fc_any_clear(&host.tokens.content);
  free(polls);
  free(host.peers);
  return rc;
}
