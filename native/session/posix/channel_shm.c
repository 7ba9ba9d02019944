/*
 * Channels over shared memory: two rings in a memory file that both processes map, and the Unix socket over which the
 * file was passed.
 *
 * Bulk data does not pass through the kernel. Bytes of the socket count as coming after those of the ring: the socket
 * shows that a peer died, and carries the last error of a supervisor whose worker died. The file cannot shrink: it is
 * sealed, or refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/posix/channels.h"
#include "session/posix/rings.h"
#include "runtime/runtime.h"

enum { HEADER_SIZE = 4096 };

typedef struct SharedChannel {
  FcRings rings;
  FcChannel* line;
  int line_fd;
  uint8_t* map;
  size_t map_size;
  bool line_speaks; /* the ring has ended: further bytes come over `line` */
} SharedChannel;

/* Whether the socket is silent: no bytes, and the peer has not closed it. */
static bool line_is_silent(const FcRings* rings) {
  struct pollfd look = {((const SharedChannel*)rings)->line_fd, POLLIN, 0};
  return poll(&look, 1, 0) <= 0;
}

static ptrdiff_t shm_receive(FcChannel* base, void* to, size_t n, int64_t deadline) {
  SharedChannel* ch = (SharedChannel*)base;
  ptrdiff_t got = ch->line_speaks ? -ECONNRESET : fc_rings_receive(&ch->rings, to, n, deadline);
  if (got != -ECONNRESET) return got;
  ch->line_speaks = true;
  return fc_channel_receive(ch->line, to, n, deadline);
}

static void shm_interrupt(FcChannel* base) {
  fc_rings_interrupt((FcRings*)base);
  fc_channel_interrupt(((SharedChannel*)base)->line);
}

static void shm_close(FcChannel* base) {
  SharedChannel* ch = (SharedChannel*)base;
  fc_channel_close(ch->line);
  munmap(ch->map, ch->map_size);
}

static void shm_destroy(FcChannel* base) { fc_channel_decref(((SharedChannel*)base)->line); }

static const FcChannelOps shm_ops = {shm_receive,   fc_rings_send, fc_rings_finish,
                                     shm_interrupt, shm_close,     shm_destroy};

/* The size of a ring in the file; 0 with an error when the file is not valid. */
static uint32_t ring_size(int memory) {
  struct stat about;
  int seals = fcntl(memory, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(memory, &about) < 0) {
    fc_error_set("ProtocolError", "the peer's memory file is not sealed against shrinking");
    return 0;
  }
  int64_t size = (about.st_size - HEADER_SIZE) / 2;
  if (fc_rings_capacity(size) && about.st_size == HEADER_SIZE + 2 * size) return (uint32_t)size;
  fc_error_format("ProtocolError", "a memory file of %lld bytes cannot hold two rings", (long long)about.st_size);
  return 0;
}

FcChannel* fc_shared_channel_new(FcChannel* line, int memory, bool accepting) {
  uint32_t capacity = ring_size(memory);
  if (capacity == 0) return NULL;
  size_t size = HEADER_SIZE + 2 * (size_t)capacity;
  uint8_t* map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  SharedChannel* ch = map == MAP_FAILED ? NULL : fc_channel_new(sizeof *ch, &shm_ops);
  if (!ch) {
    if (map != MAP_FAILED) munmap(map, size);
    fc_error_no_memory();
    return NULL;
  }
  fc_channel_incref(line);
  ch->line = line;
  ch->line_fd = fc_channel_fd(line);
  ch->map = map;
  ch->map_size = size;
  ch->rings.peer_lives = line_is_silent;
  fc_rings_init(&ch->rings, (FcLane*)map, map + HEADER_SIZE, capacity, accepting);
  return &ch->rings.base;
}
