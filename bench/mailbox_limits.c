/*
 * The limits of a file that two programs map, one of them perhaps in an emulator: `mailbox_limits WORK COUNT A B FILE`
 * measures, and `mailbox_limits WORK 0 A B FILE` is its peer, which never ends. For every line on stdin the first one
 * measures once, and prints the seconds.
 *
 *   pingpong   a request of A bytes, an answer of B bytes, COUNT times: the median round trip
 *   up         A bytes through a ring to the peer, COUNT times: the median time
 *   down       A bytes through a ring from the peer
 *
 * Positions and slots have the byte order of the machine: both programs must agree on it.
 */
#include "slots.h"

#include <fcntl.h>

enum { RING = 1 << 20, STEP = 131072 };

typedef struct Shared {
  Slot request, answer;
  _Alignas(64) uint32_t written; /* of the ring */
  _Alignas(64) uint32_t taken;
  _Alignas(64) char ring[RING];
} Shared;

static Shared* shared;
static char* data;
static uint32_t in, out, turn;

static void pingpong(void) {
  put(&shared->request, turn + 1, data, in);
  take(&shared->answer, turn, data, out);
  ++turn;
}

static void answer(void) {
  take(&shared->request, turn, data, in);
  put(&shared->answer, turn + 1, data, out);
  ++turn;
}

static uint32_t load(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

/* Until the difference of the positions is no longer `full`. */
static void await_difference(uint32_t full) {
  while (load(&shared->written) - load(&shared->taken) == full) sched_yield();
}

static void send_all(void) {
  for (uint32_t done = 0, n; done < in; done += n) {
    await_difference(RING);
    uint32_t at = load(&shared->written), room = RING - (at - load(&shared->taken));
    n = room < STEP ? room : STEP;
    n = n < in - done ? n : in - done;
    n = n < RING - at % RING ? n : RING - at % RING;
    memcpy(shared->ring + at % RING, data + done, n);
    __atomic_store_n(&shared->written, at + n, __ATOMIC_SEQ_CST);
  }
}

static void take_all(void) {
  for (uint32_t done = 0, n; done < in; done += n) {
    await_difference(0);
    uint32_t at = load(&shared->taken), have = load(&shared->written) - at;
    n = have < STEP ? have : STEP;
    n = n < in - done ? n : in - done;
    n = n < RING - at % RING ? n : RING - at % RING;
    memcpy(data + done, shared->ring + at % RING, n);
    __atomic_store_n(&shared->taken, at + n, __ATOMIC_SEQ_CST);
  }
}

/* The first slot says that the transfer begins, the second one that it has ended. */
static void transfer(void (*work)(void)) {
  put(&shared->request, turn + 1, data, 1);
  work();
  take(&shared->answer, turn, data, 1);
  ++turn;
}

static void reply(void (*work)(void)) {
  char byte;
  take(&shared->request, turn, &byte, 1);
  work();
  put(&shared->answer, turn + 1, &byte, 1);
  ++turn;
}

static void up(void) { transfer(send_all); }
static void down(void) { transfer(take_all); }

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  uint32_t count = (uint32_t)strtoul(argv[2], NULL, 10);
  in = (uint32_t)strtoul(argv[3], NULL, 10);
  out = (uint32_t)strtoul(argv[4], NULL, 10);
  int fd = open(argv[5], O_RDWR);
  if (fd < 0) return 1;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  data = malloc(in + out + 1);
  if (shared == MAP_FAILED || !data) return 1;
  memset(data, 1, in + out + 1);
  bool pings = strcmp(argv[1], "pingpong") == 0, ups = strcmp(argv[1], "up") == 0;
  if (count != 0) measure(count, pings ? pingpong : ups ? up : down);
  while (count == 0) {
    if (pings) answer();
    else reply(ups ? take_all : send_all);
  }
  return 0;
}
