/* Two byte rings in shared memory; see rings.h. */
#include "session/posix/rings.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "runtime/runtime.h"
#include "session/posix/words.h"

/* A position counts bytes, modulo 2^31; its highest bit says that its owner has finished. */
#define END UINT32_C(0x80000000)
#define POSITION UINT32_C(0x7fffffff)

enum {
  STEP = 131072,              /* bytes after which the peer is told of progress */
  SPIN_NS = 30000,            /* the reply of a null call arrives sooner */
  SPINS = 64,
  SWITCH_NS = 1200,           /* shorter than a switch to another process and back */
  FIRST_SLEEP_NS = 1000000,   /* a word does not tell that the peer died: sleeps end to look, */
  LONGEST_SLEEP_NS = 64000000 /* at growing intervals */
};

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
    if (fc_word_load(word) != seen) return true;
    relax();
  }
  int64_t start = fc_now_ns(), now = start;
  bool changed = false;
  while (!changed && now - start < SPIN_NS) {
    sched_yield();
    changed = fc_word_load(word) != seen;
    now = fc_now_ns();
  }
  *spins = changed && now - start < SWITCH_NS ? SPINS : *spins / 2;
  return changed;
}

/* Tells the peer of a change; `sleeps` says whether it must be woken. */
static void tell(uint32_t* word, uint32_t value, const uint32_t* sleeps) {
  fc_word_store(word, value);
  if (fc_word_load(sleeps)) fc_word_wake(word);
}

static bool is_broken(const FcRings* ch) { return __atomic_load_n(&ch->broken, __ATOMIC_SEQ_CST) != 0; }

/* Waits for a change of *word from `seen`. 1: changed; 0: the peer is gone; < 0: failed. */
static int await_change(FcRings* ch, uint32_t* word, uint32_t seen, uint32_t* sleeps, uint32_t* spins,
                        int64_t deadline) {
  if (changes_soon(word, seen, spins)) return 1;
  for (int64_t longest = FIRST_SLEEP_NS;; longest = longest < LONGEST_SLEEP_NS ? 2 * longest : longest) {
    int64_t left = deadline ? deadline - fc_now_ns() : longest;
    if (is_broken(ch)) return -ECANCELED;
    if (left <= 0) return -ETIMEDOUT;
    fc_word_store(sleeps, 1);
    bool undisturbed = fc_word_sleep(word, seen, left < longest ? left : longest);
    fc_word_store(sleeps, 0);
    if (fc_word_load(word) != seen) return 1;
    if (!undisturbed && fc_check_signals() < 0) return -EINTR;
    if (!ch->peer_lives(ch)) return fc_word_load(word) != seen; /* what reached the ring meanwhile comes first */
  }
}

/* ---- in ---- */

static void copy_out(FcRings* ch, uint8_t* to, uint32_t n) {
  uint32_t at = ch->taken & (ch->capacity - 1);
  uint32_t first = n < ch->capacity - at ? n : ch->capacity - at;
  memcpy(to, ch->in_ring + at, first);
  if (n != first) memcpy(to + first, ch->in_ring, n - first);
}

ptrdiff_t fc_rings_receive(FcRings* ch, void* to, size_t n, int64_t deadline) {
  for (;;) {
    if (is_broken(ch)) return -ECANCELED;
    if (deadline && fc_now_ns() > deadline) return -ETIMEDOUT;
    uint32_t written = fc_word_load(&ch->in->written);
    uint32_t have = (written - ch->taken) & POSITION;
    if (have > ch->capacity) return -EPROTO;
    if (have != 0) {
      uint32_t get = have < STEP ? have : STEP;
      get = get < n ? get : (uint32_t)n;
      copy_out(ch, to, get);
      ch->taken = (ch->taken + get) & POSITION;
      fc_word_store(&ch->in->taken, ch->taken);
      if (is_broken(ch)) fc_word_set_bits(&ch->in->taken, END); /* the store must not undo END */
      /* Waking a sleeping sender is not worth it for a little room. */
      if (have - get <= ch->capacity / 2 && fc_word_load(&ch->in->sender_sleeps)) fc_word_wake(&ch->in->taken);
      return get;
    }
    if (written & END) return 0;
    int rc = await_change(ch, &ch->in->written, written, &ch->in->receiver_sleeps, &ch->in_spins, deadline);
    if (rc <= 0) return rc == 0 ? -ECONNRESET : rc;
  }
}

/* ---- out ---- */

static void copy_in(FcRings* ch, const uint8_t* from, uint32_t n) {
  uint32_t at = ch->written & (ch->capacity - 1);
  uint32_t first = n < ch->capacity - at ? n : ch->capacity - at;
  memcpy(ch->out_ring + at, from, first);
  if (n != first) memcpy(ch->out_ring, from + first, n - first);
  ch->written = (ch->written + n) & POSITION;
}

static void publish(FcRings* ch) {
  tell(&ch->out->written, ch->written, &ch->out->receiver_sleeps);
  if (is_broken(ch)) fc_word_set_bits(&ch->out->written, END); /* must not undo END */
}

/* > 0: free bytes of the ring; else failed. */
static int64_t await_room(FcRings* ch, int64_t deadline) {
  for (;;) {
    if (is_broken(ch)) return -ECANCELED;
    uint32_t taken = fc_word_load(&ch->out->taken);
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

int fc_rings_send(FcChannel* base, FcPart* parts, size_t count, int64_t deadline) {
  FcRings* ch = (FcRings*)base;
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

int fc_rings_finish(FcChannel* base) {
  FcRings* ch = (FcRings*)base;
  ch->finished = true;
  fc_word_set_bits(&ch->out->written, END);
  fc_word_wake(&ch->out->written);
  return 0;
}

/* ---- life ---- */

void fc_rings_interrupt(FcRings* ch) {
  __atomic_store_n(&ch->broken, 1, __ATOMIC_SEQ_CST);
  fc_word_set_bits(&ch->out->written, END);
  fc_word_set_bits(&ch->in->taken, END);
  uint32_t* const words[] = {&ch->out->written, &ch->out->taken, &ch->in->written, &ch->in->taken};
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i) fc_word_wake(words[i]); /* the threads of both sides */
}

void fc_lanes_end(FcLane* lanes) {
  for (FcLane* lane = lanes; lane < lanes + 2; ++lane) {
    fc_word_set_bits(&lane->written, END);
    fc_word_set_bits(&lane->taken, END);
    fc_word_wake(&lane->written);
    fc_word_wake(&lane->taken);
  }
}

bool fc_rings_capacity(int64_t capacity) {
  return capacity >= FC_RING_MIN && capacity <= FC_RING_MAX && (capacity & (capacity - 1)) == 0;
}

void fc_rings_init(FcRings* ch, FcLane* lanes, uint8_t* memory, uint32_t capacity, bool accepting) {
  ch->out = &lanes[accepting];
  ch->in = &lanes[!accepting];
  ch->out_ring = memory + (accepting ? capacity : 0);
  ch->in_ring = memory + (accepting ? 0 : capacity);
  ch->capacity = capacity;
  ch->written = fc_word_load(&ch->out->written) & POSITION;
  ch->taken = fc_word_load(&ch->in->taken) & POSITION;
  ch->out_spins = ch->in_spins = SPINS;
}
