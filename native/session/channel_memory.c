/* Channels over memory: for a host with its own event loop, and for tests. */
#include <errno.h>
#include <stdlib.h>

#include "session/channel.h"
#include "runtime/runtime.h"

typedef struct Bytes {
  uint8_t* data;
  size_t begin, end, capacity;
} Bytes;

typedef struct MemoryChannel {
  FcChannel base;
  FcMutex lock;
  Bytes in, out;
  bool ended, finished; /* no more bytes come in; go out */
} MemoryChannel;

/* Makes room for n bytes at the end; false without memory. */
static bool reserve(Bytes* bytes, size_t n) {
  size_t used = bytes->end - bytes->begin;
  if (bytes->capacity - bytes->end >= n) return true;
  if (n > SIZE_MAX / 4 - used) return false;
  if (bytes->begin != 0) memmove(bytes->data, bytes->data + bytes->begin, used);
  bytes->begin = 0;
  bytes->end = used;
  if (bytes->capacity - used >= n) return true;
  size_t capacity = used + n < 512 ? 512 : used + n + used / 2;
  uint8_t* grown = realloc(bytes->data, capacity);
  if (!grown) return false;
  bytes->data = grown;
  bytes->capacity = capacity;
  return true;
}

static bool append(Bytes* bytes, const void* data, size_t n) {
  if (!reserve(bytes, n)) return false;
  if (n != 0) memcpy(bytes->data + bytes->end, data, n);
  bytes->end += n;
  return true;
}

static ptrdiff_t memory_receive(FcChannel* base, void* to, size_t n, int64_t deadline) {
  (void)deadline;
  MemoryChannel* ch = (MemoryChannel*)base;
  fc_mutex_lock(&ch->lock);
  size_t have = ch->in.end - ch->in.begin;
  ptrdiff_t got = (ptrdiff_t)(have < n ? have : n);
  if (got != 0) memcpy(to, ch->in.data + ch->in.begin, (size_t)got);
  else if (!ch->ended) got = -EAGAIN;
  if (got > 0) ch->in.begin += (size_t)got;
  fc_mutex_unlock(&ch->lock);
  return got;
}

static int memory_send(FcChannel* base, FcPart* parts, size_t count, int64_t deadline) {
  (void)deadline;
  MemoryChannel* ch = (MemoryChannel*)base;
  int rc = 0;
  fc_mutex_lock(&ch->lock);
  if (ch->finished) rc = -EPIPE;
  for (size_t i = 0; i < count && rc == 0; ++i) {
    if (!append(&ch->out, parts[i].data, parts[i].size)) rc = -ENOMEM;
  }
  fc_mutex_unlock(&ch->lock);
  return rc;
}

static int memory_finish(FcChannel* base) {
  MemoryChannel* ch = (MemoryChannel*)base;
  fc_mutex_lock(&ch->lock);
  ch->finished = true;
  fc_mutex_unlock(&ch->lock);
  return 0;
}

static void memory_interrupt(FcChannel* base) {
  MemoryChannel* ch = (MemoryChannel*)base;
  fc_mutex_lock(&ch->lock);
  ch->ended = ch->finished = true;
  fc_mutex_unlock(&ch->lock);
}

/* Keeps the sent bytes, which can still be taken from a closed channel. */
static void memory_close(FcChannel* base) { (void)base; }

static void memory_destroy(FcChannel* base) {
  MemoryChannel* ch = (MemoryChannel*)base;
  fc_mutex_destroy(&ch->lock);
  free(ch->in.data);
  free(ch->out.data);
}

static const FcChannelOps memory_ops = {memory_receive,   memory_send,  memory_finish,
                                        memory_interrupt, memory_close, memory_destroy};

FcChannel* fc_memory_channel_new(void) {
  MemoryChannel* ch = fc_channel_new(sizeof *ch, &memory_ops);
  if (ch) fc_mutex_init(&ch->lock);
  return ch ? &ch->base : NULL;
}

int fc_memory_channel_feed(FcChannel* base, const void* data, size_t n) {
  MemoryChannel* ch = (MemoryChannel*)base;
  fc_mutex_lock(&ch->lock);
  bool fed = ch->ended || append(&ch->in, data, n); /* bytes after the end are dropped */
  fc_mutex_unlock(&ch->lock);
  if (!fed) fc_error_no_memory();
  return fed ? 0 : -1;
}

void fc_memory_channel_feed_end(FcChannel* base) {
  MemoryChannel* ch = (MemoryChannel*)base;
  fc_mutex_lock(&ch->lock);
  ch->ended = true;
  fc_mutex_unlock(&ch->lock);
}

uint8_t* fc_memory_channel_take(FcChannel* base, size_t* n) {
  MemoryChannel* ch = (MemoryChannel*)base;
  fc_mutex_lock(&ch->lock);
  uint8_t* data = ch->out.data; /* the whole block, since `begin` of this buffer is always 0 */
  *n = ch->out.end;
  ch->out = (Bytes){0};
  fc_mutex_unlock(&ch->lock);
  return data;
}
