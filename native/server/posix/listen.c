/* The listening socket. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/posix/host.h"

enum { BACKLOG = 64 };

static int cannot(const char* url, const char* why) {
  fc_error_format("UsageError", "cannot listen at %.200s: %s", url, why);
  return -1;
}

/* Opens the socket; its descriptor, or -1 with an error. */
static int open_at(const char* url, const struct sockaddr* address, socklen_t size) {
  int on = 1, fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return cannot(url, strerror(errno));
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0) return fd;
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

typedef union Address {
  struct sockaddr any;
  struct sockaddr_in four;
  struct sockaddr_in6 six;
} Address;

/* HOST:PORT with a number as host, [NUMBER] for version 6, or "localhost". Names would need a resolver. */
static bool read_place(const char* text, char host[64], Address* out) {
  const char* colon = strrchr(text, ':');
  size_t size = colon ? (size_t)(colon - text) : 0;
  char* end = NULL;
  long port = colon && colon[1] ? strtol(colon + 1, &end, 10) : -1;
  bool six = size > 2 && text[0] == '[' && text[size - 1] == ']';
  if (port < 0 || port > 65535 || *end || size == 0 || size >= 64) return false;
  memcpy(host, text + six, size - 2 * (size_t)six);
  host[size - 2 * (size_t)six] = 0;
  if (strcmp(host, "localhost") == 0) strcpy(host, "127.0.0.1");
  memset(out, 0, sizeof *out);
  out->any.sa_family = six ? AF_INET6 : AF_INET;
  out->four.sin_port = htons((uint16_t)port); /* at the same place in both */
  return inet_pton(out->any.sa_family, host, six ? (void*)&out->six.sin6_addr : (void*)&out->four.sin_addr) == 1;
}

static bool is_loopback(const Address* address) {
  if (address->any.sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&address->six.sin6_addr);
  return ntohl(address->four.sin_addr.s_addr) >> 24 == 127;
}

static int listen_tcp(FcHost* host, const char* url) {
  char name[64], text[128];
  Address address;
  socklen_t size = sizeof address;
  if (!read_place(url + 6, name, &address)) return cannot(url, "expected tcp://NUMBER:PORT, as tcp://127.0.0.1:9090");
  host->local = is_loopback(&address);
  if (!host->local && !host->options->insecure) {
    return cannot(url,
                  "anyone who reaches that address could run code here, in plain text. This server has no TLS: let "
                  "clients come by `ssh -L`, or pass --insecure on a network that you trust");
  }
  bool six = address.any.sa_family == AF_INET6;
  host->listener = open_at(url, &address.any, six ? sizeof address.six : sizeof address.four);
  if (host->listener < 0) return -1;
  getsockname(host->listener, &address.any, &size);
  snprintf(text, sizeof text, six ? "tcp://[%s]:%d" : "tcp://%s:%d", name, ntohs(address.four.sin_port));
  announce(text);
  return 0;
}

/* ---- Unix sockets ---- */

/* Removes the socket of a server that is gone: nobody accepts there. */
static void remove_stale(const struct sockaddr_un* address) {
  struct stat about;
  if (lstat(address->sun_path, &about) != 0 || !S_ISSOCK(about.st_mode)) return;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool refused = connect(fd, (const struct sockaddr*)address, sizeof *address) != 0 && errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  if (refused) unlink(address->sun_path);
}

static int listen_unix(FcHost* host, const char* url) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char* path = strncmp(url, "unix://", 7) == 0 ? url + 7 : url + 5;
  if (!*path || strlen(path) >= sizeof address.sun_path) return cannot(url, "expected unix:PATH of at most 107 bytes");
  strcpy(address.sun_path, path);
  remove_stale(&address);
  mode_t before = umask(0077); /* for this user only */
  host->listener = open_at(url, (const struct sockaddr*)&address, sizeof address);
  umask(before);
  if (host->listener < 0) return -1;
  host->local = true;
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
