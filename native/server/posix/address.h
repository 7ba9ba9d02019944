/* The addresses of sockets, as URLs say them: tcp://NUMBER:PORT and unix:PATH. */
#ifndef FARCALL_SERVER_POSIX_ADDRESS_H_
#define FARCALL_SERVER_POSIX_ADDRESS_H_

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef union FcAddress {
  struct sockaddr any;
  struct sockaddr_in four;
  struct sockaddr_in6 six;
  struct sockaddr_un file;
} FcAddress;

/* The path of SCHEME:PATH or SCHEME://PATH. */
const char* fc_url_path(const char* url);
/* tcp://HOST:PORT with a number as host, [NUMBER] for version 6, or "localhost". Names would need a resolver. `host`
 * becomes the number. False: the URL is no such one. */
bool fc_address_tcp(const char* url, char host[64], FcAddress* out);
/* unix:PATH or unix://PATH. False: the URL is no such one, or its path is too long. */
bool fc_address_unix(const char* url, FcAddress* out);
socklen_t fc_address_size(const FcAddress* address);
bool fc_address_is_loopback(const FcAddress* address);

#endif /* FARCALL_SERVER_POSIX_ADDRESS_H_ */
