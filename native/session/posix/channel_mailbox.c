/*
 * Channels over mailboxes: two rings in one file, which both sides open by its name; see mailbox.h and
 * docs/spec/mailbox.md.
 *
 * Each side locks a byte of the file while it uses the mailbox. The kernel releases the lock when the process
 * dies, however it dies, so a side that waits asks now and then whether the peer's byte is still locked. The locks
 * belong to the open file, not to the process: both sides may live in one process, and a server's forked child keeps
 * the server's lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/posix/guard.h"
#include "session/posix/mailbox.h"
#include "session/posix/rings.h"
#include "session/posix/words.h"
#include "runtime/runtime.h"

enum {
  VERSION = 1,
  HEADER_SIZE = 4096,
  RING_SIZE = 1 << 20, /* of new files: fits into a cache, yet a peer rarely has to wait for the other */
  ORDER_MARK = 0x01020304,
  FIRST_SLEEP_NS = 1000000,
  LONGEST_SLEEP_NS = 32000000
};

/* The bytes of the file that are locked: by the server, by the client in the session, by the client whose turn it is,
 * and by a server that removes the file of a dead one. */
enum Byte { SERVER, CLIENT, TURN, REMOVAL };

/* The beginning of the file; all words are little endian. */
typedef struct Header {
  char magic[8];
  uint32_t version;
  uint32_t order_mark;
  uint32_t header_size;
  uint32_t ring_size;
  _Alignas(64) uint32_t offered; /* by the server: the number of the session that a client may enter, or 0 */
  uint32_t entered;              /* by the client: the number of the session that it has entered */
  _Alignas(64) FcLane lanes[2];
} Header;

_Static_assert(offsetof(Header, offered) == 64 && offsetof(Header, lanes) == 128 && sizeof(Header) == 384,
               "the layout of docs/spec/mailbox.md");

static const char magic[8] = {'F', 'C', 'M', 'A', 'I', 'L', 'B', 'X'};

struct FcMailbox {
  Header* header;
  FcGuard* guard; /* of the map */
  uint32_t capacity;
  int fd;
  enum Byte side; /* SERVER or CLIENT */
  uint32_t session; /* the number of the current one */
  bool offering;    /* `session` is offered, and nobody has entered it yet */
  uint32_t stopped; /* interrupted */
  uint32_t refs;
};

typedef struct MailboxChannel {
  FcRings rings;
  FcMailbox* box;
} MailboxChannel;

/* ---- locks ---- */

static struct flock range_of(enum Byte byte, short type) {
  return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

static bool lock(int fd, enum Byte byte) {
  struct flock range = range_of(byte, F_WRLCK);
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

static void unlock(int fd, enum Byte byte) {
  struct flock range = range_of(byte, F_UNLCK);
  fcntl(fd, F_OFD_SETLK, &range);
}

/* Whether somebody else has the byte locked. */
static bool is_locked(int fd, enum Byte byte) {
  struct flock range = range_of(byte, F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &range) < 0 || range.l_type != F_UNLCK;
}

/* Through a broken map, nobody is. */
static bool peer_is_there(const FcMailbox* box) {
  return !fc_guard_is_broken(box->guard) && is_locked(box->fd, box->side == SERVER ? CLIENT : SERVER);
}

/* ---- the file ---- */

static int refuse(const char* path, const char* problem) {
  fc_error_format("UsageError", "mailbox %.200s: %s", path, problem);
  return -1;
}

static int refuse_by_system(const char* kind, const char* path, const char* cure) {
  fc_error_format(kind, "mailbox %.200s: %s; %s", path, strerror(errno), cure);
  return -1;
}

static size_t size_of(uint32_t ring_size) { return HEADER_SIZE + 2 * (size_t)ring_size; }

/* Gives the file its size and its header. 0, or -1 with errno. */
static int fill(int fd, uint32_t ring_size) {
  Header header = {.version = fc_word_raw(VERSION),
                   .order_mark = fc_word_raw(ORDER_MARK),
                   .header_size = fc_word_raw(HEADER_SIZE),
                   .ring_size = fc_word_raw(ring_size)};
  memcpy(header.magic, magic, sizeof magic);
  if (ftruncate(fd, (off_t)size_of(ring_size)) < 0) return -1;
  return pwrite(fd, &header, sizeof header, 0) == (ptrdiff_t)sizeof header ? 0 : -1;
}

/* Makes the file, whole and served from its first moment. Its descriptor, or -1 with errno; EEXIST: the path is
 * taken. */
static int make_file(const char* path) {
  char beside[4096];
  if (snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid()) >= (int)sizeof beside) {
    errno = ENAMETOOLONG;
    return -1;
  }
  unlink(beside); /* of a dead process with this number */
  int fd = open(beside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  bool made = fill(fd, RING_SIZE) == 0 && lock(fd, SERVER) && link(beside, path) == 0;
  int error = errno;
  unlink(beside);
  if (made) return fd;
  close(fd);
  errno = error;
  return -1;
}

/* Whether the file at the path is still the open one: its server may just have removed it. */
static bool is_at(const char* path, int fd) {
  struct stat open_file, named;
  return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

/* Why a file with this header is none of this version; NULL if it is one. Its copy is private: nobody changes it. */
static const char* fault_of(const Header* header, int64_t file_size) {
  int64_t ring_size = fc_word_raw(header->ring_size);
  if (memcmp(header->magic, magic, sizeof magic) != 0) return "the file is no mailbox; choose another path";
  if (fc_word_raw(header->version) != VERSION || fc_word_raw(header->order_mark) != ORDER_MARK) {
    return "the file has another version than 1; use the same release of farcall on both sides, or remove the file";
  }
  if (fc_word_raw(header->header_size) != HEADER_SIZE || !fc_rings_capacity(ring_size) ||
      file_size != HEADER_SIZE + 2 * ring_size) {
    return "its sizes are not valid; stop its server and remove the file";
  }
  return NULL;
}

/* The size of the rings of the open file; 0 with an error: it is no mailbox, or not this user's alone. */
static uint32_t check_file(int fd, const char* path) {
  struct stat about;
  Header header;
  const char* fault;
  if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode)) {
    fault = "the path is no file; choose another";
  } else if (about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
    fault = "other users can open the file, or own it; it must be yours alone: chmod 600";
  } else {
    if (pread(fd, &header, sizeof header, 0) != (ptrdiff_t)sizeof header) memset(&header, 0, sizeof header);
    fault = fault_of(&header, about.st_size);
  }
  if (!fault) return fc_word_raw(header.ring_size);
  refuse(path, fault);
  return 0;
}

/* Removes the mailbox of a dead server. A client could take what is left in it for an offer of this server. -1 with an
 * error. */
static int remove_dead(const char* path, int fd) {
  if (check_file(fd, path) == 0) return -1;
  if (is_locked(fd, SERVER) || !lock(fd, REMOVAL)) {
    return refuse(path, "another server has it open; stop it, or choose another path");
  }
  if (is_at(path, fd)) unlink(path);
  return 0;
}

/* The descriptor of the file, of which this is the only server. -1 with an error. */
static int open_serving(const char* path) {
  for (;;) {
    int fd = make_file(path);
    if (fd >= 0) return fd;
    bool taken = errno == EEXIST;
    if (taken) fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && taken && errno == ENOENT) continue; /* its server has just removed it */
    if (fd < 0) return refuse_by_system("UsageError", path, "it cannot be made; choose another path");
    int rc = remove_dead(path, fd);
    close(fd);
    if (rc < 0) return -1;
  }
}

static int open_connecting(const char* path) {
  int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) return fd;
  if (errno != ENOENT) return refuse_by_system("UsageError", path, "choose another path");
  return refuse_by_system("ConnectError", path, "is `farcall-server --mailbox` or `farcall serve` running there?");
}

/* Checks and maps the open file. -1 with an error. */
static int map_file(FcMailbox* box, const char* path) {
  box->capacity = check_file(box->fd, path);
  if (box->capacity == 0) return -1;
  box->guard = fc_guard_map(box->fd, size_of(box->capacity));
  if (!box->guard) return refuse_by_system("UsageError", path, "it cannot be mapped");
  box->header = fc_guard_memory(box->guard);
  return 0;
}

FcMailbox* fc_mailbox_open(const char* path, bool serving) {
  FcMailbox* box = calloc(1, sizeof *box);
  if (!box) {
    fc_error_no_memory();
    return NULL;
  }
  box->refs = 1;
  box->side = serving ? SERVER : CLIENT;
  box->fd = serving ? open_serving(path) : open_connecting(path);
  if (box->fd >= 0 && map_file(box, path) == 0) return box;
  fc_mailbox_decref(box);
  return NULL;
}

void fc_mailbox_decref(FcMailbox* box) {
  if (__atomic_sub_fetch(&box->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  if (box->guard) fc_guard_unmap(box->guard);
  if (box->fd >= 0) close(box->fd); /* releases the locks, unless a forked child goes on */
  free(box);
}

void fc_mailbox_remove(FcMailbox* box, const char* path) {
  if (is_at(path, box->fd)) unlink(path);
}

/* ---- meeting ---- */

/* A wait for a condition that has no word of its own, or whose word the peer's death does not change. */
typedef struct Patience {
  int64_t deadline, longest_ns;
} Patience;

/* Sleeps until the word is woken, and not for long. 0, or failed. */
static int wait_a_little(const FcMailbox* box, uint32_t* word, uint32_t seen, Patience* patience) {
  int64_t ns = patience->longest_ns;
  if (__atomic_load_n(&box->stopped, __ATOMIC_SEQ_CST)) return -ECANCELED;
  if (patience->deadline && patience->deadline - fc_now_ns() < ns) ns = patience->deadline - fc_now_ns();
  if (ns <= 0) return -ETIMEDOUT;
  if (!fc_word_sleep(word, seen, ns) && fc_check_signals() < 0) return -EINTR;
  if (patience->longest_ns < LONGEST_SLEEP_NS) patience->longest_ns *= 2;
  return 0;
}

/* Whether the file is as it was made: another process can change its size. */
static bool is_whole(const FcMailbox* box) {
  struct stat about;
  return !fc_guard_is_broken(box->guard) && fstat(box->fd, &about) == 0 &&
         about.st_size == (int64_t)size_of(box->capacity);
}

/* Makes the file whole again. False: the file system is full, say. */
static bool mend(FcMailbox* box) {
  if (fill(box->fd, box->capacity) < 0 || fc_guard_restore(box->guard, box->fd) < 0) return false;
  box->header = fc_guard_memory(box->guard);
  fc_word_store(&box->header->entered, box->session); /* a number of an old client must not come again */
  return true;
}

/* Ends the session before, waits until its client has left, and offers the next one. 0, or failed. */
static int offer(FcMailbox* box, Patience* patience) {
  while (!is_whole(box) && !mend(box)) {
    int rc = wait_a_little(box, &box->stopped, 0, patience);
    if (rc < 0) return rc;
  }
  Header* header = box->header;
  fc_word_store(&header->offered, 0);
  fc_lanes_end(header->lanes);
  for (;;) {
    uint32_t entered = fc_word_load(&header->entered);
    if (!peer_is_there(box)) break;
    int rc = wait_a_little(box, &header->entered, entered, patience);
    if (rc < 0) return rc;
  }
  memset(header->lanes, 0, sizeof header->lanes); /* a client that comes now waits for the offer */
  box->session = fc_word_load(&header->entered) + 1;
  if (box->session == 0) box->session = 1;
  box->offering = true;
  patience->longest_ns = FIRST_SLEEP_NS;
  fc_word_store(&header->offered, box->session);
  fc_word_wake(&header->offered);
  return 0;
}

static int meet_client(FcMailbox* box, Patience* patience) {
  for (;;) {
    int rc = box->offering && is_whole(box) ? 0 : offer(box, patience);
    if (rc < 0) return rc;
    uint32_t entered = fc_word_load(&box->header->entered);
    if (entered == box->session) {
      box->offering = false;
      return 0;
    }
    rc = wait_a_little(box, &box->header->entered, entered, patience);
    if (rc < 0) return rc;
  }
}

/* Enters the session that the server offers, now or soon. 0, or failed. */
static int enter(FcMailbox* box, Patience* patience) {
  Header* header = box->header;
  for (;;) {
    uint32_t offered = fc_word_load(&header->offered);
    if (!peer_is_there(box)) return -ECONNREFUSED;
    if (offered != 0 && offered != fc_word_load(&header->entered)) {
      if (!lock(box->fd, CLIENT)) return -EBUSY; /* by somebody who does not wait for a turn */
      box->session = offered;
      fc_word_store(&header->entered, offered);
      fc_word_wake(&header->entered);
      return 0;
    }
    int rc = wait_a_little(box, &header->offered, offered, patience);
    if (rc < 0) return rc;
  }
}

static void leave(FcMailbox* box) {
  if (box->side != CLIENT) return;
  unlock(box->fd, CLIENT);
  unlock(box->fd, TURN);
  fc_word_wake(&box->header->entered); /* the server waits for that */
}

static int meet_server(FcMailbox* box, Patience* patience) {
  while (!lock(box->fd, TURN)) {
    if (!peer_is_there(box)) return -ECONNREFUSED;
    int rc = wait_a_little(box, &box->header->offered, fc_word_load(&box->header->offered), patience);
    if (rc < 0) return rc == -ETIMEDOUT ? -EBUSY : rc;
  }
  int rc = enter(box, patience);
  if (rc < 0) leave(box);
  return rc;
}

int fc_mailbox_meet(FcMailbox* box, int64_t deadline) {
  Patience patience = {deadline, FIRST_SLEEP_NS};
  return box->side == SERVER ? meet_client(box, &patience) : meet_server(box, &patience);
}

/* Sleeps are short, so that there is nothing to wake: the words may be elsewhere by now. */
void fc_mailbox_interrupt(FcMailbox* box) { __atomic_store_n(&box->stopped, 1, __ATOMIC_SEQ_CST); }

bool fc_mailbox_is_shared(const FcMailbox* box) {
  /* Another number: a new server has the mailbox, which does not know this session. */
  return peer_is_there(box) && fc_word_load(&box->header->offered) == box->session;
}

/* ---- the channel of a session ---- */

static bool peer_lives(const FcRings* rings) { return fc_mailbox_is_shared(((const MailboxChannel*)rings)->box); }

static ptrdiff_t mailbox_receive(FcChannel* base, void* to, size_t n, int64_t deadline) {
  return fc_rings_receive((FcRings*)base, to, n, deadline);
}

static void mailbox_interrupt(FcChannel* base) { fc_rings_interrupt((FcRings*)base); }
static void mailbox_close(FcChannel* base) { leave(((MailboxChannel*)base)->box); }
static void mailbox_destroy(FcChannel* base) { fc_mailbox_decref(((MailboxChannel*)base)->box); }

static const FcChannelOps mailbox_ops = {mailbox_receive,   fc_rings_send, fc_rings_finish,
                                         mailbox_interrupt, mailbox_close, mailbox_destroy};

FcChannel* fc_mailbox_channel(FcMailbox* box) {
  MailboxChannel* ch = fc_channel_new(sizeof *ch, &mailbox_ops);
  if (!ch) return NULL;
  fc_guard_arm(); /* in a forked worker */
  __atomic_fetch_add(&box->refs, 1, __ATOMIC_RELAXED);
  ch->box = box;
  ch->rings.peer_lives = peer_lives;
  fc_rings_init(&ch->rings, box->header->lanes, (uint8_t*)box->header + HEADER_SIZE, box->capacity,
                box->side == SERVER);
  return &ch->rings.base;
}
