/* The listening socket. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/posix/address.h"
#include "server/posix/host.h"

enum { BACKLOG = 64 };

static int cannot(const char* url, const char* why) {
  fc_error_format("UsageError", "cannot listen at %.200s: %s", url, why);
  return -1;
}

/* Opens the socket; its descriptor, or -1 with an error. */
static int open_at(const char* url, const FcAddress* address) {
  int on = 1, fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return cannot(url, strerror(errno));
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, &address->any, fc_address_size(address)) == 0 && listen(fd, BACKLOG) == 0) return fd;
  int error = errno;
  close(fd);
  return cannot(url,
                error == EADDRINUSE ? "another program listens there; choose another port or path" : strerror(error));
}

static void announce(const char* url) {
  printf("farcall-server: listening on %s\n", url);
  fflush(stdout);
}

/* ---- TCP ---- */

void fc_host_source(int fd, char out[FC_SOURCE]) {
  FcAddress address = {.any.sa_family = AF_UNSPEC};
  struct ucred user = {.uid = 0};
  socklen_t size = sizeof address, user_size = sizeof user;
  getpeername(fd, &address.any, &size);
  out[0] = 0;
  if (address.any.sa_family == AF_INET) inet_ntop(AF_INET, &address.four.sin_addr, out, FC_SOURCE);
  if (address.any.sa_family == AF_INET6) inet_ntop(AF_INET6, &address.six.sin6_addr, out, FC_SOURCE);
  if (!out[0] && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &user_size) == 0) {
    snprintf(out, FC_SOURCE, "user %u", (unsigned)user.uid);
  }
}

static int listen_tcp(FcHost* host, const char* url) {
  char name[64], text[128];
  FcAddress address;
  socklen_t size = sizeof address;
  if (!fc_address_tcp(url, name, &address)) return cannot(url, "expected tcp://NUMBER:PORT, as tcp://127.0.0.1:9090");
  host->local = fc_address_is_loopback(&address);
  if (!host->local && !host->options->insecure) {
    return cannot(url,
                  "anyone who reaches that address could run code here, in plain text. This server has no TLS: let "
                  "clients come by `ssh -L`, or pass --insecure on a network that you trust");
  }
  host->listener = open_at(url, &address);
  if (host->listener < 0) return -1;
  getsockname(host->listener, &address.any, &size);
  bool six = address.any.sa_family == AF_INET6;
  snprintf(text, sizeof text, six ? "tcp://[%s]:%d" : "tcp://%s:%d", name, ntohs(address.four.sin_port));
  announce(text);
  return 0;
}

/* ---- Unix sockets ---- */

/* Removes the socket of a server that is gone: nobody accepts there. */
static void remove_stale(const FcAddress* address) {
  struct stat about;
  if (lstat(address->file.sun_path, &about) != 0 || !S_ISSOCK(about.st_mode)) return;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool refused = connect(fd, &address->any, fc_address_size(address)) != 0 && errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  if (refused) unlink(address->file.sun_path);
}

static int listen_unix(FcHost* host, const char* url) {
  FcAddress address;
  if (!fc_address_unix(url, &address)) return cannot(url, "expected unix:PATH of at most 107 bytes");
  remove_stale(&address);
  mode_t before = umask(0077); /* for this user only */
  host->listener = open_at(url, &address);
  umask(before);
  if (host->listener < 0) return -1;
  host->local = true;
  const char* path = fc_url_path(url);
  host->socket = path;
  char text[128];
  snprintf(text, sizeof text, *path == '/' ? "unix://%s" : "unix:%s", path);
  announce(text);
  return 0;
}

int fc_host_listen(FcHost* host) {
  const char* url = host->options->listen;
  if (strncmp(url, "tcp://", 6) == 0) return listen_tcp(host, url);
  if (strncmp(url, "unix:", 5) == 0) return listen_unix(host, url);
  return cannot(url, "expected tcp://NUMBER:PORT or unix:PATH");
}
