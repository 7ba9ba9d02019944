#include "server/posix/address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

const char* fc_url_path(const char* url) {
  const char* path = strchr(url, ':') + 1;
  return strncmp(path, "//", 2) == 0 ? path + 2 : path;
}

bool fc_address_tcp(const char* url, char host[64], FcAddress* out) {
  if (strncmp(url, "tcp://", 6) != 0) return false;
  const char *text = url + 6, *colon = strrchr(text, ':');
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

bool fc_address_unix(const char* url, FcAddress* out) {
  if (strncmp(url, "unix:", 5) != 0) return false;
  const char* path = fc_url_path(url);
  memset(out, 0, sizeof *out);
  out->any.sa_family = AF_UNIX;
  if (!*path || strlen(path) >= sizeof out->file.sun_path) return false;
  strcpy(out->file.sun_path, path);
  return true;
}

socklen_t fc_address_size(const FcAddress* address) {
  switch (address->any.sa_family) {
    case AF_INET6: return sizeof address->six;
    case AF_UNIX: return sizeof address->file;
    default: return sizeof address->four;
  }
}

bool fc_address_is_loopback(const FcAddress* address) {
  if (address->any.sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&address->six.sin6_addr);
  return ntohl(address->four.sin_addr.s_addr) >> 24 == 127;
}
