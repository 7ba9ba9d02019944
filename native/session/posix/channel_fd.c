/* Channels over descriptors: sockets, and pairs of pipes. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "session/posix/channels.h"
#include "runtime/runtime.h"

typedef struct FdChannel {
  FcChannel base;
  int in, out; /* equal for a socket; out < 0 after `finish` */
  int wake;    /* pipes: an eventfd, readable once interrupted; sockets: -1, since shutdown() ends their waits */
} FdChannel;

static bool is_socket(const FdChannel* ch) { return ch->wake < 0; }

/* ---- waiting ---- */

static int milliseconds(int64_t left) { return left / 1000000 + 1 < INT32_MAX ? (int)(left / 1000000 + 1) : INT32_MAX; }

/* Waits until the descriptor is ready: 0, or failed. */
static int await_ready(const FdChannel* ch, int fd, short events, int64_t deadline) {
  for (;;) {
    int64_t left = deadline ? deadline - fc_now_ns() : 0;
    if (left < 0) return -ETIMEDOUT;
    struct pollfd waits[2] = {{fd, events, 0}, {ch->wake, POLLIN, 0}}; /* poll ignores a wake of -1 */
    int ready = poll(waits, 2, deadline ? milliseconds(left) : -1);
    if (ready > 0) return waits[1].revents ? -ECANCELED : 0;
    if (ready < 0 && errno != EINTR) return -errno;
    if (ready < 0 && fc_check_signals() < 0) return -EINTR;
  }
}

/* ---- in ---- */

static ptrdiff_t fd_receive(FcChannel* base, void* to, size_t n, int64_t deadline) {
  FdChannel* ch = (FdChannel*)base;
  bool wait = deadline != 0 || !is_socket(ch); /* a socket without a deadline waits in recv */
  for (;;) {
    int rc = wait ? await_ready(ch, ch->in, POLLIN, deadline) : 0;
    if (rc < 0) return rc;
    ptrdiff_t got = is_socket(ch) ? recv(ch->in, to, n, 0) : read(ch->in, to, n);
    if (got >= 0) return got;
    if (errno == ECONNRESET) return 0;
    if (errno == EINTR && fc_check_signals() < 0) return -EINTR;
    if (errno != EINTR && errno != EAGAIN) return -errno;
    wait = wait || errno == EAGAIN; /* a non-blocking socket */
  }
}

/* ---- out ---- */

/* writev without the SIGPIPE of a closed pipe; for sockets, a flag prevents that signal. */
static ptrdiff_t write_quietly(int fd, const FcPart* parts, size_t count) {
  sigset_t pipe_signal, before, pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  ptrdiff_t sent = writev(fd, (const struct iovec*)parts, (int)count);
  int error = errno;
  if (sent < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE)) {
    sigtimedwait(&pipe_signal, NULL, &(struct timespec){0, 0});
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = error;
  return sent;
}

_Static_assert(sizeof(FcPart) == sizeof(struct iovec) && offsetof(FcPart, data) == offsetof(struct iovec, iov_base) &&
                   offsetof(FcPart, size) == offsetof(struct iovec, iov_len),
               "parts are passed to the system as iovecs");

static ptrdiff_t send_some(const FdChannel* ch, FcPart* parts, size_t count, bool may_wait) {
  if (!is_socket(ch)) return write_quietly(ch->out, parts, count);
  int flags = MSG_NOSIGNAL | (may_wait ? 0 : MSG_DONTWAIT);
  if (count == 1) return send(ch->out, parts->data, parts->size, flags); /* cheaper in the kernel */
  struct msghdr message = {.msg_iov = (struct iovec*)parts, .msg_iovlen = (int)count}; /* few, so int fits */
  return sendmsg(ch->out, &message, flags);
}

static int fd_send(FcChannel* base, FcPart* parts, size_t count, int64_t deadline) {
  FdChannel* ch = (FdChannel*)base;
  if (ch->out < 0) return -EPIPE;
  bool wait = false; /* a send that does not wait cannot be cut off by the death of this process */
  while (count != 0) {
    int rc = wait ? await_ready(ch, ch->out, POLLOUT, deadline) : 0;
    if (rc < 0) return rc;
    ptrdiff_t sent = send_some(ch, parts, count, wait && deadline == 0);
    if (sent >= 0) {
      count = fc_channel_advance(&parts, count, (size_t)sent);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return -EPIPE;
    } else if (errno == EINTR ? fc_check_signals() < 0 : errno != EAGAIN) {
      return errno == EINTR ? -EINTR : -errno;
    }
    if (count != 0) fc_channel_note(base);
    wait = true;
  }
  return 0;
}

static int fd_finish(FcChannel* base) {
  FdChannel* ch = (FdChannel*)base;
  if (is_socket(ch)) return shutdown(ch->out, SHUT_WR) < 0 && errno != ENOTCONN ? -errno : 0;
  if (ch->out >= 0) close(ch->out);
  ch->out = -1;
  return 0;
}

/* ---- life ---- */

static void fd_interrupt(FcChannel* base) {
  FdChannel* ch = (FdChannel*)base;
  if (is_socket(ch)) shutdown(ch->in, SHUT_RDWR);
  else eventfd_write(ch->wake, 1);
}

static void fd_close(FcChannel* base) {
  FdChannel* ch = (FdChannel*)base;
  close(ch->in);
  if (ch->out >= 0 && ch->out != ch->in) close(ch->out);
  if (ch->wake >= 0) close(ch->wake);
}

/* Non-TCP sockets return an error here, and do not need it. */
static void fd_hurry(const FcChannel* base) {
  int on = 1;
  setsockopt(((const FdChannel*)base)->in, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

static const FcChannelOps fd_ops = {fd_receive, fd_send, fd_finish, fd_interrupt, fd_close, NULL, fd_hurry};

/* Makes a pipe non-blocking, so that no write waits beyond a deadline; pipes have no flag for a single transfer. */
static int never_wait(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static int prepare_pipes(FdChannel* ch) {
  if (never_wait(ch->in) == 0 && never_wait(ch->out) == 0) ch->wake = eventfd(0, EFD_CLOEXEC);
  if (ch->wake >= 0) return 0;
  fc_error_format("OSError", "descriptors %d and %d: %s", ch->in, ch->out, strerror(errno));
  return -1;
}

FcChannel* fc_channel_from_fds(int in, int out) {
  FdChannel* ch = fc_channel_new(sizeof *ch, &fd_ops);
  if (!ch) return NULL;
  struct stat about;
  ch->in = in;
  ch->out = out;
  ch->wake = -1;
  bool socket = in == out && fstat(in, &about) == 0 && S_ISSOCK(about.st_mode);
  if (!socket && prepare_pipes(ch) < 0) {
    free(ch); /* the caller keeps the descriptors */
    return NULL;
  }
  return &ch->base;
}

int fc_channel_fd(const FcChannel* channel) { return channel->ops == &fd_ops ? ((const FdChannel*)channel)->in : -1; }
