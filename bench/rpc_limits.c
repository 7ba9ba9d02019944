/*
 * The limits of this machine's channels: `rpc_limits tcp|unix pingpong|send|store|receive COUNT A B`. For every line
 * on stdin it measures once, and prints the seconds.
 *
 *   pingpong   a request of A bytes, an answer of B bytes, COUNT times: the median round trip
 *   send       A bytes to the peer, which answers with one byte, COUNT times: the median time
 *   store      the same, and the peer writes them to a temporary file, over the content before the previous one, as our
 *              server does, which keeps a name's last content until the next is complete
 *   receive    one byte to the peer, which answers with A bytes
 *
 * The peer is a separate process. Reads and writes are those of the endpoint: one send for a request, recv until all
 * bytes have arrived.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char* what) {
  perror(what);
  exit(1);
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void put(int fd, const char* data, size_t n) {
  while (n > 0) {
    ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
    if (sent <= 0) die("send");
    data += sent;
    n -= (size_t)sent;
  }
}

/* 0 at the end of the stream. */
static int take(int fd, char* data, size_t n) {
  while (n > 0) {
    ssize_t got = recv(fd, data, n, 0);
    if (got < 0) die("recv");
    if (got == 0) return 0;
    data += got;
    n -= (size_t)got;
  }
  return 1;
}

static int listen_tcp(struct sockaddr_in* at) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  socklen_t size = sizeof *at;
  *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (fd < 0 || bind(fd, (struct sockaddr*)at, sizeof *at) < 0 || listen(fd, 1) < 0) die("listen");
  if (getsockname(fd, (struct sockaddr*)at, &size) < 0) die("getsockname");
  return fd;
}

static void no_delay(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

enum { PIECE = 512 << 10 };
static int stores; /* whether the peer writes the bytes to a file */
static FILE* files[2];

/* Allocates the files' memory before timing starts: allocating it costs more than moving the bytes. */
static void make_files(const char* memory, size_t n) {
  for (int i = 0; i < 2; ++i) {
    files[i] = tmpfile();
    if (!files[i] || pwrite(fileno(files[i]), memory, n, 0) != (ssize_t)n) die("tmpfile");
  }
}

static int take_to_file(int fd, char* memory, size_t n) {
  static int turn;
  int file = fileno(files[turn++ % 2]);
  for (size_t at = 0; at < n; at += PIECE) {
    size_t size = n - at < PIECE ? n - at : PIECE;
    if (!take(fd, memory, size)) return 0;
    if (pwrite(file, memory, size, (off_t)at) != (ssize_t)size) die("write");
  }
  return 1;
}

static void serve(int fd, size_t in, size_t out) {
  char* memory = malloc((in > out ? in : out) + 1);
  if (!memory) die("malloc");
  memset(memory, 1, (in > out ? in : out) + 1);
  if (stores) make_files(memory, in);
  while (stores ? take_to_file(fd, memory, in) : take(fd, memory, in)) put(fd, memory, out);
  _exit(0);
}

static int start_tcp(size_t in, size_t out) {
  struct sockaddr_in at;
  int listener = listen_tcp(&at);
  if (fork() == 0) {
    int fd = accept(listener, NULL, NULL);
    close(listener);
    no_delay(fd);
    serve(fd, in, out);
  }
  close(listener);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, (struct sockaddr*)&at, sizeof at) < 0) die("connect");
  no_delay(fd);
  return fd;
}

static int start_unix(size_t in, size_t out) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) die("socketpair");
  if (fork() == 0) {
    close(ends[0]);
    serve(ends[1], in, out);
  }
  close(ends[1]);
  return ends[0];
}

static int compare(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc != 6) return fprintf(stderr, "usage: rpc_limits tcp|unix pingpong|send|store|receive COUNT A B\n"), 2;
  size_t count = (size_t)atol(argv[3]), in = (size_t)atol(argv[4]), out = (size_t)atol(argv[5]);
  stores = strcmp(argv[2], "store") == 0;
  if (stores || strcmp(argv[2], "send") == 0) out = 1;
  if (strcmp(argv[2], "receive") == 0) out = in, in = 1;
  int fd = strcmp(argv[1], "tcp") == 0 ? start_tcp(in, out) : start_unix(in, out);
  char* memory = malloc((in > out ? in : out) + 1);
  int64_t* times = malloc(count * sizeof *times);
  if (!memory || !times) die("malloc");
  memset(memory, 1, (in > out ? in : out) + 1);
  while (getchar() != EOF) {
    for (size_t i = 0; i < count; ++i) {
      int64_t begin = now();
      put(fd, memory, in);
      if (!take(fd, memory, out)) die("the peer left");
      times[i] = now() - begin;
    }
    qsort(times, count, sizeof *times, compare);
    printf("%.9f\n", (double)times[count / 2] / 1e9);
    fflush(stdout);
  }
  close(fd);
  wait(NULL);
  return 0;
}
