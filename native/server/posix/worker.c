/* Workers: the process of each session, and what its client is told when it ends. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/graph/functions.h"
#include "server/budget.h"
#include "server/far.h"
#include "server/posix/files.h"
#include "server/posix/host.h"
#include "session/posix/channels.h"
#include "session/posix/watchdog.h"

static const int64_t second = 1000000000;
enum { PATIENCE_SECONDS = 5, ABANDONED_SECONDS = 10 };

int fc_worker_complain(void) {
  TVMFFIObject* error = fc_error_take();
  if (!error) return 1;
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  fprintf(stderr, "farcall-server: %.*s: %.*s\n", (int)cell->kind.size, cell->kind.data, (int)cell->message.size,
          cell->message.data);
  fc_decref(error);
  return 1;
}

/* ---- in the worker ---- */

/* Descriptors of other clients would keep their connections open. */
static void close_others(const FcHost* host, const FcPeer* own) {
  for (uint32_t i = 0; i < host->room; ++i) {
    const FcPeer* peer = &host->peers[i];
    if (peer != own && peer->state != FC_PEER_NONE) close(peer->fd);
  }
  close(host->listener);
}

static void reset_signals(void) {
  sigset_t none;
  for (int number = 1; number < 32; ++number) signal(number, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* a file over the system's limit is an error of write() */
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

int fc_worker_serve(FcChannel* channel, const FcOptions* options, FcClient* client) {
  FcFolder folder;
  if (options->workpath && fc_folder_open(&folder, options, client->token) != 0) return -1;
  if (options->workpath) {
    client->files = fc_served_files;
    client->folder = &folder;
  }
  client->onward = &fc_session_onward;
  client->devices = options->device_count ? fc_served_far : NULL;
  fc_builtins_add(fc_graph_builtins);
  fc_builtins_add(fc_far_builtins);
  fc_budget_limit(fc_budget_used() + options->memory);
  FcSession session;
  int rc = fc_session_open(&session, channel, options, client, true);
  if (rc == 0) {
    fc_far_begin(&session);
    rc = fc_session_run(&session);
    fc_session_close(&session);
    fc_far_end();
  }
  fc_budget_limit(UINT64_MAX);
  if (options->workpath) fc_folder_close(&folder);
  return rc;
}

/* The channel of a mailbox's session, after the handshake. NULL: there is no session, and the client knows why. */
static FcChannel* shake(FcHost* host, FcPeer* peer) {
  peer->channel = fc_mailbox_channel(peer->box);
  peer->until = fc_now_ns() + FC_HANDSHAKE_SECONDS * second;
  while (peer->channel && peer->state == FC_PEER_SHAKES) fc_peer_hear(host, peer, fc_now_ns());
  if (peer->state != FC_PEER_SERVED) return NULL;
  memcpy((uint8_t*)peer->page + FC_PAGE_UNTIL, &peer->until, sizeof peer->until);
  return peer->channel;
}

_Noreturn static void work(FcHost* host, FcPeer* peer, pid_t parent) {
  setpgid(0, 0); /* what the session starts ends with it */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  reset_signals();
  close_others(host, peer);
  FcChannel* channel = peer->box ? shake(host, peer) : fc_channel_from_fds(peer->fd, peer->fd);
  if (!channel) _exit(peer->box ? 0 : fc_worker_complain());
  channel->sending = peer->page;
  channel->traffic = (volatile uint64_t*)(peer->page + FC_PAGE_RECEIVED);
  peer->page[FC_PAGE_LISTENS] = 1;
  FcClient client = {.rights = peer->rights,
                     .token = peer->token[0] ? peer->token : "none",
                     .page = peer->page,
                     .watchdog = &fc_timer_watchdog};
  if (fc_worker_serve(channel, host->options, &client) != 0) fc_worker_complain();
  fflush(NULL);
  _exit(0); /* an error has been told to the client */
}

/* ---- in the host ---- */

int fc_worker_start(FcHost* host, FcPeer* peer, int64_t now) {
  void* page = mmap(NULL, FC_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t parent = getpid();
  peer->page = page == MAP_FAILED ? NULL : page;
  peer->pid = peer->page ? fork() : -1;
  if (peer->pid == 0) work(host, peer, parent);
  if (peer->pid < 0) {
    fc_error_format("ConnectionLostError", "the server cannot start a worker: %s", strerror(errno));
    if (peer->page) munmap(page, FC_PAGE_SIZE);
    return -1;
  }
  peer->state = FC_PEER_SERVED;
  peer->given = peer->changed = now;
  peer->left = 0;
  peer->looked = false;
  peer->received = peer->calls = 0;
  peer->words[0] = 0;
  return 0;
}

void fc_worker_end(FcPeer* peer, const char* format, ...) {
  if (peer->words[0]) return;
  va_list list;
  va_start(list, format);
  vsnprintf(peer->words, sizeof peer->words, format, list);
  va_end(list);
  kill(peer->pid, SIGKILL);
}

static uint64_t counter(const FcPeer* peer, int at) {
  uint64_t value;
  memcpy(&value, (const uint8_t*)peer->page + at, sizeof value);
  return value;
}

/* The function that runs in the worker, or ran when it ended; NULL: none. The worker can write anything there. */
static const char* calling(const FcPeer* peer, char out[FC_PAGE_NAME_MAX + 1]) {
  if (!peer->page[FC_PAGE_CALLING]) return NULL;
  size_t size = (size_t)(peer->page[FC_PAGE_NAME_SIZE] | peer->page[FC_PAGE_NAME_SIZE + 1] << 8);
  if (size > FC_PAGE_NAME_MAX) size = FC_PAGE_NAME_MAX;
  for (size_t i = 0; i < size; ++i) out[i] = (char)peer->page[FC_PAGE_NAME + i];
  out[size] = 0;
  return out;
}

bool fc_worker_is_silent(const FcPeer* peer) { return peer->page[FC_PAGE_LISTENS] && !peer->page[FC_PAGE_BEGUN]; }

/* The words for the client of a worker that died by itself; false: it ended in order. */
static bool explain(const FcPeer* peer, int status, int64_t now, char out[FC_WORDS]) {
  char name[FC_PAGE_NAME_MAX + 1], how[96];
  const char* running = calling(peer, name);
  uint64_t due = counter(peer, FC_PAGE_DUE);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !running) return false;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && due != 0 && due <= (uint64_t)now) {
    snprintf(out, FC_WORDS,
             "RPCSessionTimeoutError: `%s` did not end within %.3g s, as it had to; the session is over: connect again",
             running ? running : "", (double)counter(peer, FC_PAGE_GIVEN) / 1e9);
    return true;
  }
  if (WIFSIGNALED(status))
    snprintf(how, sizeof how, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else snprintf(how, sizeof how, "exited with status %d", WEXITSTATUS(status));
  snprintf(out, FC_WORDS,
           "WorkerCrashedError: the server's worker process of this session %s%s%s%s; what the session held there is "
           "gone. The server lives on: connect again",
           how, running ? " in `" : "", running ? running : "", running ? "`" : "");
  return true;
}

void fc_worker_bury(const FcHost* host, FcPeer* peer, int status, int64_t now) {
  char words[FC_WORDS];
  bool ended = peer->words[0] != 0, told = !ended && !explain(peer, status, now, words);
  const char* text = ended ? peer->words : told ? NULL : words;
  kill(-peer->pid, SIGKILL); /* what the session has started */
  if (host->options->workpath) fc_folder_remove(host->options->workpath, peer->pid);
  if (peer->box) peer->channel = fc_mailbox_channel(peer->box); /* goes on where the worker's stopped */
  if (text) fprintf(stderr, "farcall-server: a session ended: %s\n", text);
  /* Behind half a packet, another one would only be garbage. */
  fc_peer_leave(peer, peer->page[FC_PAGE_SENDING] ? NULL : text, now);
  munmap((void*)peer->page, FC_PAGE_SIZE);
  peer->page = NULL;
}

static bool is_overdue(int64_t since, int64_t allowed, int64_t now) { return allowed > 0 && now - since >= allowed; }

/* A call runs, or another request, such as an allocation, does not wait for the client. */
static bool is_busy(const FcPeer* peer) {
  return peer->page[FC_PAGE_CALLING] || (peer->page[FC_PAGE_WORKING] && !peer->page[FC_PAGE_SENDING]);
}

/* Whether the client was silent for too long: no bytes came, and no call began or request runs. */
static bool lease_is_over(const FcHost* host, FcPeer* peer, int64_t now) {
  uint64_t received = counter(peer, FC_PAGE_RECEIVED), calls = counter(peer, FC_PAGE_CALLS);
  if (received != peer->received || calls != peer->calls || is_busy(peer)) {
    peer->received = received;
    peer->calls = calls;
    peer->changed = now;
  }
  return is_overdue(peer->changed, host->options->lease_ns, now);
}

void fc_worker_check(const FcHost* host, FcPeer* peer, int64_t now) {
  if (peer->words[0]) return;
  if (peer->box) peer->until = (int64_t)counter(peer, FC_PAGE_UNTIL);
  if (peer->box && !peer->left && !fc_mailbox_is_shared(peer->box)) peer->left = now;
  if (fc_worker_is_silent(peer) && is_overdue(peer->given, PATIENCE_SECONDS * second, now)) {
    fc_worker_end(peer, "ProtocolError: the session was not begun within %d s", PATIENCE_SECONDS);
  } else if (peer->until && now >= peer->until) {
    fc_worker_end(peer, "RPCSessionTimeoutError: the session's %.3g s are over",
                  (double)(peer->until - peer->given) / 1e9);
  } else if (peer->left && is_overdue(peer->left, ABANDONED_SECONDS * second, now)) {
    fc_worker_end(peer, "ConnectionLostError: the client hung up during a call");
  } else if (lease_is_over(host, peer, now)) {
    fc_worker_end(peer, "ConnectionLostError: nothing was heard for %.3g s", (double)host->options->lease_ns / 1e9);
  }
}

static bool has_unread(const FcPeer* peer) {
  int bytes = 0;
  return !peer->box && ioctl(peer->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

void fc_worker_end_idle(FcPeer* peer, const char* words) {
  uint64_t seen[] = {counter(peer, FC_PAGE_RECEIVED), counter(peer, FC_PAGE_SENT), counter(peer, FC_PAGE_CALLS)};
  bool same = peer->looked && memcmp(seen, peer->seen, sizeof seen) == 0;
  bool rests = !peer->page[FC_PAGE_WORKING] && !peer->page[FC_PAGE_SENDING];
  memcpy(peer->seen, seen, sizeof seen);
  peer->looked = true;
  if (same && rests && !has_unread(peer)) fc_worker_end(peer, "%s", words);
}
