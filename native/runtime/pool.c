/*
 * A loop is cut into units of `grain` iterations, and each thread that takes part gets an equal share of them. It takes
 * most of its share at once (all of it, if parts cost much to begin), so that the share's memory is read in order, and
 * then smaller parts. A thread that has
 * finished its share takes half of what another one has left. So the result does not depend on how many threads come,
 * or when, and the caller alone can finish the loop.
 *
 * A long loop wakes threads that sleep. A short one is shared with those that are awake, so that its threads find in
 * their own caches what they wrote in the loop before; several short ones soon after each other wake the others.
 *
 * One loop at a time uses the pool. A loop that begins meanwhile, in another thread or inside of a body, runs in its
 * caller: it never waits.
 */
#include "runtime/pool.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
  LINE = 64,             /* bytes of a cache line, and the alignment of scratch memory */
  IDLE_SPIN_NS = 50000,  /* how long a thread looks for the next loop before it sleeps: the gap between two loops of
                            one call is shorter, and a sleep with its wake-up costs as much */
  END_SPIN_NS = 50000,   /* how long the caller looks for the end of the last body before it sleeps */
  LOOKS_PER_TIME = 64,   /* looks between two readings of the clock */
  QUARTERS = 4,          /* of a grain: one is worth the time of a thread that is awake */
  DUE_GRAINS = 2,        /* so many, in short loops soon after each other, are worth a wake-up */
};

/* The units of one thread that nobody has taken yet: the first in the low half, the end in the high half. */
typedef struct {
  _Alignas(LINE) _Atomic uint64_t units;
} Share;

typedef struct {
  uint32_t forks; /* a pool of another process has no threads here */
  _Atomic bool busy;
  int threads; /* that were started; only who has made the pool busy reads and writes it */
  FcMutex mutex;
  FcCondition wake; /* a loop began */
  FcCondition done; /* the last thread has left it */
  _Atomic int sleeping;
  _Atomic bool caller_sleeps;
  double missed;     /* grains of short loops, one soon after the other, for which no thread was awake */
  int64_t missed_ns; /* when the last one began; only who has made the pool busy reads and writes both */
  /* Who may take part, in one word: how many threads do, how many more may come, whether the loop is open, and the
   * number of the loop. Everything below belongs to the loop, and is written before the loop opens. */
  _Alignas(LINE) _Atomic uint64_t gate;
  const FarcallLoop* loop;
  int64_t unit;  /* iterations */
  int count;     /* of shares */
  _Atomic int64_t failed_at; /* the first iteration of the first part that failed; INT64_MAX: none has */
  TVMFFIObject* error;       /* its error, owned; the mutex guards it */
  Share shares[FC_MOST_THREADS];
} Pool;

#define GATE_ACTIVE UINT64_C(1)
#define GATE_PLACE (UINT64_C(1) << 16)
#define GATE_OPEN (UINT64_C(1) << 32)
#define GATE_LOOP (UINT64_C(1) << 33)

static uint64_t gate_active(uint64_t gate) { return gate & (GATE_PLACE - 1); }
static uint64_t gate_places(uint64_t gate) { return gate % GATE_OPEN / GATE_PLACE; }
static uint64_t gate_number(uint64_t gate) { return gate / GATE_LOOP; }

typedef struct {
  Pool* pool;
  void* scratch;
  int64_t scratch_size;
  uint64_t seen; /* the last loop that it took part in, or came too late for */
} Worker;

/* ---- waiting ---- */

static inline void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Whether the condition became true within the time. It is tested at least once. */
static bool spin(bool (*is_true)(const void* context), const void* context, int64_t ns) {
  const int64_t end = fc_now_ns() + ns;
  do {
    for (int i = 0; i < LOOKS_PER_TIME; ++i) {
      if (is_true(context)) return true;
      rest();
    }
  } while (fc_now_ns() < end);
  return false;
}

static bool has_loop(const void* context) {
  const Worker* worker = context;
  const uint64_t gate = atomic_load(&worker->pool->gate);
  return (gate & GATE_OPEN) && gate_number(gate) != worker->seen;
}

static bool is_left(const void* context) { return gate_active(atomic_load(&((const Pool*)context)->gate)) == 0; }

static void wait_for_loop(Worker* worker) {
  Pool* pool = worker->pool;
  if (spin(has_loop, worker, IDLE_SPIN_NS)) return;
  fc_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleeping, 1);
  while (!has_loop(worker)) fc_condition_wait(&pool->wake, &pool->mutex);
  atomic_fetch_sub(&pool->sleeping, 1);
  fc_mutex_unlock(&pool->mutex);
}

static void wake(Pool* pool, int wanted) {
  int asleep = atomic_load(&pool->sleeping);
  if (asleep == 0) return;
  fc_mutex_lock(&pool->mutex);
  for (int i = 0; i < wanted && i < asleep; ++i) fc_condition_signal(&pool->wake);
  fc_mutex_unlock(&pool->mutex);
}

static void wait_until_left(Pool* pool) {
  if (is_left(pool) || spin(is_left, pool, END_SPIN_NS)) return;
  fc_mutex_lock(&pool->mutex);
  atomic_store(&pool->caller_sleeps, true);
  while (!is_left(pool)) fc_condition_wait(&pool->done, &pool->mutex);
  atomic_store(&pool->caller_sleeps, false);
  fc_mutex_unlock(&pool->mutex);
}

static int count_awake(Pool* pool) { return pool->threads - atomic_load(&pool->sleeping); }

/* Whether short loops that begin soon after each other have become as long as one that wakes threads. */
static bool is_due(Pool* pool, double grains) {
  const int64_t now = fc_now_ns();
  if (now - pool->missed_ns > IDLE_SPIN_NS) pool->missed = 0;
  pool->missed_ns = now;
  pool->missed += grains;
  if (pool->missed < DUE_GRAINS) return false;
  pool->missed = 0;
  return true;
}

/* ---- shares ---- */

typedef struct {
  uint32_t first, end;
} Units;

static Units units_of(uint64_t word) { return (Units){(uint32_t)word, (uint32_t)(word >> 32)}; }
static uint64_t word_of(Units units) { return (uint64_t)units.end << 32 | units.first; }

/* Most of a thread's own share: the part that is left for others to take costs one more call of the body. */
static bool take(Share* share, bool at_once, Units* out) {
  uint64_t word = atomic_load(&share->units);
  for (;;) {
    const Units all = units_of(word);
    if (all.first == all.end) return false;
    const uint32_t left = at_once ? 0 : (all.end - all.first) / 4;
    *out = (Units){all.first, all.end - left};
    if (atomic_compare_exchange_weak(&share->units, &word, word_of((Units){out->end, all.end}))) return true;
  }
}

/* The second half of another thread's share becomes the own one. */
static bool steal_from(Share* from, Share* own) {
  uint64_t word = atomic_load(&from->units);
  for (;;) {
    const Units all = units_of(word);
    if (all.first == all.end) return false;
    const uint32_t middle = all.first + (all.end - all.first) / 2;
    if (!atomic_compare_exchange_weak(&from->units, &word, word_of((Units){all.first, middle}))) continue;
    atomic_store(&own->units, word_of((Units){middle, all.end}));
    return true;
  }
}

static bool steal(Pool* pool, int own) {
  for (int i = 1; i < pool->count; ++i) {
    if (steal_from(&pool->shares[(own + i) % pool->count], &pool->shares[own])) return true;
  }
  return false;
}

/* ---- the loop ---- */

/* Keeps the error of the part that is first in the loop, as if the parts had run in order. */
static void fail(Pool* pool, int64_t begin) {
  TVMFFIObject* error = fc_error_take();
  fc_mutex_lock(&pool->mutex);
  if (begin < atomic_load(&pool->failed_at)) {
    TVMFFIObject* later = pool->error;
    atomic_store(&pool->failed_at, begin);
    pool->error = error;
    error = later;
  }
  fc_mutex_unlock(&pool->mutex);
  if (error) fc_decref(error);
}

static void run(Pool* pool, Units units, void* scratch) {
  const FarcallLoop* loop = pool->loop;
  const int64_t begin = units.first * pool->unit, end = units.end * pool->unit;
  if (begin > atomic_load(&pool->failed_at)) return;
  if (loop->body(loop->context, begin, end < loop->count ? end : loop->count, scratch) != 0) fail(pool, begin);
}

static void take_part(Pool* pool, int own, void* scratch) {
  const bool at_once = pool->loop->grain < 0;
  Units units;
  do {
    while (take(&pool->shares[own], at_once, &units)) run(pool, units, scratch);
  } while (steal(pool, own));
}

/* The number of a share; -1: no thread may come any more. */
static int join(Worker* worker) {
  Pool* pool = worker->pool;
  uint64_t gate = atomic_load(&pool->gate);
  for (;;) {
    worker->seen = gate_number(gate);
    if (!(gate & GATE_OPEN) || gate_places(gate) == 0) return -1;
    if (atomic_compare_exchange_weak(&pool->gate, &gate, gate - GATE_PLACE + GATE_ACTIVE)) {
      return (int)gate_places(gate); /* the caller has share 0 */
    }
  }
}

static void leave(Pool* pool) {
  const uint64_t gate = atomic_fetch_sub(&pool->gate, GATE_ACTIVE);
  if (gate_active(gate) != 1 || !atomic_load(&pool->caller_sleeps)) return;
  fc_mutex_lock(&pool->mutex);
  fc_condition_signal(&pool->done);
  fc_mutex_unlock(&pool->mutex);
}

static bool has_scratch(Worker* worker, int64_t size) {
  if (size <= worker->scratch_size) return true;
  free(worker->scratch);
  size = (size + LINE - 1) / LINE * LINE;
  worker->scratch = aligned_alloc(LINE, (size_t)size);
  worker->scratch_size = worker->scratch ? size : 0;
  return worker->scratch != NULL;
}

static FC_TLS bool in_pool; /* this thread is one of the pool's */

static void* work(void* context) {
  Worker* worker = context;
  in_pool = true;
  fc_block_signals();
  for (;;) {
    wait_for_loop(worker);
    const int own = join(worker);
    if (own < 0) continue;
    const int64_t size = worker->pool->loop->scratch;
    /* Without memory, the others do this thread's share. */
    if (has_scratch(worker, size)) take_part(worker->pool, own, size > 0 ? worker->scratch : NULL);
    leave(worker->pool);
  }
  return NULL;
}

/* ---- the pool ---- */

static _Atomic(Pool*) current;

/* Where the system refuses threads, loops run on those that there are. */
static void start_threads(Pool* pool, int wanted) {
  for (; pool->threads < wanted; ++pool->threads) {
    Worker* worker = calloc(1, sizeof *worker);
    FcTask task;
    if (!worker) return;
    worker->pool = pool;
    worker->seen = gate_number(atomic_load(&pool->gate));
    if (fc_task_start(&task, work, worker) != 0) {
      free(worker);
      return;
    }
    fc_task_forget(task);
  }
}

static Pool* new_pool(void) {
  Pool* pool = aligned_alloc(LINE, sizeof *pool);
  if (!pool) return NULL;
  memset(pool, 0, sizeof *pool);
  fc_mutex_init(&pool->mutex);
  fc_condition_init(&pool->wake);
  fc_condition_init(&pool->done);
  pool->forks = fc_forks;
  return pool;
}

/* After a fork, the child makes a pool of its own. The memory of its parent's pool stays unused: threads that the child
 * does not have may have locked it. */
static Pool* find_pool(void) {
  Pool* pool = atomic_load(&current);
  while (!pool || pool->forks != fc_forks) {
    Pool* made = new_pool();
    if (!made) return NULL;
    if (atomic_compare_exchange_strong(&current, &pool, made)) return made;
    free(made);
  }
  return pool;
}

static void open_loop(Pool* pool, const FarcallLoop* loop, int64_t units, int64_t unit) {
  pool->loop = loop;
  pool->unit = unit;
  atomic_store(&pool->failed_at, INT64_MAX);
  for (int i = 0; i < pool->count; ++i) {
    const Units share = {(uint32_t)(units * i / pool->count), (uint32_t)(units * (i + 1) / pool->count)};
    atomic_store(&pool->shares[i].units, word_of(share));
  }
  const uint64_t number = gate_number(atomic_load(&pool->gate)) + 1;
  atomic_store(&pool->gate, number * GATE_LOOP + GATE_OPEN + (uint64_t)(pool->count - 1) * GATE_PLACE);
}

static int split(Pool* pool, const FarcallLoop* loop, int64_t units, int64_t unit, int sleepers) {
  open_loop(pool, loop, units, unit);
  wake(pool, sleepers);
  take_part(pool, 0, NULL);
  atomic_fetch_and(&pool->gate, ~GATE_OPEN);
  wait_until_left(pool);
  TVMFFIObject* error = pool->error;
  const bool failed = atomic_load(&pool->failed_at) != INT64_MAX;
  pool->error = NULL;
  atomic_store(&pool->busy, false);
  if (error) fc_error_raise(error);
  return failed ? -1 : 0;
}

static int threads_of_text(const char* text) {
  char* end = NULL;
  const long count = strtol(text, &end, 10);
  if (end != text && !*end && count >= 1 && count <= FC_MOST_THREADS) return (int)count;
  fc_error_format("ValueError", "FARCALL_THREADS=%s: expected a number of threads, from 1 to %d", text,
                  FC_MOST_THREADS);
  return -1;
}

int fc_pool_default(void) {
  static _Atomic int known;
  int count = atomic_load_explicit(&known, memory_order_relaxed);
  if (count > 0) return count;
  const char* text = getenv("FARCALL_THREADS");
  count = text && *text ? threads_of_text(text) : fc_cpu_count();
  if (count > FC_MOST_THREADS) count = FC_MOST_THREADS;
  if (count > 0) atomic_store_explicit(&known, count, memory_order_relaxed);
  return count;
}

static int alone(const FarcallLoop* loop) { return loop->body(loop->context, 0, loop->count, NULL); }

int fc_parallel(const FarcallLoop* loop) {
  int threads = in_pool ? 1 : fc_thread.threads;
  if (threads == 0 && (threads = fc_pool_default()) < 0) return -1;
  const int64_t grain = loop->grain < 0 ? -loop->grain : loop->grain > 0 ? loop->grain : 1;
  int64_t unit = grain > QUARTERS ? grain / QUARTERS : 1;
  if (unit < loop->count / INT32_MAX + 1) unit = loop->count / INT32_MAX + 1;
  const int64_t units = loop->count / unit + (loop->count % unit != 0);
  if (threads > units) threads = (int)units;
  Pool* pool = threads > 1 ? find_pool() : NULL;
  if (!pool || atomic_exchange(&pool->busy, true)) return alone(loop);
  const double grains = (double)loop->count / (double)grain;
  const bool wakes = grains > 1 || (count_awake(pool) == 0 && is_due(pool, grains));
  if (wakes) start_threads(pool, threads - 1);
  const int others = wakes ? pool->threads : count_awake(pool);
  pool->count = others + 1 < threads ? others + 1 : threads;
  if (pool->count > 1) return split(pool, loop, units, unit, wakes ? pool->count - 1 : 0);
  atomic_store(&pool->busy, false);
  return alone(loop);
}

void fc_pool_start(void) {
  fc_watch_forks();
  fc_runtime.parallel = fc_parallel;
}
