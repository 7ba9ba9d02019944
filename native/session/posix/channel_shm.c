/*
 * Channels over shared memory: two rings in a memory file that both processes map, and the Unix socket over which the
 * file was passed.
 *
 * Bulk data does not pass through the kernel: the sender copies into a ring while the receiver copies out of it. A side
 * that waits spins for a moment, then sleeps on a futex. Bytes of the socket count as coming after those of the ring:
 * the socket shows that a peer died, and carries the last error of a supervisor whose worker died.
 *
 * The peer can write anything into the file at any time. So this side keeps its own positions in private memory, reads
 * the peer's once and checks them, and copies bytes out before it interprets them. The file cannot shrink: it is
 * sealed, or refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session/posix/channels.h"
#include "runtime/runtime.h"

/* A position counts bytes, modulo 2^31; its highest bit says that its owner has finished. */
#define END UINT32_C(0x80000000)
#define POSITION UINT32_C(0x7fffffff)

enum {
  HEADER_SIZE = 4096,
  RING_MIN = 4096,
  RING_MAX = 1 << 24,
  STEP = 131072,             /* bytes after which the peer is told of progress */
  SPIN_NS = 30000,           /* the reply of a null call arrives sooner */
  SPINS = 64,
  SWITCH_NS = 1200,          /* shorter than a switch to another process and back */
  FIRST_SLEEP_NS = 1000000,  /* a futex cannot wait for the socket, too: sleeps end to check it, */
  LONGEST_SLEEP_NS = 64000000 /* at growing intervals */
};

/* One direction. Each side writes a cache line of its own. */
typedef struct Lane {
  _Alignas(64) uint32_t written; /* by the sender, which waits on `taken` */
  uint32_t sender_sleeps;
  _Alignas(64) uint32_t taken; /* by the receiver, which waits on `written` */
  uint32_t receiver_sleeps;
} Lane;

typedef struct SharedChannel {
  FcChannel base;
  FcChannel* line;
  int line_fd;
  Lane *out, *in;
  uint8_t *out_ring, *in_ring;
  uint8_t* map;
  size_t map_size;
  uint32_t capacity;  /* of a ring, a power of two */
  uint32_t written;   /* this side's positions; those in the file are for the peer only */
  uint32_t taken;
  uint32_t out_spins, in_spins; /* see changes_soon */
  bool finished;      /* this side sends no more */
  bool line_speaks;   /* the ring has ended: further bytes come over `line` */
  uint32_t broken;    /* interrupted */
} SharedChannel;

static uint32_t load(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void store(uint32_t* word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

/* ---- waiting ---- */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/*
 * Whether *word changes within SPIN_NS. *spins: how often to check before yielding the processor, which the peer may be
 * waiting for; adapted to the outcome of earlier waits.
 */
static bool changes_soon(const uint32_t* word, uint32_t seen, uint32_t* spins) {
  for (uint32_t i = 0; i < *spins; ++i) {
    if (load(word) != seen) return true;
    relax();
  }
  int64_t start = fc_now_ns(), now = start;
  bool changed = false;
  while (!changed && now - start < SPIN_NS) {
    sched_yield();
    changed = load(word) != seen;
    now = fc_now_ns();
  }
  *spins = changed && now - start < SWITCH_NS ? SPINS : *spins / 2;
  return changed;
}

static void wake(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

/* Tells the peer of a change; `sleeps` says whether it must be woken. */
static void tell(uint32_t* word, uint32_t value, const uint32_t* sleeps) {
  store(word, value);
  if (load(sleeps)) wake(word);
}

/* Whether the socket is readable: it has bytes, or the peer has closed it. */
static bool line_is_ready(const SharedChannel* ch) {
  struct pollfd look = {ch->line_fd, POLLIN, 0};
  return poll(&look, 1, 0) > 0;
}

/* Waits for a change of *word from `seen`. 1: changed; 0: the line is ready; < 0: failed. */
static int await_change(SharedChannel* ch, uint32_t* word, uint32_t seen, uint32_t* sleeps, uint32_t* spins,
                        int64_t deadline) {
  if (changes_soon(word, seen, spins)) return 1;
  for (int64_t longest = FIRST_SLEEP_NS;; longest = longest < LONGEST_SLEEP_NS ? 2 * longest : longest) {
    int64_t left = deadline ? deadline - fc_now_ns() : longest;
    if (load(&ch->broken)) return -ECANCELED;
    if (left <= 0) return -ETIMEDOUT;
    int64_t ns = left < longest ? left : longest;
    struct timespec timeout = {ns / 1000000000, ns % 1000000000};
    store(sleeps, 1);
    long rc = syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
    bool interrupted = rc < 0 && errno == EINTR;
    store(sleeps, 0);
    if (load(word) != seen) return 1;
    if (interrupted && fc_check_signals() < 0) return -EINTR;
    if (line_is_ready(ch)) return load(word) != seen; /* bytes that reached the ring meanwhile come first */
  }
}

/* ---- in ---- */

static void copy_out(SharedChannel* ch, uint8_t* to, uint32_t n) {
  uint32_t at = ch->taken & (ch->capacity - 1);
  uint32_t first = n < ch->capacity - at ? n : ch->capacity - at;
  memcpy(to, ch->in_ring + at, first);
  memcpy(to + first, ch->in_ring, n - first);
}

static ptrdiff_t shm_receive(FcChannel* base, void* to, size_t n, int64_t deadline) {
  SharedChannel* ch = (SharedChannel*)base;
  while (!ch->line_speaks) {
    if (load(&ch->broken)) return -ECANCELED;
    if (deadline && fc_now_ns() > deadline) return -ETIMEDOUT;
    uint32_t written = load(&ch->in->written);
    uint32_t have = (written - ch->taken) & POSITION;
    if (have > ch->capacity) return -EPROTO;
    if (have != 0) {
      uint32_t get = have < STEP ? have : STEP;
      get = get < n ? get : (uint32_t)n;
      copy_out(ch, to, get);
      ch->taken = (ch->taken + get) & POSITION;
      store(&ch->in->taken, ch->taken);
      /* Waking a sleeping sender is not worth it for a little room. */
      if (have - get <= ch->capacity / 2 && load(&ch->in->sender_sleeps)) wake(&ch->in->taken);
      return get;
    }
    if (written & END) return 0;
    int rc = await_change(ch, &ch->in->written, written, &ch->in->receiver_sleeps, &ch->in_spins, deadline);
    if (rc < 0) return rc;
    ch->line_speaks = rc == 0;
  }
  return fc_channel_receive(ch->line, to, n, deadline);
}

/* ---- out ---- */

static void copy_in(SharedChannel* ch, const uint8_t* from, uint32_t n) {
  uint32_t at = ch->written & (ch->capacity - 1);
  uint32_t first = n < ch->capacity - at ? n : ch->capacity - at;
  memcpy(ch->out_ring + at, from, first);
  memcpy(ch->out_ring, from + first, n - first);
  ch->written = (ch->written + n) & POSITION;
}

static void publish(SharedChannel* ch) {
  tell(&ch->out->written, ch->written, &ch->out->receiver_sleeps);
  if (load(&ch->broken)) __atomic_fetch_or(&ch->out->written, END, __ATOMIC_SEQ_CST); /* must not undo END */
}

/* > 0: free bytes of the ring; else failed. */
static int64_t await_room(SharedChannel* ch, int64_t deadline) {
  for (;;) {
    if (load(&ch->broken)) return -ECANCELED;
    uint32_t taken = load(&ch->out->taken);
    uint32_t used = (ch->written - taken) & POSITION;
    if (taken & END) return -EPIPE;
    if (used > ch->capacity) return -EPROTO;
    if (used < ch->capacity) return ch->capacity - used;
    fc_channel_note(&ch->base);
    publish(ch);
    int rc = await_change(ch, &ch->out->taken, taken, &ch->out->sender_sleeps, &ch->out_spins, deadline);
    if (rc <= 0) return rc == 0 ? -EPIPE : rc;
  }
}

static int shm_send(FcChannel* base, FcPart* parts, size_t count, int64_t deadline) {
  SharedChannel* ch = (SharedChannel*)base;
  if (ch->finished) return -EPIPE;
  uint32_t pending = 0; /* bytes copied, of which the peer was not told yet */
  while ((count = fc_channel_advance(&parts, count, 0)) != 0) {
    int64_t room = await_room(ch, deadline);
    if (room < 0) return (int)room;
    uint32_t n = room < STEP - pending ? (uint32_t)room : STEP - pending;
    n = n < parts->size ? n : (uint32_t)parts->size;
    copy_in(ch, parts->data, n);
    count = fc_channel_advance(&parts, count, n);
    pending += n;
    if (count == 0 || pending < STEP) continue;
    fc_channel_note(base);
    publish(ch);
    pending = 0;
  }
  publish(ch);
  return 0;
}

static int shm_finish(FcChannel* base) {
  SharedChannel* ch = (SharedChannel*)base;
  ch->finished = true;
  __atomic_fetch_or(&ch->out->written, END, __ATOMIC_SEQ_CST);
  wake(&ch->out->written);
  return 0;
}

/* ---- life ---- */

static void shm_interrupt(FcChannel* base) {
  SharedChannel* ch = (SharedChannel*)base;
  store(&ch->broken, 1);
  __atomic_fetch_or(&ch->out->written, END, __ATOMIC_SEQ_CST);
  __atomic_fetch_or(&ch->in->taken, END, __ATOMIC_SEQ_CST);
  uint32_t* const words[] = {&ch->out->written, &ch->out->taken, &ch->in->written, &ch->in->taken};
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i) wake(words[i]); /* the threads of both sides */
  fc_channel_interrupt(ch->line);
}

static void shm_close(FcChannel* base) {
  SharedChannel* ch = (SharedChannel*)base;
  fc_channel_close(ch->line);
  munmap(ch->map, ch->map_size);
}

static void shm_destroy(FcChannel* base) { fc_channel_decref(((SharedChannel*)base)->line); }

static const FcChannelOps shm_ops = {shm_receive, shm_send, shm_finish, shm_interrupt, shm_close, shm_destroy};

/* The size of a ring in the file; 0 with an error when the file is not valid. */
static uint32_t ring_size(int memory) {
  struct stat about;
  int seals = fcntl(memory, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(memory, &about) < 0) {
    fc_error_set("ProtocolError", "the peer's memory file is not sealed against shrinking");
    return 0;
  }
  int64_t size = (about.st_size - HEADER_SIZE) / 2;
  if (size >= RING_MIN && size <= RING_MAX && (size & (size - 1)) == 0 && about.st_size == HEADER_SIZE + 2 * size) {
    return (uint32_t)size;
  }
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
  Lane* lanes = (Lane*)map; /* the connecting side sends on the first */
  fc_channel_incref(line);
  ch->line = line;
  ch->line_fd = fc_channel_fd(line);
  ch->out = &lanes[accepting];
  ch->in = &lanes[!accepting];
  ch->out_ring = map + HEADER_SIZE + (accepting ? capacity : 0);
  ch->in_ring = map + HEADER_SIZE + (accepting ? 0 : capacity);
  ch->map = map;
  ch->map_size = size;
  ch->capacity = capacity;
  ch->out_spins = ch->in_spins = SPINS;
  return &ch->base;
}
