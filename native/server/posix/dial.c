/* Connections to the devices behind this server, up to the end of the handshake. */
#include <errno.h>
#include <farcall/handshake.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "server/posix/address.h"
#include "server/posix/dial.h"
#include "runtime/runtime.h"
#include "session/posix/channels.h"
#include "session/posix/mailbox.h"

enum { KEY_BYTES = 1024, MILLISECOND = 1000000 };

static const char late[] = "it did not answer in time; is it busy with another session?";
static const char cure[] = "is `farcall-server` running there?";

static int cannot(const char* url, const char* kind, const char* why) {
  fc_error_format(kind, "%.200s: %s", url, why);
  return -1;
}

static int failed(const char* url, int error) {
  if (error == ETIMEDOUT) return cannot(url, "ConnectTimeoutError", late);
  fc_error_format("ConnectError", "%.200s: %s; %s", url, strerror(error), cure);
  return -1;
}

/* ---- where a device may be ---- */

static bool is_mailbox(const char* url) { return strncmp(url, "mailbox:", 8) == 0; }

int fc_dial_check(const char* url, bool insecure) {
  char host[64];
  FcAddress address;
  bool tcp = fc_address_tcp(url, host, &address);
  if (tcp && !insecure && !fc_address_is_loopback(&address)) {
    return cannot(url, "UsageError",
                  "sessions would travel there in plain text. This server has no TLS: forward a port by `ssh -L` and "
                  "name that, or pass --insecure on a network that you trust");
  }
  if (tcp || fc_address_unix(url, &address) || (is_mailbox(url) && *fc_url_path(url))) return 0;
  return cannot(url, "UsageError",
                "expected mailbox:PATH, unix:PATH or tcp://NUMBER:PORT; `farcall serve` reaches other devices, too");
}

/* ---- connections ---- */

/* Until the deadline. 0, or an errno value. */
static int connect_socket(int fd, const FcAddress* address, int64_t deadline) {
  socklen_t size = sizeof(int);
  int error = connect(fd, &address->any, fc_address_size(address)) == 0 ? 0 : errno;
  if (error != EINPROGRESS) return error;
  int64_t left = deadline - fc_now_ns();
  if (left <= 0 || poll(&(struct pollfd){fd, POLLOUT, 0}, 1, (int)(left / MILLISECOND) + 1) != 1) return ETIMEDOUT;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

static FcChannel* open_socket(const char* url, const FcAddress* address, int64_t deadline) {
  int on = 1, fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = fd < 0 ? errno : connect_socket(fd, address, deadline);
  FcChannel* channel = NULL;
  if (error != 0) {
    failed(url, error);
  } else {
    fcntl(fd, F_SETFL, 0); /* one system call less for each receive: it need not poll first */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    channel = fc_channel_from_fds(fd, fd);
  }
  if (!channel && fd >= 0) close(fd);
  return channel;
}

static FcChannel* open_mailbox(const char* url, int64_t deadline) {
  FcMailbox* box = fc_mailbox_open(fc_url_path(url), false);
  if (!box) return NULL;
  int rc = fc_mailbox_meet(box, deadline);
  FcChannel* channel = rc == 0 ? fc_mailbox_channel(box) : NULL;
  fc_mailbox_decref(box);
  if (rc == -EBUSY) cannot(url, "ConnectTimeoutError", "another session uses it; it serves one at a time");
  else if (rc != 0) failed(url, -rc);
  return channel;
}

/* ---- the handshake ---- */

static int refused(const char* url, fc_handshake_status status) {
  if (status != FC_HANDSHAKE_E_MISMATCH) return cannot(url, "ConnectError", "no RPC server answers there");
  return cannot(url, "AccessDeniedError", "it wants a key, and a server has none for its devices; start it without");
}

static int shake(FcChannel* channel, const char* url, int64_t deadline) {
  uint8_t bytes[8 + KEY_BYTES];
  size_t heard = 0, need = 0;
  fc_handshake_text key = {"", 0};
  FcPart hello = {bytes, fc_hello_write(bytes, sizeof bytes, key)};
  int rc = fc_channel_send(channel, &hello, 1, deadline);
  if (rc != 0) return failed(url, -rc);
  for (;;) {
    fc_handshake_status status = fc_welcome_read(bytes, heard, KEY_BYTES, &need, &key);
    if (status == FC_HANDSHAKE_DONE) return 0;
    if (status != FC_HANDSHAKE_MORE) return refused(url, status);
    ptrdiff_t got = fc_channel_receive(channel, bytes + heard, need - heard, deadline);
    if (got == 0) return cannot(url, "ConnectError", "it closed the connection in the handshake; is it full?");
    if (got < 0) return failed(url, (int)-got);
    heard += (size_t)got;
  }
}

FcChannel* fc_dial(const char* url, int64_t deadline) {
  char host[64];
  FcAddress address;
  bool socket = fc_address_unix(url, &address) || fc_address_tcp(url, host, &address);
  FcChannel* channel = socket ? open_socket(url, &address, deadline) : open_mailbox(url, deadline);
  if (!channel || shake(channel, url, deadline) == 0) return channel;
  fc_channel_decref(channel);
  return NULL;
}
